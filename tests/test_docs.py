import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.measured import is_known, known_numbers, stated_numbers

from clustercaps.experiments.harness import page as reproduction

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = ["README.md", *(str(path.relative_to(ROOT)) for path in DOCS)]


def test_readme_example_runs(tmp_path: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    assert 10 <= len([line for line in code.splitlines() if line.strip()]) <= 14
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "ClusterCapsules2d(4x8 -> 4x8, votes=5, clusters=1, stride=2)" in done.stdout


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", *PAGES])
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    # Comments for the documentation site, which a code host hides.
    text = re.sub(r"<!-- site: .*?-->", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!http)([^)#]+)", text):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_one_version_and_date_in_package_changelog_and_citation() -> None:
    from clustercaps import __version__

    newest = re.search(r"^## (\S+) - ([\d-]+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text()
    assert newest is not None
    assert newest[1] == __version__
    assert f"\nversion: {newest[1]}\ndate-released: {newest[2]}\n" in citation


@pytest.fixture(scope="module")
def known() -> list[tuple[str, float]]:
    return known_numbers(ROOT / "results", ROOT / "clustercaps/experiments/paper.json")


@pytest.mark.parametrize("page", PAGES)
def test_measured_numbers_are_in_results(page: str, known: list[tuple[str, float]]) -> None:
    text = (ROOT / page).read_text()
    everywhere = page == "docs/reproduction.md"
    unknown = [
        f"{number} {unit}".strip()
        for number, unit, scale in stated_numbers(text, everywhere)
        if not is_known(number, unit, scale, known)
    ]
    assert not unknown, (
        f"{page} states {', '.join(unknown)}, which no file in results/ has; see "
        "'Numbers in the docs' in CONTRIBUTING.md"
    )


def test_wrong_numbers_are_found(tmp_path: Path) -> None:
    (tmp_path / "demo.json").write_text('{"test_error": 11.4, "train_seconds": 155.0}')
    (tmp_path / "bench.csv").write_text("model,times_official\nm1,32.544\n")
    (tmp_path / "ablation.csv").write_text("cell,seed,test_error\nm1,0,20.5\nm1,1,21.5\n")
    known = known_numbers(tmp_path, ROOT / "clustercaps/experiments/paper.json")
    page = """
An error of **11.40 %**, 155 s of training, `99.99 %` in code.

## Results

| network | error % | faster |
|---|---|---|
| m1 | 5.17 +- 0.07 (146K) | 32.5x |
| m2 | 5.18 | 32.9x |
| m3 | 21.00 +- 0.71 | - |
| m4 | 155 | - |

It took 156 s and 2.7 min. 1x28x28 is no factor.
"""
    stated = list(stated_numbers(page, everywhere=False))
    expected = "11.40 155 32.5 5.17 0.07 32.9 5.18 21.00 0.71 155 156 2.7"
    assert " ".join(number for number, _, _ in stated) == expected
    wrong = [number for number, unit, scale in stated if not is_known(number, unit, scale, known)]
    # 155 are seconds, not a percentage.
    assert wrong == ["32.9", "5.18", "155", "156", "2.7"]


def test_reproduction_page_is_what_report_writes() -> None:
    page = ROOT / "docs" / "reproduction.md"
    assert page.read_text() == reproduction.render(ROOT / "results", page), (
        "run `clustercaps report`"
    )
    for name, sections in reproduction.fragments(ROOT / "results").items():
        for budget, text in sections.items():
            assert (ROOT / "results" / f"{name}-{budget}.md").read_text() == text


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
    from clustercaps.models.registry import PRESETS, count_parameters

    page = (ROOT / "docs/systems.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and "(`" in line]
    assert len(rows) >= 18
    for row in rows:
        count, name = re.search(r"([\d,]+) \(`(\w+)`\)", row).groups()
        assert count_parameters(name) == int(count.replace(",", "")), name
        assert ("*reconstruction*" in row) == PRESETS[name].reconstruction, name
    for routing in cc.list_routings():
        assert f"[`{routing}`](" in page or routing == "uniform", routing


def test_examples_and_notebooks_are_listed() -> None:
    page = (ROOT / "docs/examples.md").read_text()
    for path in [*(ROOT / "examples").glob("*.py"), *(ROOT / "notebooks").glob("*.ipynb")]:
        assert f"](../{path.parent.name}/{path.name})" in page
