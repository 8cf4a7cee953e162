"""Images that are given in Python: arrays, tensors, or a torch `Dataset`, as `Images`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from clustercaps.data.errors import DataError
from clustercaps.data.images import Images

# An axis of at most this many entries is taken for the colour channels.
MOST_CHANNELS = 4
EXPECTED = (
    "expected a torch Dataset of (image, label), or a pair (images, labels) with images uint8, or "
    "float in 0 to 1, [N, C, H, W], [N, H, W, C] or [N, H, W]"
)


def as_images(given: Any, what: str, class_names: Sequence[str] | None = None) -> Images:
    """Arrays or a dataset as `Images`; floats are rounded to 8 bits, as in image files.

    A dataset is read once: random transforms in it are frozen.

    Args:
        given: `(images, labels)`, or a dataset with a length whose items are `(image, label)`.
        what: its name in errors, such as "train".
        class_names: names of the classes; those of the dataset (`classes`), or numbers, by default.
    """
    if isinstance(given, tuple) and len(given) == 2:
        pixels, labels = as_pixels(given[0], what), as_labels(given[1], what)
    elif hasattr(given, "__getitem__") and hasattr(given, "__len__"):
        if class_names is None:
            class_names = getattr(given, "classes", None)
        pixels, labels = _read_dataset(given, what)
    else:
        raise DataError(f"{what}: {EXPECTED}; got {type(given).__name__}")
    if len(pixels) != len(labels):
        raise DataError(f"{what}: {len(pixels):,} images, but {len(labels):,} labels")
    if not len(labels):
        raise DataError(f"{what} has no images")
    if int(labels.min()) < 0:
        raise DataError(f"{what}: labels must be 0 or more, got {int(labels.min())}")
    classes = int(labels.max()) + 1
    names = tuple(str(n) for n in (range(classes) if class_names is None else class_names))
    if classes > len(names):
        raise DataError(
            f"{what} has the label {classes - 1}, but there are only {len(names)} classes; labels "
            "start at 0"
        )
    return Images(pixels, labels, {"class_names": names, "num_classes": len(names)})


def as_pixels(given: Any, what: str) -> UInt8[Tensor, "images channels height width"]:
    """Images in any accepted type and layout as uint8 [N, C, H, W]."""
    if not isinstance(given, Tensor | np.ndarray):
        raise DataError(f"{what}: {EXPECTED}; got images of type {type(given).__name__}")
    # A copy, because an array may be read-only.
    images = given if isinstance(given, Tensor) else torch.from_numpy(np.array(given))
    images = images.detach().cpu()
    if images.ndim == 3:
        images = images.unsqueeze(1)
    if images.ndim != 4:
        raise DataError(f"{what}: {EXPECTED}; got images of shape {tuple(given.shape)}")
    if images.shape[1] > MOST_CHANNELS:
        if images.shape[-1] > MOST_CHANNELS:
            raise DataError(
                f"{what}: {EXPECTED}; got shape {tuple(given.shape)}, in which no axis can be the "
                f"colour channels (at most {MOST_CHANNELS})"
            )
        images = images.permute(0, 3, 1, 2)
    if images.shape[1] not in (1, 3):
        raise DataError(
            f"{what}: images have {images.shape[1]} colour channels, expected 1 (grey) or 3 (RGB)"
        )
    if images.dtype == torch.uint8:
        return images.contiguous()
    if not images.is_floating_point():
        raise DataError(f"{what}: {EXPECTED}; got {given.dtype}; convert them")
    if images.numel() and not (images.min() >= 0 and images.max() <= 1):
        raise DataError(
            f"{what}: float images must be in 0 to 1, got {float(images.min()):g} to "
            f"{float(images.max()):g}; pass images before normalisation: their mean and standard "
            "deviation are computed here"
        )
    return (images.float() * 255).round().to(torch.uint8).contiguous()


def as_labels(given: Any, what: str) -> Int64[Tensor, "images"]:
    """Labels in any integer type as one int64 tensor."""
    try:
        labels = torch.as_tensor(given).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{what}: labels must be integers, one per image ({error})") from error
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex():
        raise DataError(
            f"{what}: labels must be integers, one per image; got {labels.dtype} of shape "
            f"{tuple(labels.shape)}"
        )
    return labels.to(torch.int64)


def _read_dataset(dataset: Any, what: str) -> tuple[Tensor, Tensor]:
    """All items of a dataset, which must have one size."""
    pixels: list[Tensor] = []
    labels: list[Any] = []
    for number in range(len(dataset)):
        item = dataset[number]
        if not isinstance(item, tuple | list) or len(item) != 2:
            raise DataError(f"{what}: item {number} must be (image, label), got {type(item)}")
        image, label = item
        if hasattr(image, "convert"):
            # An image of Pillow.
            image = np.array(image if image.mode in ("L", "RGB") else image.convert("RGB"))
        if isinstance(image, np.ndarray) and image.ndim == 2:
            image = image[None]
        one = image[None] if isinstance(image, Tensor | np.ndarray) else image
        pixels.append(as_pixels(one, f"{what}, item {number}")[0])
        if pixels[-1].shape != pixels[0].shape:
            raise DataError(
                f"{what}: item {number} has shape {tuple(pixels[-1].shape)}, the first "
                f"{tuple(pixels[0].shape)}; resize them to one size, or train on folder:PATH"
            )
        labels.append(int(label))
    if not pixels:
        raise DataError(f"{what} has no images")
    return torch.stack(pixels), as_labels(labels, what)


def fitted(images: Images, resize: int, crop: int | None = None) -> Images:
    """Resize images like those of a folder; with `crop`, keep the centre of this size."""
    pixels = images.pixels
    if pixels.shape[-2:] != (resize, resize):
        parts = [
            interpolate(part.float(), (resize, resize), mode="bilinear", antialias=True)
            for part in pixels.split(1000)
        ]
        pixels = torch.cat([part.round().clamp(0, 255).to(torch.uint8) for part in parts])
    if crop is not None:
        edge = (resize - crop) // 2
        pixels = pixels[..., edge : edge + crop, edge : edge + crop].contiguous()
    return replace(images, pixels=pixels)
