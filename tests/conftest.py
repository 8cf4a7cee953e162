import pytest
import torch

# One thread per worker: the tests run in two processes on two cores.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    torch.manual_seed(0)
