"""The datasets `rendered-norb` and `rendered-norb-25`: objects, views and file order.

The plan is that of smallNORB: five training and five other test objects per category, 9 elevations,
18 azimuths, 6 lightings; `rendered-norb-25` has 25 training objects per category. The images are
rendered and must not be called smallNORB.
"""

import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int32, UInt8

from clustercaps.data.errors import DataError
from clustercaps.data.files import Say, reason, write_all
from clustercaps.data.formats import write_norb
from clustercaps.data.rendering.camera import AZIMUTHS, ELEVATIONS, SIDE
from clustercaps.data.rendering.crew import cores, render_jobs
from clustercaps.data.rendering.shading import LIGHTINGS
from clustercaps.data.rendering.toys import BUILDERS
from clustercaps.data.rendering.turntable import CAMERAS
from clustercaps.utils.progress import progress


@dataclass(frozen=True)
class Plan:
    """Which images of which objects are rendered.

    Args:
        train: instance numbers of the training objects, the same in each category.
        test: instance numbers of the test objects.
        elevations: codes, 0 to 8.
        azimuths: codes, 0, 2, ..., 34: tens of degrees.
        lightings: codes, 0 to 5.
        seed: seed of the objects.
    """

    train: tuple[int, ...] = (4, 6, 7, 8, 9)
    test: tuple[int, ...] = (0, 1, 2, 3, 5)
    elevations: tuple[int, ...] = tuple(range(len(ELEVATIONS)))
    azimuths: tuple[int, ...] = tuple(range(0, 2 * len(AZIMUTHS), 2))
    lightings: tuple[int, ...] = tuple(range(len(LIGHTINGS)))
    seed: int = 0

    def __post_init__(self) -> None:
        both = sorted(set(self.train) & set(self.test))
        if both:
            raise ValueError(f"objects {both} are in both the training and the test split")

    def instances(self, split: str) -> tuple[int, ...]:
        """Instance numbers of a split."""
        return self.train if split == "train" else self.test

    def shape(self, split: str) -> tuple[int, ...]:
        """Shape of a split: instances, elevations, azimuths, lightings, categories."""
        views = (len(self.elevations), len(self.azimuths), len(self.lightings))
        return (len(self.instances(split)), *views, len(BUILDERS))


FULL = Plan()
SMALL = Plan(train=(4,), test=(0,), elevations=(0, 8), azimuths=(0, 8), lightings=(0, 5))
"""A small plan for tests: 40 pairs per split."""
PLANS = {"rendered-norb": FULL, "rendered-norb-25": Plan(train=(*FULL.train, *range(10, 30)))}
"""The plan of every rendered dataset."""


@dataclass(frozen=True)
class Rendered:
    """One split, as the three matrices of its files.

    Args:
        pixels: stereo pairs. Classes alternate and views are shuffled, so that the first pairs are
            a representative sample.
        labels: class indices.
        info: instance, elevation code, azimuth code, lighting code.
    """

    pixels: UInt8[np.ndarray, "pairs 2 side side"]
    labels: Int32[np.ndarray, "pairs"]
    info: Int32[np.ndarray, "pairs 4"]


def render_split(split: str, plan: Plan = FULL, workers: int | None = None) -> Rendered:
    """Render one split.

    Args:
        split: `train` or `test`.
        plan: which images; `SMALL` for a quick test.
        workers: number of processes, by default one per core; 0 renders in this process. The result
            does not depend on it.
    """
    shape = plan.shape(split)
    views = int(np.prod(shape[:4]))
    # The position of each view in the file; the same for all classes.
    place = np.random.default_rng((plan.seed, views)).permutation(views).reshape(shape[:4])
    pixels = np.empty((views, shape[4], CAMERAS, SIDE, SIDE), dtype=np.uint8)
    places = [
        (toy, azimuth, category)
        for toy in range(shape[0])
        for azimuth in range(shape[2])
        for category in range(shape[4])
    ]
    jobs = [
        {
            "category": category,
            "instance": plan.instances(split)[toy],
            "azimuth": plan.azimuths[azimuth] // 2,
            "elevations": plan.elevations,
            "lightings": plan.lightings,
            "seed": plan.seed,
        }
        for toy, azimuth, category in places
    ]
    bar = progress(f"rendering {split}", int(np.prod(shape)), " pairs")
    with closing(render_jobs(jobs, cores() if workers is None else workers)) as blocks, bar:
        for (toy, azimuth, category), block in zip(places, blocks, strict=True):
            pixels[place[toy, :, azimuth], category] = block
            bar.update(block.shape[0] * block.shape[1])
    codes = (plan.instances(split), plan.elevations, plan.azimuths, plan.lightings)
    info = np.empty((views, 4), dtype=np.int32)
    for column, values in enumerate(np.meshgrid(*codes, indexing="ij")):
        info[place.ravel(), column] = values.ravel()
    labels = np.tile(np.arange(shape[4], dtype=np.int32), views)
    return Rendered(pixels.reshape(-1, CAMERAS, SIDE, SIDE), labels, info.repeat(shape[4], axis=0))


def render_into(folder: Path, name: str, split: str, names: Sequence[str], say: Say) -> None:
    """Render one split to files in the format of smallNORB; all of them appear, or none.

    Args:
        folder: output folder, created if it does not exist.
        name: a rendered dataset.
        split: `train` or `test`.
        names: file names for pixels, labels and codes.
        say: called with messages about the progress.
    """
    plan = PLANS[name]
    pairs = int(np.prod(plan.shape(split)))
    size = pairs * CAMERAS * SIDE * SIDE
    _room_for(folder, size)
    say(
        f"{name}: rendering {pairs:,} {split} pairs into {folder} ({size / 1e6:,.0f} MB); "
        "these are synthetic images, not smallNORB"
    )
    split_data = render_split(split, plan)
    matrices = (split_data.pixels, split_data.labels, split_data.info)
    write_all(folder, {n: write_norb(m) for n, m in zip(names, matrices, strict=True)})


def _room_for(folder: Path, size: int) -> None:
    """Check the free disk space before minutes of work."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        free = shutil.disk_usage(existing).free
    except OSError as error:
        raise DataError(f"{existing}: cannot use folder ({reason(error)})") from error
    if free < size:
        raise DataError(
            f"{folder}: {size / 1e6:,.0f} MB are needed, {free / 1e6:,.0f} MB are free; free disk "
            "space, or choose another folder with the environment variable CLUSTERCAPS_DATA"
        )
