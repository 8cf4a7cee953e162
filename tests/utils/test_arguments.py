"""Arguments of networks are checked against their annotations, weights against the network."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import clustercaps as cc
from clustercaps.models.registry import PRESETS
from clustercaps.utils.arguments import check_arguments, fits
from clustercaps.utils.sizes import Size


@pytest.mark.parametrize("name", PRESETS)
def test_settings_of_every_preset_fit(name: str) -> None:
    preset = PRESETS[name]
    plain = json.loads(json.dumps(preset.settings))
    check_arguments(preset.network, plain, name)


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        (3, int, True),
        (True, int, False),
        (3.0, int, False),
        (10**7, int, False),
        (3, float, True),
        (float("nan"), float, False),
        (float("inf"), float, False),
        ("x", str, True),
        (None, int | None, True),
        ([28, 28], Size, True),
        ([28, "x"], Size, False),
        ("28", Size, False),
        ([1, 2], tuple[int, int], True),
        ([1, 2, 3], tuple[int, int], False),
        ({"a": 1}, dict[str, object] | None, True),
        ([], dict[str, object], False),
    ],
)
def test_types(value: object, hint: object, expected: bool) -> None:
    assert fits(value, hint) is expected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cc.create_model("m1", channels=2, dim=2, votes=2, in_chans=1).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"votes": "2"}, "votes must be an integer"),
        ({"vote": 2}, "unknown setting 'vote'; did you mean 'votes'"),
        ({"dim": 0}, "must be an integer of at least 1, got 0"),
        ({"routing": "cluste"}, "unknown routing 'cluste'"),
        # 10^12 and 10^18 weights: refused before they are allocated.
        ({"votes": 1_000_000, "dim": 1_000}, "does not match this CapsuleNet"),
        ({"votes": 1_000_000, "dim": 1_000_000}, "overflow"),
    ],
)
def test_a_wrong_config_is_named(folder: Path, change: dict, words: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=words) as caught:
        cc.from_pretrained(folder)
    assert str(folder) in str(caught.value)


def test_weights_of_another_type_or_not_finite(folder: Path) -> None:
    path = folder / "model.safetensors"
    good = load_file(path)
    save_file({**good, "head.bias": good["head.bias"].to(torch.int32)}, path)
    with pytest.raises(ValueError, match=r"head\.bias holds torch\.int32, the network expects"):
        cc.from_pretrained(folder)
    save_file({**good, "head.bias": good["head.bias"] * torch.nan}, path)
    with pytest.raises(ValueError, match=r"head\.bias contains NaN or infinity"):
        cc.from_pretrained(folder)
