"""Every panel of the explorer shows what the engine computed."""

import re
from typing import TYPE_CHECKING

import pytest
from helpers.browser import watched_page
from helpers.explorer_page import PATIENCE, canvas_text, open_at, panel, ready

from clustercaps.explore.assemble import write_page

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


def expect(locator):
    """Playwright's assertions, imported late because playwright is optional."""
    from playwright.sync_api import expect as real

    real.set_options(timeout=PATIENCE)
    return real(locator)


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?\d+(?:\.\d+)?", text.replace("\u2212", "-"))]


def test_probabilities_add_up_and_follow_the_sliders(explorer: "Page") -> None:
    ready(explorer)
    values = explorer.locator("#panel-input .bar-value")
    before = values.all_inner_texts()
    assert len(before) == 10
    assert sum(numbers(" ".join(before))) == pytest.approx(100, abs=0.6)
    explorer.get_by_label("Rotate").fill("90")
    expect(values.first).not_to_have_text(before[0])
    assert sum(numbers(" ".join(values.all_inner_texts()))) == pytest.approx(100, abs=0.6)
    panel(explorer, "input").get_by_role("button", name="Reset").click()
    expect(values.first).to_have_text(before[0])


def test_images_by_class_with_wrong_ones(explorer: "Page") -> None:
    ready(explorer)
    images = explorer.get_by_role("radiogroup", name="Test images").get_by_role("radio")
    everything = images.count()
    explorer.get_by_label("Class", exact=True).select_option("wrong")
    assert 0 < images.count() < everything
    for name in images.evaluate_all("(all) => all.map((each) => each.ariaLabel)"):
        assert "wrongly predicted as" in name
    images.first.click()
    expect(explorer.locator(".verdict")).to_contain_text("wrong")


def test_hovering_shows_window_and_parents(explorer: "Page") -> None:
    ready(explorer)
    shown = explorer.locator("#panel-network .readout")
    maps = explorer.locator("#panel-network .map")
    below = canvas_text(maps.nth(0).locator("canvas"))
    above = canvas_text(maps.nth(8).locator("canvas"))
    maps.nth(4).hover(position={"x": 28, "y": 28})
    expect(shown).to_contain_text("Layer 2, channel 1, row 9, column 9")
    expect(shown).to_contain_text(
        "It reads 9 positions of layer 1. It is read by 9 positions of layer 3."
    )
    assert canvas_text(maps.nth(0).locator("canvas")) != below
    assert canvas_text(maps.nth(8).locator("canvas")) != above
    maps.nth(4).click(position={"x": 1, "y": 1})
    expect(explorer.get_by_label("Layer", exact=True)).to_have_value("1")
    expect(explorer.get_by_label("Row", exact=True)).to_have_value("0")
    # At the corner, padding is not a position.
    explorer.mouse.move(2, 2)
    expect(shown).to_contain_text("It reads 4 positions of layer 1.")


def test_maps_show_length_or_a_dimension(explorer: "Page") -> None:
    ready(explorer)
    canvas = explorer.locator("#panel-network .map canvas").nth(12)
    length = canvas_text(canvas)
    explorer.get_by_label("Show").select_option("2")
    expect(explorer.locator("#panel-network .colour-key")).to_contain_text("value of dimension 2")
    assert canvas_text(canvas) != length


def test_routing_numbers_fit_together(explorer: "Page") -> None:
    ready(explorer)
    rows = explorer.locator("#panel-routing [data-cluster]")
    assert rows.count() == 4
    found = [numbers(rows.nth(n).get_attribute("aria-label") or "")[1:4] for n in range(4)]
    centroids, spreads, weights = zip(*found, strict=True)
    assert sum(weights) == pytest.approx(1, abs=0.003)
    total = sum(1 / spread for spread in spreads)
    for spread, weight in zip(spreads, weights, strict=True):
        assert weight == pytest.approx(1 / spread / total, abs=0.005)
    parent = sum(m * weight for m, weight in zip(centroids, weights, strict=True))
    shown = explorer.locator(".parent-line text").text_content() or ""
    assert numbers(shown)[0] == pytest.approx(parent, abs=0.01)
    assert explorer.locator(".vote").count() == 4 * 5
    assert explorer.locator(".average.predicted").count() == 4
    assert explorer.locator(".equation").count() == 4


def test_equal_weights_recompute_the_network(explorer: "Page") -> None:
    ready(explorer)
    expect(explorer.locator(".compared")).to_contain_text("All equal")
    agreed = explorer.locator(".compared").inner_text()
    before = explorer.locator("#panel-input .bar-value").all_inner_texts()
    explorer.get_by_label("all equal").check()
    expect(explorer.locator(".headline").first).to_contain_text("count the same")
    expect(explorer.locator(".weight-value").first).to_have_text("0.25")
    expect(explorer.locator(".compared")).to_have_text(agreed)
    assert explorer.locator("#panel-input .bar-value").all_inner_texts() != before
    # The votes belong to the chosen routing, not to the one computed for comparison.
    assert explorer.locator(".weight-value").all_text_contents() == ["0.25"] * 4


def test_a_weight_is_explained_and_can_be_stopped(explorer: "Page") -> None:
    # The first layer needs no other layers, so that this is fast.
    open_at(explorer, "layer=1&row=10&column=12")
    why = panel(explorer, "why")
    blank = canvas_text(why.locator("canvas").nth(1))
    explorer.locator("[data-cluster='2']").click(position={"x": 20, "y": 20})
    expect(why.locator(".readout")).to_contain_text("A lighter pixel raises the weight most")
    place = numbers(why.locator(".readout").inner_text())
    # The window of the first layer is 3 by 3 around row 10, column 12.
    assert all(abs(row - 10) <= 1 for row in (place[2], place[4]))
    assert all(abs(column - 12) <= 1 for column in (place[3], place[5]))
    assert canvas_text(why.locator("canvas").nth(1)) != blank
    explorer.get_by_label("Layer", exact=True).select_option("4")
    expect(why.locator(".readout")).to_contain_text("Not computed yet")
    why.get_by_role("button", name="Compute").click()
    why.get_by_role("button", name="Stop").click()
    expect(why.locator("progress")).to_be_hidden()


def test_dimensions_change_the_reconstruction(explorer: "Page") -> None:
    open_at(explorer, "network=class_capsules")
    own = panel(explorer, "dimensions")
    own.scroll_into_view_if_needed()
    expect(own).to_have_attribute("data-complete", re.compile(r"\d+"))
    drawn = own.get_by_label("The reconstruction", exact=True)
    before = canvas_text(drawn)
    strips = own.locator(".strip").first.locator("canvas")
    assert strips.count() == 11
    assert canvas_text(strips.first) != canvas_text(strips.last)
    own.get_by_label("Dimension 2", exact=True).fill("0.8")
    explorer.wait_for_timeout(500)
    assert canvas_text(drawn) != before
    own.get_by_role("button", name="Reset").click()
    explorer.wait_for_timeout(500)
    assert canvas_text(drawn) == before
    own.get_by_role("button", name="Random walk").click()
    explorer.wait_for_timeout(600)
    own.get_by_role("button", name="Random walk").click()
    # A single dimension may be back at 0 by chance.
    sliders = own.get_by_label(re.compile(r"^Dimension \d+$")).all()
    assert len(sliders) == 4
    assert {slider.input_value() for slider in sliders} != {"0"}


def test_transformations_show_both_networks(explorer: "Page") -> None:
    open_at(explorer, "transform=flip-horizontal")
    own = panel(explorer, "transform")
    own.scroll_into_view_if_needed()
    expect(own.locator(".presets")).to_have_attribute("data-complete", "true")
    assert own.locator(".preset").count() == 18
    assert (
        own.get_by_role("button", name=re.compile("^H-flip")).get_attribute("aria-pressed")
        == "true"
    )
    errors = numbers(" ".join(own.locator(".error").all_inner_texts()))
    flip = own.get_by_role("button", name=re.compile("^H-flip"))
    shown = flip.locator(".preset-value").all_text_contents()
    assert [text.split("0.")[0].strip() for text in shown] == ["capsule network", "CNN"]
    # With three digits in the list, and four below the pictures.
    assert numbers(" ".join(shown)) == pytest.approx(errors, abs=5.1e-4)
    target = canvas_text(own.get_by_label("The transformed image"))
    own.get_by_role("button", name=re.compile("^R-0")).click()
    expect(own.get_by_label("Transformation", exact=True)).to_have_value("rotate")
    explorer.wait_for_timeout(500)
    identity = canvas_text(own.get_by_label("The transformed image"))
    assert identity != target
    assert identity == canvas_text(own.get_by_label("The image", exact=True))


def test_a_cnn_has_nothing_to_route(explorer: "Page") -> None:
    open_at(explorer, "network=affine_cnn")
    expect(panel(explorer, "routing").locator(".empty")).to_contain_text("does not route")
    assert numbers(explorer.locator("#panel-input .bar-value").first.inner_text())
    explorer.get_by_label("Network", exact=True).select_option("m1:fashion-mnist")
    expect(explorer.locator(".votes-chart")).to_be_visible()


def test_missing_networks_name_the_command(
    chromium: "Browser", content: dict, tmp_path: "Path"
) -> None:
    path = tmp_path / "small.html"
    write_page({**content, "networks": content["networks"][:1]}, path)
    with watched_page(chromium, path) as page:
        ready(page)
        for name, model in (("dimensions", "class_capsules"), ("transform", "affine_capsules")):
            expect(panel(page, name).locator("code")).to_contain_text(f"clustercaps train {model}")


def test_text_of_the_data_is_never_markup(
    chromium: "Browser", content: dict, tmp_path: "Path"
) -> None:
    hostile = "</script><img src=x onerror=alert(1)><b>bold</b>"
    first = {**content["networks"][0], "title": hostile}
    first["classes"] = [hostile, *first["classes"][1:]]
    path = tmp_path / "hostile.html"
    write_page({**content, "networks": [first]}, path)
    with watched_page(chromium, path) as page:
        ready(page)
        expect(page.locator(".bar-name").first).to_have_text(hostile)
        assert page.locator("main b, main img").count() == 0
