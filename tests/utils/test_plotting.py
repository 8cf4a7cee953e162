"""The style of figures: widths, fonts, ticks, marks."""

from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure
from PIL import Image

from clustercaps.utils import plotting


@plotting.styled
def drawn() -> Figure:
    figure = plotting.new_figure(plotting.COLUMN, 2.0)
    ax = figure.subplots()
    ax.plot([1, 2], [3, 4], label="one")
    ax.plot([1, 2], [4, 5], label="two")
    ax.set(xlabel="time (ms)", ylabel="error (%)")
    plotting.add_legend(figure)
    plotting.add_note(figure, "a note " * 20)
    return figure


def numbers(ax: object, name: str) -> list[str]:
    axis = getattr(ax, f"{name}axis")
    low, high = axis.get_view_interval()
    ticks = [value for value in axis.get_major_locator()() if low <= value <= high]
    return list(axis.get_major_formatter().format_ticks(ticks))


def test_figures_are_as_wide_as_a_column_with_truetype_fonts(tmp_path: Path) -> None:
    path = plotting.save(drawn(), tmp_path / "a.png", pdf=True)
    with Image.open(path) as image:
        assert image.size == (670, 400)
    text = path.with_suffix(".pdf").read_bytes()
    assert b"/CIDFontType2" in text
    assert b"/Type3" not in text
    plotting.save(drawn(), tmp_path / "b.png", pdf=True)
    assert (tmp_path / "b.pdf").read_bytes() == text


def test_settings_of_matplotlib_have_no_effect(tmp_path: Path) -> None:
    expected = plotting.save(drawn(), tmp_path / "a.png").read_bytes()
    with mpl.rc_context({"font.size": 20, "xtick.labelsize": 20, "axes.facecolor": "black"}):
        figure = drawn()
        assert plotting.save(figure, tmp_path / "b.png").read_bytes() == expected
    # Also where a notebook shows the figure, without `save`.
    with mpl.rc_context({"xtick.labelsize": 20}):
        figure = drawn()
        figure.draw_without_rendering()
    assert {tick.get_fontsize() for tick in figure.axes[0].get_xticklabels()} == {plotting.SMALL}


@pytest.mark.parametrize("last", [1, 2, 3, 12, 300])
def test_epochs_are_whole(last: int) -> None:
    ax = plotting.new_figure(3.0, 2.0).subplots()
    plotting.whole_numbers(ax, last)
    shown = numbers(ax, "x")
    assert shown
    assert all(number.isdigit() for number in shown)
    assert ax.get_xlim()[0] < 1 <= last < ax.get_xlim()[1]


@pytest.mark.parametrize("high", [15.0, 40, 90, 300, 5000, 1e6])
def test_logarithmic_axes_have_plain_numbers(high: float) -> None:
    ax = plotting.new_figure(3.0, 2.0).subplots()
    ax.plot([1, 2], [12, high])
    plotting.logarithmic(ax, "y")
    shown = numbers(ax, "y")
    assert len(shown) > 1
    assert all(12 <= float(number.replace(",", "")) <= high for number in shown[1:-1])


def test_a_cut_axis_is_marked() -> None:
    ax = plotting.new_figure(3.0, 2.0).subplots()
    ax.plot([0, 1], [5, 6])
    plotting.mark_cut(ax, "x")
    assert len(ax.lines) == 1
    plotting.mark_cut(ax, "y")
    assert len(ax.lines) == 3
    assert ax.get_ylim()[0] > 4
