"""The page of results, and the table of the README: every recipe, ours beside the published numbers."""

from collections.abc import Sequence
from typing import Any

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
    *("cycles-3", "cycles-4", "cycles-5", "zinc-12k", "zinc-full", "molhiv", "mnist", "cifar10", "pattern", "cluster"),
    *("malnet-tiny", "voc-sp", "peptides-func", "peptides-struct"),
)


class Footnotes:
    """Marks for remarks, numbered as they are first asked for."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, *texts: str) -> str:
        """`` [1] [2]``: the marks of these remarks; nothing for an empty one."""
        marks = []
        for text in texts:
            if text and text not in self.texts:
                self.texts.append(text)
            if text:
                marks.append(f" [{self.texts.index(text) + 1}]")
        return "".join(marks)

    def lines(self) -> str:
        """All remarks, one paragraph each."""
        return "\n\n".join(f"[{number}] {text}" for number, text in enumerate(self.texts, start=1))


def results_parts(recorded: Sequence[Recorded], notes: Notes) -> dict[str, str]:
    """The generated parts of ``docs/results.md``: summary, origin, protocols, and every row of the paper."""
    ours = [one for one in recorded if not one.ablation]
    footnotes = Footnotes()
    lines = [heading("recipe", "metric", "ours", "seeds", "GSSC, published", "difference", "best in the paper")]
    for recipe in _recipes(ours):
        mine: list[Recorded | None] = [one for one in ours if one.recipe == recipe and not is_rival(one)]
        lines += [line(*_summary(recipe, one, footnotes, notes)) for one in mine or [None]]
    summary = "\n".join(lines) + (f"\n\n{footnotes.lines()}" if footnotes.texts else "")
    parts = {"summary": summary, "origin": _origin(ours), "protocols": _protocols(ours)}
    return parts | {"all-rows": _all_rows(ours, notes)}


def readme_table(recorded: Sequence[Recorded], notes: Notes) -> str:
    """The short table: ours, published, seeds."""
    ours = [one for one in recorded if not one.ablation and not is_rival(one)]
    if not ours:
        return "No recipe has been run to its end yet: there are no accuracy figures here."
    footnotes = Footnotes()
    lines = [heading("recipe", "metric", "ours", "seeds", f"GSSC in {PAPER}")]
    missing = []
    for recipe in _recipes(ours):
        mine = [one for one in ours if one.recipe == recipe]
        if not mine:
            missing.append(recipe)
        for one in mine:
            label, metric, text, seeds, published, *_ = _summary(recipe, one, footnotes, notes, short=True)
            lines.append(line(label, metric, text, seeds, published))
    text = "\n".join(lines)
    if missing:
        text += f"\n\nNot run: {', '.join(missing)}."
    return text + (f"\n\n{footnotes.lines()}" if footnotes.texts else "")


def _recipes(ours: Sequence[Recorded]) -> list[str]:
    names = [*(name for name in ORDER if name in recipe_names()), *recipe_names(), *(one.recipe for one in ours)]
    return list(dict.fromkeys(names))


def _summary(
    recipe: str, one: Recorded | None, footnotes: Footnotes, notes: Notes, *, short: bool = False
) -> tuple[str, ...]:
    task = _task(recipe, one)
    published = published_gssc(task["dataset"], task["metric"])
    arrow = "↑" if task["higher_is_better"] else "↓"
    metric = f"{task['metric']} {arrow}" + (", %" if published and published.factor == 100 else "")
    best = _best(published_rows(task["dataset"], task["metric"]))
    last = (published.text if published else "", "", best)
    if one is None:
        return (recipe, metric, NOT_RUN, "", *last)
    note = short_note(notes, recipe) if short else notes.get(recipe, {}).get("data", "")
    mark = footnotes.mark(note, one.said("remarks"))
    row = our_row(one)
    schedule = f" ({one.schedule})" if one.schedule else ""
    text = spread_text(one.printed("test"), published) + mark + schedule
    label = recipe if one.name == "main" else f"{recipe}, {one.name}"
    return (label, metric, text, str(row.seeds or 0), last[0], row.judged, best)


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


def _all_rows(ours: Sequence[Recorded], notes: Notes) -> str:
    """A table for each recipe: ours, and every row of the paper's tables."""
    sections = []
    for recipe in _recipes(ours):
        mine = [one for one in ours if one.recipe == recipe]
        task = _task(recipe, mine[0] if mine else None)
        footnotes = Footnotes()
        published = sorted(published_rows(task["dataset"], task["metric"]), key=lambda row: not row.own)
        rows = [(our_row(one), one) for one in mine]
        percent = ", %" if any(row.factor == 100 for row in published) else ""
        arrow = "↑" if task["higher_is_better"] else "↓"
        lines = [heading("model", f"{task['metric']} {arrow}{percent}", "seeds", "validation", "source")]
        for row, one in rows:
            mark = footnotes.mark(notes.get(recipe, {}).get("data", ""), one.said("remarks"))
            name, text = (one.name, row.text) if is_rival(one) else (f"**ours, {one.name}**", f"**{row.text}**")
            name += f" ({one.schedule})" if one.schedule else ""
            lines.append(line(name, f"{text}{mark}", str(row.seeds or ""), row.validation, "run here"))
        if not rows:
            lines.append(line("**ours**", NOT_RUN, "", "", ""))
        gssc = next((row for row in published if row.own), None)
        for printed in published:
            row = published_row(printed, gssc)
            name = row.model + (" (the paper's own)" if row.own else "")
            lines.append(line(name, row.text, str(row.seeds or ""), "", f"published: {row.source}"))
        below = f"\n\n{footnotes.lines()}" if footnotes.texts else ""
        sections.append(f"### {recipe}\n\n" + "\n".join(lines) + below)
    return "\n\n".join(sections)
