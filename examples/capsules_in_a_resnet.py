"""Cluster routing on the feature maps of a network of yours, here a small ResNet.

    python examples/capsules_in_a_resnet.py

trains it on the images that come with the package for a few hundred steps and prints loss, test
error and the mean routing weights of the last layer. With --small it takes only a few steps.

Any feature map [B, C * D, H, W] can be read as C channels of capsules of D entries: `unflatten`.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import clustercaps as cc


class ResidualBlock(nn.Module):
    """Two convolutions with batch norm and a shortcut; halves the feature maps."""

    def __init__(self, in_chans: int, out_chans: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(in_chans, out_chans, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(out_chans),
            nn.ReLU(),
            nn.Conv2d(out_chans, out_chans, 3, padding=1, bias=False),
            nn.BatchNorm2d(out_chans),
        )
        self.shortcut = nn.Conv2d(in_chans, out_chans, 1, stride=2, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Feature maps to feature maps of half the size."""
        return F.relu(self.body(maps) + self.shortcut(maps))


class ResNetWithCapsules(nn.Module):
    """Residual blocks, two capsule layers in place of the last blocks, a linear classifier."""

    def __init__(self, num_classes: int, channels: int = 4, dim: int = 8, votes: int = 4) -> None:
        super().__init__()
        self.channels, self.dim = channels, dim
        self.blocks = nn.Sequential(ResidualBlock(1, 16), ResidualBlock(16, channels * dim))
        shape = (channels, dim, channels, dim, votes)
        self.first = cc.ClusterCapsules2d(*shape, in_size=8)
        self.last = cc.ClusterCapsules2d(*shape, stride=2, in_size=8)
        self.head = nn.Linear(channels * dim * 4 * 4, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [B, 1, 32, 32] to logits."""
        return self.head(self.last(self.first(self.children_of(images))).flatten(1))

    def children_of(self, images: Tensor) -> Tensor:
        """The feature maps of the residual blocks as capsules [B, C, D, 8, 8]."""
        return self.blocks(images).unflatten(1, (self.channels, self.dim))

    @torch.no_grad()
    def routing_weights(self, images: Tensor) -> Tensor:
        """The mean weight of each vote cluster in the last layer; they sum to 1."""
        _, trace = self.last(self.first(self.children_of(images)), trace=True)
        return trace.weights.mean((0, 2, 3, 4, 5))


def main() -> None:
    """Train, test, and show the routing weights."""
    parser = argparse.ArgumentParser(description="Capsule layers on the maps of a ResNet.")
    parser.add_argument("--small", action="store_true", help="a few seconds")
    steps, batch = (10, 32) if parser.parse_args().small else (300, 64)
    torch.manual_seed(0)
    train, test = (cc.data.load("fashion-mnist-mini", split) for split in ("train", "test"))
    augment = cc.data.train_transform("fashion-mnist-mini")
    prepare = cc.data.test_transform("fashion-mnist-mini")
    generator = torch.Generator().manual_seed(0)
    model = ResNetWithCapsules(num_classes=10)
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(1, steps + 1):
        chosen = torch.randint(len(train), (batch,), generator=generator)
        logits = model(augment(train.pixels[chosen], generator))
        loss = F.cross_entropy(logits, train.labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % (steps // 5) == 0:
            print(f"step {step:4d}: loss {loss.item():.3f}")
    model.eval()
    images, labels = prepare(test.pixels[:500]), test.labels[:500]
    with torch.no_grad():
        error = (model(images).argmax(1) != labels).float().mean().item()
    print(f"error on 500 test images: {100 * error:.1f} %")
    print("routing weights of the last layer:", model.routing_weights(images[:50]))


if __name__ == "__main__":
    main()
