"""The paper's numbers, looked up in its printed tables by hand and added up."""

import statistics

import pytest

from clustercaps.experiments.harness.counts import fits
from clustercaps.experiments.paper import paper
from clustercaps.models.registry import count_parameters


def test_classification() -> None:
    table = paper()["classification"]
    literature, ours = table["literature"], table["ours"]
    assert (len(literature), len(ours)) == (14, 9)
    assert literature["VB-Routing"]["smallnorb"] == {"error": 1.6, "parameters": "169K"}
    assert literature["MS-Caps"]["cifar10"] == {"error": 24.3, "parameters": "11.2M"}
    assert literature["Dynamic"]["cifar10"]["parameters"] == "8.2M (7)"
    assert ours["s4"]["cifar10"] == {"error": 7.37, "sd": 0.06}
    assert ours["m2"]["smallnorb"] == {"error": 3.09, "sd": 0.19}
    assert ours["baseline_cnn"]["fashion-mnist"] == {"error": 5.21}
    # How many cells of each column are printed, of 23.
    printed = {
        name: sum(name in row for row in (*literature.values(), *ours.values()))
        for name in table["data"]
    }
    assert printed == {"smallnorb": 15, "fashion-mnist": 17, "svhn": 15, "cifar10": 23}
    for row in ours.values():
        assert set(table["data"]) < set(row)


def test_tables_that_share_cells_agree() -> None:
    ours, grid, ablation = (
        paper()["classification"]["ours"],
        {(c["votes"], c["dim"]): c for c in paper()["kd-grid"]},
        paper()["ablation"],
    )
    for model, cell in {"m1": (5, 6), "m2": (5, 8), "m3": (8, 16), "m4": (8, 24)}.items():
        errors = {ours[model]["cifar10"]["error"], grid[cell]["error"], ablation[model]["cluster"]}
        assert len(errors) == 1
        assert grid[cell]["parameters"] == paper()["parameters"][model]["cifar10"]
    assert ablation["m3"]["uniform"] == 33.48
    assert len(grid) == 8


def test_the_grids_counts_are_those_of_the_networks() -> None:
    for cell in paper()["kd-grid"]:
        count = count_parameters("m1", votes=cell["votes"], dim=cell["dim"])
        assert fits(count, cell["parameters"])


def test_affine_rows_have_the_printed_averages_and_totals() -> None:
    affine = paper()["affine"]
    for name, row in affine["mse"].items():
        assert len(row) == len(affine["transformations"]) == 18
        assert statistics.mean(row) == pytest.approx(affine["average"][name], abs=5e-5)
    for layers in affine["layers"].values():
        counts = [value for key, value in layers.items() if key not in ("name", "total")]
        assert sum(counts) == layers["total"]
    assert affine["mse"]["Proposed"][affine["transformations"].index("Shift-2")] == 0.1279


def test_viewpoints_and_imagenet() -> None:
    viewpoints = paper()["viewpoints"]
    assert {name: len(rows) for name, rows in viewpoints.items()} == {"azimuth": 4, "elevation": 3}
    assert viewpoints["elevation"]["EM"]["novel"] == 87.7
    # All networks are matched on familiar viewpoints.
    assert {row["familiar"] for row in viewpoints["azimuth"].values()} == {96.3}
    assert paper()["imagenet"]["accuracy"]["imagenet_m4"]["top5"] == 88.98
