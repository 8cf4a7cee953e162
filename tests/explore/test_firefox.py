"""The page in Firefox: it loads, logs no error, and predicts what PyTorch predicts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.firefox import Firefox, start_firefox

from clustercaps.explore.assemble import FOLDER
from clustercaps.explore.modules import bundle

pytestmark = pytest.mark.browser

PREDICT = """
const { Engine, bytesOf } = exported;
const engine = await Engine.start();
const wrong = [];
for (const { id, images, input } of window.EXPLORER.networks) {
  const size = input.height * input.width;
  for (const [number, { predicted, pixels }] of images.entries()) {
    const bytes = bytesOf(pixels);
    const image = Float32Array.from(bytes,
      (_, n) => bytes[(n % size) * input.channels + Math.floor(n / size)] / 255);
    const { prediction } = await engine.forward(id, image);
    if (prediction !== predicted) wrong.push([id, number]);
  }
}
engine.stop();
return wrong;
"""


@pytest.fixture(scope="module")
def firefox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Firefox]:
    with start_firefox(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


def open_page(firefox: Firefox, file: Path, address: str = "") -> None:
    """Load it and wait until the first image was computed."""
    firefox.open("about:blank")
    firefox.open(f"{file.resolve().as_uri()}#{address}")
    firefox.wait_for("body[data-ready]")
    firefox.wait_for(".votes-chart, #panel-routing .empty")


def test_errors_are_noticed(firefox: Firefox, tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text("<!doctype html><script>missing()</script>")
    firefox.open(page.as_uri())
    assert firefox.errors(page) == ["ReferenceError: missing is not defined"]


def test_the_page_works(firefox: Firefox, explorer_file: Path, tmp_path: Path) -> None:
    open_page(firefox, explorer_file)
    bars = "[...document.querySelectorAll('#panel-input .bar-value')].map((e) => e.innerText)"
    shown = [float(text.strip(" %")) for text in firefox.evaluate(bars)]
    assert len(shown) == 10
    assert sum(shown) == pytest.approx(100, abs=0.6)
    firefox.screenshot(tmp_path / "explorer.png")
    assert (tmp_path / "explorer.png").stat().st_size > 20_000
    assert firefox.errors(explorer_file) == []


def test_every_network_can_be_chosen(firefox: Firefox, explorer_file: Path) -> None:
    for identity in firefox.evaluate("window.EXPLORER.networks.map(({ id }) => id)"):
        open_page(firefox, explorer_file, f"network={identity}")
    assert firefox.errors(explorer_file) == []


def test_predictions_are_those_that_python_stored(firefox: Firefox, explorer_file: Path) -> None:
    open_page(firefox, explorer_file)
    script = bundle(FOLDER / "engine" / "client.js", FOLDER / "page" / "base64.js")
    assert firefox.evaluate(f"(async () => {{ {script} {PREDICT} }})()") == []
    assert firefox.errors(explorer_file) == []
