"""What version 0.1.0 wrote is still read: a run that was cut off, and a saved network."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import clustercaps as cc
from clustercaps.training import train
from clustercaps.training.batches import open_split
from clustercaps.training.finished import Trained
from clustercaps.training.run_folder import RunFolder

DATA = Path(__file__).parent / "data"


def test_a_run_of_0_1_0_is_resumed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(DATA / "run-0.1.0", run)
    settings = RunFolder(run).settings
    assert settings is not None
    assert settings.optimizer == "sgd"
    assert settings.side == 32
    result = train(settings, run, resume=True)
    # As the uninterrupted run of 0.1.0 ended.
    assert result["test_errors"] == 35
    assert result["test_loss"] == pytest.approx(2.0239772033691406, rel=1e-5)
    lines = RunFolder(run).metrics()
    assert [line["epoch"] for line in lines] == [1, 2]
    assert Trained.open(run).score(open_split(settings, "test", None)).errors == 35
    assert json.loads((run / "settings.json").read_text())["flips"] == "random"


def test_a_network_of_0_1_0_is_loaded(tmp_path: Path) -> None:
    model = cc.from_pretrained(DATA / "model-0.1.0")
    assert sum(p.numel() for p in model.parameters()) == 11_290
    logits = model(torch.linspace(-1, 1, 1024).view(1, 1, 32, 32))
    assert logits.shape == (1, 10)
    run = tmp_path / "run"
    shutil.copytree(DATA / "run-0.1.0", run)
    settings = RunFolder(run).settings
    assert settings is not None
    train(settings, run, resume=True)
    resumed = cc.from_pretrained(run / "model")
    for ours, theirs in zip(resumed.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
