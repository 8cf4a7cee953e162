"""Efficient-CapsNet: four convolutions, a depthwise one, self-attention routing to the classes.

Mazzia, Salvetti and Chiaberge, "Efficient-CapsNet: capsule network with self-attention routing",
Scientific Reports 11, 2021. The primary capsules see the whole feature map: a depthwise convolution
with a kernel of its size gives one value per channel, and the channels are split into capsules.

The paper's parameter counts exclude the decoder; `decoder=False` matches them. For smallNORB the
released code reconstructs standardised images, which a sigmoid cannot reach; decoders here always
reconstruct pixels in 0 to 1.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clustercaps.layers.decoders import ConvolutionalDecoder, FullyConnectedDecoder
from clustercaps.layers.votes import VectorVotes
from clustercaps.layers.whole_map import WholeMapConv2d
from clustercaps.models.base import ClassCapsules, LengthClassifier
from clustercaps.models.preset import Preset, Recipe
from clustercaps.routing import Routed, create_routing
from clustercaps.routing.squash import squash_exponential
from clustercaps.utils.errors import at_least, unknown
from clustercaps.utils.sizes import ImageBatch, Size, conv_size, show_size, windows_along

# Standard deviation of a unit normal distribution truncated at two standard deviations.
TRUNCATED = 0.87962566103423978


def he_std(fan_in: int) -> float:
    """Standard deviation of He initialisation with a truncated normal, as in Keras."""
    return math.sqrt(2 / fan_in) / TRUNCATED


def check_window(size: tuple[int, int], window: tuple[int, int], stride: int) -> None:
    """Raise an error if the primary capsules do not see the whole feature map."""
    left = [windows_along(side, kernel, stride) for side, kernel in zip(size, window, strict=True)]
    if left != [1, 1]:
        raise ValueError(
            f"the primary capsules must see the whole feature map of {show_size(size)}, but a "
            f"kernel of {show_size(window)} with stride {stride} does not give 1x1; omit "
            "primary_kernel to infer it"
        )


class EfficientCapsNet(LengthClassifier):
    """Convolutions, depthwise primary capsules, class capsules by self-attention, decoder.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        widths: Channels of the convolutions, which have no padding.
        kernels: Their kernel sizes.
        strides: Their strides.
        norm: "batch": ReLU, then batch norm; "instance": leaky ReLU, then instance norm.
        primary_kernel: Kernel size of the depthwise convolution; the whole feature map by default.
        primary_stride: Its stride.
        primary_dim: Dimension of a primary capsule.
        dim: Dimension of a class capsule.
        decoder: Whether to reconstruct the image from the capsule of its class.
        draw_by_convolutions: Use a convolutional decoder instead of three linear layers.
        reconstruction: Weight of the reconstruction loss, averaged over pixels.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 1,
        img_size: Size = 28,
        widths: list[int] | tuple[int, ...] = (32, 64, 64, 128),
        kernels: list[int] | tuple[int, ...] = (5, 3, 3, 3),
        strides: list[int] | tuple[int, ...] = (1, 1, 1, 2),
        norm: str = "batch",
        primary_kernel: int | None = None,
        primary_stride: int = 1,
        primary_dim: int = 8,
        dim: int = 16,
        decoder: bool = True,
        draw_by_convolutions: bool = False,
        reconstruction: float = 0.392,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size, reconstruction)
        self._check_layers(widths, kernels, strides, primary_dim)
        height, width = self.img_size
        # The loss of the base class sums over pixels.
        self.reconstruction = reconstruction / (in_chans * height * width)
        layers: list[nn.Module] = []
        chans, size = in_chans, self.img_size
        for number, (out, kernel, stride) in enumerate(
            zip(widths, kernels, strides, strict=True), 1
        ):
            size = conv_size(size, kernel, stride, layer=f"convolution {number} of {len(widths)}")
            layers += [he_conv(chans, out, (kernel, kernel), stride), *activation(norm, out)]
            chans = out
        self.layers = nn.Sequential(*layers)
        window = size if primary_kernel is None else (primary_kernel, primary_kernel)
        check_window(size, window, primary_stride)
        self.primary = depthwise(chans, window, primary_stride)
        self.primary_dim = primary_dim
        children = chans // primary_dim
        # Keras counts every axis but the last as fan-in.
        std = he_std(num_classes * children * primary_dim)
        self.votes = VectorVotes(children, primary_dim, num_classes, dim, std)
        self.routing = create_routing("self_attention", children, num_classes, dim)
        draw = ConvolutionalDecoder if draw_by_convolutions else FullyConnectedDecoder
        self.decoder = draw(num_classes * dim, in_chans, self.img_size) if decoder else None

    def _check_layers(
        self, widths: Sequence[int], kernels: Sequence[int], strides: Sequence[int], dim: int
    ) -> None:
        at_least("primary_dim", dim, 1)
        if not widths or not len(widths) == len(kernels) == len(strides):
            raise ValueError(
                "widths, kernels and strides must have one entry per convolution, got "
                f"{list(widths)}, {list(kernels)} and {list(strides)}"
            )
        if widths[-1] % dim:
            raise ValueError(
                f"the last {widths[-1]} channels cannot be divided into capsules of {dim}; choose "
                "a primary_dim that divides them"
            )

    def forward_features(self, images: ImageBatch) -> ClassCapsules:
        """Images to one capsule per class."""
        return self.route(images).capsules

    def route(self, images: ImageBatch) -> Routed:
        """Images to class capsules, with the coupling coefficients of the primary capsules."""
        self.check_images(images)
        channels = self.primary(self.layers(images)).flatten(1)
        count = channels.shape[1] // self.primary_dim
        children = squash_exponential(channels.unflatten(1, (count, self.primary_dim)))
        return self.routing(self.votes(children))


def he_conv(map_chans: int, chans: int, kernel_size: tuple[int, int], stride: int) -> nn.Conv2d:
    """A convolution without padding, with He initialisation from a truncated normal."""
    conv = nn.Conv2d(map_chans, chans, kernel_size, stride)
    std = he_std(map_chans * kernel_size[0] * kernel_size[1])
    nn.init.trunc_normal_(conv.weight, std=std, a=-2 * std, b=2 * std)
    assert isinstance(conv.bias, Tensor)
    nn.init.zeros_(conv.bias)
    return conv


def depthwise(chans: int, kernel_size: tuple[int, int], stride: int) -> nn.Conv2d:
    """A depthwise convolution with Glorot initialisation.

    Keras counts the fan-in of one channel, and the fan-out of all channels.
    """
    conv = WholeMapConv2d(chans, chans, kernel_size, stride, groups=chans)
    bound = math.sqrt(6 / (kernel_size[0] * kernel_size[1] * (1 + chans)))
    nn.init.uniform_(conv.weight, -bound, bound)
    assert isinstance(conv.bias, Tensor)
    nn.init.zeros_(conv.bias)
    return conv


def activation(norm: str, chans: int) -> tuple[nn.Module, nn.Module]:
    """Nonlinearity and norm after a convolution, with Keras defaults."""
    if norm == "batch":
        return nn.ReLU(), nn.BatchNorm2d(chans, eps=1e-3, momentum=0.01)
    if norm == "instance":
        scaled = nn.InstanceNorm2d(chans, eps=1e-3, affine=True)
        # As in the released code, the scale starts around 0 too.
        with torch.no_grad():
            scaled.weight.uniform_(-0.05, 0.05)
            scaled.bias.uniform_(-0.05, 0.05)
        return nn.LeakyReLU(0.3), scaled
    raise KeyError(unknown("norm", norm, ("batch", "instance")))


# Mazzia et al. 2021, from the released code: 0.97 every epoch, down to a tenth of the initial rate.
RECIPE: Recipe = {
    "epochs": 150,
    "batch_size": 16,
    "optimizer": "adam",
    "lr": 5e-4,
    "schedule": "exponential",
    "lr_decay": 0.97,
    "decay_epochs": 1.0,
    "lr_floor": 5e-5,
    "weight_decay": 0.0,
}

PAPER = (
    'Mazzia, Salvetti and Chiaberge, "Efficient-CapsNet: capsule network with self-attention '
    'routing", Scientific Reports 11, 2021'
)

PRESETS = {
    "efficient_capsnet": Preset(
        EfficientCapsNet,
        "self-attention routing (Efficient-CapsNet, Mazzia 2021), MNIST variant",
        recipe=RECIPE,
        paper=PAPER,
        choices="Published counts exclude the decoder; decoder=false matches them.",
        img_size=28,
        data=("mnist",),
    ),
    "efficient_capsnet_smallnorb": Preset(
        EfficientCapsNet,
        "self-attention routing (Efficient-CapsNet, Mazzia 2021), smallNORB variant",
        {
            "num_classes": 5,
            "in_chans": 2,
            "kernels": [7, 3, 3, 3],
            "strides": [2, 1, 1, 2],
            "norm": "instance",
            "draw_by_convolutions": True,
        },
        recipe=RECIPE,
        paper=PAPER,
        choices=(
            "Published counts exclude the decoder; decoder=false matches them. The released code "
            "reconstructs standardised images, which a sigmoid cannot reach; the decoder here "
            "reconstructs pixels in 0 to 1."
        ),
        img_size=48,
        data=("smallnorb",),
    ),
}
