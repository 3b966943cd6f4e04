"""A figure's title and legend lie within it, however narrow it is."""

import pytest

from analysis.display import style
from analysis.display.palette import SeriesStyle

TITLE = "99th percentile of a call's latency, with 95 % intervals (lower is faster)"
NAMES = ("pytorch", "tensorflow", "onnxruntime", "openvino, compiled from a local build")


@pytest.mark.parametrize("count", [1, 2])
@style.styled
def test_title_and_legend_fit_the_figure(count):
    figure, _ = style.panels(count)
    styles = {name: SeriesStyle("#000000", "o", 0) for name in NAMES}
    style.finish(figure, TITLE, style.legend(styles))
    figure.draw_without_rendering()
    [legend] = figure.legends
    heading = figure._suptitle
    for artist in (heading, legend):
        place = artist.get_window_extent()
        assert place.x0 >= 0 and place.x1 <= figure.bbox.width
    # Chromium drew this one 3 % wider than Matplotlib and cut its end off.
    assert heading.get_window_extent().width <= style.TITLE * figure.bbox.width
    assert heading.get_text().replace("\n", " ") == TITLE
    assert ("\n" in heading.get_text()) == (count == 1)


def test_a_legend_of_bars_shows_their_hatches():
    styles = {name: SeriesStyle("#000000", "*", number) for number, name in enumerate(NAMES)}
    hatches = [handle.get_hatch() for handle in style.bar_legend(styles)]
    assert hatches == [None, "///", "...", "xxx"]
    assert [handle.get_label() for handle in style.bar_legend(styles)] == list(NAMES)
