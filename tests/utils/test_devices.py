import pytest
import torch

from clustercaps.utils.devices import pick_device


def test_auto_is_the_accelerator_or_the_cpu() -> None:
    expected = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    assert pick_device() == pick_device("auto") == (expected or torch.device("cpu"))


def test_named_devices() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    # Tensors without values are of no use to those who ask.
    for name in ("cuda:99", "nonsense", "", "meta"):
        with pytest.raises(ValueError, match=f"device '{name}' is not available; .*: cpu"):
            pick_device(name)
