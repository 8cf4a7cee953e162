from pathlib import Path

import pytest
import torch
from torch import Tensor

from clustercaps import kernels
from clustercaps.bench.cases import Case, build, capsule_layers
from clustercaps.bench.check import check, relative_error
from clustercaps.cli import main

SMALL = Case("m1", in_chans=1, size=8, batch=3)


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_backends_pass(layer: int) -> None:
    case = Case("m1", 1, 8, 3, layer=layer)
    names = [name for name in ("reference", "cpu") if kernels.available()[name].usable]
    errors = check(case, names)
    assert list(errors) == names
    assert all(0 < error < 1e-5 for error in errors.values())


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient * 1.001


def break_backend(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    real = kernels.cluster_capsules

    def broken(x: Tensor, vote: torch.nn.Conv2d, **settings: object) -> Tensor:
        capsules = real(x, vote, **{**settings, "backend": "reference"})
        if settings["backend"] != "cpu":
            return capsules
        if wrong == "gradients":
            return WrongGradient.apply(capsules)
        if wrong == "nan":
            return capsules * float("nan")
        # Neither a factor nor a constant: the norm after it would undo those.
        return capsules + 1e-3 * capsules.flip(-1)

    monkeypatch.setattr(kernels, "cluster_capsules", broken)
    monkeypatch.setattr(kernels, "choose", lambda backend, device, routing="cluster": backend)


@pytest.mark.parametrize("wrong", ["values", "gradients", "nan"])
def test_wrong_fast_path_is_refused_in_one_line(
    wrong: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    break_backend(monkeypatch, wrong)
    out = tmp_path / "bench.csv"
    assert main(["bench", "--quick", "--out", str(out)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    begun, error = said.err.splitlines()
    assert begun.startswith("checking m1 on ")
    assert error.startswith("clustercaps: error: cpu does not match the reference on m1")
    assert not out.exists()


def test_every_backend_gets_the_same_weights_and_images() -> None:
    one, other = build(SMALL, "reference"), build(SMALL, "cpu")
    assert torch.equal(one.x, other.x)
    assert {layer.backend for layer in capsule_layers(other.module)} == {"cpu"}
    for ours, theirs in zip(one.module.parameters(), other.module.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_relative_error() -> None:
    expected = torch.tensor([3.0, 4.0])
    assert relative_error(expected * 1.1, expected) == pytest.approx(0.1, rel=1e-5)
    assert not relative_error(torch.tensor([3.0, float("nan")]), expected) <= 1
