"""Your own training loop on several GPUs, or several processes of a CPU, with DDP.

    torchrun --nproc-per-node 2 examples/several_gpus.py

trains M1 on the images that come with the package; every process reads its own part of every batch,
and DDP averages the gradients. The first process prints the mean loss of each epoch and the test
error, and every process checks that its weights are the same. With --small it uses a small network
and few images.

For the training of the library itself no code is needed:

    torchrun --nproc-per-node 2 -m clustercaps train m1 --data cifar10
"""

import argparse
import os

import torch
import torch.distributed as dist

# DDP imports this anyway. If the process group existed by then, these functions would keep it, as a
# default argument, and its threads could abort the process as Python exits.
import torch.distributed.nn
from torch import Tensor
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import clustercaps as cc


def loader(split: str, limit: int | None, batch_size: int) -> DataLoader[tuple[Tensor, ...]]:
    """This process's part of a split, in batches."""
    images = cc.data.load("fashion-mnist-mini", split)
    prepare = cc.data.test_transform("fashion-mnist-mini")
    examples = TensorDataset(prepare(images.pixels[:limit]), images.labels[:limit])
    sampler: DistributedSampler[tuple[Tensor, ...]] = DistributedSampler(
        examples, shuffle=split == "train"
    )
    return DataLoader(examples, batch_size, sampler=sampler)


def total(value: float, device: torch.device) -> float:
    """The sum of a number over all processes."""
    sums = torch.tensor(value, device=device)
    dist.all_reduce(sums)
    return float(sums)


def same_everywhere(model: torch.nn.Module) -> bool:
    """Whether the weights of this process are those of the first."""
    own = torch.nn.utils.parameters_to_vector(model.parameters()).detach()
    first = own.clone()
    dist.broadcast(first, src=0)
    return torch.equal(own, first)


def run(small: bool, device: torch.device) -> None:
    """Train and test on the processes that torchrun started."""
    world, first = dist.get_world_size(), dist.get_rank() == 0
    # The batch of all processes together has 64 images.
    train = loader("train", 256 if small else None, 64 // world)
    test = loader("test", 128 if small else None, 250)
    torch.manual_seed(0)
    settings = {"channels": 2, "votes": 2, "dim": 4} if small else {}
    model = DistributedDataParallel(cc.create_model("m1", in_chans=1, **settings).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.02)
    for epoch in range(1 if small else 3):
        train.sampler.set_epoch(epoch)  # type: ignore[attr-defined]
        summed = 0.0
        for images, labels in train:
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            summed += loss.item()
        mean = total(summed / len(train), device) / world
        if first:
            print(f"epoch {epoch + 1}: loss {mean:.3f}", flush=True)
    model.eval()
    with torch.no_grad():
        wrong = sum((model(x.to(device)).argmax(1).cpu() != y).sum().item() for x, y in test)
    error = 100 * total(wrong, device) / (world * len(test.sampler))  # type: ignore[arg-type]
    if first:
        print(f"test error: {error:.1f} %", flush=True)
    print(f"process {dist.get_rank()}: same weights: {same_everywhere(model)}", flush=True)


def main() -> None:
    """Join the other processes, and run."""
    parser = argparse.ArgumentParser(description="A training loop of one's own with DDP.")
    parser.add_argument("--small", action="store_true", help="a few seconds")
    small = parser.parse_args().small
    if "RANK" not in os.environ:
        parser.error("start it with torchrun --nproc-per-node 2 examples/several_gpus.py")
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        run(small, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
