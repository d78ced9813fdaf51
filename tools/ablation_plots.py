"""Pictures of comparisons, as SVG files that stand alone."""

import re
import textwrap
from collections.abc import Sequence
from typing import Any

from gssc.config import SECTIONS
from gssc.readers import is_number
from gssc.report.svg import GRID, INK, SERIES, drawing_style, drawn, panels
from gssc.report.variants import Spread
from tools.ablations import Comparison, Setting

COLOURS = {INK: "#24292f", GRID: "#d8dee4", **dict(zip(SERIES, ("#0969da", "#bc4c00", "#1a7f37"), strict=False))}


def comparison_plot(comparisons: Sequence[Comparison]) -> bytes:
    """A panel for each comparison: mean and deviation over seeds; a line where the setting is one number."""
    with drawing_style():
        columns = min(2, len(comparisons))
        height = 1.1 + max(1.3, *(_height(one) for one in comparisons))
        figure, axes = panels(len(comparisons), columns, height, width=5.2 * columns)
        figure.set_facecolor("white")
        for axis, one in zip(axes, comparisons, strict=True):
            (_line if _numeric(one) else _points)(axis, one)
            axis.set_title(_title(one))
        # One legend below all panels, where it hides nothing.
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        text = drawn(figure, COLOURS)
    # No blanks at the ends of lines, which matplotlib leaves inside paths.
    return ("\n".join(line.rstrip() for line in text.splitlines()) + "\n").encode()


def _numeric(one: Comparison) -> bool:
    return len(one.keys) == 1 and all(is_number(setting.value(one.keys[0])) for setting in one.settings)


def _scores(setting: Setting, part: str) -> Spread:
    return setting.recorded.printed(part) or Spread(float("nan"), 0.0, 0)


def _line(axis: Any, one: Comparison) -> None:
    settings = sorted(one.settings, key=lambda setting: float(setting.value(one.keys[0])))
    for number, part in enumerate(("test", "validation")):
        scores = [_scores(setting, part) for setting in settings]
        values = [float(setting.value(one.keys[0])) for setting in settings]
        deviations = [score.std for score in scores]
        style = {"color": SERIES[number], "marker": "o", "markersize": 3.5, "capsize": 2.5}
        axis.errorbar(values, [score.mean for score in scores], yerr=deviations, label=part, **style)
    axis.set(xlabel=one.keys[0].partition(".")[2], ylabel=_metric(one))


def _points(axis: Any, one: Comparison) -> None:
    for number, part in enumerate(("test", "validation")):
        scores = [_scores(setting, part) for setting in one.settings]
        places = [place + 0.16 * number for place in range(len(scores))]
        deviations = [score.std for score in scores]
        style = {"color": SERIES[number], "marker": "o", "markersize": 4, "linestyle": "none", "capsize": 2.5}
        axis.errorbar([score.mean for score in scores], places, xerr=deviations, label=part, **style)
    axis.set_yticks(range(len(one.settings)), [_name(one, setting) for setting in one.settings])
    axis.set_ylim(len(one.settings) - 0.5, -0.5)
    axis.grid(axis="y", visible=False)
    axis.set(xlabel=_metric(one))


def _name(one: Comparison, setting: Setting) -> str:
    """What the setting is called in the table, without sections, in lines that leave room for the panel."""
    return textwrap.fill(re.sub(rf"(^|, )(?:{'|'.join(SECTIONS)})\.", r"\1", one.label(setting)), 34)


def _height(one: Comparison) -> float:
    """Inches that the names of all settings need one below the other, where they stand beside the panel."""
    if _numeric(one):
        return 0.0
    lines = max(_name(one, setting).count("\n") + 1 for setting in one.settings)
    return len(one.settings) * (0.16 + 0.16 * lines)


def _title(one: Comparison) -> str:
    """The recipe, and the epochs, by which comparisons of one recipe differ."""
    epochs = one.settings[0].recorded.runs[0].section("train").get("epochs")
    return f"{one.recipe}, {epochs:,} epochs" if is_number(epochs) else one.recipe


def _metric(one: Comparison) -> str:
    variant = one.settings[0].recorded
    unit = ", %" if variant.factor == 100 else ""
    return f"{variant.metric} ({'higher' if variant.higher_is_better else 'lower'} is better{unit})"
