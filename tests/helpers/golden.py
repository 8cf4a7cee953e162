"""Golden values from independent implementations, and the numbers that they were fed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parents[1] / "golden"
ITERATIVE: dict[str, Any] = json.loads((FOLDER / "iterative.json").read_text())
ATTENTION: dict[str, Any] = json.loads((FOLDER / "attention.json").read_text())


def fill(*shape: int, step: float = 1.0, start: float = 1.0) -> Tensor:
    """sin(step * k + start) at the flat index k, in float64."""
    return torch.from_numpy(np.sin(step * np.arange(np.prod(shape)) + start).reshape(shape))


def assert_golden(actual: Tensor, expected: Any, tolerance: float = 1e-5) -> None:
    """Equal to the golden values."""
    wanted = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual.double(), wanted, rtol=tolerance, atol=tolerance)
