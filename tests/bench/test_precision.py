import csv
from pathlib import Path

import pytest
import torch

from clustercaps import kernels
from clustercaps.bench import precision
from clustercaps.bench.cases import Case, Options

M1 = Case("m1", in_chans=1, size=8, batch=2)


def test_bf16_rounds_and_float32_does_not() -> None:
    works = [precision.in_precision(M1, name) for name in precision.PRECISIONS]
    usual, short = (work.module(work.x) for work in works)
    assert usual.dtype == short.dtype == torch.float32
    changed = precision.difference(*works)
    assert 1e-5 < changed < 5e-2
    assert precision.difference(works[0], works[0]) == 0


def test_a_step_leaves_gradients_of_both_precisions() -> None:
    usual, short = (precision.in_precision(M1, name) for name in precision.PRECISIONS)
    for work in (usual, short):
        work.training_step()
    pairs = zip(usual.module.parameters(), short.module.parameters(), strict=True)
    gradients = [(a.grad, b.grad) for a, b in pairs]
    assert all(a is not None and b is not None for a, b in gradients)
    flat = [torch.cat([g.flatten() for g in side]) for side in zip(*gradients, strict=True)]
    assert 0 < (flat[0] - flat[1]).norm() < 0.1 * flat[0].norm()


def test_run_writes_a_line_per_measure(tmp_path: Path) -> None:
    out = tmp_path / "precision.csv"
    options = Options(out, ("m1", "s1"), size=8, batch=2, rounds=2, seconds=0.001, quick=True)
    precision.run(options)
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["measure"]) for row in rows] == [
        (model, measure) for model in ("m1", "s1") for measure in precision.MEASURES
    ]
    for row in rows:
        ratio = float(row["float32_ms"]) / float(row["bf16_ms"])
        assert float(row["times_float32"]) == pytest.approx(ratio, rel=1e-3)


def test_without_the_kernel_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(name: str, device: str) -> str:
        raise RuntimeError("no compiler")

    monkeypatch.setattr(kernels, "choose", refuse)
    with pytest.raises(ValueError, match="needs the fused kernel: no compiler"):
        precision.run(Options(tmp_path / "x.csv"))
    assert not (tmp_path / "x.csv").exists()
