"""Implementation of `clustercaps data list | get | check | show`; each returns text to print."""

from pathlib import Path

import torch

from clustercaps.data.catalogue import SETS, STREAMED, info, is_streamed
from clustercaps.data.datasets import load
from clustercaps.data.errors import DataError
from clustercaps.data.files import Say, to_stderr
from clustercaps.data.folders import FolderImages, open_folder, unreadable
from clustercaps.data.images import Images
from clustercaps.data.published import PUBLISHED, RENDERED
from clustercaps.data.registries import REGISTRIES
from clustercaps.data.sources import cached, fetch_set
from clustercaps.utils.files import data_folder
from clustercaps.utils.tables import text_table


def list_sets() -> str:
    """Return a table of the datasets: images, shape, classes, source, whether cached."""
    rows = []
    for known in SETS.values():
        shape = "x".join(str(n) for n in known.shape)
        counts = (f"{known.train:,}", f"{known.test:,}")
        here = "built-in"
        if known.name in PUBLISHED or known.name in RENDERED:
            here = "yes" if cached(known.name) else "no"
        rows.append([known.name, *counts, shape, str(known.num_classes), here, _origin(known.name)])
    rows.append([STREAMED, "1,281,167", "50,000", "3x224x224", "1000", "-", "your own folder"])
    rows.append(["folder:PATH", "-", "-", "3x224x224", "-", "-", "class subfolders of PATH"])
    header = ["name", "train", "test", "shape", "classes", "cached", "source"]
    return f"{text_table(header, rows)}\ncache: {data_folder()}"


def _origin(name: str) -> str:
    if name in RENDERED:
        return "rendered on this machine"
    if name not in PUBLISHED:
        return "this package"
    routes = ["official URLs"]
    if name in REGISTRIES:
        routes.append(REGISTRIES[name][0])
    return ", ".join(routes)


def get(name: str, data_dir: Path | str | None = None, say: Say = to_stderr) -> str:
    """Make a dataset available, downloading what is missing; return a one-line summary.

    Args:
        name: a dataset.
        data_dir: folder to search first; nothing is downloaded if it contains the dataset.
        say: called with messages about the sources that are tried.
    """
    if is_streamed(name):
        return check(name, data_dir, say)
    info(name)
    if (name in PUBLISHED or name in RENDERED) and data_dir is None:
        fetch_set(name, say)
    splits = [load(name, split, data_dir, say=say) for split in ("train", "test")]
    made = "rendered images; " if name in RENDERED else ""
    return f"{name}: {made}ready, {' and '.join(_counts(images) for images in splits)}"


def check(name: str, data_dir: Path | str | None = None, say: Say = to_stderr) -> str:
    """Verify an available dataset, without downloading anything; return a report.

    Args:
        name: a dataset, `imagenet` or `folder:PATH`.
        data_dir: folder to search before the cache.
        say: called with messages about the source of the files.
    """
    if is_streamed(name):
        return _check_folder(name, data_dir, say)
    lines: list[str] = []
    matched: dict[str, str] = {}
    for split in ("train", "test"):
        images = load(name, split, data_dir, say=say, fetch=False)
        matched |= images.meta["matched"]
        pixels = images.pixels.transpose(0, 1).flatten(1)
        # From histograms: exact, and without a float copy of the dataset.
        histograms = [torch.bincount(channel, minlength=256).double() for channel in pixels]
        values = torch.arange(256, dtype=torch.float64) / 255
        means = [float((h * values).sum() / h.sum()) for h in histograms]
        deviations = [
            float(((h * (values - mean) ** 2).sum() / h.sum()).sqrt())
            for h, mean in zip(histograms, means, strict=True)
        ]
        lines.append(
            f"{name} {_counts(images)}, mean {_numbers(means)}, standard deviation "
            f"{_numbers(deviations)}"
        )
    return "\n".join([*lines, *_verified(name, matched)])


def _verified(name: str, matched: dict[str, str]) -> list[str]:
    """What was compared, and with what, for each group of files."""
    summed = [file for file, how in matched.items() if how == "checksum"]
    others = [file for file in matched if file not in summed]
    lines = []
    if summed:
        lines.append(f"{name}: {_files(summed)} the published checksum")
    if others:
        made = "rendered images, without" if name in RENDERED else "without"
        lines.append(
            f"{name}: {_files(others)} the published size and header, counts and codes are "
            f"complete, every object is there once in every view, no image is blank; {made} a "
            "published checksum, "
            "so the pixels themselves are not verified"
        )
    return lines


def _files(names: list[str]) -> str:
    return f"{names[0]}: has" if len(names) == 1 else f"{', '.join(names)}: each has"


def show(
    name: str,
    out: Path,
    split: str = "train",
    data_dir: Path | str | None = None,
    say: Say = to_stderr,
) -> str:
    """Draw some images of every class of a dataset; return a one-line summary.

    Args:
        name: a dataset in memory.
        out: PNG file to write.
        split: `train` or `test`.
        data_dir: folder to search first.
        say: called with messages about the sources that are tried.
    """
    # Imported here because of matplotlib.
    from clustercaps.data.sheet import contact_sheet

    images = load(name, split, data_dir, say=say)
    contact_sheet(images, out)
    return f"{out}: images of every class of {name}, {split} split"


def _check_folder(name: str, data_dir: Path | str | None, say: Say) -> str:
    lines = []
    broken = total = 0
    for split in ("train", "test"):
        try:
            folder = open_folder(name, split, data_dir)
        except DataError as error:
            # A folder without a test split can still be used for training.
            if split == "train":
                raise
            lines.append(f"{split}: {error}")
            continue
        total += len(folder)
        for problem in unreadable(folder):
            broken += 1
            say(str(problem))
        lines.append(f"{name} {split}: {_folder_counts(folder)}, all decoded")
    if broken:
        raise DataError(
            f"{name}: {broken:,} of {total:,} images cannot be read; repair or remove these files"
        )
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
