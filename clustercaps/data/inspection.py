"""Implementation of `clustercaps data list | get | check | show`; each returns text to print."""

from pathlib import Path
from typing import Any

import torch

from clustercaps.data.catalogue import SETS, STREAMED, info, is_streamed
from clustercaps.data.datasets import load
from clustercaps.data.errors import DataError
from clustercaps.data.files import Say, to_stderr
from clustercaps.data.folders import FolderImages, folder_root, is_divided, open_folder, unreadable
from clustercaps.data.images import Images
from clustercaps.data.memory import decode
from clustercaps.data.published import PUBLISHED, RENDERED
from clustercaps.data.registries import REGISTRIES
from clustercaps.data.sheet import PLAIN_COLUMNS, contact_sheet
from clustercaps.data.sources import cached, fetch_set
from clustercaps.data.statistics import pixel_statistics
from clustercaps.utils.files import data_folder
from clustercaps.utils.tables import text_table

# Images of folders on a contact sheet.
SHOWN_SIDE = 64


def list_sets() -> str:
    """Return a table of the datasets: images, shape, classes, source, whether cached."""
    rows = [
        [
            row["name"],
            *("-" if row[part] is None else f"{row[part]:,}" for part in ("train", "test")),
            "x".join(str(n) for n in row["shape"]),
            "-" if row["classes"] is None else str(row["classes"]),
            {True: "yes", False: "no", None: "-"}.get(row["cached"], "built-in"),
            row["source"],
        ]
        for row in set_rows()
    ]
    header = ["name", "train", "test", "shape", "classes", "cached", "source"]
    return f"{text_table(header, rows)}\ncache: {data_folder()}"


def set_rows() -> list[dict[str, Any]]:
    """Return every dataset: name, images of each split, shape, classes, cached, source."""
    rows: list[dict[str, Any]] = []
    for known in SETS.values():
        there: bool | str = "built-in"
        if known.name in PUBLISHED or known.name in RENDERED:
            there = cached(known.name)
        rows.append(
            {
                **{"name": known.name, "train": known.train, "test": known.test},
                **{"shape": list(known.shape), "classes": known.num_classes},
                **{"cached": there, "source": _origin(known.name)},
            }
        )
    keys = ("name", "train", "test", "shape", "classes", "cached", "source")
    imagenet = (STREAMED, 1_281_167, 50_000, [3, 224, 224], 1000, None, "your own folder")
    folder = ("folder:PATH", None, None, [3, 64, 64], None, None, "class subfolders of PATH")
    return [*rows, *(dict(zip(keys, values, strict=True)) for values in (imagenet, folder))]


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
        means, deviations = pixel_statistics(images.pixels)
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
        name: a dataset.
        out: PNG file to write.
        split: `train` or `test`.
        data_dir: folder to search first.
        say: called with messages about the sources that are tried.
    """
    if is_streamed(name):
        images = _first_of_each_class(open_folder(name, split, data_dir, crop=SHOWN_SIDE), name)
    else:
        images = load(name, split, data_dir, say=say)
    images.meta["split"] = split
    contact_sheet(images, out)
    return f"{out}: images of every class of {name}, {split} split"


def _first_of_each_class(folder: FolderImages, name: str) -> Images:
    """Decode as many images of each class as a contact sheet shows."""
    members = [(folder.labels == label).nonzero().flatten() for label in range(folder.num_classes)]
    chosen = torch.cat([numbers[:PLAIN_COLUMNS] for numbers in members])
    return decode(folder.subset(chosen).unaugmented(), name)


def _check_folder(name: str, data_dir: Path | str | None, say: Say) -> str:
    lines = []
    broken = total = 0
    divided = is_divided(folder_root(name, data_dir))
    for split in ("train", "test") if divided else ("all",):
        try:
            folder = open_folder(name, split, data_dir)
        except DataError as error:
            # A folder without a test split can still be used for training.
            if split != "test":
                raise
            lines.append(f"{split}: {error}")
            continue
        total += len(folder)
        for problem in unreadable(folder):
            broken += 1
            say(str(problem))
        part = f"{name} {split}" if divided else name
        lines.append(f"{part}: {_folder_counts(folder)}, all decoded")
    if not divided:
        lines.append("no subfolders train and test: training holds out a fifth of each class")
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


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4f}" for value in values)
