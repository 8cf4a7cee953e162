"""bfloat16 products under Triton's interpreter, which multiplies their bit patterns as integers."""

import os

import pytest


@pytest.fixture(autouse=True)
def _bfloat16_products(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    multiply = InterpreterBuilder.create_dot

    def exact(factor: TensorHandle) -> TensorHandle:
        if factor.dtype.scalar != tl.bfloat16:
            return factor
        return TensorHandle((factor.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    monkeypatch.setattr(
        InterpreterBuilder,
        "create_dot",
        lambda self, a, b, *rest: multiply(self, exact(a), exact(b), *rest),
    )
