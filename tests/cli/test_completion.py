"""Completion in real shells; each is skipped where its shell is missing."""

import os
import pty
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import clustercaps as cc
from clustercaps.cli import COMMANDS, main
from clustercaps.cli.completion import DATASETS, MODELS
from clustercaps.data import SETS

# What is typed, and what is offered. Every test runs in a folder with these files.
FILES = ("trash", "photos/cats")
CASES = [
    ("", {*COMMANDS}),
    ("tr", {"train"}),
    ("train em_", {"em_smallnorb", "em_small", "em_cifar10", "em_mnist"}),
    ("train m1 --recipe ", {"paper", "fast", "strong"}),
    ("train m1 --data rend", {"rendered-norb", "rendered-norb-25"}),
    ("train m1 --out tr", {"trash"}),
    ("train --early", {"--early-stop"}),
    ("data ", {"list", "get", "check", "show"}),
    ("data sh", {"show"}),
    ("data show rend", {"rendered-norb", "rendered-norb-25"}),
    # A folder called like a command is no command.
    ("train --out demo --early", {"--early-stop"}),
    ("models m1 --js", {"--json"}),
    ("evaluate tra", {"trash"}),
    ("export m1 --format ", {"onnx", "pt2", "aoti"}),
]


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[[str], str]:
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")

    def text(shell: str) -> str:
        assert main(["completion", shell]) == 0
        return capsys.readouterr().out

    return text


def test_completion_knows_every_name() -> None:
    assert MODELS.split() == cc.list_models()
    assert DATASETS.split() == [*SETS, "imagenet", "folder:"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_have_all_words(shell: str, script: Callable[[str], str]) -> None:
    text = script(shell)
    assert all(name in text for name in (*COMMANDS, "early-stop", "efficient_capsnet"))
    assert "%(default)s" not in text


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
@pytest.mark.parametrize(("typed", "expected"), CASES)
def test_bash_completes(
    tmp_path: Path, script: Callable[[str], str], typed: str, expected: set[str]
) -> None:
    words = ["clustercaps", *typed.split(" ")]
    quoted = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _clustercaps; "
    text = script("bash") + ask + "printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""
    # The flags of the whole program come with its commands.
    found = {word for word in done.stdout.split() if words[-1] or not word.startswith("-")}
    assert found == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish")
def test_fish_completes(tmp_path: Path, script: Callable[[str], str]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    asks = [f"complete -C 'clustercaps {typed}'; echo END" for typed, _ in CASES]
    (home / "clustercaps.fish").write_text(script("fish") + "\n".join(asks))
    done = subprocess.run(
        ["fish", "--no-config", "home/clustercaps.fish"],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home)},
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    answers = done.stdout.split("END\n")
    for (typed, expected), answer in zip(CASES, answers, strict=False):
        assert {line.split("\t")[0] for line in answer.splitlines()} == expected, typed
    assert answers[1] == f"train\t{COMMANDS['train']}\n"


# The words that completion would add, one line each, and a last line when it is done.
CAPTURE = """\
PS1= PROMPT_EOL_MARK=
autoload -U compinit && compinit -D -u
source {folder}/script
compadd() {{
  local -a hits
  if [[ " $* " != *" -"[ADO]" "* ]]; then
    builtin compadd -O hits "$@"
    print -rl -- "${{hits[@]}}" >> {folder}/found
  fi
  builtin compadd "$@"
}}
capture() {{ _main_complete; print -r -- END >> {folder}/found }}
zle -C capture complete-word capture
bindkey '^T' capture
print > {folder}/ready
"""


def wait_for(path: Path, text: str) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if path.exists() and text in (found := path.read_text()):
            return found
        time.sleep(0.02)
    raise AssertionError(f"{path.name} did not show {text!r}")


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh")
def test_zsh_completes(tmp_path: Path, script: Callable[[str], str]) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "script").write_text(script("zsh"))
    (home / ".zshrc").write_text(CAPTURE.format(folder=home))
    # Completion needs the line editor, and that a terminal. The first process is ours again.
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        # Without the files of the system.
        os.environ.update(ZDOTDIR=str(home), HOME=str(home), TERM="dumb")
        os.execlp("zsh", "zsh", "-d", "-i")
    try:
        wait_for(home / "ready", "\n")
        cases = [*CASES, ("train m1 --data folder:ph", {"photos"})]
        for typed, expected in cases:
            # Ctrl-U empties the line, Ctrl-T completes it.
            os.write(terminal, f"\x15clustercaps {typed}\x14".encode())
            found = {*wait_for(home / "found", "END").split()} - {"END"}
            (home / "found").unlink()
            assert found - {"home"} == expected, typed
    finally:
        os.write(terminal, b"\x15exit\n")
        os.close(terminal)
        os.waitpid(child, 0)
