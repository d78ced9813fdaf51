"""The report as one HTML page that needs nothing but itself: no script, no network, inline style and pictures."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files

import yaml

from gssc import __version__
from gssc.report.explained import embedded, explained_pictures
from gssc.report.figures import ablation_bars, learning_curves
from gssc.report.predicted import predictions_plot
from gssc.report.provenance import duration, provenance
from gssc.report.published import published_costs
from gssc.report.results import time_per_seed
from gssc.report.runs import is_number
from gssc.report.svg import SERIES, drawing_style, to_svg
from gssc.report.tables import PAPER, Comparison
from gssc.report.variants import Variant

# Whatever a run folder holds, the page loads and runs nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def make_page(
    variants: Mapping[str, Sequence[Variant]], tables: Mapping[str, Comparison], notes: Sequence[str]
) -> tuple[str, list[str]]:
    """The page of all variants, by recipe, with their tables; and the notes, which damaged predictions have joined."""
    identities = (f"figure-{number}" for number in itertools.count(1))
    problems = list(notes)
    with drawing_style():
        sections = [_section(name, mine, tables[name], identities, problems) for name, mine in variants.items()]
    links = "".join(f'<a href="#{_anchor(recipe)}">{escape(recipe)}</a>' for recipe in variants)
    style = files("gssc.report").joinpath("page.css").read_text(encoding="utf-8")
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>gssc report</title>
<style>
{style}</style>
</head>
<body>
<h1>gssc report</h1>
<p class="soft">Test scores of the weights selected on validation, mean ± standard deviation over seeds, beside the
numbers published in {PAPER}; differences are to its result for GSSC. Written by gssc {escape(__version__)}.</p>
<nav>{links}</nav>
{_notes(problems)}
{_summary(variants, tables)}
{"".join(sections)}
</body>
</html>
"""
    return page, problems


def _summary(variants: Mapping[str, Sequence[Variant]], tables: Mapping[str, Comparison]) -> str:
    headings = ["recipe", "variant", "metric", "#seeds", "#test", "#published", "#difference", "#parameters"]
    headings.append("#time per seed")
    rows = []
    for recipe, mine in variants.items():
        for variant, row in zip(mine, tables[recipe].rows, strict=False):
            published = variant.published_gssc()
            status = "" if variant.status == "finished" else f'<br><span class="soft">{escape(variant.status)}</span>'
            cells = [f'<a href="#{_anchor(recipe)}">{escape(recipe)}</a>', _code(variant.label) + status]
            cells += [escape(tables[recipe].metric_text), str(len(variant.finished)), escape(row.text)]
            cells += [escape(published.text if published else "–"), escape(row.difference), row.size]
            rows.append(_line(headings, [*cells, escape(time_per_seed(variant))], verdict=row.verdict))
    return _table("summary", headings, rows)


def _section(
    name: str, variants: Sequence[Variant], table: Comparison, identities: Iterator[str], problems: list[str]
) -> str:
    parts = [f'<h2 id="{_anchor(name)}">{escape(table.title)}</h2>', _comparison(table), _costs(variants)]
    parts += ["<h3>Protocols of evaluation</h3>", _protocols(table)] if table.protocols else []
    bars = ablation_bars(variants)
    if bars is not None:
        caption = "Mean over seeds with standard deviation; dots are seeds."
        parts += ["<h3>Variants</h3>", _figure(to_svg(bars, next(identities), f"test scores, {table.recipe}"), caption)]
    drawn = []
    for start in range(0, len(variants), len(SERIES)):
        curves = learning_curves(variants[start : start + len(SERIES)])
        if curves is not None:
            picture = to_svg(curves, next(identities), f"learning curves, {table.recipe}")
            drawn.append(_figure(picture, "A line for each seed; the dot marks the selected epoch."))
    parts += ["<h3>Learning curves</h3>", *(drawn or ['<p class="soft">No epoch has been recorded yet.</p>'])]
    for title, draw in (
        ("Predicted against true", lambda variant: _predictions(variant, identities, problems)),
        ("Inside the model", lambda variant: _explained(variant, problems)),
    ):
        pictures = {variant.label: picture for variant in variants if (picture := draw(variant))}
        parts += [f"<h3>{title}</h3>"] if pictures else []
        for number, (label, picture) in enumerate(pictures.items()):
            shown = " open" if number == 0 or title == "Inside the model" else ""
            parts.append(f"<details{shown}><summary>{_code(label)}</summary>{picture}</details>")
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
    said = [f"{cost.quantity} {cost.value:g} {cost.unit}".strip() for cost in costs.values() if cost.unit]
    if not said:
        return ""
    return f'<p class="soft">The paper reports for GSSC: {escape("; ".join(said))}.</p>'


def _predictions(variant: Variant, identities: Iterator[str], problems: list[str]) -> str:
    """The picture of the first seed that has predictions; what is damaged becomes a note."""
    for run in variant.runs:
        try:
            drawn = predictions_plot(run)
        except ValueError as error:
            problems.append(str(error))
            continue
        if drawn is not None:
            figure, caption = drawn
            picture = to_svg(figure, next(identities), f"predictions on the test set, {variant.recipe}")
            return _figure(picture, f"Test set, seed {run.seed}: {caption}.")
    return ""


def _explained(variant: Variant, problems: list[str]) -> str:
    """What `gssc explain` has drawn for the seeds of a variant; what is damaged becomes a note."""
    shown = []
    for run in variant.runs:
        for path, description in explained_pictures(run.folder):
            try:
                address = embedded(path)
            except ValueError as error:
                problems.append(str(error))
                continue
            text = f"Seed {run.seed}: {description}"
            shown.append(_figure(f'<img class="paper" alt="{escape(text, quote=True)}" src="{address}">', f"{text}."))
    return "".join(shown)


def _runs(variant: Variant) -> str:
    headings = ["seed", "status", "#test", "#validation", "#epoch selected", "#epochs", "#training", "date", "folder"]
    rows = []
    for run in variant.runs:
        cells = [str(run.seed), escape(run.status)]
        cells += [_shown(run.scores.get(key)) for key in ("test", "validation", "epoch_selected", "epochs_run")]
        seconds = run.scores.get("train_seconds")
        cells += [duration(seconds) if is_number(seconds) else "", escape(provenance(run.environment)["date"])]
        rows.append(_line(headings, [*cells, _code(run.folder)]))
    first = variant.runs[0]
    config = yaml.safe_dump(first.config, sort_keys=False) if first.config else "not readable"
    environments: dict[str, list[str]] = {}
    for run in variant.runs:
        text = json.dumps(run.environment, indent=2, ensure_ascii=False) if run.environment else "not recorded"
        environments.setdefault(text, []).append(str(run.seed))
    return (
        f"<p>{_code(variant.label)}</p>{_table('runs', headings, rows)}"
        f"<details><summary>settings</summary><pre>{escape(config)}</pre></details>"
        + "".join(
            f"<details><summary>environment of seed {escape(', '.join(seeds))}</summary>"
            f"<pre>{escape(text)}</pre></details>"
            for text, seeds in environments.items()
        )
    )


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in dict.fromkeys(notes))
    return f'<div class="notes"><strong>Not everything could be read</strong><ul>{items}</ul></div>'


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


def _shown(value: object) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else escape(str(value))


def _anchor(recipe: str) -> str:
    return "recipe-" + "".join(letter if letter.isalnum() else "-" for letter in recipe)
