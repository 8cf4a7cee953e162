"""Capsules with inverted dot-product attention, after a convolution or a small ResNet.

Tsai, Srivastava, Goh and Salakhutdinov, "Capsules with inverted dot-product attention routing",
ICLR 2020: primary capsules from a 1x1 convolution, convolutional capsule layers, a fully connected
layer with one capsule per class, and one linear unit, shared by the classes, that scores them.

The layers of the network with a ResNet are those of the released code. The code has no settings for
the small network of 560K parameters; `inverted_attention` is a reading with this size.
"""

from jaxtyping import Float
from torch import Tensor, nn

from clustercaps.layers.inverted import CapsuleLayerNorm, InvertedCapsules, InvertedCapsules2d
from clustercaps.layers.resnet import ResNetFront
from clustercaps.models.base import ImageClassifier
from clustercaps.models.preset import Preset, Recipe
from clustercaps.utils.errors import at_least, unknown
from clustercaps.utils.sizes import ImageBatch, Size, conv_size


class InvertedAttentionNet(ImageClassifier):
    """Stem, primary capsules, capsule layers with joint routing, shared linear score.

    Args:
        num_classes: Number of classes, at least 1 (one capsule each).
        in_chans: Colour channels.
        img_size: Height and width of the images.
        front: "simple", a 3x3 convolution of stride 2 with ReLU, or "resnet", 3 and 4 basic blocks.
        width: Channels of the stem; the first stage of the ResNet has half.
        types: Capsule types of the primary and convolutional layers.
        dim: Capsule dimension; a square number for matrix capsules.
        matrix: Whether capsules are matrices; otherwise they are vectors.
        primary_kernel: Kernel size of the convolution to primary capsules.
        primary_stride: Its stride.
        strides: Strides of the convolutional capsule layers, which have 3x3 windows.
        hidden: Capsules of a fully connected layer before the classes; 0 for none.
        iterations: Number of iterations; 1 is a network without routing.
        concurrent: All layers iterate simultaneously, each from the previous pass; otherwise each
            layer iterates before the next one starts.
        checkpoint: Recompute votes in the backward pass instead of storing them, which takes a
            fraction of the memory and is not slower.
    """

    min_classes = 1

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 3,
        img_size: Size = 32,
        front: str = "simple",
        width: int = 256,
        types: int = 32,
        dim: int = 16,
        matrix: bool = True,
        primary_kernel: int = 1,
        primary_stride: int = 1,
        strides: list[int] | tuple[int, ...] = (2, 1),
        hidden: int = 0,
        iterations: int = 2,
        concurrent: bool = True,
        checkpoint: bool = True,
    ) -> None:
        super().__init__(num_classes, in_chans, img_size)
        at_least("iterations", iterations, 1)
        at_least("hidden", hidden, 0)
        self.iterations, self.concurrent = iterations, concurrent
        if front == "simple":
            self.front: nn.Module = nn.Sequential(nn.Conv2d(in_chans, width, 3, 2, 1), nn.ReLU())
            size = conv_size(self.img_size, 3, 2, 1, layer="the front")
        elif front == "resnet":
            at_least("width", width, 2)
            resnet = ResNetFront(in_chans, [(width // 2, 3), (width, 4)], learned_shortcut=True)
            self.front, size = resnet, resnet.out_size(self.img_size)
        else:
            raise KeyError(unknown("front", front, ("simple", "resnet")))
        size = conv_size(size, primary_kernel, primary_stride, layer="the primary capsules")
        self.primary = nn.Conv2d(width, types * dim, primary_kernel, primary_stride, bias=False)
        self.primary_norm = CapsuleLayerNorm(dim)
        self.types, self.dim, self.matrix, self.checkpoint = types, dim, matrix, checkpoint
        layers = []
        for number, stride in enumerate(strides, 1):
            size = conv_size(size, 3, stride, layer=f"capsule layer {number} of {len(strides)}")
            layers.append(InvertedCapsules2d(types, dim, types, dim, 3, stride, matrix, checkpoint))
        self.child_count = types * size[0] * size[1]
        if hidden:
            layers.append(self._connect(self.child_count, hidden))
            self.child_count = hidden
        self.capsules = nn.ModuleList(layers)
        self.build_classifier()

    def _connect(self, children: int, parents: int) -> InvertedCapsules:
        return InvertedCapsules(
            children, self.dim, parents, self.dim, matrix=self.matrix, checkpoint=self.checkpoint
        )

    def build_classifier(self) -> tuple[nn.Module, ...]:
        """Create class capsules and head."""
        self.classes = self._connect(self.child_count, self.num_classes)
        self.head = nn.Linear(self.dim, 1)
        return self.classes, self.head

    def forward_features(self, images: ImageBatch) -> Float[Tensor, "batch classes dim"]:
        """Images to one capsule per class."""
        return self.route(images)[-1].flatten(2)

    def route(self, images: ImageBatch) -> list[Tensor]:
        """Images to the capsules [B, types, dim, H, W] of every layer, the primary ones first."""
        self.check_images(images)
        primary = self.primary_norm(self.primary(self.front(images)).unflatten(1, (-1, self.dim)))
        layers = [*self.capsules, self.classes]
        poses = [primary]
        for layer in layers:
            poses.append(layer(poses[-1], iterations=1 if self.concurrent else self.iterations))
        if self.concurrent:
            for _ in range(self.iterations - 1):
                # All layers use the results of the previous pass.
                pairs = zip(layers, poses, poses[1:], strict=False)
                poses = [primary, *(layer(below, query) for layer, below, query in pairs)]
        return poses

    def forward_head(
        self, features: Float[Tensor, "batch classes dim"], pre_logits: bool = False
    ) -> Tensor:
        """Class capsules to logits; with `pre_logits`, flattened."""
        return features.flatten(1) if pre_logits else self.head(features).squeeze(-1)


# Tsai et al. 2020, from the released code, for CIFAR-10.
RECIPE: Recipe = {
    "epochs": 350,
    "batch_size": 128,
    "optimizer": "sgd",
    "lr": 0.1,
    "momentum": 0.9,
    "schedule": "step",
    "lr_decay": 0.1,
    "drops": "150/350,250/350",
    "weight_decay": 5e-4,
}

PAPER = (
    'Tsai, Srivastava, Goh and Salakhutdinov, "Capsules with inverted dot-product attention '
    'routing", ICLR 2020'
)

TWICE = (
    "Two iterations, as in the released command for CIFAR-10 and in the best published result; the "
    "default of the released script is one."
)

PRESETS = {
    "inverted_attention": Preset(
        InvertedAttentionNet,
        "inverted attention (Tsai 2020) after one convolution",
        reconstruction=True,
        recipe=RECIPE,
        paper=PAPER,
        choices=(
            "The released code has no settings for the small network of 560K parameters; its "
            f"width is inferred from that count. {TWICE}"
        ),
        img_size=32,
        data=("cifar10",),
    ),
    "inverted_attention_resnet": Preset(
        InvertedAttentionNet,
        "inverted attention (Tsai 2020) after a ResNet, CIFAR-10 variant",
        {"front": "resnet", "width": 128},
        recipe=RECIPE,
        paper=PAPER,
        choices=(
            "The released code mixes poses and positions when it extracts windows; this network "
            f"does not. {TWICE}"
        ),
        img_size=32,
        data=("cifar10",),
    ),
}
