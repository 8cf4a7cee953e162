"""Fine-tune packaged weights for other classes, with few images.

    python examples/fine_tuning.py

asks for groups of clothes (tops, trousers, shoes, bags) in place of the ten classes of
Fashion-MNIST. It trains three networks on a few images of each group and prints their test errors:
one from initial weights, one that keeps the packaged weights and trains a new head alone, and one
that continues to train all of them. With --small it takes fewer steps.

On the command line, for a folder with one subfolder of images per class:

    clustercaps train m1 --data folder:groups --init-from m1:fashion-mnist --freeze
"""

import argparse

import torch
from torch import Tensor
from torch.nn import functional as F

import clustercaps as cc

GROUPS = {"tops": (0, 2, 3, 4, 6), "trousers": (1,), "shoes": (5, 7, 9), "bags": (8,)}


def grouped(split: str, per_group: int) -> tuple[Tensor, Tensor]:
    """Preprocessed images and the numbers of their groups, as many of each."""
    images = cc.data.load("fashion-mnist-mini", split)
    prepare = cc.data.test_transform("fashion-mnist-mini")
    members = [torch.isin(images.labels, torch.tensor(labels)) for labels in GROUPS.values()]
    chosen = torch.cat([each.nonzero().flatten()[:per_group] for each in members])
    return prepare(images.pixels[chosen]), torch.arange(len(GROUPS)).repeat_interleave(per_group)


def fine_tune(model: cc.models.ImageClassifier, images: Tensor, labels: Tensor, steps: int) -> None:
    """Train the parameters that require a gradient."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, 2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        chosen = torch.randint(len(labels), (32,))
        loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


def main() -> None:
    """Train three networks on the same images and compare their errors."""
    parser = argparse.ArgumentParser(description="Fine-tune packaged weights for other classes.")
    parser.add_argument("--small", action="store_true", help="a few seconds")
    steps = 8 if parser.parse_args().small else 100
    train, test = grouped("train", per_group=20), grouped("test", per_group=100)
    settings = {"num_classes": len(GROUPS), "in_chans": 1}
    for name in ("initial weights", "new head alone", "all packaged weights"):
        torch.manual_seed(0)
        packaged = name != "initial weights"
        # With another number of classes, packaged weights get a new head.
        model = cc.create_model("m1", pretrained="fashion-mnist" if packaged else False, **settings)
        if name == "new head alone":
            model.requires_grad_(False)
            model.head.requires_grad_(True)
        fine_tune(model.train(), *train, steps)
        with torch.no_grad():
            error = (model.eval()(test[0]).argmax(1) != test[1]).float().mean().item()
        print(f"{name + ':':21} error {100 * error:4.1f} % of {len(test[1])} test images")


if __name__ == "__main__":
    main()
