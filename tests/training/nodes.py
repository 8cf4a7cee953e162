"""Train on two nodes that reach each other over a network, cut one of them off, and resume.

    python tests/training/nodes.py

The nodes are two network namespaces on this machine, joined by a pair of virtual interfaces; they
share the run folder, as nodes of a cluster do. Needs root and the command `ip` (iproute2). The run
is interrupted four times: each node loses its network, and each node's process is killed. Ends with
exit code 1 if a weight differs from the uninterrupted run, or if a run does not end within minutes.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clustercaps.training.run_folder import RunFolder

sys.path.insert(0, str(Path(__file__).parents[1]))
from helpers.two_processes import FLAGS, children, environment, same_weights, torchrun

ADDRESSES = ("10.213.77.1", "10.213.77.2")
# Seconds that a process waits for the other one, and that a whole run may take.
PATIENCE, LONGEST = 20, 400
EPOCHS = 60
Run = list["subprocess.Popen[str]"]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@contextmanager
def two_nodes() -> Iterator[list[str]]:
    """Names of two namespaces with a network between them; both are removed at the end."""
    tag = secrets.token_hex(3)
    names = [f"cc{tag}a", f"cc{tag}b"]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", names[0], "type", "veth", "peer", "name", names[1])
        for name, address in zip(names, ADDRESSES, strict=True):
            ip("link", "set", name, "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", name)
            ip("-n", name, "link", "set", name, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def start(names: list[str], out: Path, logs: Path) -> Run:
    """Start or resume the run: torchrun with one process on each node."""
    run = []
    for rank, name in enumerate(names):
        node = ("--nnodes", "2", "--nproc-per-node", "1", "--node-rank", str(rank))
        options = (*node, "--master-addr", ADDRESSES[0], "--master-port", "29511")
        flags = [*FLAGS, "--epochs", str(EPOCHS), "--test-every", str(EPOCHS), "--save-every", "0"]
        flags += ["--timeout", str(PATIENCE), "--resume", "--out", str(out)]
        variables = {**environment(), "GLOO_SOCKET_IFNAME": name, "TP_SOCKET_IFNAME": name}
        with (logs / f"{time.monotonic_ns()}-{rank}.txt").open("w") as log:
            command = ["ip", "netns", "exec", name, *torchrun(*flags, options=options)]
            run.append(subprocess.Popen(command, stdout=log, stderr=log, env=variables, text=True))
    return run


def wait(run: Run, seconds: float) -> bool:
    """Wait for both nodes; those that have not ended by then are killed, and False is returned."""
    deadline = time.monotonic() + seconds
    for node in run:
        try:
            node.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            for each in run:
                for process in (*children(each.pid), each.pid):
                    os.kill(process, signal.SIGKILL)
            for each in run:
                each.wait()
            return False
    return True


def wait_for_training(run: Run, out: Path) -> None:
    path = out / "checkpoint.safetensors"
    before = path.stat().st_mtime_ns if path.exists() else 0
    deadline = time.monotonic() + LONGEST
    while not path.exists() or path.stat().st_mtime_ns == before:
        if time.monotonic() > deadline or any(node.poll() is not None for node in run):
            wait(run, 0)
            raise SystemExit("the run did not start")
        time.sleep(0.005)


def interrupt(names: list[str], run: Run, way: str, node: int) -> None:
    """Take the network of a node away, or kill its process."""
    if way == "cut off":
        ip("-n", names[node], "link", "set", names[node], "down")
    else:
        os.kill(children(run[node].pid)[0], signal.SIGKILL)


def check(names: list[str], folder: Path) -> bool:
    straight, broken, logs = folder / "straight", folder / "broken", folder / "logs"
    logs.mkdir()
    if not wait(start(names, straight, logs), LONGEST) or RunFolder(straight).result is None:
        raise SystemExit("".join(path.read_text() for path in sorted(logs.iterdir())))
    for way, node in (("cut off", 1), ("killed", 1), ("cut off", 0), ("killed", 0)):
        run = start(names, broken, logs)
        wait_for_training(run, broken)
        time.sleep(1)
        interrupt(names, run, way, node)
        ended = wait(run, LONGEST)
        epochs = len(RunFolder(broken).metrics())
        said = [path.read_text() for path in sorted(logs.iterdir())[-2:]]
        told = sum("Resume with: torchrun --nnodes 2" in text for text in said)
        print(
            f"node {node} {way} after epoch {epochs}: "
            f"{'both ended' if ended else 'A NODE HAD TO BE KILLED'}, {told} said how to resume",
            flush=True,
        )
        ip("-n", names[node], "link", "set", names[node], "up")
        if not ended or RunFolder(broken).result is not None or not told:
            print("".join(said))
            return False
    wait(start(names, broken, logs), LONGEST)
    same = RunFolder(broken).result is not None and same_weights(straight, broken)
    whole = [line["epoch"] for line in RunFolder(broken).metrics()] == list(range(1, EPOCHS + 1))
    print(
        f"resumed on two nodes: weights {'equal' if same else 'DIFFER'}, epochs complete: {whole}"
    )
    return same and whole


def main() -> int:
    if shutil.which("ip") is None or os.geteuid() != 0:
        print("test-nodes skipped: it needs root and the command ip (Debian: iproute2)")
        return 0
    try:
        with two_nodes() as names, tempfile.TemporaryDirectory() as folder:
            return 0 if check(names, Path(folder)) else 1
    except subprocess.CalledProcessError as error:
        if error.cmd[:2] == ["ip", "netns"]:
            print(f"test-nodes skipped: no network namespaces here ({error})")
            return 0
        raise


if __name__ == "__main__":
    sys.exit(main())
