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
    from clustercaps.routing import ROUTINGS, Routed, Routing

    class MeanRouting(Routing):
        def route(self, votes, activations, poses):
            coupling = torch.full_like(votes[:, :, :, 0], 1 / votes.shape[2])
            return Routed(votes.mean(1), None, coupling)

    monkeypatch.setitem(ROUTINGS, "mean", MeanRouting)
    cc.testing.assert_routing_contract(lambda: MeanRouting(children=6, parents=3, dim=4))
    model = cc.create_model("m1", routing="mean", in_chans=1, img_size=8)
    assert model(torch.rand(2, 1, 8, 8)).isfinite().all()


def test_table_of_routings_is_what_is_registered() -> None:
    import clustercaps as cc
    from clustercaps.models.registry import PRESETS
    from clustercaps.parameters import count_parameters

    page = (ROOT / "docs/routings.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "(`" in line]
    assert len(rows) >= 18
    for row in rows:
        count, name = re.search(r"([\d,]+) \(`(\w+)`\)", row).groups()
        assert count_parameters(name) == int(count.replace(",", "")), name
        assert ("*reconstruction*" in row) == PRESETS[name].reconstruction, name
    for routing in cc.list_routings():
        assert f"[`{routing}`](" in page or routing == "uniform", routing


def test_example_of_routings_runs() -> None:
    page = (ROOT / "docs/routings.md").read_text()
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0], {})
