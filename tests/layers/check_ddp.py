"""Two processes with half a batch each get the gradients of one with all; run by test_cluster."""

import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

# Before the process group exists, so that it is really destroyed: see examples/several_gpus.py.
import torch.distributed.nn
from torch.multiprocessing.spawn import spawn
from torch.nn.parallel import DistributedDataParallel

import clustercaps as cc


def group_threads() -> list[str]:
    """Threads of a process group in this process; none where there is no /proc."""
    names = []
    for path in Path("/proc/self/task").glob("*/comm"):
        with suppress(OSError):  # the thread has ended
            names.append(path.read_text())
    return [name for name in names if "gloo" in name]


def worker(rank: int, rendezvous: str, images: torch.Tensor, expected: list[torch.Tensor]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = DistributedDataParallel(cc.create_model("m1", in_chans=1, img_size=12, dim=3))
    model(images[rank::2]).square().mean().backward()
    for parameter, gradient in zip(model.parameters(), expected, strict=True):
        # Every parameter has a gradient: DDP would wait for one that is never used.
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-4, atol=1e-6)
    del model  # holds the group
    dist.destroy_process_group()
    # A thread that was joined may stay in the list for a moment.
    end = time.monotonic() + 20
    while group_threads():
        assert time.monotonic() < end, group_threads()
        time.sleep(0.01)


if __name__ == "__main__":
    torch.manual_seed(0)
    model = cc.create_model("m1", in_chans=1, img_size=12, dim=3)
    images = torch.rand(4, 1, 12, 12)
    model(images).square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    with tempfile.TemporaryDirectory() as folder:
        rendezvous = os.path.join(folder, "rendezvous")
        spawn(worker, (rendezvous, images, gradients), nprocs=2)
