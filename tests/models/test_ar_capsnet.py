import pytest
import torch
from torch import nn

import clustercaps as cc
from clustercaps.layers import AttentionCapsules2d
from clustercaps.layers.padding import pad_same
from clustercaps.models import TrainingBatch
from clustercaps.models.registry import count_parameters

TINY = {"width": 4, "types": 3, "primary_dim": 2, "dim": 4, "num_classes": 4, "img_size": 9}


def keras_count(name: str, **settings: object) -> int:
    """Learned numbers and the running statistics of batch norms, as Keras counts them."""
    with torch.device("meta"):
        model = cc.create_model(name, **settings)
    running = [b.numel() for b in model.buffers() if b.ndim]
    return sum(p.numel() for p in model.parameters()) + sum(running)


@pytest.mark.parametrize(
    ("name", "settings", "total"),
    [
        ("ar_capsnet", {}, 5_312_784),
        ("ar_capsnet", {"decoder": False}, 4_483_584),
        ("ar_capsnet_cifar10", {}, 9_566_592),
        ("ar_capsnet_cifar10", {"decoder": False}, 7_563_648),
        ("ar_capsnet_cifar10", {"layers": 3}, 9_566_592 - 616_704),
    ],
)
def test_parameters(name: str, settings: dict[str, object], total: int) -> None:
    assert keras_count(name, **settings) == total
    # Two batch norms of 64 channels have 256 running statistics, which are not learned.
    assert count_parameters(name, **settings) == total - 256


def test_parameters_of_the_parts() -> None:
    with torch.device("meta"):
        model = cc.create_model("ar_capsnet_cifar10")

    def count(*modules: nn.Module) -> int:
        return sum(p.numel() for module in modules for p in module.parameters())

    assert count(model.primary, model.primary_activation) == 76_032
    assert [count(layer) for layer in model.capsules] == [321_792, 616_704, 616_704, 616_704]
    assert count(model.classes) == 5_276_480
    assert count(model.decoder) == 2_002_944


def test_votes_are_convolutions_of_single_child_types() -> None:
    layer = AttentionCapsules2d(3, 2, 5, 4).double().eval()
    nn.init.normal_(layer.vote.bias)
    children = torch.randn(2, 3, 2, 6, 7, dtype=torch.float64)
    votes = layer.vote(pad_same(children.flatten(1, 2), 3, 1)).unflatten(1, (3, 5, 4))
    assert votes.shape == (2, 3, 5, 4, 6, 7)
    for child in range(3):
        part = slice(child * 20, child * 20 + 20)
        expected = nn.functional.conv2d(
            children[:, child], layer.vote.weight[part], layer.vote.bias[part], padding=1
        )
        torch.testing.assert_close(votes[:, child].flatten(1, 2), expected)


def test_padding_is_uneven_below_and_right() -> None:
    maps = torch.ones(1, 1, 4, 4)
    assert pad_same(maps, 3, 2)[0, 0].sum(1).tolist() == [4, 4, 4, 4, 0]
    assert pad_same(maps, 3, 2)[0, 0].sum(0).tolist() == [4, 4, 4, 4, 0]
    # Even where the stride fits: windows of 3 with stride 1 take one zero on each side.
    assert pad_same(maps, 3, 1)[0, 0].sum(1).tolist() == [0, 4, 4, 4, 4, 0]
    assert pad_same(torch.ones(1, 1, 5, 5), 3, 2)[0, 0].sum(1).tolist() == [0, 5, 5, 5, 5, 5, 0]
    # Other pixels than padding=1 reads.
    image, kernel = torch.rand(1, 1, 4, 4), torch.rand(1, 1, 3, 3)
    ours = nn.functional.conv2d(pad_same(image, 3, 2), kernel, stride=2)
    assert not ours.allclose(nn.functional.conv2d(image, kernel, stride=2, padding=1))


def test_residual_layers_add_their_children() -> None:
    layer = AttentionCapsules2d(3, 4, 3, 4).eval()
    nn.init.zeros_(layer.activation.weight)
    nn.init.normal_(layer.activation.bias)
    children = torch.randn(2, 3, 4, 5, 5)
    shift = layer.activation.bias[None, :, :, None, None]
    torch.testing.assert_close(layer(children), shift.tanh().expand_as(children))
    torch.testing.assert_close(layer(children, residual=True), (children + shift).tanh())


def test_dropout_only_while_training() -> None:
    model = cc.create_model("ar_capsnet", **TINY)
    images = torch.rand(4, 1, 9, 9)
    assert not model(images).equal(model(images))
    model.eval()
    torch.testing.assert_close(model(images), model(images), rtol=0, atol=0)


@pytest.mark.parametrize("size", [1, 9, 28, (13, 30)])
def test_scores_lie_below_one(size: int | tuple[int, int]) -> None:
    model = cc.create_model("ar_capsnet", **{**TINY, "img_size": size}, layers=3).eval()
    scores = model(5 * torch.randn(2, 1, *model.img_size))
    assert ((scores >= 0) & (scores < 1)).all()


def test_loss_by_hand() -> None:
    model = cc.create_model("ar_capsnet", **TINY).eval()
    images, labels = torch.rand(3, 1, 9, 9), torch.tensor([0, 3, 1])
    loss, scores = model.training_loss(TrainingBatch(images, labels, images))
    drawn = model.reconstruct(model.forward_features(images), labels)
    for each in range(3):
        margin = sum(
            max(0.0, 0.9 - score) ** 2 if k == labels[each] else 0.5 * max(0.0, score - 0.1) ** 2
            for k, score in enumerate(scores[each].tolist())
        )
        error = (drawn[each] - images[each]).square().mean()
        torch.testing.assert_close(loss[each], margin + 0.3 * error)
