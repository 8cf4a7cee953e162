"""The engine in the page: opened from a file, in a worker, without a request."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.browser import watched_page

from clustercaps.explore.assemble import FOLDER, write_page
from clustercaps.explore.modules import bundle

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

Client = Callable[[str], Any]

START = """
const { Engine, Superseded, bytesOf } = exported;
const engine = await Engine.start();
const find = (id) => window.EXPLORER.networks.find((each) => each.id === id);
// The pixels of a test image as [channels, height, width] in 0 to 1.
const image = (id, number = 0) => {
  const { input, images } = find(id);
  const bytes = bytesOf(images[number].pixels);
  const size = input.height * input.width;
  return Float32Array.from(bytes,
    (_, n) => bytes[(n % size) * input.channels + Math.floor(n / size)] / 255);
};
const caught = (promise) => promise.then(() => null, (error) => `${error.name}: ${error.message}`);
"""


@pytest.fixture
def client(explorer: "Page") -> Client:
    """Runs statements in the page that know `engine` and `image`."""
    script = bundle(FOLDER / "engine" / "client.js", FOLDER / "page" / "base64.js")

    def run(body: str) -> Any:
        text = (
            f"(async () => {{ {script} {START} try {{ {body} }} finally {{ engine.stop(); }} }})()"
        )
        return explorer.evaluate(text)

    return run


def test_predictions_are_those_that_python_stored(client: Client) -> None:
    found = client("""
      const wrong = [];
      for (const { id, images } of window.EXPLORER.networks) {
        for (const [number, { predicted }] of images.entries()) {
          const { prediction } = await engine.forward(id, image(id, number));
          if (prediction !== predicted) wrong.push([id, number]);
        }
      }
      return wrong;
    """)
    assert found == []


def test_votes_and_weights_are_those_of_the_last_image(client: Client) -> None:
    found = client("""
      const id = "m1:fashion-mnist";
      const place = { layer: 1, y: 3, x: 4, channel: 2, dim: 5 };
      const { layers } = await engine.forward(id, image(id, 3));
      const votes = await engine.votes(id, place);
      const weights = await engine.weights(id, { layer: 1 });
      const { channels, dim, height, width } = find(id).layers[1];
      const at = ((place.channel * dim + place.dim) * height + place.y) * width + place.x;
      const size = channels * dim * height * width;
      const equal = await engine.forward(id, image(id, 3), { routing: "uniform" });
      const flat = await engine.votes(id, place);
      return { own: [...votes.weights], all: [0, 1, 2, 3].map((n) => weights[n * size + at]),
        normalised: [votes.normalised, layers[1].capsules[at]], count: votes.votes.length,
        flat: [...flat.weights], other: equal.logits.length };
    """)
    assert found["own"] == pytest.approx(found["all"])
    assert sum(found["own"]) == pytest.approx(1)
    assert found["normalised"][0] == found["normalised"][1]
    assert found["count"] == 20
    assert found["flat"] == [0.25] * 4
    assert max(found["own"]) > 0.26
    assert found["other"] == 10


def test_a_pass_that_is_not_kept_leaves_the_last_one(client: Client) -> None:
    before, after, other = client("""
      const id = "m1:fashion-mnist";
      const place = { layer: 4, y: 0, x: 0, channel: 0, dim: 0 };
      await engine.forward(id, image(id, 1));
      const before = await engine.votes(id, place);
      const other = await engine.forward(id, image(id, 2), { routing: "uniform", keep: false });
      const after = await engine.votes(id, place);
      return [[...before.votes], [...after.votes], other.prediction];
    """)
    assert before == after
    assert 0 <= other < 10


def test_quick_moves_of_a_slider_do_not_pile_up(client: Client) -> None:
    found = client("""
      const id = "class_capsules";
      const { features } = await engine.forward(id, image(id));
      let last;
      const answers = [];
      for (let move = 1; move <= 200; move++) {
        last = features.map((value) => value + move / 100);
        answers.push(engine.decode(id, last, { label: 3, live: true }).then(({ pixels }) => pixels,
          (error) => error instanceof Superseded ? null : Promise.reject(error)));
      }
      const done = await Promise.all(answers);
      const { pixels } = await engine.decode(id, last, { label: 3 });
      const same = pixels.every((value, n) => value === done.at(-1)[n]);
      const range = [Math.min(...pixels), Math.max(...pixels)];
      return { drawn: done.filter(Boolean).length, same, range };
    """)
    assert found["same"]
    assert 1 <= found["drawn"] <= 3
    assert 0 <= found["range"][0] < found["range"][1] <= 1


def test_sensitivity_reports_progress_and_lets_other_calls_through(client: Client) -> None:
    found = client("""
      const id = "m1:fashion-mnist";
      const place = { layer: 2, y: 3, x: 3, channel: 1, dim: 2, cluster: 0 };
      await engine.forward(id, image(id));
      const order = [];
      const first = engine.sensitivity(id, place, (part) => {
        if (!order.length) engine.votes(id, place).then(() => order.push("votes"));
        order.push(part);
      }).then(() => "finished", (error) => error.name);
      await new Promise((resolve) => setTimeout(resolve, 300));
      const second = await engine.sensitivity(id, { ...place, layer: 1 }, () => {});
      const moved = second.some((change) => change !== 0);
      return { order, first: await first, length: second.length, moved };
    """)
    assert found["first"] == "Superseded"
    assert "votes" in found["order"]
    assert 0 < found["order"][0] < 1
    assert found["length"] == 32 * 32
    assert found["moved"]


def test_mistakes_are_answered_with_a_message(client: Client) -> None:
    found = client("""
      const id = "m1:fashion-mnist";
      const place = { layer: 1, y: 0, x: 0, channel: 0, dim: 0 };
      const early = await caught(engine.votes(id, place));
      await engine.forward(id, image(id));
      await engine.forward("affine_cnn", image("affine_cnn"));
      return [early, await caught(engine.forward("nothing", image(id))),
        await caught(engine.forward(id, new Float32Array(5))),
        await caught(engine.votes(id, { ...place, y: 99 })),
        await caught(engine.decode(id, new Float32Array(5))),
        await caught(engine.weights("affine_cnn", { layer: 0 })),
        await caught(engine.transform("affine_cnn", { kind: "melt" }))];
    """)
    expected = [
        *("no image yet", "no network nothing", "expected 1 x 32 x 32 pixels, got 5"),
        *("y must be 0 to 15 in layer 1", "no decoder", "no capsule layer 0"),
        "unknown transformation melt",
    ]
    for message, part in zip(found, expected, strict=True):
        assert message.startswith("Error: ")
        assert part in message


def test_class_names_are_shown_as_text(
    chromium: "Browser", content: dict[str, Any], tmp_path: Path
) -> None:
    name = "<img src=x onerror='window.broken=1'></script><b>bold</b>"
    network = content["networks"][0]
    changed = {**network, "classes": [name] * 10, "title": name, "id": name}
    write_page({"version": name, "networks": [changed]}, tmp_path / "page.html")
    with watched_page(chromium, tmp_path / "page.html") as page:
        page.wait_for_function("document.body.innerText.includes('onerror')")
        assert page.evaluate("window.broken") is None
        assert page.locator("b", has_text="bold").count() == 0


def test_times_are_reported(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """Printed and not compared: the machine may be busy."""
    found = client("""
      const times = {};
      for (const { id, decoder } of window.EXPLORER.networks) {
        const forward = [], decode = [];
        for (let n = 0; n < 30; n++) {
          const { features, ms } = await engine.forward(id, image(id));
          forward.push(ms);
          if (decoder) decode.push((await engine.decode(id, features, { label: 0 })).ms);
        }
        times[id] = { forward: Math.min(...forward), decode: decoder ? Math.min(...decode) : null };
      }
      return times;
    """)
    with capsys.disabled():
        for name, times in found.items():
            decode = "" if times["decode"] is None else f", decoder {times['decode']:.1f} ms"
            print(f"\n  {name}: forward {times['forward']:.1f} ms{decode}", end="")
    assert all(times["forward"] > 0 for times in found.values())
