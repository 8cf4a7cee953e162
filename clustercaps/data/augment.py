"""Random augmentation as batched tensor operations, with random parameters per image.

* Jittered pixels are not clipped: the paper only says g = a f + b.
* Padding is black, also after jitter; for stereo pairs it is the mean of the image.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float32, Float64, UInt8
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, pad

from clustercaps.data.prepare import Prepare


@dataclass(frozen=True)
class Augment:
    """Random augmentation for training: jitter, pad, shift, crop, flip, erase, per image.

    Args:
        prepare: scaling before the random part, normalisation after it; its `size` is the crop.
        jitter: contrast a is sampled from 1 +- jitter, brightness b from +- jitter times the mean
            of the image; pixels become a f + b.
        padding: pixels added on each side before shift and crop.
        edges: pad with the border pixels instead of black.
        shift: largest shift, as a fraction of the padded size.
        crop_area: smallest area of a crop, as a fraction of the image; crops of random area and an
            aspect ratio of 3/4 to 4/3 are resized, in the place of padding, shift and crop. 0 for
            crops of the size of the input.
        flip: probability of a horizontal flip.
        erase: probability that a rectangle is replaced by noise (Zhong et al. 2020), with an area
            of 1/50 to 1/3 of the image and an aspect ratio of 1/3 to 3.
    """

    prepare: Prepare
    jitter: float = 0.0
    padding: int = 0
    edges: bool = False
    shift: float = 0.0
    crop_area: float = 0.0
    flip: float = 0.0
    erase: float = 0.0

    def __call__(
        self, pixels: UInt8[Tensor, "images channels height width"], generator: torch.Generator
    ) -> Float32[Tensor, "images channels out_height out_width"]:
        """Augment a batch.

        Args:
            pixels: on any device.
            generator: on the CPU for randomness that does not depend on the device.
        """
        numbers = self.numbers(len(pixels), generator)
        boxes = self.boxes(len(pixels), generator) if self.erase else None
        return self.apply(pixels, numbers, boxes)

    @staticmethod
    def numbers(count: int, generator: torch.Generator) -> Float64[Tensor, "images 7"]:
        """Seven random numbers in 0..1 per image: all randomness of the augmentation."""
        return torch.rand(
            count, 7, dtype=torch.float64, generator=generator, device=generator.device
        )

    @staticmethod
    def boxes(count: int, generator: torch.Generator) -> Float64[Tensor, "images 6"]:
        """Six random numbers per image for erasing: whether, where, and with which noise."""
        return torch.rand(
            count, 6, dtype=torch.float64, generator=generator, device=generator.device
        )

    def apply(
        self,
        pixels: UInt8[Tensor, "images channels height width"],
        numbers: Float64[Tensor, "images 7"],
        boxes: Float64[Tensor, "images 6"] | None = None,
    ) -> Float32[Tensor, "images channels out_height out_width"]:
        """Augment a batch, or a process's part of a batch, with given random numbers."""
        images = self.prepare.scale(pixels)
        height, width = images.shape[-2:]
        draw = self.draw(numbers, height, width)
        device = images.device
        if self.jitter:
            # Stereo pairs: the paper normalises first, so the mean that scales b is zero and only
            # the contrast varies. The other order has no effect: standardising undoes any a f + b.
            means = images.mean(dim=(1, 2, 3), keepdim=True)
            brightness = draw.brightness.to(device).view(-1, 1, 1, 1) * means
            images = images.mul_(draw.contrast.to(device).view(-1, 1, 1, 1)).add_(brightness)
        size = self.prepare.size
        if self.crop_area:
            windows = crop_windows(self.crop_area, numbers[:, 2:6]).to(device)
            images = resized_crops(images, windows, size or height, size or width)
        elif size is not None:
            across, down = (self.padding + self._reach(n) for n in (width, height))
            mode = "replicate" if self.edges else "constant"
            images = pad(images, (across, across, down, down), mode=mode)
            images = crops(images, draw.top.to(device), draw.left.to(device), size)
        if self.flip:
            mirrored = draw.mirrored.to(device).view(-1, 1, 1, 1)
            images = torch.where(mirrored, images.flip(-1), images)
        images = self.prepare.normalise(images)
        return images if boxes is None else erased(images, boxes, self.erase)

    def draw(self, numbers: Float64[Tensor, "images 7"], height: int, width: int) -> "Draw":
        """Convert random numbers to the parameters of each image.

        Args:
            numbers: one row per image.
            height: height of the images before padding.
            width: width of the images before padding.
        """
        signed = (2 * numbers[:, :2] - 1) * self.jitter
        size = self.prepare.size
        tops, lefts = (
            self._starts(numbers[:, column], numbers[:, column + 2], extent, size or extent)
            for column, extent in ((2, height), (3, width))
        )
        return Draw(
            contrast=(1 + signed[:, 0]).float(),
            brightness=signed[:, 1].float(),
            top=tops,
            left=lefts,
            mirrored=numbers[:, 6] < self.flip,
        )

    def _reach(self, extent: int) -> int:
        """Largest shift in whole pixels."""
        return int(self.shift * (extent + 2 * self.padding))

    def _starts(self, crop: Tensor, shift: Tensor, extent: int, size: int) -> Tensor:
        """First row (or column) of each crop in the image padded by padding and reach."""
        reach = self._reach(extent)
        starts = extent + 2 * self.padding - size + 1
        if starts < 1:
            raise ValueError(
                f"a crop of {size} is larger than {extent} pixels padded by {self.padding} on each "
                "side"
            )
        # Shifting the image in one direction moves the crop in the other.
        moved = (shift * (2 * reach + 1)).long() - reach
        return (crop * starts).long() - moved + reach


@dataclass(frozen=True)
class Draw:
    """Random parameters of a batch: one entry per image in each tensor.

    Args:
        contrast: factor a.
        brightness: b as a fraction of the image's mean.
        top: first row of the crop in the padded image.
        left: first column of the crop in the padded image.
        mirrored: whether the crop is flipped.
    """

    contrast: Tensor
    brightness: Tensor
    top: Tensor
    left: Tensor
    mirrored: Tensor


def erased(
    images: Float32[Tensor, "images channels height width"],
    boxes: Float64[Tensor, "images 6"],
    probability: float,
) -> Float32[Tensor, "images channels height width"]:
    """Replace a rectangle of some images by noise of mean 0 and standard deviation 1.

    Args:
        images: normalised images.
        boxes: random numbers in 0 to 1: whether, area, aspect, row, column, seed of the noise.
        probability: probability of erasing.
    """
    height, width = images.shape[2:]
    area = (0.02 + boxes[:, 1] * (1 / 3 - 0.02)) * height * width
    aspect = torch.exp((2 * boxes[:, 2] - 1) * math.log(3))
    tall = (area * aspect).sqrt().round().clamp(1, height)
    broad = (area / aspect).sqrt().round().clamp(1, width)
    top = (boxes[:, 3] * (height - tall + 1)).floor()
    left = (boxes[:, 4] * (width - broad + 1)).floor()
    rows, columns = torch.arange(height), torch.arange(width)
    in_rows = (rows >= top[:, None]) & (rows < (top + tall)[:, None])
    in_columns = (columns >= left[:, None]) & (columns < (left + broad)[:, None])
    chosen = (boxes[:, 0] < probability)[:, None, None] & in_rows[:, :, None] & in_columns[:, None]
    noise = torch.empty(images.shape, dtype=torch.float32)
    for image, seed in zip(noise, (boxes[:, 5] * 2**53).long().tolist(), strict=True):
        image.normal_(generator=torch.Generator().manual_seed(seed))
    return torch.where(chosen[:, None].to(images.device), noise.to(images.device), images)


def crops(images: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    """Crop a square from each image, at its own position, in one indexing operation."""
    windows = images.unfold(2, size, 1).unfold(3, size, 1)
    return windows[torch.arange(len(images), device=images.device), :, top, left]


def crop_windows(
    smallest: float, numbers: Float64[Tensor, "images 4"]
) -> Float32[Tensor, "images 4"]:
    """Top, left, height and width of random windows, as fractions of the image.

    Args:
        smallest: the smallest area, as a fraction of the image; the largest is 1.
        numbers: random numbers in 0 to 1: row, column, area, aspect.
    """
    row, column, area, aspect = numbers.unbind(1)
    area = smallest + area * (1 - smallest)
    aspect = torch.exp((2 * aspect - 1) * math.log(4 / 3))
    tall, broad = (area / aspect).sqrt().clamp(max=1), (area * aspect).sqrt().clamp(max=1)
    return torch.stack([row * (1 - tall), column * (1 - broad), tall, broad], 1).float()


def resized_crops(
    images: Float32[Tensor, "images channels height width"],
    windows: Float32[Tensor, "images 4"],
    height: int,
    width: int,
) -> Float32[Tensor, "images channels out_height out_width"]:
    """Resize a window of each image with bilinear interpolation.

    Args:
        images: images of one size.
        windows: top, left, height and width of each window, as fractions of the image.
        height: height of the result.
        width: width of the result.
    """
    top, left, tall, broad = windows.unbind(1)
    none = torch.zeros_like(top)
    # In coordinates from -1 to 1, as the sampling has them.
    rows = [
        torch.stack([broad, none, 2 * left + broad - 1], 1),
        torch.stack([none, tall, 2 * top + tall - 1], 1),
    ]
    shape = [len(images), images.shape[1], height, width]
    grid = affine_grid(torch.stack(rows, 1), shape, align_corners=False)
    return grid_sample(images, grid, padding_mode="border", align_corners=False)
