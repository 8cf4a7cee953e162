import pytest
import torch
from torch.nn import functional as F

from clustercaps.utils.sizes import conv_size, map_sizes, smallest_side

CONVS = [(5, 2, 0), (3, 1, 1), (3, 2, 0), (2, 3, 1)]


def run(size: tuple[int, int], convs: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    """The sizes that torch gets."""
    maps, sizes = torch.zeros(1, 1, *size), [size]
    for kernel_size, stride, padding in convs:
        kernel = torch.zeros(1, 1, kernel_size, kernel_size)
        maps = F.conv2d(maps, kernel, stride=stride, padding=padding)
        sizes.append((maps.shape[2], maps.shape[3]))
    return sizes


@pytest.mark.parametrize("size", [(20, 31), (9, 10)])
def test_sizes_are_those_of_torch(size: tuple[int, int]) -> None:
    assert map_sizes(size, CONVS) == run(size, CONVS)
    assert conv_size(size, *CONVS[0]) == run(size, CONVS[:1])[1]


@pytest.mark.parametrize("convs", [CONVS, CONVS[:1], CONVS[2:], [(3, 1, 1)] * 3])
def test_the_smallest_side_is_the_smallest(convs: list[tuple[int, int, int]]) -> None:
    side = smallest_side(convs)
    assert min(map_sizes((side, side), convs)[-1]) >= 1
    if side > 1:
        message = rf"too small: .* layer . of {len(convs)}, .* at least {side}x{side}"
        with pytest.raises(ValueError, match=message):
            map_sizes((side - 1, side), convs)
