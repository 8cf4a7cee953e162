"""Preparation of images, as batched tensor operations with one draw per image.

Images of 32x32 are prepared as cluster routing's paper does it; for other sizes, crops and shifts
follow the papers of the networks that were made for them (docs/data.md).

Decisions where the paper is silent (docs/data.md gives the reasons):

* Pixels are scaled to 0..1 and, last of all, normalised by the mean and deviation of the training
  set, as the authors' program does; `normalise=False` leaves this out.
* Jittered pixels are not clipped: g = a f + b is all the paper says.
* Padding is black, also after jitter; for stereo pairs it is the mean of the image.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float32, Float64, UInt8
from torch import Tensor
from torch.nn.functional import interpolate, pad

from clustercaps.data.catalogue import info, is_streamed

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
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


@dataclass(frozen=True)
class Augment:
    """Random preparation for training: jitter, pad, shift, crop, flip, erase; by image.

    Args:
        prepare: scaling before the random part, normalisation after it; its `size` is the crop.
        jitter: contrast a is drawn from 1 +- jitter, brightness b from +- jitter times the mean
            of the image; pixels become a f + b.
        padding: pixels added on each side before shift and crop.
        edges: pad with the pixels at the border, not with black.
        shift: largest shift, as a part of the padded size.
        flip: probability of a mirror image.
        erase: probability that a rectangle is replaced by noise (Zhong et al. 2020), a fiftieth to
            a third of the image, one to three times as long as wide or the reverse.
    """

    prepare: Prepare
    jitter: float = 0.0
    padding: int = 0
    edges: bool = False
    shift: float = 0.0
    flip: float = 0.0
    erase: float = 0.0

    def __call__(
        self, pixels: UInt8[Tensor, "images channels height width"], generator: torch.Generator
    ) -> Float32[Tensor, "images channels out_height out_width"]:
        """Augment a batch.

        Args:
            pixels: on any device.
            generator: on the CPU for draws that do not depend on the device.
        """
        numbers = self.numbers(len(pixels), generator)
        boxes = self.boxes(len(pixels), generator) if self.erase else None
        return self.apply(pixels, numbers, boxes)

    @staticmethod
    def numbers(count: int, generator: torch.Generator) -> Float64[Tensor, "images 7"]:
        """Seven random numbers in 0..1 for each image: all that chance decides."""
        return torch.rand(
            count, 7, dtype=torch.float64, generator=generator, device=generator.device
        )

    @staticmethod
    def boxes(count: int, generator: torch.Generator) -> Float64[Tensor, "images 6"]:
        """Six more for each image, which decide whether and what is erased, and by what noise."""
        return torch.rand(
            count, 6, dtype=torch.float64, generator=generator, device=generator.device
        )

    def apply(
        self,
        pixels: UInt8[Tensor, "images channels height width"],
        numbers: Float64[Tensor, "images 7"],
        boxes: Float64[Tensor, "images 6"] | None = None,
    ) -> Float32[Tensor, "images channels out_height out_width"]:
        """Augment a batch with given random numbers, such as a process's share of a batch's."""
        images = self.prepare.scale(pixels)
        height, width = images.shape[-2:]
        draw = self.draw(numbers, height, width)
        device = images.device
        if self.jitter:
            # Stereo pairs: the paper normalises first, so the mean that scales b is zero and only
            # the contrast varies. The other order would be idle: standardising undoes any a f + b.
            means = images.mean(dim=(1, 2, 3), keepdim=True)
            brightness = draw.brightness.to(device).view(-1, 1, 1, 1) * means
            images = images.mul_(draw.contrast.to(device).view(-1, 1, 1, 1)).add_(brightness)
        size = self.prepare.size
        if size is not None:
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
        """Turn random numbers into the parameters of each image.

        Args:
            numbers: one row per image.
            height: of the images before padding.
            width: likewise.
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
                f"a crop of {size} does not fit into {extent} pixels padded by {self.padding} "
                "on each side"
            )
        # Shifting the image one way moves the crop the other way.
        moved = (shift * (2 * reach + 1)).long() - reach
        return (crop * starts).long() - moved + reach


@dataclass(frozen=True)
class Draw:
    """What was drawn for a batch: one entry per image in each tensor.

    Args:
        contrast: factor a.
        brightness: b as a part of the image's mean.
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
        images: normalised.
        boxes: random numbers of 0 to 1: whether, area, aspect, row, column, seed of the noise.
        probability: of erasing.
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


def crops(images: Tensor, top: Tensor, left: Tensor, size: int) -> Tensor:
    """Cut a square out of each image, at its own place, in one indexing operation."""
    windows = images.unfold(2, size, 1).unfold(3, size, 1)
    return windows[torch.arange(len(images), device=images.device), :, top, left]


def centre(images: Tensor, size: int) -> Tensor:
    """Pad with zeros or crop to a square around the centre."""
    height, width = images.shape[-2:]
    top, left = (size - height) // 2, (size - width) // 2
    # Negative padding crops.
    return pad(images, (left, size - width - left, top, size - height - top))


# The paper's size, and what it pads around every image before a crop of this size is taken.
PAPER_SIZE, PAPER_PADDING = 32, 4


def test_transform(name: str, normalise: bool = True, size: int = PAPER_SIZE) -> Prepare:  # noqa: PT028
    """Preparation of test images of a set.

    Args:
        name: a set, `imagenet` or `folder:PATH`.
        normalise: divide by the set's statistics; stereo pairs are standardised by image anyway.
        size: height and width that a network sees; streamed images have theirs already.
    """
    if is_streamed(name):
        return Prepare(mean=IMAGENET_MEAN, std=IMAGENET_STD) if normalise else Prepare()
    known = info(name)
    if known.stereo:
        return Prepare(size, _stereo_side(size), standardise=True)
    resize = None if size <= known.shape[1] + 2 * PAPER_PADDING else size
    mean, std = (known.mean, known.std) if normalise else (None, None)
    return Prepare(size, resize, mean=mean, std=std)


def train_transform(name: str, normalise: bool = True, size: int = PAPER_SIZE) -> Augment:
    """Preparation of training images of a set.

    Args:
        name: a set, `imagenet` or `folder:PATH` (crop and flip of these happen while reading).
        normalise: divide by the set's statistics; stereo pairs are standardised by image anyway.
        size: height and width that a network sees; streamed images have theirs already.
    """
    prepare = test_transform(name, normalise, size)
    if is_streamed(name):
        return Augment(prepare)
    known = info(name)
    if known.stereo:
        return _augment_stereo(prepare, size)
    # Digits are not mirrored. The paper has no line for MNIST: as Fashion-MNIST otherwise.
    flip = 0.0 if name in ("mnist", "svhn") else 0.5
    side = known.shape[1]
    # How far the paper's crops lie off the centre, at most: 4 pixels, or 2 for images of 28x28.
    reach = PAPER_PADDING - (PAPER_SIZE - side) / 2
    margin = math.ceil((size - (prepare.resize or side)) / 2)
    padding = max(0, round(reach * size / PAPER_SIZE) + margin)
    return Augment(prepare, jitter=0.2, padding=padding, flip=flip)


def _stereo_side(size: int) -> int:
    """What stereo pairs of 96x96 are resized to, before a part of `size` is taken."""
    if size <= PAPER_SIZE:
        return 48
    # Efficient-CapsNet takes 48 of 64. Larger images are whole, as in Heinsen's network.
    return 64 if size <= 48 else size


def _augment_stereo(prepare: Prepare, size: int) -> Augment:
    if size <= PAPER_SIZE:
        padding = round(PAPER_PADDING * size / PAPER_SIZE)
        return Augment(prepare, jitter=0.2, padding=padding, shift=0.2)
    if size <= 48:
        return Augment(prepare, jitter=0.2)
    # Heinsen's 16 of 96.
    return Augment(prepare, jitter=0.2, padding=round(size / 6), edges=True)


# pytest would take the name for a test.
test_transform.__test__ = False  # type: ignore[attr-defined]
