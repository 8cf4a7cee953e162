"""`load`: one split of a dataset, as tensors in memory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clustercaps.data.catalogue import SetInfo, info, is_streamed
from clustercaps.data.errors import DataError
from clustercaps.data.files import Say, to_stderr
from clustercaps.data.formats import read_cifar, read_idx, read_svhn
from clustercaps.data.images import Images
from clustercaps.data.mini import MINI_FILE, read_mini
from clustercaps.data.norb import Decoded, check_views, decode_norb
from clustercaps.data.rendering.norb_set import FULL, PLANS
from clustercaps.data.sources import Content, obtain

SPLITS = ("train", "test")


def load(
    name: str,
    split: str = "train",
    data_dir: Path | str | None = None,
    verify: bool = True,
    say: Say = to_stderr,
    fetch: bool = True,
) -> Images:
    """Load one split of a dataset into memory, downloading it first if necessary.

    Args:
        name: one of `SETS`.
        split: `train` or `test`.
        data_dir: folder with the official files; searched before the cache.
        verify: compare files with the published checksums and counts; otherwise only the structure
            of the files is checked.
        say: called with messages about the source of the files.
        fetch: download the files if neither folder nor cache has them.

    Raises:
        KeyError: unknown name.
        DataError: the files are not available, or not valid.
    """
    if split not in SPLITS:
        raise ValueError(f"split must be 'train' or 'test', got {split!r}")
    if is_streamed(name):
        raise ValueError(f"{name} is streamed; use open_folder({name!r}, {split!r})")
    known = info(name)
    extra: dict[str, NDArray[Any]] = {}
    if name == "fashion-mnist-mini":
        (pixels, labels), source = read_mini(split), "embedded"
        matched = {MINI_FILE.name: "checksum"}
    else:
        files, source = obtain(name, split, data_dir, verify, say, fetch)
        (pixels, labels), extra = _DECODERS[name](files)
        matched = {file.path.name: file.matched for file in files}
    _check(known, split, pixels, labels, source, verify)
    if "size" in matched.values():
        check_views(PLANS.get(name, FULL).instances(split), pixels, labels, extra, source)
    meta: dict[str, Any] = {
        **{"name": name, "split": split},
        "class_names": known.class_names,
        "num_classes": known.num_classes,
        "source": source,
        "matched": matched,
    }
    meta |= {key: torch.from_numpy(value.astype(np.int64)) for key, value in extra.items()}
    # A copy, because the arrays are views of immutable bytes.
    copy = torch.from_numpy(np.array(pixels))
    return Images(copy, torch.from_numpy(labels.astype(np.int64)), meta)


def _idx(files: list[Content]) -> Decoded:
    images, labels = files
    pixels = read_idx(images.data, images.path, 3)[:, None]
    return (pixels, read_idx(labels.data, labels.path, 1)), {}


def _cifar(files: list[Content]) -> Decoded:
    batches = [read_cifar(file.data, file.path) for file in files]
    pixels, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return (pixels, labels), {}


def _svhn(files: list[Content]) -> Decoded:
    return read_svhn(files[0].data, files[0].path), {}


_DECODERS: dict[str, Callable[[list[Content]], Decoded]] = {
    "mnist": _idx,
    "fashion-mnist": _idx,
    "cifar10": _cifar,
    "svhn": _svhn,
    "smallnorb": decode_norb,
    "rendered-norb": decode_norb,
    "rendered-norb-25": decode_norb,
}


def _check(
    known: SetInfo,
    split: str,
    pixels: NDArray[Any],
    labels: NDArray[Any],
    source: str,
    verify: bool,
) -> None:
    if pixels.shape[1:] != known.shape:
        raise DataError(
            f"{source}: {known.name} images of shape {pixels.shape[1:]}, expected {known.shape}"
        )
    if len(pixels) != len(labels):
        raise DataError(f"{source}: {len(pixels):,} images but {len(labels):,} labels")
    if len(labels) == 0:
        raise DataError(f"{source}: {known.name} {split} files contain no images")
    if labels.min() < 0 or labels.max() >= known.num_classes:
        raise DataError(
            f"{source}: labels {labels.min()} to {labels.max()}, "
            f"expected 0 to {known.num_classes - 1}"
        )
    if verify and len(labels) != known.count(split):
        raise DataError(f"{source}: {len(labels):,} images, expected {known.count(split):,}")
