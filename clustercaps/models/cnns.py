"""The convolutional classifiers that the paper compares with."""

from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.models.base import LinearClassifier
from clustercaps.models.capsule_net import STRIDES
from clustercaps.utils.sizes import ImageBatch, Size, map_sizes, show_size


class BaselineCNN(LinearClassifier):
    """Five 3x3 convolutions with ReLU and layer norm, strides 1 2 1 2 1, and a linear head.

    Args:
        num_classes: Number of classes; 0 for no classifier.
        in_chans: Colour channels.
        img_size: Height and width of the images.
        width: Filters of every layer.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 3,
        img_size: Size = 32,
        width: int = 256,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size)
        sizes = map_sizes(self.img_size, [(3, stride, 1) for stride in STRIDES])
        self.layers = nn.Sequential(
            *(
                nn.Sequential(
                    nn.Conv2d(width if i else in_chans, width, 3, stride, padding=1),
                    nn.ReLU(),
                    nn.LayerNorm((width, *sizes[i + 1])),
                )
                for i, stride in enumerate(STRIDES)
            )
        )
        height, width_of_map = sizes[-1]
        self.build_head(width * height * width_of_map, height * width_of_map)

    def forward_features(
        self, images: ImageBatch
    ) -> Float[Tensor, "batch filters map_height map_width"]:
        """Images to the feature maps of the last layer."""
        self.check_images(images)
        return self.layers(images)


class ViewpointCNN(LinearClassifier):
    """The convolutional baseline for novel viewpoints, from Hinton et al., ICLR 2018.

    Two 5x5 convolutions of 32 and 64 filters with ReLU and 2x2 pooling, 1024 hidden units with
    dropout, and a linear head.

    Args:
        num_classes: Number of classes; 0 for no classifier.
        in_chans: Colour channels; a stereo pair has 2.
        img_size: Height and width of the images.
        dropout: Dropout rate of the hidden units.
    """

    def __init__(
        self,
        num_classes: int = 5,
        in_chans: int = 2,
        img_size: Size = 32,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size)
        height, width = (side // 2 // 2 for side in self.img_size)
        if not height or not width:
            raise ValueError(
                f"an image of {show_size(self.img_size)} is too small: the feature maps are empty "
                "after the second pooling; use at least 4x4"
            )
        self.layers = nn.Sequential(
            nn.Conv2d(in_chans, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * height * width, 1024),
            nn.ReLU(),
            nn.Dropout(dropout),
        )
        self.build_head(1024)

    def forward_features(self, images: ImageBatch) -> Float[Tensor, "batch 1024"]:
        """Images to the hidden units."""
        self.check_images(images)
        return self.layers(images)
