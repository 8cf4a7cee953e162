import pytest
import torch

from clustercaps.utils.precision import wide_dtype, without_autocast


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_products_keep_their_dtype_inside_autocast(device: str) -> None:
    x = torch.ones(2, 2, device=device)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert device == "meta" or (x @ x).dtype == torch.bfloat16
        with without_autocast(x):
            assert (x @ x).dtype == torch.float32
        assert device == "meta" or (x @ x).dtype == torch.bfloat16


def test_nothing_gets_narrower() -> None:
    half, single, double = torch.float16, torch.float32, torch.float64
    assert [wide_dtype(d) for d in (half, torch.bfloat16, single, double)] == [
        *[single] * 3,
        double,
    ]
