from collections.abc import Iterator

import pytest
import torch

# One thread per worker: the tests run in two processes on two cores.
THREADS = 1
torch.set_num_threads(THREADS)


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    """The same start for every test, whatever ran before it in this process."""
    torch.manual_seed(0)
    yield
    torch.set_num_threads(THREADS)
