import pytest
import torch


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    # One thread per worker: the tests run in two processes on two cores.
    torch.set_num_threads(1)
    torch.manual_seed(0)
