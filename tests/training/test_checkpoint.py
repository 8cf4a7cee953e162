import os
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
    run = {"settings": {"seed": 3}}
    save_checkpoint(tmp_path / "x", tensors, state, run)
    found, found_state, found_run = load_checkpoint(tmp_path / "x")
    assert (found_state, found_run) == (state, run)
    assert found.keys() == tensors.keys()
    assert all(found[name].equal(tensor) for name, tensor in tensors.items())


def test_a_full_disk_leaves_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    save_checkpoint(path, {"a": torch.ones(3)}, {}, {})
    before = path.read_bytes()
    write_bytes = Path.write_bytes

    def no_room(file: Path, content: bytes) -> None:
        write_bytes(file, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", no_room)
    with pytest.raises(OSError, match=r"x: No space left.*previous checkpoint is intact.*--resume"):
        save_checkpoint(path, {"a": torch.zeros(3)}, {}, {})
    assert path.read_bytes() == before
    assert [f.name for f in tmp_path.iterdir()] == ["x"]


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save_checkpoint(path, {"a": torch.ones(300)}, {}, {})
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    with pytest.raises(ValueError, match=r"x is corrupt or not a safetensors.*--overwrite"):
        load_checkpoint(path)
    # One bit: 1.0 becomes 1.0000001.
    path.write_bytes(whole[:-4] + bytes([whole[-4] ^ 1]) + whole[-3:])
    with pytest.raises(ValueError, match=r"x is damaged: its digest does not match.*--overwrite"):
        load_checkpoint(path)
    save_checkpoint(path, {"a": torch.tensor([1.0, float("nan")])}, {}, {})
    with pytest.raises(ValueError, match=r"x is damaged: a contains NaN or infinity.*--overwrite"):
        load_checkpoint(path)


def test_files_are_as_readable_as_others(tmp_path: Path) -> None:
    for mask, mode in ((0o022, 0o644), (0o077, 0o600)):
        before = os.umask(mask)
        try:
            save_checkpoint(tmp_path / "x", {"a": torch.ones(3)}, {}, {})
        finally:
            os.umask(before)
        assert (tmp_path / "x").stat().st_mode & 0o777 == mode


def test_random_states_of_several_processes_come_back() -> None:
    states = []
    for seed in range(3):
        torch.manual_seed(seed)
        states.append(torch.get_rng_state())
    expected = torch.rand(5)
    # A row of a stacked tensor starts in the middle of its storage.
    checkpoint.restore_random_state(torch.device("cpu"), torch.stack(states)[2])
    assert torch.rand(5).equal(expected)


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
