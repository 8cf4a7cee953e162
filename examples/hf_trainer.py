"""Train a capsule network with the Trainer of Hugging Face transformers.

    pip install 'clustercaps[examples]'
    python examples/hf_trainer.py

trains M1 for two epochs on the images that come with the package, prints the test error, saves the
network with `save_pretrained` and loads it again. With --small it uses a small network and few
images.
"""

import argparse
import tempfile
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import EvalPrediction, Trainer, TrainingArguments

import clustercaps as cc


class WithLoss(nn.Module):
    """What the Trainer expects of a network: a dictionary with loss and logits."""

    def __init__(self, model: cc.models.ImageClassifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The mean loss, and the logits."""
        batch = cc.models.TrainingBatch(images, labels, pixels=images)
        loss, logits = self.model.training_loss(batch)
        return {"loss": loss.mean(), "logits": logits}


class Examples(Dataset[dict[str, Tensor]]):
    """Preprocessed images as dictionaries, whose keys are the arguments of `forward`."""

    def __init__(self, split: str, limit: int | None) -> None:
        images = cc.data.load("fashion-mnist-mini", split)
        prepare = cc.data.test_transform("fashion-mnist-mini")
        self.images, self.labels = prepare(images.pixels[:limit]), images.labels[:limit]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"images": self.images[index], "labels": self.labels[index]}


def test_error(prediction: EvalPrediction) -> dict[str, float]:
    """Percentage of misclassified images."""
    wrong = prediction.predictions.argmax(1) != prediction.label_ids
    return {"error": 100 * float(wrong.mean())}


def main() -> None:
    """Train, test, save and load."""
    parser = argparse.ArgumentParser(description="Train a capsule network with transformers.")
    parser.add_argument("--small", action="store_true", help="a few seconds")
    small = parser.parse_args().small
    settings: dict[str, Any] = {"channels": 2, "votes": 2, "dim": 4} if small else {}
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=1 if small else 2,
            per_device_train_batch_size=50,
            learning_rate=3e-3,
            lr_scheduler_type="cosine",
            save_strategy="no",
            report_to="none",
            label_names=["labels"],
            disable_tqdm=small,
            dataloader_pin_memory=torch.cuda.is_available(),
            # The loader's worker processes are not worth it for images in memory.
            dataloader_num_workers=0,
            seed=0,
        )
        trainer = Trainer(
            WithLoss(cc.create_model("m1", in_chans=1, **settings)),
            arguments,
            train_dataset=Examples("train", 200 if small else None),
            eval_dataset=Examples("test", 100 if small else None),
            compute_metrics=test_error,
        )
        trainer.train()
        print(f"test error: {trainer.evaluate()['eval_error']:.2f} %")
        model = trainer.model.model.cpu().eval()
        model.save_pretrained(f"{folder}/network")
        again = cc.from_pretrained(f"{folder}/network")
    image = torch.rand(1, 1, 32, 32)
    print("saved and loaded:", torch.equal(model(image), again(image)))


if __name__ == "__main__":
    main()
