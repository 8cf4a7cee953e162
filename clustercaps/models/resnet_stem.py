"""The first stage of a ResNet: what the paper puts before the capsules for ImageNet."""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from clustercaps.layers import ImageBatch


class ResNetStem(nn.Module):
    """A 7x7 convolution to 64 channels and one bottleneck residual block to 256.

    The strides are those of a ResNet: 2 in the convolution, 2 in the pooling after it, 1 in the
    block. An image of 224x224 becomes 256 maps of 56x56.
    """

    out_chans = 256

    def __init__(self, in_chans: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_chans, 64, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(64)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.narrow = nn.Conv2d(64, 64, 1, bias=False)
        self.narrow_norm = nn.BatchNorm2d(64)
        self.spatial = nn.Conv2d(64, 64, 3, padding=1, bias=False)
        self.spatial_norm = nn.BatchNorm2d(64)
        self.widen = nn.Conv2d(64, self.out_chans, 1, bias=False)
        self.widen_norm = nn.BatchNorm2d(self.out_chans)
        self.shortcut = nn.Conv2d(64, self.out_chans, 1, bias=False)
        self.shortcut_norm = nn.BatchNorm2d(self.out_chans)

    def out_size(self, img_size: tuple[int, int]) -> tuple[int, int]:
        """Size of the maps for an image of that size: halved twice, rounding up."""
        height, width = img_size
        return -(-height // 4), -(-width // 4)

    def forward(
        self, images: ImageBatch
    ) -> Float[Tensor, "batch 256 quarter_height quarter_width"]:
        """Images to 256 feature maps."""
        x = self.pool(F.relu(self.norm(self.conv(images))))
        y = F.relu(self.narrow_norm(self.narrow(x)))
        y = F.relu(self.spatial_norm(self.spatial(y)))
        y = self.widen_norm(self.widen(y))
        return F.relu(y + self.shortcut_norm(self.shortcut(x)))
