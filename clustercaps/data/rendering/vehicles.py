"""Planes, trucks and cars, each with its own structure and proportions."""

import numpy as np

from clustercaps.data.rendering.dice import Dice
from clustercaps.data.rendering.solids import Solid, affine, box, dome, ellipsoid, loft, rod, turn


def _wheels(places: list[float], half_track: float, radius: float, width: float) -> list[Solid]:
    """A pair of wheels at each position along x; `half_track` is the outer side."""
    parts = []
    for x in places:
        for side in (-1, 1):
            inner, outer = side * (half_track - width), side * half_track
            parts.append(rod((x, inner, radius), (x, outer, radius), radius))
            hub = side * (half_track + 0.03)
            parts.append(rod((x, outer, radius), (x, hub, radius), 0.5 * radius, 0.4 * radius))
    return parts


def plane(dice: Dice) -> list[Solid]:
    """A plane on its wheels: propellers or jets, straight or swept wings."""
    half, girth = dice.between(1.1, 1.5), dice.between(0.17, 0.27)
    z = girth + dice.between(0.22, 0.34)
    parts = [
        ellipsoid((0.15 * half, 0, z), (0.85 * half, girth, girth)),
        rod((0.2 * half, 0, z), (-half, 0, z + 0.3 * girth), girth, 0.35 * girth),
        rod((-0.1 * half, 0, z), (0.55 * half, 0, z), girth),
        dome((0.45 * half, 0, z + 0.5 * girth), (0.3, 0.75 * girth, girth)),
    ]
    build = dice.choose("propeller", "biplane", "twin", "jet", "airliner")
    sweep = dice.between(0.4, 0.8) if build in ("jet", "airliner") else dice.between(-0.05, 0.15)
    span, chord = dice.between(0.8, 1.6), dice.between(0.36, 0.7)
    if build == "jet" and dice.chance(0.5):
        # A delta.
        chord, sweep = dice.between(0.95, 1.2), 0.9
    tip = chord * dice.between(0.4, 0.85)
    low = z + girth * dice.choose(-0.55, 0.0, 0.7)
    rise = dice.between(0.0, 0.16)
    front = dice.between(0.2, 0.45)
    for side in (-1, 1):
        root = (front - chord, front, low - 0.04, low + 0.05)
        end = (front - sweep - tip, front - sweep, low + rise - 0.02, low + rise + 0.03)
        parts.append(loft("y", 0.0, root, side * span, end))
        if build == "biplane":
            gap = 0.55 if low < z else -0.45
            parts.append(parts[-1].moved(affine(np.eye(3), (0.1, 0, gap))))
            post = (front - 0.25, side * 0.7 * span, low + rise)
            parts.append(rod(post, (post[0] + 0.1, post[1], post[2] + gap), 0.03))
    parts += _tail_planes(dice, half, z, girth, sweep)
    parts += _engines(build, half, z, girth, (front, low, sweep, span))
    for x, y in ((0.55 * half, 0.0), (-0.1, -0.3), (-0.1, 0.3)):
        parts.append(rod((x, y - 0.05, 0.11), (x, y + 0.05, 0.11), 0.11))
        parts.append(rod((x, y, 0.11), (x, 0.5 * y, z), 0.035))
    # Some rest on their tail, some have the nose down.
    pitch = affine(turn("y", dice.between(-12.0, 4.0)))
    return [part.moved(pitch) for part in parts]


def _tail_planes(dice: Dice, half: float, z: float, girth: float, sweep: float) -> list[Solid]:
    tall, reach = dice.between(0.42, 0.62), dice.between(0.4, 0.62)
    lean = 0.25 + 0.3 * sweep
    base = z + 0.4 * girth
    fin = loft(
        "z", base, (-half, -half + 0.45, -0.035, 0.035),
        base + tall, (-half - 0.02, -half + 0.45 - lean, -0.02, 0.02),
    )  # fmt: skip
    level = base + (0.9 * tall if dice.chance(0.25) else 0.0)
    parts = [fin]
    for side in (-1, 1):
        root = (-half, -half + 0.36, level - 0.03, level + 0.03)
        end = (-half - 0.3 * sweep, -half + 0.22 - 0.3 * sweep, level - 0.02, level + 0.02)
        parts.append(loft("y", 0.0, root, side * reach, end))
    return parts


def _engines(
    build: str, half: float, z: float, girth: float, wing: tuple[float, float, float, float]
) -> list[Solid]:
    front, low, sweep, span = wing
    if build in ("propeller", "biplane"):
        nose = half + 0.02
        blades = [box((nose - 0.03, -0.42, z - 0.05), (nose, 0.42, z + 0.05))]
        cowl = rod((0.55 * half, 0, z), (0.95 * half, 0, z), girth, 0.85 * girth)
        return [cowl, *blades, rod((0.9 * half, 0, z), (nose + 0.14, 0, z), 0.12, 0.02)]
    if build == "jet":
        return [
            rod((0.1, side * 0.9 * girth, z), (-0.9 * half, side * 0.7 * girth, z), 0.6 * girth)
            for side in (-1, 1)
        ]
    parts = []
    for side in (-1, 1):
        y = side * 0.42 * span
        x = front - 0.42 * sweep
        drop = low - 0.13 if build == "airliner" else low
        parts.append(rod((x - 0.35, y, drop), (x + 0.2, y, drop), 0.11, 0.13))
        if build == "twin":
            parts.append(box((x + 0.2, y - 0.3, drop - 0.04), (x + 0.23, y + 0.3, drop + 0.04)))
    return parts


def truck(dice: Dice) -> list[Solid]:
    """A truck: a cab in front, and a load area behind it."""
    half, wide = dice.between(1.0, 1.6), dice.between(0.42, 0.56)
    radius = dice.between(0.19, 0.28)
    floor, cab = radius + 0.1, dice.between(0.45, 0.72)
    tall = dice.between(0.6, 1.05)
    nose = dice.between(0.3, 0.5) if dice.chance(0.45) else 0.0
    front = half - nose
    parts = [
        box((-half, -0.8 * wide, floor - 0.08), (half, 0.8 * wide, floor + 0.06)),
        loft(
            "z", floor, (front - cab, front, -wide, wide),
            floor + 0.5 * tall, (front - cab, front, -wide, wide),
        ),
        loft(
            "z", floor + 0.5 * tall, (front - cab, front, -wide, wide),
            floor + tall, (front - cab, front - dice.between(0.04, 0.2), -0.9 * wide, 0.9 * wide),
        ),
        box((half - 0.02, -wide, floor - 0.1), (half + 0.07, wide, floor + 0.06)),
    ]  # fmt: skip
    if nose:
        high = floor + dice.between(0.32, 0.45)
        ends = (-0.75 * wide, 0.75 * wide, floor)
        parts.append(loft("x", front, (*ends, high + 0.06), half, (*ends, high)))
    start = front - cab - dice.between(0.06, 0.14)
    parts += _load(dice, -half, start, 1.06 * wide, floor + 0.06, tall)
    if dice.chance(0.4):
        for side in (-1, 1):
            pipe = (start + 0.02, side * 0.8 * wide)
            parts.append(rod((*pipe, floor), (*pipe, floor + 1.25 * tall), 0.045))
    rear = [-half + 0.3] + ([-half + 0.3 + 2.2 * radius] if dice.chance(0.6) else [])
    return parts + _wheels([half - 0.35, *rear], 1.03 * wide, radius, 0.2)


def _load(
    dice: Dice, back: float, front: float, wide: float, floor: float, tall: float
) -> list[Solid]:
    """The load area of a truck: a van body, a tank, an open bed, a tipper, logs."""
    kind = dice.choose("van", "van", "tank", "bed", "tipper", "logs")
    if kind == "van":
        return [box((back, -wide, floor), (front, wide, floor + tall * dice.between(0.95, 1.3)))]
    if kind == "tank":
        z = floor + 0.95 * wide
        length = front - back
        parts = [rod((back + 0.08, 0, z), (front - 0.08, 0, z), 0.95 * wide)]
        parts += [
            ellipsoid((x, 0, z), (0.14, 0.95 * wide, 0.95 * wide))
            for x in (back + 0.08, front - 0.08)
        ]
        lids = (back + share * length for share in (0.3, 0.7))
        return parts + [rod((x, 0, z), (x, 0, z + wide + 0.05), 0.14) for x in lids]
    if kind == "logs":
        thick = 0.33 * wide
        rows = [(y, 0) for y in (-2, 0, 2)] + [(y, 1) for y in (-1, 1)]
        places = ((y * thick, floor + thick * (1 + 1.75 * level)) for y, level in rows)
        return [rod((back, y, z), (front, y, z), thick) for y, z in places]
    high = floor + tall * (0.35 if kind == "bed" else 0.62)
    flare = 0.0 if kind == "bed" else 0.12
    wall = 0.07
    inner, outer = wide - wall, wide + flare
    parts = [box((back, -wide, floor), (front, wide, floor + wall))]
    for side in (-1, 1):
        low = sorted((side * inner, side * wide))
        top = sorted((side * (outer - wall), side * outer))
        parts.append(loft("z", floor, (back, front, *low), high, (back, front, *top)))
    for x in (back, front - wall):
        ends = (x, x + wall)
        parts.append(loft("z", floor, (*ends, -wide, wide), high, (*ends, -outer, outer)))
    if kind == "tipper" and dice.chance(0.6):
        middle = ((back + front) / 2, 0, floor)
        parts.append(dome(middle, (0.45 * (front - back), 0.95 * inner, 1.1 * (high - floor))))
    return parts


def car(dice: Dice) -> list[Solid]:
    """A car: saloon, hatchback, estate, sports car, convertible, van or pick-up."""
    half, wide = dice.between(1.0, 1.45), dice.between(0.48, 0.62)
    radius = dice.between(0.2, 0.29)
    under, belt = 0.75 * radius, dice.between(0.48, 0.66)
    kind = dice.choose("saloon", "hatchback", "estate", "sports", "open", "van", "pick-up")
    if kind == "sports":
        belt -= 0.06
    bonnet, boot = belt - dice.between(0.03, 0.09), belt - dice.between(0.0, 0.06)
    inner = 0.94 * wide
    sill = (-half, half, -wide, wide)
    shoulder = under + 0.6 * (belt - under)
    top = (-half + 0.05, half - 0.1, -inner, inner)
    lid = (-inner, inner, shoulder)
    parts = [
        loft("z", under, (-half + 0.08, half - 0.08, -inner, inner), under + 0.12, sill),
        loft("z", under + 0.12, sill, shoulder, sill),
        loft("z", shoulder, sill, min(bonnet, boot), top),
        # The bonnet slopes to the front, the boot to the rear.
        loft("x", 0.3, (*lid, belt), half - 0.1, (*lid, bonnet)),
        loft("x", 0.3, (*lid, belt), 0.05 - half, (*lid, boot)),
    ]
    parts += _cabin(dice, kind, half, 0.87 * wide, belt)
    for x in (-half - 0.04, half - 0.04):
        parts.append(box((x, -0.95 * wide, under + 0.05), (x + 0.08, 0.95 * wide, under + 0.19)))
    for side in (-1, 1):
        parts.append(ellipsoid((half - 0.08, side * 0.68 * wide, shoulder), (0.08, 0.1, 0.08)))
    if kind == "sports" and dice.chance(0.6):
        parts.append(box((-half, -wide, belt + 0.14), (-half + 0.2, wide, belt + 0.18)))
        parts += [
            box((-half + 0.05, y - 0.03, belt - 0.1), (-half + 0.12, y + 0.03, belt + 0.16))
            for y in (-0.6 * wide, 0.6 * wide)
        ]
    axle = half * dice.between(0.6, 0.68)
    return parts + _wheels([axle, -axle], 1.07 * wide, radius, 0.2)


def _cabin(dice: Dice, kind: str, half: float, inner: float, belt: float) -> list[Solid]:
    roof = dice.between(0.32, 0.42)
    # Rear and front end of the cabin at the belt and at the roof.
    low_rear, low_front, high_rear, high_front = {
        "saloon": (-0.66, 0.34, -0.44, 0.08),
        "hatchback": (-0.9, 0.36, -0.68, 0.08),
        "estate": (-0.96, 0.36, -0.88, 0.1),
        "sports": (-0.7, 0.24, -0.34, -0.06),
        "open": (-0.2, 0.3, -0.2, 0.3),
        "van": (-0.96, 0.72, -0.92, 0.46),
        "pick-up": (-0.2, 0.38, -0.14, 0.16),
    }[kind]
    if kind == "open":
        glass = loft(
            "z", belt - 0.02, (0.3, 0.38, -0.9 * inner, 0.9 * inner),
            belt + 0.8 * roof, (0.1, 0.15, -0.8 * inner, 0.8 * inner),
        )  # fmt: skip
        seats = [
            box((x, y - 0.16, belt - 0.02), (x + 0.12, y + 0.16, belt + 0.24))
            for x in (-0.25, -0.75)
            for y in (-0.45 * inner, 0.45 * inner)
        ]
        return [glass, *seats]
    roof *= {"sports": 0.8, "van": 1.35}.get(kind, 1.0)
    narrow = inner * dice.between(0.78, 0.88)
    base, top = (np.array([low_rear, low_front]) * half, np.array([high_rear, high_front]) * half)
    parts = [
        loft("z", belt - 0.03, (*base, -inner, inner), belt + roof, (*top, -narrow, narrow)),
        # A slightly vaulted roof.
        ellipsoid(
            (top.mean(), 0, belt + roof - 0.02), (0.5 * (top[1] - top[0]), 0.95 * narrow, 0.045)
        ),
    ]
    if kind == "pick-up":
        # The sides of the bed.
        parts += [
            box((-0.96 * half, y - 0.03, belt - 0.05), (-0.2 * half, y + 0.03, belt + 0.17))
            for y in (-inner, inner)
        ]
        parts.append(
            box((-0.96 * half, -inner, belt - 0.05), (0.06 - 0.96 * half, inner, belt + 0.17))
        )
    if kind == "estate" and dice.chance(0.5):
        rails = (-0.7 * narrow, 0.7 * narrow)
        rear, front = top[0] + 0.1, top[1] - 0.1
        level = belt + roof + 0.08
        parts += [rod((rear, y, level), (front, y, level), 0.03) for y in rails]
    return parts
