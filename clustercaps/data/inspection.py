"""What `clustercaps data list | get | check | show` do; the command line prints their results."""

from pathlib import Path

import torch

from clustercaps.data.catalogue import SETS, STREAMED, info, is_streamed
from clustercaps.data.datasets import load
from clustercaps.data.errors import DataError
from clustercaps.data.files import Say, to_stderr
from clustercaps.data.folders import FolderImages, open_folder
from clustercaps.data.images import Images
from clustercaps.data.published import PUBLISHED, RENDERED
from clustercaps.data.registries import REGISTRIES
from clustercaps.data.sources import cached, fetch_set
from clustercaps.utils.files import data_folder
from clustercaps.utils.tables import text_table


def list_sets() -> str:
    """Return a table of the sets: images, shape, classes, where from, whether cached."""
    rows = []
    for known in SETS.values():
        shape = "x".join(str(n) for n in known.shape)
        counts = (f"{known.train:,}", f"{known.test:,}")
        here = "embedded"
        if known.name in PUBLISHED or known.name in RENDERED:
            here = "yes" if cached(known.name) else "no"
        rows.append([known.name, *counts, shape, str(known.num_classes), here, _origin(known.name)])
    rows.append([STREAMED, "1,281,167", "50,000", "3x224x224", "1000", "-", "your own folder"])
    rows.append(["folder:PATH", "-", "-", "3x224x224", "-", "-", "class sub-folders of PATH"])
    header = ["name", "train", "test", "shape", "classes", "cached", "comes from"]
    return f"{text_table(header, rows)}\ncache: {data_folder()}"


def _origin(name: str) -> str:
    if name in RENDERED:
        return "rendered on this machine"
    if name not in PUBLISHED:
        return "this package"
    routes = ["official addresses"]
    if name in REGISTRIES:
        routes.append(REGISTRIES[name][0])
    return ", ".join(routes)


def get(name: str, data_dir: Path | str | None = None, say: Say = to_stderr) -> str:
    """Make a set ready for use, fetching what is missing; return one line on what is there.

    Args:
        name: a set.
        data_dir: folder to look in first; nothing is fetched if it holds the set.
        say: told what is tried.
    """
    if is_streamed(name):
        return check(name, data_dir, say)
    info(name)
    if (name in PUBLISHED or name in RENDERED) and data_dir is None:
        fetch_set(name, say)
    splits = [load(name, split, data_dir, say=say) for split in ("train", "test")]
    made = "rendered, not photographs; " if name in RENDERED else ""
    return f"{name}: {made}ready, {' and '.join(_counts(images) for images in splits)}"


def check(name: str, data_dir: Path | str | None = None, say: Say = to_stderr) -> str:
    """Verify a set that is already here, without fetching anything; return a report.

    Args:
        name: a set, `imagenet` or `folder:PATH`.
        data_dir: folder to look in before the cache.
        say: told where files are read.
    """
    if is_streamed(name):
        return _check_folder(name, data_dir)
    lines = []
    for split in ("train", "test"):
        images = load(name, split, data_dir, say=say, fetch=False)
        pixels = images.pixels.transpose(0, 1).flatten(1)
        # By value, not by pixel: exact, and without a float copy of the whole set.
        histograms = [torch.bincount(channel, minlength=256).double() for channel in pixels]
        values = torch.arange(256, dtype=torch.float64) / 255
        means = [float((h * values).sum() / h.sum()) for h in histograms]
        deviations = [
            float(((h * (values - mean) ** 2).sum() / h.sum()).sqrt())
            for h, mean in zip(histograms, means, strict=True)
        ]
        lines.append(
            f"{name} {_counts(images)}, mean {_numbers(means)}, deviation {_numbers(deviations)}"
        )
    if name in RENDERED:
        lines.append(f"{name}: rendered, not photographs; sizes, counts and codes are right")
    else:
        lines.append(f"{name}: all files are as published")
    return "\n".join(lines)


def show(
    name: str,
    out: Path,
    split: str = "train",
    data_dir: Path | str | None = None,
    say: Say = to_stderr,
) -> str:
    """Draw some images of every class of a set; return one line on what was written.

    Args:
        name: a set that is loaded whole.
        out: PNG file to write.
        split: `train` or `test`.
        data_dir: folder to look in first.
        say: told what is tried.
    """
    # Figures need networks, and networks take a second to import.
    from clustercaps.data.sheet import contact_sheet

    images = load(name, split, data_dir, say=say)
    contact_sheet(images, out)
    return f"{out}: images of every class of {name}, {split} split"


def _check_folder(name: str, data_dir: Path | str | None) -> str:
    lines = []
    for split in ("train", "test"):
        try:
            folder = open_folder(name, split, data_dir)
        except DataError as error:
            # A folder without a test split is still a folder to train on.
            if split == "train":
                raise
            lines.append(f"{split}: {error}")
            continue
        lines.append(f"{name} {split}: {_folder_counts(folder)}")
    return "\n".join(lines)


def _folder_counts(folder: FolderImages) -> str:
    per_class = torch.bincount(folder.labels, minlength=folder.num_classes)
    return (
        f"{len(folder):,} images, {folder.num_classes} classes of "
        f"{int(per_class.min()):,} to {int(per_class.max()):,} in {folder.folder}"
    )


def _counts(images: Images) -> str:
    per_class = torch.bincount(images.labels, minlength=images.meta["num_classes"])
    low, high = int(per_class.min()), int(per_class.max())
    each = f"{low:,} per class" if low == high else f"{low:,} to {high:,} per class"
    return f"{len(images):,} {images.meta['split']} images, {each}"


def _numbers(values: list[float]) -> str:
    return " ".join(f"{value:.4f}" for value in values)
