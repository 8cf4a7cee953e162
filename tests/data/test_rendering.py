"""Rendered objects: their solids, their viewpoints, their pictures."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustercaps.data.rendering.camera import camera, lamp_view, picture_slopes
from clustercaps.data.rendering.raycast import NOTHING, look
from clustercaps.data.rendering.shading import LAMPS, Painted, photograph, shadows
from clustercaps.data.rendering.solids import box, dome, ellipsoid, limb, loft, rod, turn
from clustercaps.data.rendering.toys import make_toy
from clustercaps.data.rendering.turntable import stereo_pairs


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
