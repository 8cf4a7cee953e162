"""Cluster routing from scratch, with nothing but PyTorch: a capsule layer, and a network of five.

    python examples/minimal.py

trains a small network on pictures of bars that it draws itself, horizontal, vertical and diagonal,
at random places and with noise, and prints the loss and the error on new pictures. With --small it
takes only a few steps.

The paper is Zhao and Cheng, "Capsule networks with non-iterative cluster routing", 2021. The
library computes the same layer without storing its votes, and many times faster.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-6  # added to the variance, so that identical votes have a finite weight


def cluster_route(votes: Tensor) -> Tensor:
    """Votes [batch, clusters, K, ...] to parent capsules [batch, ...]."""
    centroid = votes.mean(2)
    spread = ((votes - centroid.unsqueeze(2)).square().mean(2) + EPS).sqrt()
    # Agreement is -log(spread): the softmax over clusters is 1/spread, divided by its sum.
    weight = (-spread.log()).softmax(1)
    return (weight * centroid).sum(1)


class ClusterCapsules(nn.Module):
    """Child capsules [B, C, D, H, W] to parent capsules [B, C', D', H', W'].

    Every child channel is read by `clusters` weight clusters. Each of them casts K votes for every
    parent capsule, with a 3x3 convolution. A layer norm over (D', H', W') follows.
    """

    def __init__(
        self,
        channels: tuple[int, int],
        dims: tuple[int, int],
        votes: int,
        size: int,
        clusters: int = 1,
        stride: int = 1,
    ) -> None:
        super().__init__()
        (children, parents), (in_dim, out_dim) = channels, dims
        self.shape = (children * clusters, votes, parents, out_dim)
        # One group per child channel: a vote sees one child alone.
        rows = children * clusters * votes * parents * out_dim
        self.vote = nn.Conv2d(children * in_dim, rows, 3, stride, 1, groups=children)
        side = (size - 1) // stride + 1
        self.norm = nn.LayerNorm((out_dim, side, side))

    def forward(self, capsules: Tensor) -> Tensor:
        """Cast votes, route them, normalise."""
        votes = self.vote(capsules.flatten(1, 2)).unflatten(1, self.shape)
        return self.norm(cluster_route(votes))


class CapsuleNet(nn.Module):
    """Five capsule layers and a linear classifier, as in the paper; M1 has C = 4, K = 5, D = 6."""

    def __init__(self, classes: int, size: int, channels: int, votes: int, dim: int) -> None:
        super().__init__()
        # An image is one capsule channel, with one dimension per colour.
        layers = [ClusterCapsules((1, channels), (1, dim), votes, size, clusters=channels)]
        for stride in (2, 1, 2, 1):
            layers.append(ClusterCapsules((channels, channels), (dim, dim), votes, size, 1, stride))
            size = (size - 1) // stride + 1
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels * dim * size * size, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [B, 1, H, W] to logits [B, classes]."""
        return self.head(self.layers(images.unsqueeze(1)).flatten(1))


def draw_bars(count: int, size: int = 8, length: int = 5) -> tuple[Tensor, Tensor]:
    """Noisy pictures of one bar each, and its direction: 0 to 3."""
    images = 0.2 * torch.randn(count, 1, size, size)
    labels = torch.randint(4, (count,))
    steps = torch.tensor([[0, 1], [1, 0], [1, 1], [1, -1]])[labels]
    places = torch.randint(size - length + 1, (count, 2))
    # The last direction runs to the left: start at the right end.
    places[:, 1] += (steps[:, 1] < 0) * (length - 1)
    for step in range(length):
        row, column = (places + step * steps).T
        images[torch.arange(count), 0, row, column] += 1
    return images, labels


def main() -> None:
    """Train, and print how well it went."""
    parser = argparse.ArgumentParser(description="Train a capsule network from scratch.")
    parser.add_argument("--small", action="store_true", help="a few seconds")
    steps = 10 if parser.parse_args().small else 300
    torch.manual_seed(0)
    model = CapsuleNet(classes=4, size=8, channels=3, votes=3, dim=4)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(1, steps + 1):
        images, labels = draw_bars(32)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % (steps // 5) == 0:
            print(f"step {step:4d}: loss {loss.item():.3f}")
    images, labels = draw_bars(500)
    with torch.no_grad():
        error = (model.eval()(images).argmax(1) != labels).float().mean().item()
    print(f"error on 500 new pictures: {100 * error:.1f} %")


if __name__ == "__main__":
    main()
