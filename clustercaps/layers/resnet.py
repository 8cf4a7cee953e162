"""Residual networks before capsule layers.

He, Zhang, Ren and Sun, "Deep residual learning for image recognition", CVPR 2016.
"""

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from clustercaps.utils.sizes import ImageBatch, conv_size

Maps = Float[Tensor, "batch chans height width"]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, and a shortcut around them.

    Args:
        map_chans: Input channels.
        chans: Output channels.
        stride: Stride of the first convolution.
        learned_shortcut: If the shape changes, whether the shortcut is a 1x1 convolution with batch
            norm; otherwise it is subsampled and padded with zero channels ("option A").
    """

    def __init__(self, map_chans: int, chans: int, stride: int, learned_shortcut: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(map_chans, chans, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(chans)
        self.conv2 = nn.Conv2d(chans, chans, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(chans)
        self.stride, self.missing = stride, chans - map_chans
        self.shortcut: nn.Module | None = None
        if learned_shortcut and (stride != 1 or self.missing):
            self.shortcut = nn.Sequential(
                nn.Conv2d(map_chans, chans, 1, stride, bias=False), nn.BatchNorm2d(chans)
            )

    def forward(
        self, maps: Float[Tensor, "batch map_chans in_height in_width"]
    ) -> Float[Tensor, "batch chans height width"]:
        """Feature maps to feature maps."""
        changed = self.norm2(self.conv2(self.norm1(self.conv1(maps)).relu()))
        if self.shortcut is not None:
            kept = self.shortcut(maps)
        else:
            kept = maps[:, :, :: self.stride, :: self.stride]
            before = self.missing // 2
            kept = F.pad(kept, (0, 0, 0, 0, before, self.missing - before))
        return (changed + kept).relu()


class ResNetFront(nn.Module):
    """A 3x3 convolution and stages of basic blocks; each stage but the first halves the size.

    Args:
        in_chans: Colour channels.
        stages: Channels and blocks of every stage.
        learned_shortcut: As for `BasicBlock`.
    """

    def __init__(
        self, in_chans: int, stages: list[tuple[int, int]], learned_shortcut: bool
    ) -> None:
        super().__init__()
        chans = stages[0][0]
        self.conv = nn.Conv2d(in_chans, chans, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(chans)
        blocks = []
        for number, (out_chans, count) in enumerate(stages):
            for block in range(count):
                stride = 2 if number and not block else 1
                blocks.append(BasicBlock(chans, out_chans, stride, learned_shortcut))
                chans = out_chans
        self.blocks = nn.Sequential(*blocks)
        self.out_chans, self.halvings = chans, len(stages) - 1

    def out_size(self, img_size: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the last feature maps: halved, rounding up; any image size works."""
        for _ in range(self.halvings):
            img_size = conv_size(img_size, 3, 2, 1)
        return img_size

    def forward(
        self, images: Float[Tensor, "batch in_chans img_height img_width"]
    ) -> Float[Tensor, "batch chans height width"]:
        """Images to feature maps."""
        return self.blocks(self.norm(self.conv(images)).relu())


class ResNetStem(nn.Module):
    """A 7x7 convolution to 64 channels and one bottleneck residual block to 256.

    The strides are those of a ResNet: 2 in the convolution, 2 in the pooling after it, 1 in the
    block. An image of 224x224 becomes 256 feature maps of 56x56.
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
        """Size of the feature maps for an image of this size: halved twice, rounding up."""
        return conv_size(conv_size(img_size, 7, 2, 3), 3, 2, 1)

    def forward(
        self, images: ImageBatch
    ) -> Float[Tensor, "batch 256 quarter_height quarter_width"]:
        """Images to 256 feature maps."""
        x = self.pool(F.relu(self.norm(self.conv(images))))
        y = F.relu(self.narrow_norm(self.narrow(x)))
        y = F.relu(self.spatial_norm(self.spatial(y)))
        y = self.widen_norm(self.widen(y))
        return F.relu(y + self.shortcut_norm(self.shortcut(x)))
