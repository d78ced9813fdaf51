"""Results with where they come from: command, commit, hardware, wall time, date. For documents that outlive a run."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gssc.report.files import write_files
from gssc.report.origin import ORIGIN, duration, origin
from gssc.report.runs import read_runs
from gssc.report.tables import difference_text, digits_for, spread_text
from gssc.report.variants import Variant, group_variants

HEADINGS = ("recipe", "variant", "seeds", "metric", "test", "published", "difference", "parameters", "time per seed")


def write_results(
    path: Path, runs: Iterable[Path], *, before: str = "# Results\n", footnotes: Mapping[str, str] | None = None
) -> None:
    """Write the Markdown table of finished runs, below the text ``before``; the file appears complete or not at all."""
    variants = [variant for mine in group_variants(read_runs(runs).seeds).values() for variant in mine]
    write_files(path.parent, {path.name: f"{before.rstrip()}\n\n{results_markdown(variants, footnotes)}".encode()})


def results_markdown(variants: Sequence[Variant], footnotes: Mapping[str, str] | None = None) -> str:
    """A line for each variant with a finished seed, in the units of the paper.

    Args:
        variants: What to list; unfinished ones are left out, and said to be.
        footnotes: By recipe: what a reader must know beside the number.
    """
    footnotes = footnotes or {}
    lines = ["| " + " | ".join((*HEADINGS, *ORIGIN)) + " |", "|" + "---|" * len((*HEADINGS, *ORIGIN))]
    noted: list[str] = []
    left_out = []
    for variant in variants:
        if not variant.finished:
            left_out.append(f"{variant.recipe} ({variant.label})")
            continue
        if variant.recipe in footnotes and variant.recipe not in noted:
            noted.append(variant.recipe)
        mark = f" [{noted.index(variant.recipe) + 1}]" if variant.recipe in footnotes else ""
        lines.append("| " + " | ".join(_cells(variant, mark)) + " |")
    notes = [f"[{number}] {footnotes[recipe]}" for number, recipe in enumerate(noted, start=1)]
    if left_out:
        notes.append("Unfinished and left out: " + "; ".join(left_out) + ".")
    return "\n\n".join(["\n".join(lines), *notes]) + "\n"


def time_per_seed(variant: Variant) -> str:
    """Mean time of preparing and training, over seeds."""
    parts = [variant.spread(key) for key in ("prepare_seconds", "train_seconds")]
    return duration(sum(part.mean for part in parts if part)) if any(parts) else ""


def _cells(variant: Variant, mark: str) -> list[str]:
    published = variant.published_gssc()
    test, parameters = variant.spread("test"), variant.spread("parameters")
    difference = ""  # a finished seed has a score, unless that is not defined for its test set
    if test is not None:
        value = test.mean * (published.factor if published else 1.0)
        difference = difference_text(value, digits_for(value, published), published)[0]
    direction = "↑" if variant.higher_is_better else "↓"
    percent = ", %" if published and published.factor == 100 else ""
    cells: list[Any] = [
        f"{variant.recipe}{mark}",
        variant.label,
        ", ".join(str(run.seed) for run in variant.finished),
        f"{variant.metric} {direction}{percent}",
        spread_text(test, published),
        published.text if published else "",
        difference,
        f"{parameters.mean:,.0f}" if parameters else "",
        time_per_seed(variant),
    ]
    origins = [origin(run.environment) for run in variant.finished]
    for key in ORIGIN:
        different = list(dict.fromkeys(one[key] for one in origins if one[key]))
        cells.append("; ".join(f"`{text}`" if key in ("command", "commit") else text for text in different))
    return [str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells]
