"""Four-legged animals and human figures, each with its own proportions and pose."""

import numpy as np

from clustercaps.data.rendering.dice import Dice
from clustercaps.data.rendering.solids import Point, Solid, affine, ellipsoid, limb, rod, turn


def animal(dice: Dice) -> list[Solid]:
    """A four-legged animal, for example like a dog, an ox or a giraffe."""
    length, girth = dice.between(1.3, 2.3), dice.between(0.26, 0.62)
    leg, thick = dice.between(0.3, 1.15), dice.between(0.09, 0.2)
    hip = leg + 0.6 * girth
    half = length / 2
    chest, rump = girth * dice.between(0.9, 1.15), girth * dice.between(0.75, 1.1)
    # Some stand higher in front, some behind.
    front, rear = half - chest, min(rump - half, -0.2)
    withers = hip + dice.between(-0.12, 0.25)
    parts = limb([(front, 0, withers), (rear, 0, hip)], [chest, rump])
    stride = dice.between(-0.28, 0.28)
    for end, top, way in ((half - 0.9 * chest, withers, 1), (0.9 * rump - half, hip, -1)):
        for side in (-1, 1):
            swing = stride * side * way
            y = side * 0.62 * girth
            knee = (end + 0.6 * swing - 0.1 * way, y, 0.5 * leg)
            foot = (end + swing, y, 0.8 * thick)
            parts += limb([(end, y, top), knee, foot], [1.5 * thick, thick, 0.8 * thick])
            hoof = (end + swing + 0.5 * thick, y, 0.45 * thick)
            parts.append(ellipsoid(hoof, (thick * 1.4, thick, thick)))
    parts += _head(dice, half, withers, girth)
    return parts + _tail(dice, half, hip, girth)


def _head(dice: Dice, half: float, hip: float, girth: float) -> list[Solid]:
    # From a lowered to a raised head.
    neck, slope = dice.between(0.3, 1.1), np.radians(dice.between(-25.0, 75.0))
    root = np.array([half - 0.6 * girth, 0, hip + 0.25 * girth])
    end = root + (neck + 0.3 * girth) * np.array([np.cos(slope), 0, np.sin(slope)])
    size = dice.between(0.18, 0.34)
    end[2] = max(end[2], 1.2 * size)
    parts = limb([root, end], [0.62 * girth, 0.75 * size])
    parts.append(ellipsoid(end, (1.15 * size, 0.9 * size, size)))
    nod = turn("y", dice.between(5.0, 45.0))
    snout = dice.between(0.2, 0.5)
    tip = end + nod @ np.array([0.8 * snout, 0, -0.1])
    tip[2] = max(tip[2], 0.6 * size)
    parts.append(ellipsoid(tip, (snout, 0.62 * size, 0.6 * size), nod))
    parts += _crest(dice, end, size)
    if dice.chance(0.2):
        # A trunk.
        low = (tip[0] + 0.45, 0, max(0.25, tip[2] - 0.5))
        parts += limb([tip, low, (low[0] + 0.2, 0, low[2] - 0.12)], [0.14, 0.1, 0.07])
    return parts


def _crest(dice: Dice, head: np.ndarray, size: float) -> list[Solid]:
    """Parts of a head."""
    kind = dice.choose("ears", "long ears", "flaps", "horns", "none")
    parts = []
    for side in (-1, 1):
        top = head + np.array([-0.25 * size, side * 0.6 * size, 0.7 * size])
        if kind == "horns":
            tip = top + np.array([0.1, side * 0.25, 0.5])
            parts.append(rod(top - [0, 0, 0.05], tip, 0.09, 0.015))
        elif kind == "flaps":
            flap = top + np.array([0, side * 0.16, -0.22])
            parts.append(ellipsoid(flap, (0.2, 0.07, 0.34)))
        elif kind != "none":
            tall = 0.4 if kind == "long ears" else 0.2
            ear = top + np.array([0, side * 0.05, 0.6 * tall])
            parts.append(ellipsoid(ear, (0.06, 0.1, tall)))
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
    """A human figure: standing, striding, kneeling or sitting, with arms in some pose."""
    leg, thick = dice.between(0.9, 1.25), dice.between(0.1, 0.16)
    broad, deep = dice.between(0.28, 0.46), dice.between(0.17, 0.28)
    posture = dice.choose("stand", "stride", "stride", "wide", "kneel", "sit")
    hip, parts = _legs(dice, posture, leg, thick, broad)
    lean = dice.between(-8.0, 30.0 if posture != "sit" else 5.0)
    bend = affine(turn("y", lean), (0, 0, hip))
    body = _torso(dice, broad, deep, thick)
    parts += [part.moved(bend) for part in body]
    if dice.chance(0.35):
        # A base plate.
        parts.append(rod((0, 0, -0.06), (0, 0, 0.03), dice.between(0.45, 0.75)))
    return parts


def _legs(
    dice: Dice, posture: str, leg: float, thick: float, broad: float
) -> tuple[float, list[Solid]]:
    """Height of the hip, and both legs."""
    stride = dice.between(0.0, 0.1) if posture in ("stand", "wide") else dice.between(0.2, 0.48)
    apart = dice.between(0.4, 0.6) if posture == "wide" else dice.between(0.14, 0.3)
    hip = {"kneel": 0.58 * leg, "sit": 0.22}.get(posture, leg - 0.15 * stride)
    parts = []
    for side in (-1, 1):
        y, swing = side * 0.5 * broad, side * stride
        foot = np.array([swing, side * max(apart, 0.55 * broad), 0.1])
        knee = np.array([0.5 * swing + 0.08, 0.5 * (y + foot[1]), 0.52 * leg])
        if posture == "kneel" and side < 0:
            knee, foot = np.array([0.05, y, 0.12]), np.array([-0.5 * leg, y, 0.1])
        elif posture == "kneel":
            knee, foot = np.array([0.48 * leg, y, 0.55 * leg]), np.array([0.5 * leg, y, 0.1])
        elif posture == "sit":
            knee = np.array([0.5 * leg, 1.3 * y, 0.2 + 0.3 * stride])
            foot = np.array([0.95 * leg, 1.5 * y, 0.12])
        parts += limb([(0, y, hip), knee, foot], [1.5 * thick, 1.05 * thick, 0.75 * thick])
        parts.append(ellipsoid(foot + np.array([0.12, 0, -0.03]), (0.24, 0.11, 0.08)))
    return hip, parts


def _torso(dice: Dice, broad: float, deep: float, thick: float) -> list[Solid]:
    """Everything above the hip, which is at the origin."""
    tall, head = dice.between(0.68, 0.95), dice.between(0.18, 0.28)
    parts = [
        ellipsoid((0, 0, 0.05), (deep, 0.8 * broad, 0.24)),
        ellipsoid((0, 0, 0.4 * tall), (0.95 * deep, 0.72 * broad, 0.42 * tall)),
        ellipsoid((0, 0, 0.74 * tall), (1.08 * deep, broad, 0.34 * tall)),
        rod((0, 0, tall - 0.1), (0.02, 0, tall + 0.2), 0.45 * head),
        ellipsoid((0.04, 0, tall + 0.12 + head), (head, 0.85 * head, 1.12 * head)),
    ]
    swing = dice.between(-0.3, 0.3)
    for side in (-1, 1):
        parts += _arm(dice, side, side * swing, (0, side * broad, tall - 0.14), thick)
    if dice.chance(0.3):
        # A long object in front of the chest.
        reach = dice.between(0.4, 0.9)
        parts.append(rod((0.3, -reach, 0.4 * tall), (0.35, reach, 0.75 * tall), 0.05))
    return parts + _clothes(dice, tall, head, broad, deep)


def _arm(dice: Dice, side: int, swing: float, root: Point, thick: float) -> list[Solid]:
    pose = dice.choose("down", "down", "bent", "up", "out", "forward")
    reach = {
        "down": ((0.6 * swing, 0.12, -0.4), (1.3 * swing + 0.1, 0.14, -0.78)),
        "bent": ((-0.05, 0.2, -0.38), (0.36, 0.1, -0.34)),
        "up": ((0.1, 0.28, 0.12), (0.16, 0.3, 0.55)),
        "out": ((0.08, 0.4, -0.08), (0.22, 0.74, 0.02)),
        "forward": ((0.36, 0.1, -0.16), (0.72, 0.0, -0.02)),
    }[pose]
    base = np.array(root)
    elbow, hand = (base + np.array([x, side * y, z]) for x, y, z in reach)
    parts = limb([base, elbow, hand], [1.05 * thick, 0.85 * thick, 0.7 * thick])
    return [*parts, ellipsoid(hand, (0.1, 0.09, 0.1))]


def _clothes(dice: Dice, shoulder: float, head: float, broad: float, deep: float) -> list[Solid]:
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
    if dice.chance(0.35):
        parts.append(ellipsoid((-deep - 0.12, 0, shoulder - 0.38), (0.2, 0.28, 0.34)))
    return parts
