"""Steps that several tests of the explorer's page share."""

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# Generous, because other processes may use the machine.
PATIENCE = 40_000


def ready(page: "Page") -> "Page":
    """Wait until the first image was computed."""
    page.set_default_timeout(PATIENCE)
    page.locator("body[data-ready]").wait_for()
    page.locator(".votes-chart").or_(page.locator("#panel-routing .empty")).first.wait_for()
    return page


def open_at(page: "Page", address: str) -> "Page":
    """Reload the page with this address after #."""
    own = page.url.partition("#")[0]
    page.goto("about:blank")
    page.goto(f"{own}#{address}")
    return ready(page)


def panel(page: "Page", name: str) -> "Locator":
    return page.locator(f"#panel-{name}")


def address_of(page: "Page") -> str:
    """The address after #, which the page writes a moment after a change."""
    # A timer of the page itself: it fires after the one that writes the address, however slow.
    return str(
        page.evaluate(
            "() => new Promise((done) => setTimeout(() => done(location.hash.slice(1)), 400))"
        )
    )


def canvas_text(canvas: "Locator") -> str:
    """What a canvas shows, as text to compare."""
    return canvas.evaluate("(canvas) => canvas.toDataURL()")


def png(width: int, height: int, dark: bool = True) -> bytes:
    """A grey picture with a light upright bar in the middle, or dark on light."""
    row = bytearray(b"\0" + bytes([0 if dark else 255]) * width)
    row[1 + width * 3 // 7 : 1 + width * 4 // 7] = bytes([255 if dark else 0]) * (
        width * 4 // 7 - width * 3 // 7
    )

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(row) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


DROP = """([name, type, content, size]) => {
  const read = () => Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
  const bytes = size ? new Uint8Array(size) : read();
  const carried = new DataTransfer();
  carried.items.add(new File([bytes], name, { type }));
  const options = { dataTransfer: carried, bubbles: true, cancelable: true };
  const pad = document.querySelector(".pad");
  pad.dispatchEvent(new DragEvent("dragover", options));
  pad.dispatchEvent(new DragEvent("drop", options));
}"""


def drop(page: "Page", name: str, kind: str, content: bytes = b"", size: int = 0) -> None:
    """Drop a file on the picture; with `size`, a file of this many zeros."""
    arguments: list[Any] = [name, kind, base64.b64encode(content).decode(), size]
    page.evaluate(DROP, arguments)
