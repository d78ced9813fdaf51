"""Our results beside the published ones: rows for pages, and all of them as CSV.

All values are in the units of the print (accuracies and AUROC in percent). The difference is that of a row to the
paper's own result, with its sign: whether it is for the better depends on the metric.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gssc.readers import is_number
from gssc.report.published import Published, published_rows
from gssc.report.render import csv_text
from gssc.report.variants import Recorded, Spread, Variant

PAPER = "arXiv 2406.05815"
# Where weights come from, and the names of their test and validation scores under a protocol of evaluation.
WEIGHTS = (("selected", "test", "val"), ("last", "last_test", "last_val"))
COLUMNS = (
    *("recipe", "dataset", "metric", "better", "percent", "origin", "model", "seeds"),
    *("mean", "std", "difference", "verdict", "validation", "parameters", "source", "protocol"),
)


@dataclass(frozen=True)
class Row:
    """A line of a table, ours or published; values in the units of the print."""

    model: str
    ours: bool
    own: bool = False  # the paper's own method
    seeds: int | None = None
    value: float | None = None
    std: float | None = None
    text: str = ""
    difference: str = ""
    verdict: str = ""  # better, worse, equal
    validation: str = ""
    parameters: int | None = None
    source: str = ""
    protocol: str = ""  # of evaluation, as the summary calls it; that of the recipe where empty

    @property
    def name(self) -> str:
        """What a table calls it."""
        return f"ours: {self.model}" if self.ours else self.model + (" (the paper)" if self.own else "")

    @property
    def size(self) -> str:
        """The number of parameters."""
        return f"{self.parameters:,}" if self.parameters else ""

    @property
    def judged(self) -> str:
        """The difference and, where there is one, whether it is for the better."""
        return f"{self.difference} ({self.verdict})" if self.verdict in ("better", "worse") else self.difference


class Comparison(NamedTuple):
    """The task of a variant: all rows, ours first; apart from them, the protocols that our runs have followed."""

    variant: Variant
    rows: tuple[Row, ...]
    protocols: tuple[Row, ...]


def compare(variants: Sequence[Variant], recorded: Sequence[Recorded] = ()) -> Comparison:
    """The table of one recipe: its variants, what was recorded of them, the paper's own result, its other rows.

    Of ``recorded``, those of the same recipe and dataset count; of ablations, those with the settings of a variant.
    """
    first, settings = variants[0], {variant.overrides for variant in variants}
    rows = [our_row(variant) for variant in variants]
    for one in recorded:
        same_task = (one.recipe, one.dataset) == (first.recipe, first.dataset)
        if same_task and (not one.ablation or one.overrides in settings):
            model = f"recorded, {one.name}" + (f" ({one.schedule})" if one.schedule else "")
            source = f"recorded: commit {one.said('commit')}, {one.said('hardware')}, {one.said('date')}"
            rows.append(replace(our_row(one), model=model, source=source))
    published = sorted(published_rows(first.dataset, first.metric), key=lambda row: not row.own)
    rows += [published_row(row, first.published_gssc()) for row in published]
    return Comparison(first, tuple(rows), tuple(row for variant in variants for row in protocol_rows(variant)))


def digits_for(value: float, published: Published | None = None) -> int:
    """Decimals to print: those of the paper, or three significant digits if that is more, six at most."""
    significant = 2 - math.floor(math.log10(abs(value))) if value and math.isfinite(value) else 3
    return min(6, max(published.decimals if published else 0, significant, 0))


def spread_text(score: Spread | None, published: Published | None) -> str:
    """Mean ± deviation over seeds, in the units and with the digits of the print; one seed has no deviation."""
    if score is None:
        return ""
    digits = digits_for(score.mean, published)
    return f"{score.mean:.{digits}f}" + (f" ± {score.std:.{digits}f}" if score.n > 1 else "")


def difference_text(value: float, digits: int, published: Published | None) -> tuple[str, str]:
    """A value of the print's units minus the paper's own result, and whether that is better."""
    if published is None or not math.isfinite(value):
        return "", ""
    difference = value - float(published.mean)
    text = f"{difference:+.{digits}f}".replace("-", "−")
    if round(difference, digits) == 0:
        return text.replace("−", "±").replace("+", "±"), "equal"
    return text, "better" if (difference > 0) == published.higher_is_better else "worse"


def our_row(variant: Variant) -> Row:
    """The line of a variant."""
    source = "this run" if variant.status == "finished" else f"this run; {variant.status}"
    if (test := variant.spread("test")) is None:
        return Row(variant.label, ours=True, text="–", source=source)
    size = round(parameters.mean) if (parameters := variant.spread("parameters")) else None
    return _scored(variant, test, variant.spread("validation"), parameters=size, source=source)


def _scored(variant: Variant, test: Spread, validation: Spread | None, **more: Any) -> Row:
    """The line of a variant with these scores, which are in our units."""
    published, test = variant.published_gssc(), test.times(variant.factor)
    difference, verdict = difference_text(test.mean, digits_for(test.mean, published), published)
    return Row(
        variant.label,
        ours=True,
        seeds=test.n,
        value=test.mean,
        std=test.std if test.n > 1 else None,
        text=spread_text(test, published),
        difference=difference,
        verdict=verdict,
        validation=spread_text(validation and validation.times(variant.factor), published),
        **more,
    )


def protocol_rows(variant: Variant) -> list[Row]:
    """What one variant scored under each protocol that its summaries tell of, that of the recipe first.

    Runs of former versions could follow several (``train.also``). What is no number does not count.
    """
    by_run = [scores for run in variant.finished if isinstance(scores := run.summary.get("protocols"), Mapping)]
    names = dict.fromkeys(name for scores in by_run for name in scores)
    rows = []
    for name in sorted(names, key=lambda name: name not in variant.recipe_protocols):
        followed = [scores[name] for scores in by_run if isinstance(scores.get(name), Mapping)]
        for weights, *keys in WEIGHTS:
            test, validation = (Spread.of(one[key] for one in followed if is_number(one.get(key))) for key in keys)
            if test is not None:
                rows.append(_scored(variant, test, validation, source=weights, protocol=name))
    return rows


def published_row(row: Published, gssc: Published | None) -> Row:
    """The line of a printed cell."""
    value = float(row.mean)
    difference, verdict = ("", "") if row.own else difference_text(value, row.decimals, gssc)
    return Row(
        row.model,
        ours=False,
        own=row.own,
        seeds=row.seeds,
        value=value if math.isfinite(value) else None,
        std=float(row.std) if row.std else None,
        text=row.text,
        difference=difference,
        verdict=verdict,
        source=row.source,
    )


def to_csv(comparisons: Sequence[Comparison]) -> str:
    """All tasks in one table of plain values, at full precision for ours and as printed for the paper's."""
    lines = []
    for one in comparisons:
        first, gssc = one.variant, next((row.value for row in one.rows if row.own), None)
        better, percent = "higher" if first.higher_is_better else "lower", "yes" if first.factor == 100 else "no"
        task = (first.recipe, first.dataset, first.metric, better, percent)
        for row in (*one.rows, *one.protocols):
            difference = "" if gssc is None or row.value is None or row.own else repr(round(row.value - gssc, 12))
            what = ("ours" if row.ours else "published", row.model, row.seeds)
            values = (row.value, row.std, difference, row.verdict, row.validation, row.parameters, row.source)
            lines.append((*task, *what, *values, row.protocol))
    return csv_text(COLUMNS, lines)
