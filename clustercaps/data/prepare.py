"""Deterministic preprocessing: scale, resize, centre, normalise; batched.

Pixels are scaled to 0..1 and, as the last step, normalised with the mean and standard deviation of
the training set.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float32, UInt8
from torch import Tensor
from torch.nn.functional import interpolate, pad

from clustercaps.utils.preprocessing import SMALLEST_STD


@dataclass(frozen=True)
class Prepare:
    """Deterministic preprocessing: scale, resize, centre, normalise.

    Args:
        size: height and width to pad or crop to, around the centre; None keeps them.
        resize: height and width to resize square images to, before that; None keeps them.
        standardise: give each image zero mean and unit variance over all its pixels and channels.
        mean: subtracted per channel at the end.
        std: divisor per channel at the end.
    """

    size: int | None = None
    resize: int | None = None
    standardise: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __call__(
        self, pixels: UInt8[Tensor, "images channels height width"]
    ) -> Float32[Tensor, "images channels out_height out_width"]:
        """Preprocess a batch."""
        images = self.scale(pixels)
        if self.size is not None:
            images = centre(images, self.size)
        return self.normalise(images)

    def scale(self, pixels: Tensor) -> Tensor:
        """Convert bytes to floats in 0..1, or standardised."""
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
        """Subtract the mean and divide by the standard deviation of the dataset, in place."""
        if self.mean is None or self.std is None:
            return images
        mean, std = (images.new_tensor(v).view(-1, 1, 1) for v in (self.mean, self.std))
        return images.sub_(mean).div_(std)

    def pixels(self, images: Tensor) -> Tensor:
        """Preprocessed images as pixels in 0 to 1, the target of a decoder.

        Images that were standardised individually are rescaled to this range individually.
        """
        if self.standardise:
            low, high = images.amin((1, 2, 3), keepdim=True), images.amax((1, 2, 3), keepdim=True)
            return (images - low) / (high - low).clamp(min=SMALLEST_STD)
        if self.mean is not None and self.std is not None:
            mean, std = (images.new_tensor(v).view(-1, 1, 1) for v in (self.mean, self.std))
            images = images * std + mean
        # Jittered pixels may be out of range.
        return images.clamp(0, 1)


def resized(images: Tensor, side: int) -> Tensor:
    """Resize square images with bilinear interpolation; halving averages 2x2 pixels."""
    now = images.shape[-1]
    if now == side:
        return images
    if now == 2 * side:
        return halved(images)
    # Antialiasing when downsampling.
    return interpolate(
        images, (side, side), mode="bilinear", align_corners=False, antialias=side < now
    )


def halved(images: Tensor) -> Tensor:
    """Average 2x2 pixels; avg_pool2d takes ten times as long on the CPU."""
    rows = images[..., ::2, :] + images[..., 1::2, :]
    return (rows[..., ::2] + rows[..., 1::2]).div_(4)


def centre(images: Tensor, size: int) -> Tensor:
    """Pad with zeros or crop to a square around the centre."""
    height, width = images.shape[-2:]
    top, left = (size - height) // 2, (size - width) // 2
    # Negative padding crops.
    return pad(images, (left, size - width - left, top, size - height - top))
