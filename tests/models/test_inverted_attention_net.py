from collections.abc import Iterator

import pytest
import torch

import clustercaps as cc
from clustercaps.functional import inverted_attention_route
from clustercaps.layers.inverted import InvertedCapsules, InvertedCapsules2d
from clustercaps.models.registry import count_parameters
from clustercaps.testing import equivariance_error

TINY = {"width": 6, "types": 3, "dim": 4, "num_classes": 4, "img_size": 17, "in_chans": 1}
CIFAR100 = {"dim": 36, "hidden": 20, "num_classes": 100}


@pytest.mark.parametrize(
    ("name", "settings", "count"),
    [
        ("inverted_attention", {}, 561_297),
        ("inverted_attention", {"width": 128}, 492_177),
        ("inverted_attention", {"width": 128, **CIFAR100}, 1_462_989),
        ("inverted_attention_resnet", {}, 1_828_817),
        ("inverted_attention_resnet", CIFAR100, 2_799_629),
        ("inverted_attention_resnet", {"matrix": False}, 8_172_497),
    ],
)
def test_parameters(name: str, settings: dict[str, object], count: int) -> None:
    assert count_parameters(name, **settings) == count


def layer_and_children(**options: object) -> tuple[InvertedCapsules2d, torch.Tensor]:
    layer = InvertedCapsules2d(3, 4, 5, 4, 3, 2, **options).double()
    torch.nn.init.normal_(layer.norm.weight)
    torch.nn.init.normal_(layer.norm.bias)
    return layer, torch.randn(2, 3, 4, 8, 7, dtype=torch.float64)


@pytest.mark.parametrize("matrix", [True, False])
@pytest.mark.parametrize("asked", [True, False])
def test_layer_equals_the_routing_of_all_votes(matrix: bool, asked: bool) -> None:
    layer, children = layer_and_children(matrix=matrix)
    votes = layer.cast_votes(children)
    assert votes.shape == (2, 27, 5, 4, 3, 3)
    query = torch.randn(2, 5, 4, 3, 3, dtype=torch.float64) if asked else None
    expected = inverted_attention_route(
        votes, query, iterations=2, weight=layer.norm.weight, bias=layer.norm.bias
    )
    torch.testing.assert_close(layer(children, query, iterations=2), expected.capsules)
    once = inverted_attention_route(votes, weight=layer.norm.weight, bias=layer.norm.bias)
    torch.testing.assert_close(layer(children), once.capsules)


def test_votes_by_hand() -> None:
    layer, children = layer_and_children()
    votes = layer.cast_votes(children).unflatten(1, (3, 3, 3))
    # Child type 1 at place (2, 0) of the window of position (1, 2), for parent type 4.
    matrix = children[0, 1, :, 2 * 1 + 2, 2 * 2 + 0].view(2, 2) @ layer.weight[2, 0, 1, :, 4]
    torch.testing.assert_close(votes[0, 1, 2, 0, 4, :, 1, 2], matrix.flatten())


def test_window_as_large_as_the_map_is_fully_connected() -> None:
    layer = InvertedCapsules2d(3, 4, 5, 4, 6).double()
    children = torch.randn(2, 3, 4, 6, 6, dtype=torch.float64)
    full = InvertedCapsules(3 * 36, 4, 5, 4).double()
    with torch.no_grad():
        full.weight.copy_(layer.weight.permute(2, 0, 1, 3, 4, 5).flatten(0, 2)[None, None])
    torch.testing.assert_close(full(children, iterations=2), layer(children, iterations=2))


class Scrambled(InvertedCapsules2d):
    """Windows whose positions and numbers are mixed, as in the first release of the code."""

    def _places(
        self, children: torch.Tensor, size: torch.Size
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for piece, weight in super()._places(children, size):
            mixed = piece.flatten(3).reshape(*piece.shape[:2], *size, -1)
            yield mixed.permute(0, 1, 4, 2, 3), weight


@pytest.mark.parametrize("stride", [1, 2])
def test_shifting_children_shifts_parents(stride: int) -> None:
    children = torch.randn(1, 3, 4, 13, 13, dtype=torch.float64)

    class Twice(torch.nn.Sequential):
        # Equal couplings alone have no windows to scramble.
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self[0](x, iterations=2)

    def shift(maps: torch.Tensor) -> torch.Tensor:
        return maps.roll(stride if maps.shape[-1] == 13 else 1, -1)

    right, scrambled = (
        Twice(kind(3, 4, 5, 4, 3, stride).double()) for kind in (InvertedCapsules2d, Scrambled)
    )
    assert equivariance_error(right, children, shift, margin=1) < 1e-12
    assert equivariance_error(scrambled, children, shift, margin=1) > 0.1


def test_how_the_scrambled_windows_look() -> None:
    children = torch.arange(36.0).view(3, 3, 4).permute(2, 0, 1)[None, None]
    right, wrong = (
        next(kind(1, 4, 1, 4, 2)._places(children, torch.Size((2, 2))))[0][0, 0, :, 0, 1]
        for kind in (InvertedCapsules2d, Scrambled)
    )
    assert right.tolist() == [4, 5, 6, 7]
    assert wrong.tolist() == [1, 5, 13, 17]


@pytest.mark.parametrize("concurrent", [True, False])
def test_checkpoint_changes_neither_values_nor_gradients(concurrent: bool) -> None:
    results = []
    for checkpoint in (False, True):
        torch.manual_seed(0)
        model = cc.create_model(
            "inverted_attention", **TINY, checkpoint=checkpoint, concurrent=concurrent
        ).double()
        images = torch.rand(2, 1, 17, 17, dtype=torch.float64, requires_grad=True)
        logits = model(images)
        gradients = torch.autograd.grad(logits.square().sum(), [images, *model.parameters()])
        results.append([logits, *gradients])
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=0)


def saved_bytes(layer: InvertedCapsules2d, children: torch.Tensor) -> int:
    """Bytes that autograd keeps for the gradients of one update."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    query = layer(children).detach()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = layer.attend(children, query)
    assert result.requires_grad
    return sum(kept.values())


def test_votes_are_kept_once_or_not_at_all() -> None:
    children = torch.randn(2, 16, 16, 9, 9)
    size = InvertedCapsules2d(16, 16, 16, 16, 3, 1).cast_votes(children).nbytes
    plain = saved_bytes(InvertedCapsules2d(16, 16, 16, 16, 3, 1, checkpoint=False), children)
    assert size <= plain < 1.5 * size
    assert saved_bytes(InvertedCapsules2d(16, 16, 16, 16, 3, 1), children) < 0.2 * size


def test_one_iteration_is_a_plain_network() -> None:
    torch.manual_seed(0)
    models = [
        cc.create_model("inverted_attention", **TINY, iterations=1, concurrent=c).eval()
        for c in (True, False)
    ]
    models[1].load_state_dict(models[0].state_dict())
    images = torch.rand(2, 1, 17, 17)
    torch.testing.assert_close(models[0](images), models[1](images))


def test_concurrent_and_sequential_passes_by_hand() -> None:
    model = cc.create_model("inverted_attention", **TINY).double().eval()
    images = torch.rand(2, 1, 17, 17, dtype=torch.float64)
    primary = model.route(images)[0]
    first, second, last = [*model.get_submodule("capsules").children(), model.classes]
    a = first(primary)
    b = second(a)
    c = last(b)
    expected = [primary, first(primary, a), second(a, b), last(b, c)]
    torch.testing.assert_close(model.route(images), expected)
    model.concurrent = False  # type: ignore[assignment]
    a = first(primary, first(primary))
    b = second(a, second(a))
    sequential = last(b, last(b))
    torch.testing.assert_close(model.route(images)[-1], sequential)
    assert not torch.allclose(sequential, expected[-1])


@pytest.mark.parametrize("front", ["simple", "resnet"])
def test_one_image_keeps_its_batch(front: str) -> None:
    model = cc.create_model("inverted_attention", **TINY, front=front).eval()
    for batch in (0, 1):
        assert model(torch.rand(batch, 1, 17, 17)).shape == (batch, 4)


def test_form_for_overlapping_digits() -> None:
    model = cc.create_model(
        "inverted_attention",
        img_size=36,
        width=8,
        types=4,
        dim=9,
        primary_kernel=3,
        primary_stride=2,
        strides=[1],
        hidden=10,
    )
    assert [tuple(poses.shape[3:]) for poses in model.route(torch.rand(1, 3, 36, 36))] == [
        (8, 8),
        (6, 6),
        (1, 1),
        (1, 1),
    ]


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match=r"maps of 1x1 are too small.*\(capsule layer 2 of 2\)"):
        cc.create_model("inverted_attention", img_size=8)
    with pytest.raises(ValueError, match="in_dim = dim, a square number"):
        cc.create_model("inverted_attention", dim=6)
    with pytest.raises(KeyError, match="did you mean 'simple'"):
        cc.create_model("inverted_attention", front="simpel")


def test_half_precision_runs() -> None:
    model = cc.create_model("inverted_attention", **TINY)
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(torch.rand(2, 1, 17, 17))
    assert logits.isfinite().all()
    logits.float().sum().backward()
