"""Decoders: from capsules to an image."""

from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.utils.sizes import ImageBatch


class FullyConnectedDecoder(nn.Module):
    """Three linear layers, two with ReLU and one with a sigmoid, as in dynamic routing.

    Args:
        in_features: Length of the flat vector of masked capsules.
        in_chans: Colour channels of the image.
        img_size: Height and width of the image.
        hidden: Units of the two hidden layers.
    """

    def __init__(
        self,
        in_features: int,
        in_chans: int,
        img_size: tuple[int, int],
        hidden: tuple[int, int] = (512, 1024),
    ) -> None:
        super().__init__()
        height, width = img_size
        first, second = hidden
        self.layers = nn.Sequential(
            nn.Linear(in_features, first),
            nn.ReLU(),
            nn.Linear(first, second),
            nn.ReLU(),
            nn.Linear(second, in_chans * height * width),
            nn.Sigmoid(),
            nn.Unflatten(1, (in_chans, height, width)),
        )

    def forward(self, capsules: Float[Tensor, "batch features"]) -> ImageBatch:
        """A flat vector to an image in [0, 1]."""
        return self.layers(capsules)


class DenseDecoder(nn.Module):
    """Four linear layers, the third of which takes the outputs of the first two, as in DCNet.

    Args:
        in_features: Length of the flat vector of masked capsules.
        in_chans: Colour channels of the image.
        img_size: Height and width of the image.
        width: Units of the first and second layer; the third has twice as many.
    """

    def __init__(
        self, in_features: int, in_chans: int, img_size: tuple[int, int], width: int = 512
    ) -> None:
        super().__init__()
        height, breadth = img_size
        self.first = nn.Linear(in_features, width)
        self.second = nn.Linear(width, width)
        self.layers = nn.Sequential(
            nn.Linear(2 * width, 2 * width),
            nn.ReLU(),
            nn.Linear(2 * width, in_chans * height * breadth),
            nn.Sigmoid(),
            nn.Unflatten(1, (in_chans, height, breadth)),
        )

    def forward(self, capsules: Float[Tensor, "batch features"]) -> ImageBatch:
        """A flat vector to an image in [0, 1]."""
        first = self.first(capsules).relu()
        second = self.second(first).relu()
        return self.layers(torch.cat([first, second], 1))


class UpsamplingDecoder(nn.Module):
    """Feature maps upsampled to the size of the image, then two 3x3 convolutions.

    Transformations of the feature maps, such as rotations and shifts, carry over to the image.

    Args:
        map_chans: Channels of the feature maps.
        in_chans: Colour channels of the image.
        img_size: Height and width of the image.
    """

    def __init__(self, map_chans: int, in_chans: int, img_size: tuple[int, int]) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Upsample(size=img_size),
            nn.Conv2d(map_chans, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, in_chans, 3, padding=1),
            nn.Sigmoid(),
        )

    def forward(self, maps: Float[Tensor, "batch map_chans map_height map_width"]) -> ImageBatch:
        """Feature maps to an image in [0, 1]."""
        return self.layers(maps)


class ConvolutionalDecoder(nn.Module):
    """A small feature map, upsampled by two three times, each followed by a 3x3 convolution.

    As in Efficient-CapsNet for smallNORB, where an 8x8 feature map becomes a 48x48 image; for other
    sizes, the smallest sufficient feature map is used and the result is cropped.

    Args:
        in_features: Length of the flat vector of masked capsules.
        in_chans: Colour channels of the image.
        img_size: Height and width of the image.
    """

    def __init__(self, in_features: int, in_chans: int, img_size: tuple[int, int]) -> None:
        super().__init__()
        # A side of n becomes 8 n - 16: three times doubled and reduced by 2, then reduced by 2.
        height, width = (-(-(side + 16) // 8) for side in img_size)
        self.img_size = img_size
        chans = (1, 64, 128, 128)
        layers: list[nn.Module] = [
            nn.Linear(in_features, height * width),
            nn.Unflatten(1, (1, height, width)),
        ]
        for below, above in pairwise(chans):
            layers.append(nn.Upsample(scale_factor=2, mode="bilinear"))
            layers += [nn.Conv2d(below, above, 3), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(chans[-1], in_chans, 3), nn.Sigmoid())

    def forward(self, capsules: Float[Tensor, "batch features"]) -> ImageBatch:
        """A flat vector to an image in [0, 1]."""
        height, width = self.img_size
        return self.layers(capsules)[:, :, :height, :width]
