"""The dataset of rendered objects: its plan, its processes, its files."""

import shutil

import numpy as np
import pytest
import torch

from clustercaps.cli import main
from clustercaps.data import SETS, DataError, Images, load, sources, viewpoint_split
from clustercaps.data.formats import read_norb
from clustercaps.data.inspection import check, get, list_sets
from clustercaps.data.published import RENDERED
from clustercaps.data.rendering import FULL, SMALL, Plan, crew, norb_set, render_split
from clustercaps.data.rendering.toys import BUILDERS
from clustercaps.data.rendering.turntable import stereo_pairs

NAME = "rendered-norb"


def quiet(_: str) -> None:
    pass


ONE_EACH = Plan(train=(4,), test=(0,), elevations=(0,), azimuths=(4,), lightings=(0,))


def tiny(monkeypatch, plan: Plan = ONE_EACH) -> None:
    """Let the set be a small one, rendered in this process."""
    monkeypatch.setattr(norb_set, "PLANS", dict.fromkeys(norb_set.PLANS, plan))
    monkeypatch.setattr(norb_set, "cores", lambda: 0)


def codes_of(images: Images, row: int) -> list[int]:
    return [int(images.meta[key][row]) for key in ("instance", "elevation", "azimuth", "lighting")]


def test_the_plan_is_that_of_smallnorb():
    for split in ("train", "test"):
        assert np.prod(FULL.shape(split)) == SETS[NAME].count(split) == 24_300
    assert sorted(FULL.train + FULL.test) == list(range(10))
    more = norb_set.PLANS["rendered-norb-25"]
    assert np.prod(more.shape("train")) == SETS["rendered-norb-25"].train == 5 * 24_300
    assert more.test == FULL.test
    assert set(FULL.train) < set(more.train)
    assert [builder.__name__ for builder in BUILDERS] == list(SETS[NAME].class_names)
    with pytest.raises(ValueError, match=r"objects \[1\] are in both the training and the test"):
        Plan(train=(1, 2), test=(1,))
    same = ("class_names", "shape", "stereo", "mean", "std")
    assert all(getattr(SETS[NAME], key) == getattr(SETS["smallnorb"], key) for key in same)


def test_rendered_into_the_cache_and_loaded(monkeypatch, cache):
    tiny(monkeypatch, SMALL)
    said: list[str] = []
    images = load(NAME, "test", verify=False, say=said.append)
    assert any("synthetic images, not smallNORB" in line for line in said)
    assert len(images) == 40
    assert images.labels.tolist() == [0, 1, 2, 3, 4] * 8
    codes = {k: sorted(set(images.meta[k].tolist())) for k in ("elevation", "azimuth", "lighting")}
    assert codes == {"elevation": [0, 8], "azimuth": [0, 8], "lighting": [0, 5]}
    familiar, novel = viewpoint_split(images, "azimuth")
    assert int(familiar.sum()) == int(novel.sum()) == 20
    train = load(NAME, "train", verify=False, say=said.append)
    assert not set(train.meta["instance"].tolist()) & set(images.meta["instance"].tolist())
    # Each row of codes belongs to its pictures.
    for row in (0, 33):
        label, (number, elevation, azimuth, lighting) = row % 5, codes_of(images, row)
        again = stereo_pairs(label, number, azimuth // 2, (elevation,), (lighting,))[0, 0]
        assert np.array_equal(images.pixels[row].numpy(), again)
    assert len({(int(images.labels[row]), *codes_of(images, row)) for row in range(40)}) == 40
    raw = (cache / NAME / RENDERED[NAME].test[0].name).read_bytes()
    assert np.array_equal(read_norb(raw, "f", 4, "uint8"), images.pixels.numpy())
    assert "rendered on this machine" in list_sets()


def test_an_interrupted_rendering_leaves_nothing(monkeypatch, cache):
    tiny(monkeypatch)
    blocks = crew.render_jobs

    def interrupted(jobs, workers):
        yield next(blocks(jobs, workers))
        raise KeyboardInterrupt

    monkeypatch.setattr(norb_set, "render_jobs", interrupted)
    assert main(["data", "get", NAME]) == 130
    assert not cache.exists()


def test_only_the_missing_split_is_rendered(monkeypatch, cache):
    tiny(monkeypatch)
    sources.fetch_set(NAME, quiet)
    files = RENDERED[NAME]
    before = (cache / NAME / files.train[0].name).stat().st_mtime_ns
    (cache / NAME / files.test[2].name).unlink()
    sources.fetch_set(NAME, quiet)
    assert (cache / NAME / files.train[0].name).stat().st_mtime_ns == before
    assert sources.cached(NAME)
    assert {path.name for path in (cache / NAME).iterdir()} == {f.name for f in files.files}


def test_files_of_another_size_are_refused(monkeypatch, cache):
    tiny(monkeypatch)
    with pytest.raises(DataError, match=r"bytes, expected 447,897,624; delete it"):
        get(NAME, say=quiet)
    with pytest.raises(DataError, match="expected 447,897,624"):
        check(NAME, say=quiet)


def test_get_and_check_say_that_it_is_rendered(monkeypatch, cache, tmp_path):
    tiny(monkeypatch)
    original = sources.obtain
    monkeypatch.setattr(
        "clustercaps.data.datasets.obtain",
        lambda name, split, data_dir, verify, say, fetch: original(
            name, split, data_dir, False, say, fetch
        ),
    )
    monkeypatch.setattr("clustercaps.data.datasets._check", lambda *_: None)
    assert get(NAME, say=quiet) == (
        "rendered-norb: rendered images; ready, 5 train images, 1 per class "
        "and 5 test images, 1 per class"
    )
    last = check(NAME, say=quiet).splitlines()[-1]
    assert "; rendered images, without a published checksum" in last
    assert last.endswith("the pixels themselves are not verified")
    assert main(["data", "show", NAME, "--out", str(tmp_path / "sheet.png")]) == 0
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_a_full_disk_is_noticed_before_the_work(monkeypatch, cache):
    usage = type("Usage", (), {"free": 10_000_000})()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DataError, match="448 MB are needed, 10 MB are free"):
        sources.fetch_set(NAME, quiet)
    assert not cache.exists()


def test_a_sheet_of_a_plain_set(tmp_path):
    out = tmp_path / "clothes.png"
    assert main(["data", "show", "fashion-mnist-mini", "--split", "test", "--out", str(out)]) == 0
    assert out.stat().st_size > 10_000


def test_classes_are_not_told_apart_by_brightness_alone():
    """The mean of an image says little; toys share one range of paint."""
    rendered = render_split("test", Plan(test=(0, 1, 2, 3, 5), elevations=(2,), azimuths=(4,)), 0)
    means = torch.from_numpy(rendered.pixels.reshape(len(rendered.pixels), -1).mean(1))
    labels = torch.from_numpy(rendered.labels.astype(np.int64))
    by_class = torch.stack([means[labels == label].mean() for label in range(5)])
    assert float(by_class.max() - by_class.min()) < 2 * float(means.std())


def test_processes_render_the_same_as_one():
    plan = Plan(train=(4,), test=(0,), elevations=(0,), azimuths=(0, 34), lightings=(5,))
    alone, together = (render_split("test", plan, workers) for workers in (0, 2))
    assert np.array_equal(alone.pixels, together.pixels)
    assert np.array_equal(alone.info, together.info)


def test_processes_end_with_the_work(monkeypatch):
    started, start = [], crew._start

    def remember():
        started.append(start())
        return started[-1]

    monkeypatch.setattr(crew, "_start", remember)
    job = {"category": 0, "instance": 0, "azimuth": 0, "elevations": (0,), "lightings": (0,)}
    blocks = crew.render_jobs([job] * 20, 1)
    next(blocks)
    # As if interrupted half-way.
    blocks.close()
    assert [process.poll() is not None for process in started] == [True]
    with pytest.raises(DataError, match="a rendering process failed"):
        list(crew.render_jobs([job | {"category": 7}], 1))
