"""The rendered set: its solids, its viewpoints, its files."""

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clustercaps.cli import main
from clustercaps.data import SETS, DataError, Images, load, sources, viewpoint_split
from clustercaps.data.formats import read_norb
from clustercaps.data.inspection import check, get, list_sets
from clustercaps.data.published import RENDERED
from clustercaps.data.rendering import FULL, SMALL, Plan, crew, norb_set, render_split
from clustercaps.data.rendering.camera import camera, lamp_view, picture_slopes
from clustercaps.data.rendering.raycast import NOTHING, look
from clustercaps.data.rendering.shading import LAMPS, Painted, photograph, shadows
from clustercaps.data.rendering.solids import box, dome, ellipsoid, limb, loft, rod, turn
from clustercaps.data.rendering.toys import BUILDERS, make_toy
from clustercaps.data.rendering.turntable import stereo_pairs

NAME = "rendered-norb"


def quiet(_: str) -> None:
    pass


ONE_EACH = Plan(train=(4,), test=(0,), elevations=(0,), azimuths=(4,), lightings=(0,))


def tiny(monkeypatch, plan: Plan = ONE_EACH) -> None:
    """Let the set be a small one, rendered in this process."""
    monkeypatch.setattr(norb_set, "FULL", plan)
    monkeypatch.setattr(norb_set, "cores", lambda: 0)


def inside(solid, points: np.ndarray) -> np.ndarray:
    """Whether points lie in a solid, from its definition."""
    p = np.concatenate([points, np.ones((*points.shape[:-1], 1))], axis=-1)
    result = (p @ solid.planes.T <= 0).all(-1)
    if solid.quadric is not None:
        result &= np.einsum("...i,ij,...j->...", p, solid.quadric, p) <= 0
    if solid.nappe is not None:
        result &= p @ solid.nappe >= 0
    return result


SOLIDS = {
    "ellipsoid": ellipsoid((0.2, 0.1, 0.4), (0.7, 0.3, 0.4), turn("y", 30.0)),
    "dome": dome((0.1, 0.0, 0.1), (0.6, 0.5, 0.4)),
    "box": box((-0.4, -0.3, 0.0), (0.5, 0.2, 0.6)),
    "wing": loft("y", 0.1, (-0.2, 0.3, 0.3, 0.4), -0.8, (-0.5, -0.3, 0.4, 0.45)),
    "rod": rod((-0.5, 0.1, 0.3), (0.4, 0.3, 0.5), 0.2),
    "cone": rod((0.1, 0.0, 0.0), (0.0, 0.1, 0.9), 0.5, 0.0),
    # So blunt that cameras and lamps stand inside its quadric.
    "blunt cone": rod((0.0, 0.0, 0.5), (0.0, 0.0, 0.3), 0.1, 0.8),
    "blunt cone, tip up": rod((0.0, 0.0, 0.1), (0.3, 0.0, 0.5), 0.9, 0.05),
}
VIEWS = {"camera": camera(60.0, 0, 0.4), "low camera": camera(30.0, 1, 0.4)}
VIEWS |= {"lamp": lamp_view(LAMPS[0]), "steep lamp": lamp_view(LAMPS[3])}


@pytest.mark.parametrize("name", SOLIDS)
@pytest.mark.parametrize("view", VIEWS)
def test_rays_meet_solids_where_their_definition_says(name, view):
    """Against walking along every ray in small steps."""
    solid, matrix = SOLIDS[name], VIEWS[view]
    places = picture_slopes(20) if "camera" in view else np.linspace(-1.4, 1.4, 20)
    seen = look([solid], matrix, places, places)
    # Nearness of everything within 1.6 of the toy's middle.
    middle = matrix @ [0.0, 0.0, 0.4, 1.0]
    near = middle[2] / middle[3]
    reach = 1.6 if "lamp" in view else 1.6 * near**2 * 1.4
    walk = np.linspace(near + reach, near - reach, 1501)
    x, y, s = np.meshgrid(places, places, walk, indexing="xy")
    flat = np.stack([x, y, s, np.ones_like(s)], axis=-1) @ np.linalg.inv(matrix).T
    hits = inside(solid, flat[..., :3] / flat[..., 3:])
    found, step = hits.any(-1), 2 * reach / 1500
    first = walk[hits.argmax(-1)]
    met = seen.surface != NOTHING
    assert met[found].all()
    # Only rays that graze the solid for less than a step may be missing from the walk.
    assert (met & ~found).sum() <= 2
    both = found & met
    assert both.sum() > 3
    assert np.abs(seen.nearness - first)[both].max() <= 1.01 * step


@pytest.mark.parametrize("name", SOLIDS)
def test_corners_hold_the_solid(name):
    solid = SOLIDS[name]
    points = np.random.default_rng(0).uniform(-1.2, 1.2, (200_000, 3))
    within = points[inside(solid, points)]
    for direction in np.random.default_rng(1).normal(size=(50, 3)):
        assert (within @ direction).max() <= (solid.corners @ direction).max() + 1e-9


def test_normals_point_outwards():
    solid, matrix = SOLIDS["ellipsoid"], VIEWS["camera"]
    places = picture_slopes(48)
    seen = look([solid], matrix, places, places)
    rows, columns = np.nonzero(seen.surface != NOTHING)
    flat = np.stack(
        [places[columns], places[rows], seen.nearness[rows, columns], np.ones(len(rows))], axis=1
    )
    points = flat @ np.linalg.inv(matrix).T
    points /= points[:, 3:]
    normals = np.einsum("nij,nj->ni", seen.gradients[seen.surface[rows, columns]], points)
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    assert not inside(solid, points[:, :3] + 1e-3 * normals).any()
    assert inside(solid, points[:, :3] - 1e-3 * normals).all()


def test_a_limb_has_no_gaps():
    parts = limb([(0.0, 0.0, 0.0), (0.5, 0.0, 0.3), (0.5, 0.4, 0.8)], [0.2, 0.15, 0.1])
    line = np.linspace(0, 1, 200)[:, None]
    for start, end in (((0, 0, 0), (0.5, 0, 0.3)), ((0.5, 0, 0.3), (0.5, 0.4, 0.8))):
        points = np.array(start) + line * (np.array(end) - np.array(start))
        assert np.any([inside(part, points) for part in parts], axis=0).all()


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 4), st.integers(0, 9), st.integers(0, 2**31))
def test_every_toy_stands_on_the_ground_within_reach_of_the_cameras(category, number, seed):
    toy = make_toy(category, number, seed)
    tips = np.concatenate([solid.tips for solid in toy.solids])
    assert tips[:, 2].min() == pytest.approx(0, abs=1e-9)
    assert 0.7 < np.linalg.norm(tips - [0, 0, toy.middle], axis=1).max() < 1.03
    assert np.abs(tips.min(0) + tips.max(0))[:2].max() < 0.13


def test_toys_differ_and_repeat():
    toys = {
        tuple(np.round(np.concatenate([s.tips for s in make_toy(c, i).solids])[:3].ravel(), 6))
        for c in range(5)
        for i in range(10)
    }
    assert len(toys) == 50
    assert make_toy(2, 3).paint == make_toy(2, 3).paint
    assert make_toy(2, 3, seed=1).paint != make_toy(2, 3).paint


@pytest.mark.parametrize(
    ("azimuth", "where"), [(0.0, "down"), (90.0, "left"), (180.0, "up"), (270.0, "right")]
)
def test_azimuth_goes_around_the_toy_from_its_front(azimuth, where):
    """From the left side of a toy (90 degrees) its front is on the left of the picture."""
    nose = turn("z", -azimuth) @ [0.9, 0.0, 0.0]
    x, y, _, depth = camera(45.0, 0, 0.0) @ [*nose, 1.0] + camera(45.0, 1, 0.0) @ [*nose, 1.0]
    side = {"down": y, "up": -y, "left": -x, "right": x}[where] / depth
    assert side > 0.05
    assert side > 3 * abs((x if where in ("down", "up") else y) / depth)


def test_elevation_is_the_angle_above_the_ground():
    for degrees in (30.0, 50.0, 70.0):
        for side in (0, 1):
            back = np.linalg.inv(camera(degrees, side, 0.3))
            eye = back[:3, 2] / back[3, 2] - [0, 0, 0.3]
            assert np.degrees(np.arcsin(eye[2] / np.linalg.norm(eye))) == pytest.approx(degrees)
            assert (eye[1] > 0) == (side == 1)


def test_lamps_throw_shadows_away_from_themselves():
    toy = Painted([box((-0.2, -0.2, 0.0), (0.2, 0.2, 1.0))], 0.3, 0.5)
    fallen = shadows(toy)
    for lamp, shadow in zip(LAMPS, fallen[1:], strict=True):
        flat = lamp[:2] / np.linalg.norm(lamp[:2])
        behind, before = (np.array([[*(d * 0.55 * flat), 0.0, 1.0]]) for d in (-1, 1))
        assert shadow.on_ground(behind)[0] > 0.9
        assert shadow.on_ground(before)[0] < 0.1
        assert shadow.on_ground(np.array([[50.0, 50.0, 0.0, 1.0]]))[0] == 0
    pictures = photograph(toy, fallen, camera(40.0, 0, 0.5))
    assert pictures.shape == (5, 96, 96)
    assert (pictures >= 0).all()


def test_pictures_are_plausible_photographs():
    pairs = stereo_pairs(4, 0, 2, (0, 4), (0, 3, 5))
    assert pairs.shape == (2, 3, 2, 96, 96)
    # A light, even background; a darker toy in the middle; no two lightings or cameras alike.
    border = np.concatenate([pairs[..., :6, :].ravel(), pairs[..., -6:, :].ravel()])
    assert 170 < border.mean() < 235
    assert border.std() < 20
    assert pairs[..., 38:58, 38:58].mean() < border.mean() - 25
    assert np.abs(pairs[:, 0].astype(int) - pairs[:, 1]).mean() > 3
    assert np.abs(pairs[:, :, 0].astype(int) - pairs[:, :, 1]).mean() > 3
    assert pairs.max() < 255
    assert pairs.min() > 0


def test_pictures_depend_on_the_seed_and_on_nothing_else():
    first = stereo_pairs(0, 4, 3, (2, 5), (1, 4), seed=0)
    assert np.array_equal(first, stereo_pairs(0, 4, 3, (2, 5), (1, 4), seed=0))
    assert np.array_equal(first[:1, 1:], stereo_pairs(0, 4, 3, (2,), (4,), seed=0))
    assert not np.array_equal(first, stereo_pairs(0, 4, 3, (2, 5), (1, 4), seed=1))


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


def test_the_plan_is_that_of_smallnorb():
    for split in ("train", "test"):
        assert np.prod(FULL.shape(split)) == SETS[NAME].count(split) == 24_300
    assert sorted(FULL.train + FULL.test) == list(range(10))
    assert [builder.__name__ for builder in BUILDERS] == list(SETS[NAME].class_names)
    with pytest.raises(ValueError, match=r"objects \[1\] are in both the training and the test"):
        Plan(train=(1, 2), test=(1,))
    same = ("class_names", "shape", "stereo", "mean", "std")
    assert all(getattr(SETS[NAME], key) == getattr(SETS["smallnorb"], key) for key in same)


def codes_of(images: Images, row: int) -> list[int]:
    return [int(images.meta[key][row]) for key in ("instance", "elevation", "azimuth", "lighting")]


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
    assert check(NAME, say=quiet).endswith("rendered images; sizes, counts and codes are correct")
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
