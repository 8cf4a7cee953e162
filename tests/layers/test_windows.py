import pytest
import torch
from torch.nn import functional as F

from clustercaps.functional import em_route, vb_route
from clustercaps.layers.windows import Windows, cut_windows


def draw(windows: Windows, types: int = 2, parents: int = 3, scale: float = 1.0) -> torch.Tensor:
    shape = (2, types * windows.places, parents, *windows.out_size)
    return scale * torch.randn(shape, dtype=torch.float64)


def shares_of_children(windows: Windows, coupling: torch.Tensor) -> torch.Tensor:
    """The sum of the couplings of every child [B, types, H, W], by loops."""
    places, (height, width) = windows.places, windows.out_size
    total = torch.zeros(coupling.shape[0], coupling.shape[1] // places, *windows.in_size).double()
    for child in range(coupling.shape[1]):
        kind, place = divmod(child, places)
        row, column = divmod(place, windows.kernel_size)
        for y in range(height):
            for x in range(width):
                at = (windows.stride * y + row, windows.stride * x + column)
                total[:, kind, at[0], at[1]] += coupling[:, child, :, y, x].sum(1)
    return total


def parents_by_count(windows: Windows) -> dict[int, int]:
    values, counts = windows.parents().unique(return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


SIZES = [(14, 3, 2), (6, 3, 1), ((5, 8), 3, 2), (4, 4, 1), (7, 2, 3)]


@pytest.mark.parametrize(("size", "kernel", "stride"), SIZES)
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_all_parents_of_a_child_compete(size: object, kernel: int, stride: int, scale: float):
    windows = Windows(size, kernel, stride)
    total = shares_of_children(windows, windows(draw(windows, scale=scale)).exp())
    reached = windows.parents() > 0
    torch.testing.assert_close(total[..., reached], torch.ones_like(total[..., reached]))
    assert (total[..., ~reached] == 0).all()


def test_how_many_positions_a_child_has() -> None:
    assert parents_by_count(Windows(14, 3, 2)) == {0: 27, 1: 64, 2: 80, 4: 25}
    assert parents_by_count(Windows(6, 3, 1)) == {1: 4, 2: 8, 3: 8, 4: 4, 6: 8, 9: 4}


def test_one_window_over_the_whole_map_is_fully_connected() -> None:
    windows = Windows(4, 4)
    logits = draw(windows)
    torch.testing.assert_close(windows(logits), logits.log_softmax(2))
    votes, activations = torch.randn(2, 32, 3, 4, 1, 1).double(), torch.rand(2, 32, 1, 1).double()
    betas = torch.zeros(3).double(), torch.zeros(3).double()
    for route in (em_route, vb_route):
        here = route(votes, activations, *betas, compete=windows)
        flat = route(votes[..., 0, 0], activations[..., 0, 0], *betas)
        torch.testing.assert_close(here.capsules[..., 0, 0], flat.capsules)
        torch.testing.assert_close(here.activations[..., 0, 0], flat.activations)
        torch.testing.assert_close(here.coupling[..., 0, 0], flat.coupling)


@pytest.mark.parametrize("route", [em_route, vb_route])
def test_convolutional_couplings_sum_to_one(route) -> None:
    windows = Windows(6, 3, 1)
    votes = torch.randn(2, 18, 3, 4, 4, 4).double()
    betas = torch.zeros(3).double(), torch.zeros(3).double()
    coupling = route(votes, torch.rand(2, 18, 4, 4).double(), *betas, compete=windows).coupling
    total = shares_of_children(windows, coupling)
    torch.testing.assert_close(total, torch.ones_like(total))


def test_softmax_over_types_only_is_another_competition() -> None:
    windows = Windows(6, 3, 1)
    logits = draw(windows)
    types_only = logits.softmax(2)
    assert not torch.allclose(windows(logits).exp(), types_only)
    total = shares_of_children(windows, types_only)
    torch.testing.assert_close(total, windows.parents().expand_as(total).double())


def test_windows_see_what_a_loop_sees() -> None:
    windows = Windows((5, 6), 3, 2)
    poses = torch.randn(2, 3, 4, 5, 6)
    seen = windows.expand(poses)
    assert seen.shape == (2, 27, 4, 2, 2)
    for child in range(27):
        kind, place = divmod(child, 9)
        row, column = divmod(place, 3)
        part = poses[:, kind, :, row : row + 3 : 2, column : column + 3 : 2]
        torch.testing.assert_close(seen[:, child], part)
    # The activations of the same children stand at the same places.
    torch.testing.assert_close(windows.expand(poses[:, :, 0]), seen[:, :, 0])
    assert windows.expand(poses[:0]).shape == (0, 27, 4, 2, 2)
    assert windows(torch.zeros(0, 27, 3, 2, 2)).shape == (0, 27, 3, 2, 2)


@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, 1), (3, 2)])
def test_padding_adds_children_of_zeros(stride: int, padding: int) -> None:
    maps = torch.randn(2, 3, 4, 5, 6)
    padded = cut_windows(F.pad(maps, (padding,) * 4), 3, stride)
    torch.testing.assert_close(cut_windows(maps, 3, stride, padding), padded, rtol=0, atol=0)
    conv = F.conv2d(maps[:, 0], torch.ones(1, 4, 3, 3), stride=stride, padding=padding)
    torch.testing.assert_close(padded[:, :9].sum((1, 2)), conv[:, 0])


def test_gradcheck() -> None:
    windows = Windows(4, 3, 1)
    logits = torch.randn(1, 9, 2, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(windows, logits)
    poses = torch.randn(1, 2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(windows.expand, poses)


def test_gradients_stay_finite_where_no_window_reaches() -> None:
    windows = Windows(14, 3, 2)
    logits = draw(windows, scale=1e4).float().requires_grad_()
    windows(logits).exp().square().sum().backward()
    assert logits.grad.isfinite().all()


def test_bad_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="2x2 are too small for a 3x3"):
        Windows(2, 3)
    with pytest.raises(ValueError, match="build them with this in_size"):
        Windows(4, 3).expand(torch.zeros(1, 2, 5, 5))
    with pytest.raises(ValueError, match="stride must be an integer of at least 1"):
        Windows(4, 3, 0)
    assert not Windows(4, 3).state_dict()
