import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_readme_example_runs(tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    assert 10 <= len([line for line in code.splitlines() if line.strip()]) <= 14
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "ClusterCapsules2d(4x8 -> 4x8, votes=5, clusters=1, stride=2)" in done.stdout


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *map(str, sorted((ROOT / "docs").glob("*.md")))]
)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_contributing_routing_can_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    import clustercaps as cc
    from clustercaps.routing import ROUTINGS, cluster_route

    def sharper(votes: torch.Tensor, *, eps: float = 1e-6) -> tuple[torch.Tensor, torch.Tensor]:
        centroids, spread = cc.functional.vote_statistics(votes, eps)
        weights = cc.functional.routing_weights(spread.square())
        return (weights * centroids).sum(1).to(votes.dtype), weights

    monkeypatch.setitem(ROUTINGS, "sharper", sharper)
    cc.testing.assert_routing_contract(sharper)
    model = cc.create_model("m1", routing="sharper", in_chans=1, img_size=8)
    assert model(torch.rand(2, 1, 8, 8)).isfinite().all()
    votes = torch.rand(2, 3, 4, 5)
    assert (sharper(votes)[1].amax(1) >= cluster_route(votes)[1].amax(1)).all()
