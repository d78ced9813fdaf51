"""Run folders in, four files out; one is an HTML page that needs nothing but itself, with pictures inside."""

import base64
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from gssc.checks import check_installed, fail
from gssc.distribution import VERSION
from gssc.files import write_files
from gssc.readers import is_number, read_bytes
from gssc.report.figures import ablation_bars, learning_curves, predictions_plot
from gssc.report.provenance import duration, provenance, results_markdown, time_per_seed
from gssc.report.published import published_costs
from gssc.report.render import render
from gssc.report.runs import group, read_runs
from gssc.report.svg import SERIES, drawing_style, to_svg
from gssc.report.tables import PAPER, Comparison, compare, to_csv
from gssc.report.variants import Variant, group_variants, read_recorded

EXPLAINED = re.compile(r"(kernel|influence)-(train|val|test)-(\d+)-node-(\d+)\.svg")  # pictures of `gssc explain`
LARGEST = 8_000_000  # bytes of one of them


@dataclass(frozen=True)
class Report:
    """What was written, for those who want to go on: tables by recipe, notes, and the files."""

    tables: dict[str, Comparison]
    notes: tuple[str, ...]
    files: tuple[Path, ...]


def write_report(runs: Iterable[str | Path], folder: str | Path, recorded: str | Path | None = None) -> Report:
    """Write ``report.md``, ``report.csv``, ``report.tex`` and ``report.html`` about run folders into a folder.

    Args:
        runs: Outputs of ``gssc train``, seed folders, or folders of several outputs.
        folder: Made if missing; files of an earlier report are replaced when all of the new ones are complete.
        recorded: Results that were kept (`read_recorded`), to put beside the runs.
    """
    check_installed("gssc report", "matplotlib")
    folder = Path(folder)
    if recorded is not None and not Path(recorded).is_dir():
        fail("recorded", "an existing folder", str(recorded))
    seeds, damages = read_runs(map(Path, runs))
    variants = group_variants(seeds)
    earlier = read_recorded(Path(recorded)) if recorded is not None else []
    tables = {recipe: compare(mine, earlier) for recipe, mine in variants.items()}
    comparisons = list(tables.values())
    origins = results_markdown([variant for mine in variants.values() for variant in mine])
    missing = [
        f"{recorded}: no recorded result of {name}"
        for name, table in tables.items()
        if recorded is not None and not any(one.recipe == table.variant.recipe for one in earlier)
    ]
    page, notes = make_page(variants, tables, (*damages, *missing))
    contents = {
        "report.md": render("report.md", tables=comparisons, paper=PAPER, origins=origins, notes=notes),
        "report.csv": to_csv(comparisons),
        "report.tex": render("report.tex", tables=comparisons),
        "report.html": page,
    }
    write_files(folder, {name: text.encode() for name, text in contents.items()})
    return Report(tables, tuple(notes), tuple(folder / name for name in contents))


def make_page(
    variants: Mapping[str, Sequence[Variant]], tables: Mapping[str, Comparison], notes: Sequence[str]
) -> tuple[str, list[str]]:
    """The page of all variants, by recipe, with their tables; and the notes, which damaged pictures have joined."""
    problems, numbers = list(notes), itertools.count(1)

    def drawn(figure: Any | None, description: str) -> Markup | None:
        return figure and Markup(to_svg(figure, f"figure-{next(numbers)}", description))

    def section(name: str, mine: Sequence[Variant]) -> dict[str, Any]:
        recipe, parts = mine[0].recipe, [mine[i : i + len(SERIES)] for i in range(0, len(mine), len(SERIES))]
        bars = drawn(ablation_bars(mine), f"test scores, {recipe}")
        curves = [drawn(learning_curves(part), f"learning curves, {recipe}") for part in parts]
        predicted = {
            variant.label: [(drawn(figure, f"predictions on the test set, {recipe}"), caption)]
            for variant in mine
            for figure, caption in _predictions(variant, problems)
        }
        inside = {variant.label: shown for variant in mine if (shown := _explained(variant, problems))}
        return {
            "name": name,
            "anchor": "recipe-" + re.sub(r"[\W_]", "-", name),
            "variants": mine,
            "table": tables[name],
            "costs": published_costs(mine[0].dataset),
            "bars": bars,
            "curves": list(filter(None, curves)),
            "pictures": {"Predicted against true": predicted, "Inside the model": inside},
        }

    with drawing_style():
        sections = [section(name, mine) for name, mine in variants.items()]
    functions = (time_per_seed, duration, provenance, is_number)
    helpers = {function.__name__: function for function in functions} | {"folded": _folded}
    return render("page.html", sections=sections, notes=problems, paper=PAPER, version=VERSION, **helpers), problems


def _predictions(variant: Variant, problems: list[str]) -> list[tuple[Any, str]]:
    """The figure of the first seed that has predictions, and its caption; what is damaged becomes a note."""
    for run in variant.runs:
        with _noted(problems):
            if (plot := predictions_plot(run)) is not None:
                return [(plot[0], f"Test set, seed {run.seed}: {plot[1]}.")]
    return []


def _explained(variant: Variant, problems: list[str]) -> list[tuple[Markup, str]]:
    """What `gssc explain` has drawn for the seeds of a variant, graph by graph; what is damaged becomes a note."""
    pictures = []
    for run in variant.runs:
        matches = filter(None, map(EXPLAINED.fullmatch, (path.name for path in run.folder.glob("explain/*.svg"))))
        for match in sorted(matches, key=lambda match: (match[2], int(match[3]), int(match[4]), match[1])):
            kind, split, graph, node = match.groups()
            shown = f"kernels of node {node}" if kind == "kernel" else "influence by distance"
            text = f"Seed {run.seed}: {shown}, graph {graph} of {split}"
            with _noted(problems):
                address = _embedded(run.folder / "explain" / match[0])
                pictures.append((Markup('<img class="paper" alt="{}" src="{}">').format(text, address), f"{text}."))
    return pictures


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        problems.append(str(error))


def _embedded(path: Path) -> str:
    """The picture as an address that holds it: as an image it can run and load nothing, whoever drew it."""
    content = read_bytes(path, LARGEST, "picture")
    if b"<svg" not in content[:2000] or not content.rstrip().endswith(b"</svg>"):
        fail(str(path), "a complete SVG picture", f"{len(content)} bytes")
    return "data:image/svg+xml;base64," + base64.b64encode(content).decode()


def _folded(variant: Variant) -> dict[str, str]:
    """Texts to fold below the runs of a variant, by title: its settings, and the environments of its seeds."""
    config = variant.runs[0].config
    texts = {"settings": yaml.safe_dump(config, sort_keys=False) if config else "not readable"}
    environments = group(
        variant.runs,
        lambda run: json.dumps(run.environment, indent=2, ensure_ascii=False) if run.environment else "not recorded",
    )
    for text, runs in environments.items():
        texts[f"environment of seed {', '.join(str(run.seed) for run in runs)}"] = text
    return texts
