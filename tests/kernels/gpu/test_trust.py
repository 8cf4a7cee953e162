"""What the first call of a kind of layer finds out, and what becomes of it."""

import json
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import clustercaps as cc
from clustercaps import kernels
from clustercaps.kernels import trust
from clustercaps.testing import assert_close

pytestmark = pytest.mark.triton

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _first_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLUSTERCAPS_CACHE", str(tmp_path))
    monkeypatch.delenv("CLUSTERCAPS_BACKEND", raising=False)
    # As on a GPU, where "auto" chooses Triton.
    monkeypatch.setattr(
        kernels, "_choose_once", lambda backend, *_: "triton" if backend == "auto" else backend
    )
    forget()


def forget() -> None:
    """As in a new process."""
    trust._verdicts.cache_clear()
    trust._warn.cache_clear()
    trust._warn_of_memory.cache_clear()


@pytest.fixture
def op() -> ModuleType:
    from clustercaps.kernels import cluster_triton

    return cluster_triton


@pytest.fixture
def calls(op: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of images of every call of the kernel."""
    found: list[int] = []
    right = op.triton_capsules

    def counted(x: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
        found.append(len(x))
        return right(x, *rest)

    monkeypatch.setattr(op, "triton_capsules", counted)
    return found


def small_layer() -> cc.ClusterCapsules2d:
    torch.manual_seed(0)
    return cc.ClusterCapsules2d(1, 2, 1, 3, votes=3, in_size=4).to(DEVICE)


def run(layer: cc.ClusterCapsules2d, images: int = 3) -> Tensor:
    x = torch.randn(images, 1, 2, 4, 4, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    reference = small_layer()
    reference.load_state_dict(layer.state_dict())
    reference.backend = "reference"
    capsules = layer(x)
    assert_close("capsules", capsules, reference(x), 1e-3)
    return capsules


def test_agreement_is_found_once_and_kept(calls: list[int]) -> None:
    layer = small_layer()
    run(layer)
    run(layer)
    # Two images to compare, then the layer itself, twice.
    assert calls == [2, 3, 3]
    forget()
    run(layer, images=5)
    assert calls == [2, 3, 3, 5]
    assert "1 kinds of layers agree with the reference, 0 do not" in trust.status()


def test_another_kind_is_compared_again(calls: list[int]) -> None:
    run(small_layer())
    layer = cc.ClusterCapsules2d(1, 2, 1, 3, votes=3, stride=2, in_size=4).to(DEVICE)
    layer(torch.randn(4, 1, 2, 4, 4, device=DEVICE))
    assert calls == [2, 3, 2, 4]


def test_other_versions_are_compared_again(
    calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(small_layer())
    forget()
    trust._identity.cache_clear()
    monkeypatch.setattr(cc, "__version__", "99")
    run(small_layer())
    trust._identity.cache_clear()
    assert calls == [2, 3, 2, 3]


def test_disagreement(op: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    right = op.triton_capsules

    def wrong(*arguments: object) -> tuple[Tensor, Tensor]:
        capsules, scale = right(*arguments)
        return capsules * 1.01, scale

    monkeypatch.setattr(op, "triton_capsules", wrong)
    with pytest.warns(UserWarning, match=r"does not agree .* error 1.0e-02.*report"):
        run(small_layer())
    # Once; and the verdict stays, in this process and in the next.
    run(small_layer())
    monkeypatch.setattr(op, "triton_capsules", None)
    forget()
    with pytest.warns(UserWarning, match="report"):
        run(small_layer())
    assert "0 kinds of layers agree with the reference, 1 do not" in trust.status()


def test_nan_is_no_agreement(op: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    right = op.triton_capsules
    monkeypatch.setattr(op, "triton_capsules", lambda *a: (right(*a)[0] * torch.nan, None))
    with pytest.warns(UserWarning, match="error inf"):
        run(small_layer())


def test_compile_failure(op: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("PassManager::run failed")

    monkeypatch.setattr(op, "triton_capsules", fails)
    with pytest.warns(UserWarning, match=r"PassManager::run failed.*report"):
        run(small_layer())


def test_out_of_memory_is_asked_again(
    op: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(op, "triton_capsules", fails)
        with pytest.warns(UserWarning, match="not enough memory"):
            run(small_layer())
        # Once: warnings are errors in these tests.
        run(small_layer())
    assert not (tmp_path / "kernels" / trust.FILE).exists()
    run(small_layer())
    assert "1 kinds of layers agree" in trust.status()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"x": 3}'])
def test_damaged_file(tmp_path: Path, calls: list[int], content: str) -> None:
    run(small_layer())
    (path,) = tmp_path.rglob(trust.FILE)
    stored = json.loads(path.read_text())
    path.write_text(content)
    forget()
    run(small_layer())
    assert calls == [2, 3, 2, 3]
    assert stored.items() <= json.loads(path.read_text()).items()


def test_a_forced_backend_is_not_questioned(calls: list[int]) -> None:
    layer = small_layer()
    layer.backend = "triton"
    run(layer)
    assert calls == [3]
