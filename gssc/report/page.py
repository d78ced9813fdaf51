"""The report as one HTML page that needs nothing but itself: no script, no network, inline style and pictures.

Whatever a run folder holds, its policy lets the page load and run nothing.
"""

import base64
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template

import yaml

from gssc import __version__
from gssc.checks import fail
from gssc.report.figures import ablation_bars, learning_curves
from gssc.report.predicted import predictions_plot
from gssc.report.provenance import duration, provenance, time_per_seed
from gssc.report.published import published_costs
from gssc.report.runs import group, is_number
from gssc.report.svg import SERIES, drawing_style, to_svg
from gssc.report.tables import PAPER, Comparison
from gssc.report.variants import Variant

EXPLAINED = re.compile(r"(kernel|influence)-(train|val|test)-(\d+)-node-(\d+)\.svg")  # pictures of `gssc explain`
LARGEST = 8_000_000  # bytes of one of them


def make_page(
    variants: Mapping[str, Sequence[Variant]], tables: Mapping[str, Comparison], notes: Sequence[str]
) -> tuple[str, list[str]]:
    """The page of all variants, by recipe, with their tables; and the notes, which damaged predictions have joined."""
    identities = (f"figure-{number}" for number in itertools.count(1))
    problems = list(notes)
    with drawing_style():
        sections = [_section(name, mine, tables[name], identities, problems) for name, mine in variants.items()]
    template, style = (files("gssc.report").joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css"))
    page = Template(template).substitute(
        style=style,
        paper=PAPER,
        version=escape(__version__),
        links="".join(_link(recipe) for recipe in variants),
        notes=_notes(problems),
        summary=_summary(variants, tables),
        sections="".join(sections),
    )
    return page, problems


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in dict.fromkeys(notes))
    return f'<div class="notes"><strong>Not everything could be read</strong><ul>{items}</ul></div>'


def _summary(variants: Mapping[str, Sequence[Variant]], tables: Mapping[str, Comparison]) -> str:
    headings = ["recipe", "variant", "metric", "#seeds", "#test", "#published", "#difference", "#parameters"]
    headings.append("#time per seed")
    rows = []
    for recipe, mine in variants.items():
        for variant, row in zip(mine, tables[recipe].rows, strict=False):
            published = variant.published_gssc()
            status = "" if variant.status == "finished" else f'<br><span class="soft">{escape(variant.status)}</span>'
            cells = [_link(recipe), _code(variant.label) + status]
            cells += [escape(tables[recipe].metric_text), str(len(variant.finished)), escape(row.text)]
            cells += [escape(published.text if published else "–"), escape(row.difference), row.size]
            rows.append(_line(headings, [*cells, escape(time_per_seed(variant))], verdict=row.verdict))
    return _table("summary", headings, rows)


def _section(
    name: str, variants: Sequence[Variant], table: Comparison, identities: Iterator[str], problems: list[str]
) -> str:
    parts = [f'<h2 id="{_anchor(name)}">{escape(table.title)}</h2>', _comparison(table), _costs(variants)]
    parts += ["<h3>Protocols of evaluation</h3>", _protocols(table)] if table.protocols else []
    if (bars := ablation_bars(variants)) is not None:
        picture = to_svg(bars, next(identities), f"test scores, {table.recipe}")
        parts += ["<h3>Variants</h3>", _figure(picture, "Mean over seeds with standard deviation; dots are seeds.")]
    drawn = []
    for start in range(0, len(variants), len(SERIES)):
        if (curves := learning_curves(variants[start : start + len(SERIES)])) is not None:
            picture = to_svg(curves, next(identities), f"learning curves, {table.recipe}")
            drawn.append(_figure(picture, "A line for each seed; the dot marks the selected epoch."))
    parts += ["<h3>Learning curves</h3>", *(drawn or ['<p class="soft">No epoch has been recorded yet.</p>'])]
    for title, pictures in (
        ("Predicted against true", [_predictions(variant, identities, problems) for variant in variants]),
        ("Inside the model", [_explained(variant, problems) for variant in variants]),
    ):
        parts += [f"<h3>{title}</h3>"] if any(pictures) else []
        shown = [(variant.label, picture) for variant, picture in zip(variants, pictures, strict=True) if picture]
        for number, (label, picture) in enumerate(shown):
            state = " open" if number == 0 or title == "Inside the model" else ""
            parts.append(f"<details{state}><summary>{_code(label)}</summary>{picture}</details>")
    parts += ["<h3>Runs</h3>", *(_runs(variant) for variant in variants)]
    return "<section>" + "\n".join(parts) + "</section>\n"


def _comparison(table: Comparison) -> str:
    headings = ["", f"#{table.metric_text}", "#difference", "#seeds", "#validation", "#parameters", "source"]
    rows = []
    for row in table.rows:
        name = f"ours: {_code(row.model)}" if row.ours else escape(row.name)
        cells = [name, *map(escape, (row.text, row.difference, row.count, row.validation, row.size, row.source))]
        kind = "ours" if row.ours else "own" if row.own else "published"
        rows.append(_line(headings, cells, kind, row.verdict if row.ours else ""))
    return _table("comparison", headings, rows)


def _protocols(table: Comparison) -> str:
    headings = ["variant", "protocol", "weights", f"#{table.metric_text}", "#difference", "#seeds", "#validation"]
    rows = []
    for row in table.protocols:
        others = (row.protocol, row.source, row.text, row.difference, row.count, row.validation)
        rows.append(_line(headings, [_code(row.model), *map(escape, others)], verdict=row.verdict))
    return _table("protocols", headings, rows)


def _costs(variants: Sequence[Variant]) -> str:
    """What the paper says of time and size, in a line below the table."""
    costs = published_costs(variants[0].dataset)
    said = "; ".join(f"{quantity} {cost.value:g} {cost.unit}" for quantity, cost in costs.items() if cost.unit)
    return f'<p class="soft">The paper reports for GSSC: {escape(said)}.</p>' if said else ""


def _predictions(variant: Variant, identities: Iterator[str], problems: list[str]) -> str:
    """The picture of the first seed that has predictions; what is damaged becomes a note."""
    for run in variant.runs:
        try:
            plot = predictions_plot(run)
        except ValueError as error:
            problems.append(str(error))
            continue
        if plot is not None:
            picture = to_svg(plot[0], next(identities), f"predictions on the test set, {variant.recipe}")
            return _figure(picture, f"Test set, seed {run.seed}: {plot[1]}.")
    return ""


def _explained(variant: Variant, problems: list[str]) -> str:
    """What `gssc explain` has drawn for the seeds of a variant, graph by graph; what is damaged becomes a note."""
    pictures = []
    for run in variant.runs:
        matches = filter(None, map(EXPLAINED.fullmatch, (path.name for path in run.folder.glob("explain/*.svg"))))
        for match in sorted(matches, key=lambda match: (match[2], int(match[3]), int(match[4]), match[1])):
            kind, split, graph, node = match.groups()
            try:
                address = _embedded(run.folder / "explain" / match[0])
            except ValueError as error:
                problems.append(str(error))
                continue
            shown = f"kernels of node {node}" if kind == "kernel" else "influence by distance"
            text = f"Seed {run.seed}: {shown}, graph {graph} of {split}"
            pictures.append(_figure(f'<img class="paper" alt="{escape(text)}" src="{address}">', f"{text}."))
    return "".join(pictures)


def _embedded(path: Path) -> str:
    """The picture as an address that holds it: as an image it can run and load nothing, whoever drew it."""
    try:
        content = path.read_bytes()
    except OSError as error:
        fail(str(path), "a readable picture", error.strerror)
    if b"<svg" not in content[:2000] or not content.rstrip().endswith(b"</svg>"):
        fail(str(path), "a complete SVG picture", f"{len(content)} bytes")
    if len(content) > LARGEST:
        fail(str(path), f"a picture of at most {LARGEST:,} bytes", f"{len(content):,}")
    return "data:image/svg+xml;base64," + base64.b64encode(content).decode()


def _runs(variant: Variant) -> str:
    headings = ["seed", "status", "#test", "#validation", "#epoch selected", "#epochs", "#training", "date", "folder"]
    rows = []
    for run in variant.runs:
        cells = [str(run.seed), escape(run.status)]
        for key in ("test", "validation", "epoch_selected", "epochs_run"):
            value = run.scores.get(key)
            cells.append("" if value is None else f"{value:.5g}" if isinstance(value, float) else escape(str(value)))
        seconds = run.scores.get("train_seconds")
        cells += [duration(seconds) if is_number(seconds) else "", escape(provenance(run.environment)["date"])]
        rows.append(_line(headings, [*cells, _code(run.folder)]))
    config = variant.runs[0].config
    texts = {"settings": yaml.safe_dump(config, sort_keys=False) if config else "not readable"}
    environments = group(
        variant.runs,
        lambda run: json.dumps(run.environment, indent=2, ensure_ascii=False) if run.environment else "not recorded",
    )
    for text, runs in environments.items():
        texts[f"environment of seed {', '.join(str(run.seed) for run in runs)}"] = text
    folds = [f"<details><summary>{escape(t)}</summary><pre>{escape(text)}</pre></details>" for t, text in texts.items()]
    return f"<p>{_code(variant.label)}</p>{_table('runs', headings, rows)}" + "".join(folds)


def _table(kind: str, headings: Sequence[str], rows: Sequence[str]) -> str:
    """A table that scrolls by itself on narrow screens; headings that begin with # stand over numbers."""
    cells = "".join(f"<th{_class(text)}>{escape(text.removeprefix('#'))}</th>" for text in headings)
    head, body = f"<thead><tr>{cells}</tr></thead>", f"<tbody>{''.join(rows)}</tbody>"
    return f'<div class="scroll"><table class="{kind}">{head}{body}</table></div>'


def _line(headings: Sequence[str], cells: Sequence[str], kind: str = "", verdict: str = "") -> str:
    """A row of cells that are HTML below these headings; the verdict (better, worse) colours the difference."""
    classes = [_class(heading, verdict if heading == "#difference" else "") for heading in headings]
    inside = "".join(f"<td{name}>{cell}</td>" for name, cell in zip(classes, cells, strict=True))
    return f'<tr class="{kind}">{inside}</tr>' if kind else f"<tr>{inside}</tr>"


def _class(heading: str, verdict: str = "") -> str:
    return f' class="{f"number {verdict}".strip()}"' if heading.startswith("#") else ""


def _figure(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def _code(text: object) -> str:
    return f"<code>{escape(str(text))}</code>"


def _link(recipe: str) -> str:
    return f'<a href="#{_anchor(recipe)}">{escape(recipe)}</a>'


def _anchor(recipe: str) -> str:
    return "recipe-" + "".join(letter if letter.isalnum() else "-" for letter in recipe)
