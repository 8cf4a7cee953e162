"""The page for everyone: keyboard, screen readers, both themes, wide and narrow windows."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers.explorer_page import open_at, ready

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

# `make test-browser` puts it there.
AXE = Path(__file__).parents[2] / ".browser-tools/node_modules/axe-core/axe.min.js"
WIDE, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


def faults(page: "Page") -> list[str]:
    """Serious and critical faults that axe-core finds."""
    source = Path(os.environ.get("AXE_CORE", AXE))
    if not source.is_file():
        pytest.fail(f"{source} is missing; run `make test-browser`")
    page.evaluate(source.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    return [
        f"{fault['id']}: {fault['help']}: {fault['nodes'][0]['html']}"
        for fault in found
        if fault["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_axe_finds_no_serious_fault(theme: str, size: dict[str, int], explorer: "Page") -> None:
    explorer.set_viewport_size(size)
    open_at(explorer, f"theme={theme}&step=1")
    explorer.locator("#panel-transform").scroll_into_view_if_needed()
    # What is computed last must be there: it is checked, too.
    explorer.locator(".presets[data-complete='true']").wait_for()
    assert explorer.evaluate("document.documentElement.dataset.theme") == theme
    assert faults(explorer) == []


def test_axe_finds_faults_at_all(explorer: "Page") -> None:
    ready(explorer)
    explorer.evaluate("document.querySelector('.pad-holder button').textContent = ''")
    assert any("button-name" in fault for fault in faults(explorer))


@pytest.mark.parametrize("size", [WIDE, PHONE, {"width": 900, "height": 700}])
def test_nothing_is_wider_than_the_window(size: dict[str, int], explorer: "Page") -> None:
    explorer.set_viewport_size(size)
    ready(explorer)
    assert explorer.evaluate("document.documentElement.scrollWidth") <= size["width"]
    wider = explorer.evaluate(
        """(width) => [...document.querySelectorAll("main canvas, main button, main p, main svg")]
          .filter((node) => node.getBoundingClientRect().right > width + 1)
          .map((node) => node.outerHTML.slice(0, 120))""",
        size["width"],
    )
    assert wider == []


def test_the_theme_follows_the_system_and_the_switch(explorer: "Page") -> None:
    ready(explorer)
    ground = "getComputedStyle(document.body).backgroundColor"
    light = explorer.evaluate(ground)
    explorer.emulate_media(color_scheme="dark")
    explorer.locator("html[data-theme='dark']").wait_for()
    dark = explorer.evaluate(ground)
    assert dark != light
    explorer.get_by_label("Theme").select_option("light")
    assert explorer.evaluate(ground) == light
    explorer.get_by_label("Theme").select_option("dark")
    explorer.emulate_media(color_scheme="light")
    assert explorer.evaluate(ground) == dark


def focus_name(page: "Page") -> str:
    return page.evaluate(
        """() => {
          const node = document.activeElement;
          return node.ariaLabel ?? node.labels?.[0]?.textContent ?? node.textContent ?? "";
        }"""
    )


def tab_to(page: "Page", wanted: str, most: int = 80) -> None:
    """Press Tab until the control with this name has the focus."""
    seen = []
    for _ in range(most):
        page.keyboard.press("Tab")
        seen.append(focus_name(page).strip())
        if seen[-1].startswith(wanted):
            return
    raise AssertionError(f"no control {wanted!r} among {seen}")


def test_everything_works_with_the_keyboard_alone(explorer: "Page") -> None:
    ready(explorer)
    tab_to(explorer, "Skip to the first panel")
    explorer.keyboard.press("Enter")
    tab_to(explorer, "Draw")
    tab_to(explorer, "Ankle boot, image 1")
    explorer.keyboard.press("ArrowRight")
    second = focus_name(explorer)
    assert not second.startswith("Ankle boot, image 1")
    tab_to(explorer, "Rotate")
    for _ in range(3):
        explorer.keyboard.press("ArrowRight")
    assert explorer.get_by_label("Rotate").input_value() == "3"
    tab_to(explorer, "Layer 3, channel 1")
    readout = explorer.locator("#panel-network .readout")
    explorer.keyboard.press("ArrowUp")
    readout.get_by_text("row 8, column 9").wait_for()
    for _ in range(8):
        explorer.keyboard.press("ArrowRight")
    # Across the edge of a map is the next layer.
    assert focus_name(explorer).startswith("Layer 4, channel 1")
    explorer.keyboard.press("Enter")
    assert explorer.get_by_label("Layer", exact=True).input_value() == "3"
    tab_to(explorer, "by agreement")
    explorer.keyboard.press("ArrowRight")
    assert explorer.get_by_label("all equal").is_checked()
    explorer.keyboard.press("ArrowLeft")
    tab_to(explorer, "child 2")
    explorer.keyboard.press("Enter")
    explorer.locator("[data-cluster='1'][aria-pressed='true']").wait_for()
    # The chart was drawn again, and the focus stayed.
    assert focus_name(explorer).startswith("child 2")


def test_reduced_motion_is_respected(explorer: "Page") -> None:
    explorer.emulate_media(reduced_motion="reduce")
    open_at(explorer, "network=class_capsules")
    explorer.locator("#panel-dimensions").scroll_into_view_if_needed()
    walk = explorer.get_by_role("button", name="Random walk")
    walk.click()
    value = explorer.get_by_label("Dimension 1", exact=True).input_value()
    assert walk.get_attribute("aria-pressed") == "false"
    explorer.wait_for_timeout(700)
    assert explorer.get_by_label("Dimension 1", exact=True).input_value() == value
    assert (
        explorer.locator(".bar").first.evaluate("(bar) => getComputedStyle(bar).transitionDuration")
        == "0s"
    )
