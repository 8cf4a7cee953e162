"""Pictures from outside: every wrong file gives one clear line, never an exception."""

from typing import TYPE_CHECKING

import pytest
from helpers.explorer_page import address_of, canvas_text, drop, open_at, png, ready

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>window.hacked = true</script></svg>'
# Name, type, content, size, words of the line.
WRONG = {
    "text": ("notes.txt", "text/plain", b"hello", 0, "not a picture"),
    "text called picture": ("cat.png", "image/png", b"hello", 0, "not a picture"),
    "nothing": ("empty.png", "image/png", b"", 0, "not a picture"),
    "50 MB": (
        "large.png",
        "image/png",
        b"",
        50 * 1024 * 1024,
        "50 MB; use a picture of at most 10 MB",
    ),
    "20,000 pixels wide": ("wide.png", "image/png", png(20_000, 2), 0, "20000 x 2 pixels"),
    "truncated": ("half.png", "image/png", png(64, 64)[:-30], 0, "damaged or cut off"),
    "header alone": ("head.png", "image/png", png(64, 64)[:12], 0, "damaged or cut off"),
    "damaged": (
        "bad.png",
        "image/png",
        png(64, 64).replace(b"IDAT", b"IDAX"),
        0,
        "damaged or cut off",
    ),
    "broken JPEG": (
        "bad.jpg",
        "image/jpeg",
        b"\xff\xd8\xff\xe0" + bytes(40),
        0,
        "damaged or cut off",
    ),
    "SVG with script": ("bad.svg", "image/svg+xml", SVG, 0, "SVG files are not read"),
    "SVG called PNG": ("bad.png", "image/png", SVG, 0, "SVG files are not read"),
}


@pytest.fixture
def page(explorer: "Page") -> "Page":
    return ready(explorer)


@pytest.mark.parametrize("case", WRONG)
def test_wrong_drops_give_a_clear_line(case: str, page: "Page") -> None:
    name, kind, content, size, words = WRONG[case]
    before = canvas_text(page.locator(".pad"))
    drop(page, name, kind, content, size)
    page.locator(".note.refused").wait_for()
    assert words in page.locator(".note").inner_text()
    assert page.locator(".note").inner_text().count("\n") == 0
    assert canvas_text(page.locator(".pad")) == before
    assert page.evaluate("window.hacked === undefined")
    # The page still works: a good picture is taken.
    drop(page, "good.png", "image/png", png(56, 56))
    page.locator(".note:not(.refused)").wait_for()
    assert canvas_text(page.locator(".pad")) != before


@pytest.mark.parametrize("dark", [True, False])
def test_pictures_are_fitted_and_dark_on_light_is_inverted(dark: bool, page: "Page") -> None:
    drop(page, "bar.png", "image/png", png(70, 140, dark=dark))
    page.locator(".note", has_text="70 x 140 pixels, now 32 x 32").wait_for()
    assert ("inverted" in page.locator(".note").inner_text()) == (not dark)
    middle, corner = page.locator(".pad").evaluate(
        """(canvas) => [0.5, 0.05].map((part) => canvas.getContext("2d")
          .getImageData(canvas.width * part, canvas.height * part, 1, 1).data[0])"""
    )
    assert middle > 150
    assert corner < 20


def test_pasted_pictures_are_read(page: "Page") -> None:
    page.evaluate(
        """(bytes) => {
          const clipboardData = new DataTransfer();
          const file = new File([Uint8Array.from(bytes)], "x.png", { type: "image/png" });
          clipboardData.items.add(file);
          window.dispatchEvent(new ClipboardEvent("paste", { clipboardData }));
        }""",
        list(png(40, 40)),
    )
    page.locator(".note", has_text="40 x 40 pixels").wait_for()


def test_drawing_with_the_pointer(page: "Page") -> None:
    page.get_by_role("button", name="Blank").click()
    blank = canvas_text(page.locator(".pad"))
    box = page.locator(".pad").bounding_box()
    assert box
    page.mouse.move(box["x"] + 60, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 150, box["y"] + 180, steps=8)
    page.mouse.up()
    drawn = canvas_text(page.locator(".pad"))
    assert drawn != blank
    address = address_of(page)
    assert "pixels=" in address
    # A link to a drawing shows the drawing.
    open_at(page, address)
    assert canvas_text(page.locator(".pad")) == drawn


def test_drawing_with_the_keyboard(page: "Page") -> None:
    page.get_by_role("button", name="Blank").click()
    for key in ("ArrowUp", "Space", "ArrowRight", "Space"):
        page.keyboard.press(key)
    pixels = address_of(page).partition("pixels=")[2].partition("&")[0]
    assert len(pixels) > 100
    assert set(pixels) != {"A"}


def test_jitter_moves_the_picture(page: "Page") -> None:
    before = canvas_text(page.locator(".pad"))
    page.get_by_role("button", name="Jitter").click()
    page.get_by_role("button", name="Jitter").click()
    assert canvas_text(page.locator(".pad")) != before
