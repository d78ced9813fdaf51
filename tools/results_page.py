"""The pages of results and their provenance, and the table of the README: ours beside the published numbers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe, recipe_names
from gssc.report.published import Published, published_gssc, published_rows
from gssc.report.tables import PAPER, our_row, protocol_rows, published_row, spread_text
from gssc.report.variants import Recorded
from tools.markdown import heading, line
from tools.rows import Notes, command, is_rival, short_note, time_text

NOT_RUN = "not run"
# The order of the paper.
ORDER = (
    *("cycles-3", "cycles-4", "cycles-5", "cycles-6", "zinc-12k", "zinc-full"),
    *("molhiv", "mnist", "cifar10", "pattern", "cluster"),
    *("malnet-tiny", "voc-sp", "peptides-func", "peptides-struct"),
)


class Footnotes:
    """Marks for remarks, numbered as they are first asked for."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, *texts: str) -> str:
        """`` [1, 2]``: the marks of these remarks; nothing for an empty one."""
        self.texts += [text for text in texts if text and text not in self.texts]
        numbers = sorted(self.texts.index(text) + 1 for text in texts if text)
        return f" [{', '.join(map(str, numbers))}]" if numbers else ""

    def lines(self) -> str:
        """All remarks, one paragraph each, below what they belong to."""
        return "".join(f"\n\n[{number}] {text}" for number, text in enumerate(self.texts, start=1))


def results_parts(recorded: Sequence[Recorded], notes: Notes) -> dict[str, str]:
    """The generated parts of ``docs/results.md``: one row per recipe, further runs, every row of the paper."""
    ours = [one for one in recorded if not one.ablation]
    headings = ("recipe", "metric", "ours", "seeds", "GSSC, published", "difference", "best in the paper")
    rows = _summary(ours, notes)
    lines = [heading(*headings), *(line(*row) for row in rows.cells)]
    further = [one for one in _own(ours) if one is not _main(ours, one.recipe)]
    below = [heading("run", *headings[1:6])]
    below += [line(f"{one.recipe}, {one.name}", *_cells(one.recipe, one)[1:6]) for one in further]
    return {
        "summary": "\n".join(lines) + rows.footnotes + _bounds(ours, notes),
        "further": "\n".join(below) if further else "None yet.",
        "all-rows": _all_rows(ours),
    }


def _bounds(ours: Sequence[Recorded], notes: Notes) -> str:
    """What nobody can do better on the data of these rows, where that is known."""
    known = [f"- **{name}**: {text}" for name in _recipes(ours) if (text := notes.get(name, {}).get("bound"))]
    return "\n\nThe best that is possible on these graphs:\n\n" + "\n".join(known) if known else ""


def provenance_parts(recorded: Sequence[Recorded], notes: Notes) -> dict[str, str]:
    """The generated parts of ``docs/provenance.md``: commands, data, remarks on runs, further protocols."""
    ours = [one for one in recorded if not one.ablation]
    data: dict[str, list[str]] = {}
    for recipe in _recipes(ours):
        if text := notes.get(recipe, {}).get("data"):
            data.setdefault(text, []).append(recipe)
    remarks = [f"- **{one.recipe}, {one.name}**: {one.said('remarks')}" for one in ours if one.said("remarks")]
    return {
        "origin": _origin(ours),
        "data": "\n".join(f"- **{', '.join(recipes)}**: {text}" for text, recipes in data.items()) or "Nothing noted.",
        "runs": "\n".join(remarks) or "Nothing noted.",
        "protocols": _protocols(ours),
    }


def readme_table(recorded: Sequence[Recorded], notes: Notes) -> str:
    """The short table: one row for each recipe that was run."""
    ours = [one for one in recorded if not one.ablation]
    if not _own(ours):
        return "No recipe has been run to its end yet: there are no accuracy figures here."
    rows = _summary(ours, notes)
    lines = [heading("recipe", "metric", "ours", "seeds", f"GSSC in {PAPER}", "difference")]
    lines += [line(*cells[:6]) for cells in rows.cells if cells[2] != NOT_RUN]
    missing = [cells[0] for cells in rows.cells if cells[2] == NOT_RUN]
    return "\n".join(lines) + (f"\n\nNot run: {', '.join(missing)}." if missing else "") + rows.footnotes


class Summary(NamedTuple):
    """One row of cells per recipe, and the footnotes that they refer to."""

    cells: list[tuple[str, ...]]
    footnotes: str


def _summary(ours: Sequence[Recorded], notes: Notes) -> Summary:
    recipes = {recipe: _main(ours, recipe) for recipe in _recipes(ours)}
    epochs = [f"{recipe} {one.schedule}" for recipe, one in recipes.items() if one and one.schedule]
    footnotes, shorter = Footnotes(), f"Epochs, where not the recipe's: {'; '.join(epochs).replace(' epochs', '')}."
    cells = []
    for recipe, one in recipes.items():
        label, metric, text, *others = _cells(recipe, one)
        marks = footnotes.mark(short_note(notes, recipe), shorter if one.schedule else "") if one else ""
        cells.append((label, metric, text + marks, *others))
    return Summary(cells, footnotes.lines())


def _own(ours: Sequence[Recorded]) -> list[Recorded]:
    return [one for one in ours if not is_rival(one)]


def _main(ours: Sequence[Recorded], recipe: str) -> Recorded | None:
    """The result of a recipe: ``main``, or the first of its runs where there is none."""
    return next((one for one in _own(ours) if one.recipe == recipe), None)


def _recipes(ours: Sequence[Recorded]) -> list[str]:
    names = [*(name for name in ORDER if name in recipe_names()), *recipe_names(), *(one.recipe for one in ours)]
    return list(dict.fromkeys(names))


def _cells(recipe: str, one: Recorded | None) -> tuple[str, ...]:
    """Recipe, metric, ours, seeds, published, difference, best of the paper."""
    task = _task(recipe, one)
    published = published_gssc(task["dataset"], task["metric"])
    arrow = "↑" if task["higher_is_better"] else "↓"
    metric = f"{task['metric']} {arrow}" + (", %" if published and published.factor == 100 else "")
    best, printed = _best(published_rows(task["dataset"], task["metric"])), published.text if published else ""
    if one is None:
        return (recipe, metric, NOT_RUN, "", printed, "", best)
    row = our_row(one)
    return (recipe, metric, spread_text(one.printed("test"), published), str(row.seeds or 0), printed, row.judged, best)


def _task(recipe: str, one: Recorded | None) -> dict[str, Any]:
    if one is not None:
        return {"dataset": one.dataset, "metric": one.metric, "higher_is_better": one.higher_is_better}
    dataset = find_recipe(recipe).data.dataset
    task = SPECS[dataset].task
    return {"dataset": dataset, "metric": task.metric, "higher_is_better": task.higher_is_better}


def _best(rows: Sequence[Published]) -> str:
    numbers = [row for row in rows if row.mean != "NaN"]
    if not numbers:
        return ""
    best = (max if numbers[0].higher_is_better else min)(numbers, key=lambda row: float(row.mean))
    return f"{best.text} ({best.model})"


def _origin(ours: Sequence[Recorded]) -> str:
    if not ours:
        return "Nothing has been run yet."
    lines = [heading("row", "command", "commit", "hardware", "time per seed", "date", "changed", "parameters")]
    for one in ours:
        parameters = one.spread("parameters")
        lines.append(
            line(
                f"{one.recipe}, {one.name}",
                f"`{command(one)}`",
                f"`{one.said('commit')}`",
                one.said("hardware"),
                time_text(one),
                one.said("date"),
                ", ".join(f"`{text}`" for text in one.overrides) or "nothing",
                f"{parameters.mean:,.0f}" if parameters else "",
            )
        )
    return "\n".join(lines)


def _protocols(ours: Sequence[Recorded]) -> str:
    """The same runs under all protocols that they followed, where those are several."""
    lines = [heading("row", "protocol", "weights", "validation", "test", "difference")]
    for one in ours:
        for row in protocol_rows(one):
            name = row.protocol + (" (the recipe's)" if row.protocol in one.recipe_protocols else "")
            lines.append(line(f"{one.recipe}, {one.name}", name, row.source, row.validation, row.text, row.judged))
    return "\n".join(lines) if len(lines) > 1 else "No run has followed a second protocol."


def _all_rows(ours: Sequence[Recorded]) -> str:
    """A table for each recipe: ours, and every row of the paper's tables."""
    sections = []
    for recipe in _recipes(ours):
        mine = [one for one in ours if one.recipe == recipe]
        task = _task(recipe, mine[0] if mine else None)
        published = sorted(published_rows(task["dataset"], task["metric"]), key=lambda row: not row.own)
        rows = [(our_row(one), one) for one in mine]
        percent = ", %" if any(row.factor == 100 for row in published) else ""
        arrow = "↑" if task["higher_is_better"] else "↓"
        lines = [heading("model", f"{task['metric']} {arrow}{percent}", "seeds", "validation", "source")]
        for row, one in rows:
            name, text = (one.name, row.text) if is_rival(one) else (f"**ours, {one.name}**", f"**{row.text}**")
            name += f" ({one.schedule})" if one.schedule else ""
            lines.append(line(name, text, str(row.seeds or ""), row.validation, "run here"))
        if not rows:
            lines.append(line("**ours**", NOT_RUN, "", "", ""))
        gssc = next((row for row in published if row.own), None)
        for printed in published:
            row = published_row(printed, gssc)
            name = row.model + (" (the paper's own)" if row.own else "")
            lines.append(line(name, row.text, str(row.seeds or ""), "", f"published: {row.source}"))
        sections.append(f"### {recipe}\n\n" + "\n".join(lines))
    return "\n\n".join(sections)
