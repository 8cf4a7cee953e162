"""Early stopping, and the note on a loss that is worse than guessing."""

from pathlib import Path

import pytest

import clustercaps as cc
from clustercaps.training import RunFolder, TrainSettings, resolve, train
from clustercaps.training.reporting import high_loss
from clustercaps.training.result import stale_epochs


def tiny(**changes: object) -> TrainSettings:
    few = {"limit": 20, "test_limit": 20, "batch_size": 20, "epochs": 9, "validate": True}
    network = {"model_settings": {"dim": 2, "votes": 2, "channels": 2}}
    return resolve("m1", "fashion-mnist-mini", "fast", **{**few, **network, **changes})


def test_epochs_since_the_lowest_error() -> None:
    def lines(*errors: float | None) -> list[dict[str, float]]:
        return [
            {"epoch": n} if error is None else {"epoch": n, "test_error": error}
            for n, error in enumerate(errors, 1)
        ]

    assert stale_epochs([]) == 0
    assert stale_epochs(lines(5)) == 0
    assert stale_epochs(lines(5, 4, 4.5, None)) == 2
    # An equal error is not a lower one.
    assert stale_epochs(lines(5, 5, 5)) == 2


def test_a_run_stops_early_and_stops_at_the_same_epoch_when_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a learning rate, no error ever falls.
    settings = tiny(early_stop=2, lr=0.0, weight_decay=0.0)
    result = train(settings, tmp_path / "run")
    assert (result["epochs"], result["planned_epochs"], result["early_stop"]) == (3, 9, 2)
    assert result["split"] == "validation"
    assert len(RunFolder(tmp_path / "run").metrics()) == 3

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    # Killed after the last checkpoint, before the result.
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            train(settings, tmp_path / "other")
    again = train(settings, tmp_path / "other", resume=True)
    assert (again["epochs"], again["test_loss"]) == (3, result["test_loss"])


def test_test_images_never_decide() -> None:
    with pytest.raises(ValueError, match="early_stop needs validate"):
        tiny(early_stop=2, validate=False)


def test_a_loss_above_that_of_guessing_is_noted() -> None:
    settings, model = tiny(lr=0.03), cc.create_model("m1", num_classes=8)
    line = {"epoch": 1, "train_loss": 2.2}
    said = high_loss(line, model, 100, settings)
    assert "2.20, is above 2.08 = log(8)" in said
    assert "--lr 0.01" in said
    assert not high_loss({**line, "train_loss": 2.0}, model, 100, settings)
    assert not high_loss({**line, "epoch": 2}, model, 100, settings)
    # The loss of a few steps is that of the initial weights.
    assert not high_loss(line, model, 5, settings)
    margin = cc.create_model("class_capsules", num_classes=8)
    assert not margin.takes_label_smoothing()
    assert not high_loss(line, margin, 100, settings)
