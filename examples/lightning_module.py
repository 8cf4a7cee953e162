"""Train a capsule network with PyTorch Lightning.

    pip install 'clustercaps[examples]'
    python examples/lightning_module.py

trains M1 for two epochs on the images that come with the package, with the loss of the network and
the Muon optimizer, and prints the test error. With --small it uses a small network and few images.

The file is not called lightning.py: `import lightning` would find it in place of the package.
"""

import argparse
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import clustercaps as cc
from clustercaps.training.muon import Muon


class CapsuleModule(L.LightningModule):
    """Any network of the library, trained with its own loss."""

    def __init__(self, name: str = "m1", lr: float = 0.02, **settings: Any) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = cc.create_model(name, **settings)
        self.lr = lr

    def training_step(self, batch: tuple[Tensor, Tensor], number: int) -> Tensor:
        """The mean loss of a batch."""
        images, labels = batch
        # Cross-entropy, or what the paper of the network has; decoders would also need the pixels.
        given = cc.models.TrainingBatch(images, labels, pixels=images, step=self.global_step)
        loss, _ = self.model.training_loss(given)
        self.log("train_loss", loss.mean(), prog_bar=True)
        return loss.mean()

    def test_step(self, batch: tuple[Tensor, Tensor], number: int) -> None:
        """The error of a batch; Lightning takes the mean over batches."""
        images, labels = batch
        self.log("test_error", 100 * (self.model(images).argmax(1) != labels).float().mean())

    def configure_optimizers(self) -> Any:
        """Muon with a cosine schedule, as in the recipe `strong`."""
        optimizer = Muon(self.model, self.lr, weight_decay=0.02)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


def loader(split: str, limit: int | None) -> DataLoader[tuple[Tensor, ...]]:
    """Batches of preprocessed images and labels."""
    images = cc.data.load("fashion-mnist-mini", split)
    prepare = cc.data.test_transform("fashion-mnist-mini")
    pixels, labels = images.pixels[:limit], images.labels[:limit]
    return DataLoader(TensorDataset(prepare(pixels), labels), 50, shuffle=split == "train")


def main() -> None:
    """Train and test."""
    parser = argparse.ArgumentParser(description="Train a capsule network with Lightning.")
    parser.add_argument("--small", action="store_true", help="a few seconds")
    small = parser.parse_args().small
    L.seed_everything(0, verbose=False)
    settings = {"channels": 2, "votes": 2, "dim": 4} if small else {}
    trainer = L.Trainer(
        max_epochs=1 if small else 2,
        accelerator="auto",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=not small,
    )
    module = CapsuleModule("m1", in_chans=1, **settings)
    trainer.fit(module, loader("train", 200 if small else None))
    (result,) = trainer.test(module, loader("test", 100 if small else None), verbose=False)
    print(f"test error: {result['test_error']:.2f} %")


if __name__ == "__main__":
    main()
