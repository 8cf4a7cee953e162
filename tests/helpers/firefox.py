"""Debian's Firefox without a window, driven through Marionette: its own port, no other program."""

import base64
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Port 0: Firefox chooses a free one and writes it to its profile. No calls home.
PREFERENCES = """
user_pref("marionette.port", 0);
user_pref("app.normandy.enabled", false);
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("toolkit.telemetry.enabled", false);
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.aboutwelcome.enabled", false);
user_pref("network.captive-portal-service.enabled", false);
user_pref("network.connectivity-service.enabled", false);
"""
# Generous, because other processes may use the machine.
PATIENCE = 120

# Errors of a page's scripts and workers, from Firefox's own list of messages.
LOGGED = """
const [file] = arguments;
const from = (source) => source.includes(file) || source.startsWith("blob:");
return Services.console.getMessageArray()
  .filter((message) => message instanceof Ci.nsIScriptError
    && !(message.flags & Ci.nsIScriptError.warningFlag) && from(message.sourceName ?? ""))
  .map((message) => message.errorMessage);
"""


class Firefox:
    """Commands to a running Firefox."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.stream = self.socket.makefile("rb")
        self.count = 0
        self._read()
        self("WebDriver:NewSession")
        self("WebDriver:SetTimeouts", script=PATIENCE * 1000, pageLoad=PATIENCE * 1000)

    def __call__(self, command: str, **arguments: Any) -> Any:
        """Send a command and return its answer."""
        self.count += 1
        body = json.dumps([0, self.count, command, arguments]).encode()
        self.socket.sendall(b"%d:%s" % (len(body), body))
        _, number, error, result = self._read()
        assert number == self.count
        if error is not None:
            raise RuntimeError(f"{command}: {error['error']}: {error['message']}")
        return result

    def _read(self) -> Any:
        """One message: the number of its bytes, a colon, JSON."""
        length = b""
        while (byte := self.stream.read(1)) != b":":
            if not byte:
                raise ConnectionError("Firefox closed the connection")
            length += byte
        return json.loads(self.stream.read(int(length)))

    def open(self, address: str) -> None:
        self("WebDriver:Navigate", url=address)

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; it may be a promise."""
        return self("WebDriver:ExecuteScript", script=f"return {expression}", args=[])["value"]

    def wait_for(self, selector: str) -> None:
        """Wait until an element is there."""
        end = time.monotonic() + PATIENCE
        while not self.evaluate(f"document.querySelector({json.dumps(selector)}) !== null"):
            assert time.monotonic() < end, f"{selector} did not appear"
            time.sleep(0.1)

    def errors(self, file: Path) -> list[str]:
        """What a page, opened from a file, and its workers logged as errors."""
        self("Marionette:SetContext", value="chrome")
        try:
            said = self("WebDriver:ExecuteScript", script=LOGGED, args=[file.name])
        finally:
            self("Marionette:SetContext", value="content")
        return list(said["value"])

    def screenshot(self, path: Path) -> None:
        """Write what the whole page looks like."""
        taken = self("WebDriver:TakeScreenshot", full=True)
        path.write_bytes(base64.b64decode(taken["value"]))


@contextmanager
def start_firefox(profile: Path) -> Iterator[Firefox]:
    """A browser with a new profile in an empty folder."""
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        pytest.skip("firefox is not installed")
    (profile / "user.js").write_text(PREFERENCES)
    # System access: to read the messages of the console.
    words = ["--headless", "--no-remote", "--marionette", "--remote-allow-system-access"]
    process = subprocess.Popen(
        [program, *words, "--profile", str(profile)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        chosen = profile / "MarionetteActivePort"
        end = time.monotonic() + PATIENCE
        while not (chosen.is_file() and chosen.read_text().strip()):
            assert process.poll() is None, "firefox ended"
            assert time.monotonic() < end, "firefox did not start"
            time.sleep(0.1)
        yield Firefox(int(chosen.read_text()))
    finally:
        process.terminate()
        process.wait(PATIENCE)
