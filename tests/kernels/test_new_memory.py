"""The other kernel tests see an element that was never written: new memory holds NaN."""

import pytest
import torch
from helpers.layer_case import Case

from clustercaps.kernels import cluster_cpu
from clustercaps.testing import assert_finite


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_new_memory_is_nan(dtype: torch.dtype) -> None:
    like = torch.ones(7, dtype=dtype)
    for new in (torch.empty(7, dtype=dtype), torch.empty_like(like), like.new_empty(7)):
        assert new.isnan().all()


def test_kernel_that_writes_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_cpu, "load", lambda: lambda *_: None)
    case = Case()
    with pytest.raises(AssertionError):
        assert_finite("capsules", case.fused(*case.tensors(torch.float32)))
