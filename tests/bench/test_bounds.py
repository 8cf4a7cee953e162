from dataclasses import replace
from pathlib import Path

import pytest

from clustercaps.bench import bounds
from clustercaps.bench.cases import Case, Options, build, capsule_layers
from clustercaps.bench.limits import Limits, Speeds, limits, work_of
from clustercaps.bench.work import gflop
from clustercaps.kernels.peak import multiply_adds

ROOT = Path(__file__).parents[2]
M1 = Case("m1", in_chans=1, size=32, batch=64)


def test_work_of_the_first_layer_by_hand() -> None:
    work = build(replace(M1, batch=2, layer=1), "cpu")
    (layer,) = capsule_layers(work.module)
    # 2 images of 1024 positions, 24 parent entries, 4 clusters of 5 votes with 9 taps.
    entries = 2 * 1024 * 24
    weights = 4 * 5 * 24 * (9 + 1) + 2 * 6 * 1024
    forward = work_of(layer, 2, "forward", work.x.requires_grad)
    assert forward.products == entries * 4 * 5 * 9
    # Per cluster: 4 squares, 1 / sqrt in 5 and two sums; per entry: 1 / R, the capsule, the norm.
    assert forward.others == entries * (4 * (4 + 5 + 2) + 4 + 6)
    assert forward.bytes == 4 * (2 * 1024 + weights + 3 * entries)
    backward = work_of(layer, 2, "backward", work.x.requires_grad)
    # The votes again and the gradient of the weights, but not that of an image.
    assert backward.products == 2 * forward.products
    assert backward.bytes == 4 * (2 * 1024 + 2 * weights + 3 * entries)


def test_products_are_those_of_the_other_benchmarks() -> None:
    total = 0
    for number in range(1, 6):
        case = replace(M1, layer=number)
        work = build(case, "cpu")
        (layer,) = capsule_layers(work.module)
        for name in ("forward", "backward"):
            total += work_of(layer, case.batch, name, work.x.requires_grad).products
    assert 2 * total / 1e9 == pytest.approx(gflop(M1, "training step", recomputes=True))


def test_bound_is_arithmetic_or_memory() -> None:
    slow_memory = Limits(products=2.0, others=1.0, memory=4.0)
    assert (slow_memory.bound, slow_memory.largest) == (4.0, "memory")
    fast_memory = Limits(products=2.0, others=1.0, memory=2.5)
    assert (fast_memory.bound, fast_memory.largest) == (3.0, "memory")
    layer = capsule_layers(build(replace(M1, layer=3), "cpu").module)[0]
    work = work_of(layer, 64, "forward", True)
    found = limits(work, Speeds(multiply_adds=1e9, bytes=1e9))
    assert found.products == pytest.approx(0.42467328)


def test_peak_counts_all_threads() -> None:
    import torch

    once = multiply_adds(10)
    assert once % (10 * torch.get_num_threads()) == 0
    assert multiply_adds(30) == 3 * once


def test_run_writes_a_line_per_pass(tmp_path: Path) -> None:
    out = tmp_path / "bounds.csv"
    options = Options(out, ("m1",), size=8, batch=2, rounds=2, seconds=0.001, quick=True)
    bounds.run(options)
    lines = out.read_text().splitlines()
    assert len(lines) == 1 + 5 * 2
    assert lines[0].startswith(",".join(bounds.COLUMNS))
    assert bounds.table(out).count("\n") == 1 + 5


def test_docs_show_the_table_of_the_stored_file() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert bounds.table(ROOT / "results" / "bench-bounds.csv") in page, (
        "copy the table that `clustercaps bench bounds` prints"
    )
