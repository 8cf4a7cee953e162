"""Convex solids: intersections of half-spaces and at most one quadric, under any affine map.

A point is a homogeneous vector (x, y, z, 1). A half-space is a row n with n.p <= 0 inside; a
quadric is a symmetric matrix Q with p'Qp <= 0 inside. Ellipsoids are a quadric alone, boxes are six
half-spaces, cylinders and cones are a quadric between two half-spaces. Lengths are in any unit;
objects stand on z = 0, face along x, and have y on their left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

Point = Sequence[float | int] | np.ndarray
Matrix = Float64[np.ndarray, "4 4"]
Points = Float64[np.ndarray, "points 3"]


@dataclass(frozen=True)
class Solid:
    """One convex part of an object.

    Args:
        planes: half-spaces, one row each.
        corners: corners of a block that contains the solid.
        tips: outermost points of its surface.
        quadric: the curved surface, if there is one.
        nappe: for a cone, a row that is positive on the half in question: the quadric of a cone has
            a second half beyond the tip.
    """

    planes: Float64[np.ndarray, "planes 4"]
    corners: Float64[np.ndarray, "8 3"]
    tips: Points
    quadric: Matrix | None = None
    nappe: Float64[np.ndarray, "4"] | None = None

    def moved(self, motion: Matrix) -> "Solid":
        """The solid under an affine map."""
        back = np.linalg.inv(motion)
        return Solid(
            self.planes @ back,
            _moved_points(motion, self.corners),
            _moved_points(motion, self.tips),
            None if self.quadric is None else back.T @ self.quadric @ back,
            None if self.nappe is None else self.nappe @ back,
        )


def _moved_points(motion: Matrix, points: Points) -> Points:
    moved: Points = points @ motion[:3, :3].T + motion[:3, 3]
    return moved


def affine(linear: np.ndarray, offset: Point = (0.0, 0.0, 0.0)) -> Matrix:
    """A 4x4 map from its linear part and its offset."""
    motion = np.eye(4)
    motion[:3, :3] = linear
    motion[:3, 3] = offset
    return motion


def turn(axis: str, degrees: float) -> Float64[np.ndarray, "3 3"]:
    """Rotation about `x`, `y` or `z`, counter-clockwise if the axis points at the viewer."""
    cosine, sine = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    first, second = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
    matrix = np.eye(3)
    matrix[[first, second], [first, second]] = cosine
    matrix[first, second], matrix[second, first] = -sine, sine
    return matrix


_NO_PLANES = np.zeros((0, 4))
_CUBE = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
_AXES = np.concatenate([np.eye(3), -np.eye(3)])
_BALL = Solid(_NO_PLANES, _CUBE, _AXES, np.diag([1.0, 1.0, 1.0, -1.0]))


def ellipsoid(centre: Point, radii: Point, rotation: np.ndarray | None = None) -> Solid:
    """An ellipsoid.

    Args:
        centre: its centre.
        radii: half of its length along its three axes.
        rotation: rotation of the axes; by default they are x, y, z.
    """
    linear = (np.eye(3) if rotation is None else rotation) @ np.diag(radii)
    return _BALL.moved(affine(linear, centre))


def dome(centre: Point, radii: Point) -> Solid:
    """The upper half of an ellipsoid."""
    whole = ellipsoid(centre, radii)
    floor = np.array([[0.0, 0.0, -1.0, centre[2]]])
    above = np.maximum(whole.corners, [-np.inf, -np.inf, centre[2]])
    return Solid(floor, above, np.maximum(whole.tips, above.min(0)), whole.quadric)


def loft(axis: str, start: float, first: Point, end: float, last: Point) -> Solid:
    """A block between two rectangles on parallel planes: a box, a wedge, a wing.

    Args:
        axis: `x`, `y` or `z`, perpendicular to both rectangles.
        start: position of the first rectangle on the axis.
        first: its low and high end along each of the other two axes, in the order x, y, z.
        end: position of the second rectangle.
        last: its ends, likewise.
    """
    if end < start:
        start, first, end, last = end, last, start, first
    along = "xyz".index(axis)
    across = [number for number in range(3) if number != along]
    planes = np.zeros((6, 4))
    planes[0, along], planes[0, 3] = -1.0, start
    planes[1, along], planes[1, 3] = 1.0, -end
    for row, (side, sign) in enumerate(((0, -1.0), (1, 1.0), (2, -1.0), (3, 1.0)), start=2):
        slope = (last[side] - first[side]) / (end - start)
        # sign * (coordinate - (first + slope * (position - start))) <= 0
        planes[row, across[side // 2]] = sign
        planes[row, along] = -sign * slope
        planes[row, 3] = -sign * (first[side] - slope * start)
    planes /= np.linalg.norm(planes[:, :3], axis=1, keepdims=True)
    corners = np.zeros((8, 3))
    ends = ((start, first), (end, last))
    places = [(p, r, i, j) for p, r in ends for i in (0, 1) for j in (2, 3)]
    for corner, (position, rectangle, i, j) in zip(corners, places, strict=True):
        corner[along] = position
        corner[across] = rectangle[i], rectangle[j]
    return Solid(planes, corners, corners)


def box(low: Point, high: Point) -> Solid:
    """A box between two opposite corners."""
    rectangle = (low[0], high[0], low[1], high[1])
    return loft("z", low[2], rectangle, high[2], rectangle)


def rod(start: Point, end: Point, radius: float, end_radius: float | None = None) -> Solid:
    """A cylinder, or with another `end_radius` a truncated cone.

    Args:
        start: centre of one end.
        end: centre of the other.
        radius: radius at the start.
        end_radius: radius at the end; 0 gives a full cone.
    """
    last = radius if end_radius is None else end_radius
    length = float(np.linalg.norm(np.subtract(end, start)))
    slope = (last - radius) / length
    # x^2 + y^2 - (radius + slope z)^2 <= 0 for z between 0 and length.
    quadric = np.diag([1.0, 1.0, -(slope**2), -(radius**2)])
    quadric[2, 3] = quadric[3, 2] = -slope * radius
    planes = np.array([[0.0, 0.0, -1.0, 0.0], [0.0, 0.0, 1.0, -length]])
    nappe = np.array([0.0, 0.0, slope, radius]) if slope else None
    around = np.radians(np.arange(0, 360, 45))
    ring = np.stack([np.cos(around), np.sin(around), np.zeros(8)], axis=1)
    tips = np.concatenate([ring * radius, ring * last + [0.0, 0.0, length]])
    wide = max(radius, last)
    corners = _CUBE * [wide, wide, length / 2] + [0.0, 0.0, length / 2]
    upright = Solid(planes, corners, tips, quadric, nappe)
    return upright.moved(affine(_frame_along(np.subtract(end, start) / length), start))


def limb(points: Sequence[Point], radii: Sequence[float]) -> list[Solid]:
    """Rods from point to point with balls at the joints: legs, necks, tails.

    Args:
        points: points from the root to the end.
        radii: radius at each point.
    """
    parts = [ellipsoid(p, (r, r, r)) for p, r in zip(points, radii, strict=True)]
    for number in range(len(points) - 1):
        start, end = points[number], points[number + 1]
        parts.append(rod(start, end, radii[number], radii[number + 1]))
    return parts


def _frame_along(direction: np.ndarray) -> Float64[np.ndarray, "3 3"]:
    """A rotation that maps z to a direction."""
    helper = np.eye(3)[int(np.argmin(np.abs(direction)))]
    first = np.cross(helper, direction)
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(direction, first), direction], axis=1)
