"""Results with where they come from: command, commit, hardware, wall time, date. For documents that outlive a run."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gssc.files import write_files
from gssc.report.provenance import PROVENANCE, duration, provenance
from gssc.report.runs import read_runs
from gssc.report.tables import heading, line, our_row
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
    finished = [variant for variant in variants if variant.finished]
    noted = [recipe for recipe in dict.fromkeys(variant.recipe for variant in finished) if recipe in footnotes]
    lines = [heading(*HEADINGS, *PROVENANCE)]
    for variant in finished:
        mark = f" [{noted.index(variant.recipe) + 1}]" if variant.recipe in noted else ""
        lines.append(line(*_cells(variant, mark)))
    notes = [f"[{number}] {footnotes[recipe]}" for number, recipe in enumerate(noted, start=1)]
    unfinished = [f"{variant.recipe} ({variant.label})" for variant in variants if not variant.finished]
    if unfinished:
        notes.append("Unfinished and left out: " + "; ".join(unfinished) + ".")
    return "\n\n".join(["\n".join(lines), *notes]) + "\n"


def time_per_seed(variant: Variant) -> str:
    """Mean time of preparing and training, over seeds."""
    parts = [variant.spread(key) for key in ("prepare_seconds", "train_seconds")]
    return duration(sum(part.mean for part in parts if part)) if any(parts) else ""


def _cells(variant: Variant, mark: str) -> list[str]:
    row, published = our_row(variant), variant.published_gssc()
    cells = [
        f"{variant.recipe}{mark}",
        variant.label,
        ", ".join(str(run.seed) for run in variant.finished),
        f"{variant.metric} {'↑' if variant.higher_is_better else '↓'}{', %' if variant.factor == 100 else ''}",
        row.text,
        published.text if published else "",
        row.difference,
        row.size,
        time_per_seed(variant),
    ]
    by_run = [provenance(run.environment) for run in variant.finished]
    for key in PROVENANCE:
        different = dict.fromkeys(one[key] for one in by_run if one[key])
        cells.append("; ".join(f"`{text}`" if key in ("command", "commit") else text for text in different))
    return cells
