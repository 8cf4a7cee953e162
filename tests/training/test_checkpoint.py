from pathlib import Path

import pytest
import torch

from clustercaps.training import checkpoint
from clustercaps.training.checkpoint import load_checkpoint, save_checkpoint


def test_round_trip_is_exact(tmp_path: Path) -> None:
    tensors = {
        "a": torch.randn(3, 4),
        "b": torch.get_rng_state(),
        "c": torch.tensor(1 / 3).double(),
    }
    state = {"loss": 0.1 + 0.2, "epoch": 3}
    save_checkpoint(tmp_path / "x", tensors, state)
    found, found_state = load_checkpoint(tmp_path / "x")
    assert found_state == state
    assert found.keys() == tensors.keys()
    assert all(found[name].equal(tensor) for name, tensor in tensors.items())


def test_a_full_disk_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    save_checkpoint(path, {"a": torch.ones(3)}, {})
    before = path.read_bytes()

    def no_room(tensors: object, file: Path, metadata: object) -> None:
        file.write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "save_file", no_room)
    with pytest.raises(OSError, match=r"No space left.*previous checkpoint is intact.*--resume"):
        save_checkpoint(path, {"a": torch.zeros(3)}, {})
    assert path.read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["x"]


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "x", {"a": torch.ones(300)}, {})
    (tmp_path / "x").write_bytes((tmp_path / "x").read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"x is not a readable checkpoint.*--overwrite"):
        load_checkpoint(tmp_path / "x")


def test_optimizer_memory_comes_back() -> None:
    def trained(steps: int) -> tuple[torch.nn.Linear, torch.optim.SGD]:
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
        for _ in range(steps):
            optimizer.zero_grad()
            layer(torch.ones(1, 3)).square().sum().backward()
            optimizer.step()
        return layer, optimizer

    layer, optimizer = trained(3)
    fresh = torch.nn.Linear(3, 2)
    fresh.load_state_dict(layer.state_dict())
    other = torch.optim.SGD(fresh.parameters(), 0.1, momentum=0.9)
    checkpoint.restore_optimizer(other, checkpoint.optimizer_tensors(optimizer))
    fresh(torch.ones(1, 3)).square().sum().backward()
    other.step()
    assert fresh.weight.equal(trained(4)[0].weight)
