"""Four-legged animals and human figures, each with proportions and a pose of its own."""

import numpy as np

from clustercaps.data.rendering.dice import Dice
from clustercaps.data.rendering.solids import Point, Solid, ellipsoid, limb, rod, turn


def animal(dice: Dice) -> list[Solid]:
    """An animal on four legs: from a long low dog to something with the neck of a giraffe."""
    length, girth = dice.between(1.5, 2.3), dice.between(0.3, 0.5)
    leg, thick = dice.between(0.55, 1.15), dice.between(0.09, 0.19)
    hip = leg + 0.6 * girth
    half = length / 2
    chest, rump = girth * dice.between(0.95, 1.15), girth * dice.between(0.8, 1.05)
    ends = [(half - chest, 0, hip + dice.between(0.0, 0.12)), (rump - half, 0, hip)]
    parts = limb(ends, [chest, rump])
    stride = dice.between(-0.22, 0.22)
    for end, way in ((half - 0.9 * chest, 1), (0.9 * rump - half, -1)):
        for side in (-1, 1):
            swing = stride * side * way
            y = side * 0.62 * girth
            knee = (end + 0.6 * swing - 0.1 * way, y, 0.5 * leg)
            foot = (end + swing, y, 0.8 * thick)
            parts += limb([(end, y, hip), knee, foot], [1.5 * thick, thick, 0.8 * thick])
            parts.append(
                ellipsoid((end + swing + 0.5 * thick, y, 0.45 * thick), (thick * 1.4, thick, thick))
            )
    parts += _head(dice, half, hip, girth)
    return parts + _tail(dice, half, hip, girth)


def _head(dice: Dice, half: float, hip: float, girth: float) -> list[Solid]:
    neck, slope = dice.between(0.35, 1.2), np.radians(dice.between(20.0, 70.0))
    root = np.array([0.8 * half, 0, hip + 0.25 * girth])
    end = root + neck * np.array([np.cos(slope), 0, np.sin(slope)])
    size = dice.between(0.2, 0.32)
    parts = limb([root, end], [0.62 * girth, 0.75 * size])
    parts.append(ellipsoid(end, (1.15 * size, 0.9 * size, size)))
    nod = turn("y", dice.between(10.0, 40.0))
    snout = dice.between(0.25, 0.6)
    parts.append(
        ellipsoid(end + nod @ [0.8 * snout, 0, -0.1], (snout, 0.62 * size, 0.6 * size), nod)
    )
    crest = dice.choose("ears", "long ears", "flaps", "horns")
    for side in (-1, 1):
        top = end + np.array([-0.25 * size, side * 0.6 * size, 0.7 * size])
        if crest == "horns":
            tip = top + np.array([dice.level * 0.2, side * 0.25, 0.5])
            parts.append(rod(top - [0, 0, 0.05], tip, 0.09, 0.015))
        elif crest == "flaps":
            flap = top + np.array([0, side * 0.16, -0.22])
            parts.append(ellipsoid(flap, (0.2, 0.07, 0.34)))
        else:
            tall = 0.4 if crest == "long ears" else 0.2
            ear = top + np.array([0, side * 0.05, 0.6 * tall])
            parts.append(ellipsoid(ear, (0.06, 0.1, tall)))
    if dice.chance(0.25):
        # A trunk.
        face = end + nod @ [1.3 * snout, 0, -0.1]
        low = (face[0] + 0.25, 0, max(0.2, face[2] - 0.5))
        parts += limb([face, low, (low[0] + 0.2, 0, low[2] - 0.12)], [0.14, 0.1, 0.07])
    return parts


def _tail(dice: Dice, half: float, hip: float, girth: float) -> list[Solid]:
    root = np.array([-0.93 * half, 0, hip + 0.35 * girth])
    long, rise = dice.between(0.25, 1.0), dice.between(-0.7, 0.8)
    bend = root + np.array([-0.5 * long, 0, 0.3 * rise])
    tip = bend + np.array([-0.35 * long, 0.12, 0.5 * rise * long])
    parts = limb([root, bend, tip], [0.12, 0.08, 0.05])
    if dice.chance(0.4):
        parts.append(ellipsoid(tip, (0.14, 0.1, 0.12)))
    if dice.chance(0.3):
        # A hump.
        parts.append(ellipsoid((-0.1 * half, 0, hip + 0.85 * girth), (0.4, 0.6 * girth, 0.35)))
    return parts


def human(dice: Dice) -> list[Solid]:
    """A figure on two legs, standing or striding, with arms in some pose."""
    leg, torso = dice.between(0.95, 1.25), dice.between(0.72, 0.95)
    broad, thick = dice.between(0.3, 0.44), dice.between(0.1, 0.15)
    deep, head = dice.between(0.18, 0.27), dice.between(0.2, 0.27)
    hip, shoulder = leg, leg + torso
    parts = [
        ellipsoid((0, 0, hip + 0.05), (deep, 0.8 * broad, 0.24)),
        ellipsoid((0, 0, hip + 0.4 * torso), (0.95 * deep, 0.72 * broad, 0.42 * torso)),
        ellipsoid((0, 0, hip + 0.74 * torso), (1.08 * deep, broad, 0.34 * torso)),
        rod((0, 0, shoulder - 0.1), (0.02, 0, shoulder + 0.2), 0.45 * head),
        ellipsoid((0.04, 0, shoulder + 0.12 + head), (head, 0.85 * head, 1.12 * head)),
    ]
    stride, gap = dice.between(0.02, 0.38), dice.between(0.13, 0.3)
    for side in (-1, 1):
        y, swing = side * 0.5 * broad, side * stride
        foot = np.array([swing, side * max(gap, 0.55 * broad), 0.1])
        knee = np.array([0.5 * swing + 0.08, 0.5 * (y + foot[1]), 0.52 * leg])
        parts += limb([(0, y, hip), knee, foot], [1.5 * thick, 1.05 * thick, 0.75 * thick])
        parts.append(ellipsoid(foot + np.array([0.12, 0, -0.03]), (0.24, 0.11, 0.08)))
        parts += _arm(dice, side, side * -stride, (0, side * broad, shoulder - 0.14), thick)
    return parts + _clothes(dice, hip, shoulder, head, broad, deep)


def _arm(dice: Dice, side: int, swing: float, root: Point, thick: float) -> list[Solid]:
    pose = dice.choose("down", "down", "bent", "up", "out")
    reach = {
        "down": ((0.6 * swing, 0.12, -0.4), (1.3 * swing + 0.1, 0.14, -0.78)),
        "bent": ((-0.05, 0.2, -0.38), (0.36, 0.1, -0.34)),
        "up": ((0.1, 0.28, 0.12), (0.16, 0.3, 0.55)),
        "out": ((0.08, 0.4, -0.08), (0.22, 0.74, 0.02)),
    }[pose]
    base = np.array(root)
    elbow, hand = (base + np.array([x, side * y, z]) for x, y, z in reach)
    parts = limb([base, elbow, hand], [1.05 * thick, 0.85 * thick, 0.7 * thick])
    return [*parts, ellipsoid(hand, (0.1, 0.09, 0.1))]


def _clothes(
    dice: Dice, hip: float, shoulder: float, head: float, broad: float, deep: float
) -> list[Solid]:
    parts = []
    top = shoulder + 0.12 + head
    hat = dice.choose("none", "brim", "helmet", "hair", "tall")
    if hat in ("brim", "tall"):
        tall = 0.5 if hat == "tall" else 0.25
        brim = (0.04, 0, top + 0.45 * head)
        parts.append(rod(brim, (0.04, 0, brim[2] + 0.05), 1.6 * head))
        parts.append(rod(brim, (0.04, 0, brim[2] + tall), 0.95 * head, 0.8 * head))
    elif hat == "helmet":
        parts.append(ellipsoid((0, 0, top + 0.15 * head), (1.25 * head, 1.15 * head, 1.1 * head)))
    elif hat == "hair":
        parts.append(ellipsoid((-0.09, 0, top), (1.05 * head, head, 1.25 * head)))
    if dice.chance(0.3):
        parts.append(rod((0, 0, hip - 0.5), (0, 0, hip + 0.25), 1.15 * broad, 0.7 * broad))
    if dice.chance(0.35):
        back = (-deep - 0.12, 0, shoulder - 0.38)
        parts.append(ellipsoid(back, (0.2, 0.28, 0.34)))
    return parts
