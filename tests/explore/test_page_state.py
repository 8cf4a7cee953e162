"""The address holds the state; calls do not pile up; figures can be saved; the tour works."""

import csv
import io
from typing import TYPE_CHECKING

import pytest
from helpers.explorer_page import address_of, open_at, panel, ready

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

COUNTING_WORKER = """
const Plain = Worker;
window.flight = { now: 0, most: 0, sent: 0 };
window.Worker = class extends Plain {
  constructor(address) {
    super(address);
    this.addEventListener("message", ({ data }) => { if (!data.progress) window.flight.now--; });
  }
  postMessage(message) {
    const { flight } = window;
    flight.now++;
    flight.sent++;
    flight.most = Math.max(flight.most, flight.now);
    super.postMessage(message);
  }
};
"""


def test_the_address_holds_the_state(explorer: "Page") -> None:
    address = (
        "image=3&rotate=30&routing=uniform&layer=2&row=4&column=6&parent=3&dim=5&cluster=2&show=4"
    )
    open_at(explorer, address)
    for label, value in (("Layer", "1"), ("Row", "3"), ("Column", "5"), ("Dimension", "4")):
        assert explorer.get_by_label(label, exact=True).input_value() == value
    assert explorer.get_by_label("Rotate").input_value() == "30"
    assert explorer.get_by_label("all equal").is_checked()
    assert explorer.get_by_label("Show").input_value() == "4"
    explorer.get_by_label("Parent channel").select_option("0")
    wanted = set(address.replace("&parent=3", "").split("&"))
    assert set(address_of(explorer).split("&")) == wanted
    # A link that is followed within the page.
    explorer.evaluate("location.hash = 'layer=5&parent=2'")
    explorer.locator("#panel-network .readout", has_text="Layer 5, channel 2").wait_for()
    assert explorer.get_by_label("Rotate").input_value() == "0"


@pytest.mark.parametrize(
    "address",
    [
        "layer=99&row=500&column=-3&parent=x&dim=1e9&show=77",
        "network=nothing&image=9999&rotate=NaN&routing=magic&theme=pink",
        "pixels=%3Cscript%3E&transform=explode&offsets=a,b&__proto__=1",
        "pixels=AAAA&amount=1e99",
        "%E0%A4%A",
    ],
)
def test_wrong_addresses_show_the_nearest_view(address: str, explorer: "Page") -> None:
    open_at(explorer, address)
    assert explorer.locator("#problem").is_hidden()
    assert explorer.locator("#panel-routing [data-cluster]").count() == 4


def test_200_slider_moves_do_not_pile_up(explorer: "Page") -> None:
    explorer.add_init_script(COUNTING_WORKER)
    open_at(explorer, "network=class_capsules")
    panel(explorer, "dimensions").scroll_into_view_if_needed()
    slider = panel(explorer, "dimensions").get_by_label("Dimension 1", exact=True)
    slider.evaluate(
        """async (slider) => {
          for (let n = 1; n <= 200; n++) {
            slider.value = String(-1 + n / 100);
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            if (n % 4 === 0) await new Promise((resolve) => setTimeout(resolve, 4));
          }
        }"""
    )
    flight = explorer.evaluate("window.flight")
    # One call of each kind at most: forward, its comparison, votes, decoding, strips, channels.
    assert flight["most"] <= 8, flight
    assert slider.input_value() == "1"
    assert address_of(explorer).endswith("offsets=1%2C0%2C0%2C0")
    rotate = explorer.get_by_label("Rotate")
    rotate.evaluate(
        """(slider) => {
          for (let n = 0; n < 200; n++) {
            slider.value = String(n - 100);
            slider.dispatchEvent(new Event("input", { bubbles: true }));
          }
        }"""
    )
    assert explorer.evaluate("window.flight.most") <= 8
    explorer.wait_for_timeout(1000)
    assert explorer.evaluate("window.flight.now") <= 4


@pytest.mark.parametrize("name", ["input", "network", "routing", "dimensions", "transform"])
def test_views_are_saved_as_png_and_csv(name: str, explorer: "Page", tmp_path: "Path") -> None:
    open_at(explorer, "network=class_capsules")
    own = panel(explorer, name)
    own.scroll_into_view_if_needed()
    explorer.wait_for_timeout(1500)
    with explorer.expect_download() as found:
        own.get_by_role("button", name="as PNG").click()
    path = tmp_path / "figure.png"
    found.value.save_as(path)
    width, height, colours = explorer.evaluate(
        """async (bytes) => {
          const picture = await createImageBitmap(new Blob([Uint8Array.from(bytes)]));
          const canvas = new OffscreenCanvas(picture.width, picture.height);
          const context = canvas.getContext("2d");
          context.drawImage(picture, 0, 0);
          const { data } = context.getImageData(0, 0, picture.width, picture.height);
          const colours = new Set(new Uint32Array(data.buffer));
          return [picture.width, picture.height, colours.size];
        }""",
        list(path.read_bytes()),
    )
    box = own.bounding_box()
    assert box
    assert width == pytest.approx(2 * (box["width"] + 48), abs=3)
    assert height > 400
    assert colours > 50
    with explorer.expect_download() as found:
        own.get_by_role("button", name="as CSV").click()
    path = tmp_path / "numbers.csv"
    found.value.save_as(path)
    rows = list(csv.reader(io.StringIO(path.read_text())))
    assert len({len(row) for row in rows}) == 1
    assert len(rows) >= 4
    assert all(float(row[-1]) == float(row[-1]) for row in rows[1:] if row[-1])
    # The controls are back.
    assert own.locator(".saves").is_visible()


def test_the_tour_has_seven_steps(explorer: "Page") -> None:
    ready(explorer)
    explorer.get_by_role("button", name="Take the tour").click()
    tour = explorer.locator(".tour")
    titles = []
    for step in range(1, 8):
        tour.locator(".tour-count", has_text=f"Step {step} of 7").wait_for()
        titles.append(tour.locator("h2").inner_text())
        assert explorer.locator(".panel.toured").count() == 1
        if step == 5:
            assert explorer.get_by_label("all equal").is_checked()
        tour.locator(".primary").click()
    assert len(set(titles)) == 7
    assert tour.is_hidden()
    assert explorer.get_by_label("by agreement").is_checked()
    open_at(explorer, "step=4")
    assert tour.is_visible()
    tour.get_by_role("button", name="End the tour").press("Escape")
    assert tour.is_hidden()
