"""Preparation of images without chance: scale, resize, centre, normalise; batched.

Pixels are scaled to 0..1 and, last of all, normalised by the mean and standard deviation of the
training set.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float32, UInt8
from torch import Tensor
from torch.nn.functional import interpolate, pad

# No image is divided by less than one grey level.
SMALLEST_STD = 1 / 255


@dataclass(frozen=True)
class Prepare:
    """Preparation without chance: scale, centre, normalise.

    Args:
        size: height and width to pad or crop to, around the centre; None keeps them.
        resize: height and width to resize square images to, before that; None keeps them.
        standardise: give each image zero mean and unit variance over all its pixels and channels.
        mean: subtracted per channel at the end.
        std: divided by per channel at the end.
    """

    size: int | None = None
    resize: int | None = None
    standardise: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __call__(
        self, pixels: UInt8[Tensor, "images channels height width"]
    ) -> Float32[Tensor, "images channels out_height out_width"]:
        """Prepare a batch."""
        images = self.scale(pixels)
        if self.size is not None:
            images = centre(images, self.size)
        return self.normalise(images)

    def scale(self, pixels: Tensor) -> Tensor:
        """Turn bytes into numbers: 0..1, or standardised."""
        images = pixels.to(torch.float32)
        if self.resize is not None:
            images = resized(images, self.resize)
        images = images.div_(255)
        if self.standardise:
            images = images.sub_(images.mean(dim=(1, 2, 3), keepdim=True))
            # torch.std is several times slower on the CPU.
            std = images.square().mean(dim=(1, 2, 3), keepdim=True).sqrt_()
            images = images.div_(std.clamp_(min=SMALLEST_STD))
        return images

    def normalise(self, images: Tensor) -> Tensor:
        """Subtract the mean and divide by the deviation of the set, in place."""
        if self.mean is None or self.std is None:
            return images
        mean, std = (images.new_tensor(v).view(-1, 1, 1) for v in (self.mean, self.std))
        return images.sub_(mean).div_(std)

    def pixels(self, images: Tensor) -> Tensor:
        """Prepared images as pixels of 0 to 1, which a decoder can draw.

        Images that were standardised one by one are stretched to that range one by one.
        """
        if self.standardise:
            low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
            return (images - low) / (high - low).clamp(min=SMALLEST_STD)
        if self.mean is not None and self.std is not None:
            mean, std = (images.new_tensor(v).view(-1, 1, 1) for v in (self.mean, self.std))
            images = images * std + mean
        # Jitter leaves the range.
        return images.clamp(0, 1)


def resized(images: Tensor, side: int) -> Tensor:
    """Square images with another side, interpolated linearly; a quarter of the pixels by means."""
    now = images.shape[-1]
    if now == side:
        return images
    if now == 2 * side:
        return halved(images)
    # Smaller images average what a pixel covers, and do not skip pixels.
    return interpolate(
        images, (side, side), mode="bilinear", align_corners=False, antialias=side < now
    )


def halved(images: Tensor) -> Tensor:
    """Average 2x2 pixels: the same as avg_pool2d, which takes ten times as long on the CPU."""
    rows = images[..., ::2, :] + images[..., 1::2, :]
    return (rows[..., ::2] + rows[..., 1::2]).div_(4)


def centre(images: Tensor, size: int) -> Tensor:
    """Pad with zeros or crop to a square around the centre."""
    height, width = images.shape[-2:]
    top, left = (size - height) // 2, (size - width) // 2
    # Negative padding crops.
    return pad(images, (left, size - width - left, top, size - height - top))
