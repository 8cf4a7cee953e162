"""From capsules back to an image."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers import ImageBatch


class FullyConnectedDecoder(nn.Module):
    """Three linear layers, 512, 1024 and one unit per pixel, as for dynamic routing.

    Args:
        in_features: Length of the flat vector of masked capsules.
        in_chans: Colour channels of the image.
        img_size: Height and width of the image.
    """

    def __init__(self, in_features: int, in_chans: int, img_size: tuple[int, int]) -> None:
        super().__init__()
        height, width = img_size
        self.layers = nn.Sequential(
            nn.Linear(in_features, 512),
            nn.ReLU(),
            nn.Linear(512, 1024),
            nn.ReLU(),
            nn.Linear(1024, in_chans * height * width),
            nn.Sigmoid(),
            nn.Unflatten(1, (in_chans, height, width)),
        )

    def forward(self, capsules: Float[Tensor, "batch features"]) -> ImageBatch:
        """A flat vector to an image in [0, 1]."""
        return self.layers(capsules)  # type: ignore[no-any-return]


class DenseDecoder(nn.Module):
    """Four linear layers of which the third reads the two before it, as in DCNet.

    Args:
        in_features: Length of the flat vector of masked capsules.
        in_chans: Colour channels of the image.
        img_size: Height and width of the image.
        width: Units of the first and of the second layer; the third has as many as both.
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
        return self.layers(torch.cat([first, second], 1))  # type: ignore[no-any-return]


class UpsamplingDecoder(nn.Module):
    """Maps stretched to the image's size, then two 3x3 convolutions, ReLU and sigmoid.

    Whatever happens to the maps, a turn or a shift, can happen to the image.

    Args:
        map_chans: Channels of the maps.
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
        """Maps to an image in [0, 1]."""
        return self.layers(maps)  # type: ignore[no-any-return]
