import pytest
import torch

from clustercaps.layers.matrix import MatrixClassCapsules, MatrixConvCapsules
from clustercaps.layers.votes import CoordinateAddition, MatrixVotes, receptive_centres


def test_the_capsule_is_on_the_left() -> None:
    votes = MatrixVotes(3, 2, side=2).double()
    poses = torch.randn(4, 3, 4).double()
    expected = torch.einsum("bixk,ijky->bijxy", poses.view(4, 3, 2, 2), votes.weight).flatten(3)
    torch.testing.assert_close(votes(poses), expected)
    one = poses[1, 2].view(2, 2) @ votes.weight[2, 1]
    torch.testing.assert_close(votes(poses)[1, 2, 1].view(2, 2), one)
    other_side = votes.weight[2, 1] @ poses[1, 2].view(2, 2)
    assert not torch.allclose(votes(poses)[1, 2, 1].view(2, 2), other_side)


def test_positions_share_the_weights() -> None:
    votes = MatrixVotes(3, 2, side=2)
    poses = torch.randn(4, 3, 4, 5, 6)
    everywhere = votes(poses)
    assert everywhere.shape == (4, 3, 2, 4, 5, 6)
    torch.testing.assert_close(everywhere[..., 3, 2], votes(poses[..., 3, 2]))


def test_initial_weights_have_the_given_standard_deviation() -> None:
    even = MatrixVotes(50, 50, std=0.1, uniform=True).weight
    assert even.std().item() == pytest.approx(0.1, rel=0.05)
    assert even.abs().max() <= 0.1 * 3**0.5
    normal = MatrixVotes(50, 50, std=0.1).weight
    assert normal.abs().max() <= 0.2
    with pytest.raises(ValueError, match=r"expected 3 poses of dimension 4 \(2x2\)"):
        MatrixVotes(3, 2, side=2)(torch.zeros(1, 3, 9))


def test_coordinates_of_the_authors_network() -> None:
    layers = [(5, 2), (3, 2), (3, 1)]
    assert receptive_centres(4, 32, layers) == pytest.approx([-0.08, -0.04, 0, 0.04])
    # One layer that sees the whole image is centred at half a pixel, where pixels count from 0.
    assert receptive_centres(1, 5, [(5, 1)], scale=1.0) == [-0.5]


def test_coordinates_go_to_the_last_column() -> None:
    add = CoordinateAddition([0.1, 0.2], [1.0, 2.0, 3.0])
    votes = torch.zeros(1, 2, 3, 16, 2, 3)
    added = add(votes)
    assert added[0, 1, 2].flatten(1).any(1).nonzero().flatten().tolist() == [3, 7]
    torch.testing.assert_close(added[0, 0, 0, 3], torch.tensor([[0.1] * 3, [0.2] * 3]))
    torch.testing.assert_close(added[0, 0, 0, 7], torch.tensor([[1.0, 2.0, 3.0]] * 2))
    elsewhere = CoordinateAddition([0.1], [1.0], indices=[0, 1])(votes[..., :1, :1])
    assert elsewhere[0, 0, 0, :2, 0, 0].tolist() == pytest.approx([0.1, 1.0])
    assert not add.state_dict()
    with pytest.raises(ValueError, match="two indices"):
        CoordinateAddition([0.1], [1.0], side=2, indices=[3, 4])


@pytest.mark.parametrize("routing", ["em", "vb", "star", "dynamic"])
def test_a_window_over_the_whole_map_is_a_fully_connected_layer(routing: str) -> None:
    layer = MatrixConvCapsules(2, 3, 4, routing, kernel_size=4, side=2, std=0.5).double().eval()
    assert (layer.windows.out_size, layer.routing.children_count) == ((1, 1), 32)
    poses, activations = torch.randn(2, 2, 4, 4, 4).double(), torch.rand(2, 2, 4, 4).double()
    routed = layer(poses, activations)
    children = poses.movedim(2, 4).flatten(1, 3)
    given = activations.flatten(1) if layer.routing.takes_activations else None
    layer.routing.compete = None  # type: ignore[assignment]
    flat = layer.routing(layer.votes(children), given)
    torch.testing.assert_close(routed.capsules[..., 0, 0], flat.capsules)
    torch.testing.assert_close(routed.coupling[..., 0, 0], flat.coupling)


def test_class_capsules_share_weights_over_positions() -> None:
    layer = MatrixClassCapsules(2, 3, (4, 5), "em", side=2, std=0.5)
    poses, activations = torch.randn(2, 2, 4, 4, 5), torch.rand(2, 2, 4, 5)
    straight = layer(poses, activations)
    # Without coordinates it does not matter where a child is.
    moved = layer(poses.flip(3, 4), activations.flip(2, 3))
    torch.testing.assert_close(moved[:2], straight[:2], rtol=1e-4, atol=1e-5)
    layer.coordinates = CoordinateAddition([0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8, 0.9], side=2)
    marked, turned = (layer(p, activations).capsules for p in (poses, poses.flip(3)))
    assert not torch.allclose(marked, turned, atol=1e-4)


def test_norm_is_for_logits() -> None:
    with pytest.raises(ValueError, match="norm=True needs a routing with logits, not EMRouting"):
        MatrixConvCapsules(2, 3, 4, "em", norm=True)
