"""``gssc recipes``, ``gssc models`` and ``gssc report``: what ships with the package, and what runs came to."""

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gssc.config import describe_keys
from gssc.recipes import find_recipe, known_recipes, large_graphs, recipe_folder, recipe_variants

WIDE = 110  # columns of a terminal that has room for a description
CAPTION = "test: of the seed that ships, and mean ± deviation over all seeds; what the data are is on the cards"
CAPTION_OF_RECIPES = "published: GSSC in arXiv 2406.05815, mean ± std; variant: RECIPE:VARIANT; baselines: results.md"
STYLES = {"better": "green", "worse": "red"}


def recipes(
    keys: Annotated[bool, typer.Option("--keys", help="List every key of a recipe instead, with its meaning.")] = False,
) -> None:
    """List the recipes: dataset, metric (↑ higher is better, ↓ lower), and what the paper reports for GSSC.

    Run one with `gssc train RECIPE`; every setting in it can be changed there, as section.key=value: --keys lists them.
    A wide terminal shows what a recipe is about.
    """
    console = Console()
    if keys:
        for key in describe_keys():
            line = Text.assemble((f"{key.name}={key.default}", "bold"), f"  # {key.meaning} ({key.values})")
            console.print(line, highlight=False, soft_wrap=True)
        return
    from gssc.datasets.specs import SPECS
    from gssc.report.published import published_gssc

    wide = console.width >= WIDE
    table = Table(box=box.SIMPLE, caption=CAPTION_OF_RECIPES, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for heading in ("recipe", "dataset", "metric", "published", *(["about"] if wide else [])):
        table.add_column(heading, no_wrap=heading != "about")
    for name in known_recipes():
        dataset = find_recipe(name).data.dataset
        task = SPECS[dataset].task
        row = published_gssc(dataset, task.metric)
        metric = f"{task.metric} {'↑' if task.higher_is_better else '↓'}"
        published = row.text + (" %" if row.factor == 100 else "") if row else ""
        if name in large_graphs():
            about = f"Not in the paper. {large_graphs()[name].about}"
        else:
            first_line = (recipe_folder() / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
            about = first_line.lstrip("# ").partition(" Paper:")[0]
        table.add_row(name, dataset, metric, published, *([about] if wide else []))
        for variant, (what, _) in recipe_variants(name).items():
            table.add_row(f"  :{variant}", "", "", "", *([what] if wide else []))
    console.print(table)


def models() -> None:
    """List the trained models that ship with the package, with their test scores.

    Use one by name: `gssc predict NAME graphs`, `gssc evaluate NAME`, `gssc.load_pretrained("NAME")`.
    """
    from gssc.pretrained import find
    from gssc.readers import FINISHED, SEEDS, read_object
    from gssc.tasks import score_text, spread_text

    names = find.pretrained_names()
    console = Console()
    if not names:
        console.print("no pretrained model ships with this copy; `gssc publish` makes one from a run")
        return
    table = Table(box=box.SIMPLE, caption=CAPTION, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    sizes = ["weights"] if console.width >= WIDE else []  # a name or a score that is cut off is of no use
    for heading in ("model", "metric", "test", "all seeds", *sizes):
        table.add_column(heading, no_wrap=True)
    for name in names:
        folder = find.pretrained_folder() / name
        summary, seeds = read_object(folder / "summary.json", FINISHED), read_object(folder / "seeds.json", SEEDS)
        metric = f"{summary['metric']} {'↑' if summary['higher_is_better'] else '↓'}"
        spread = f"{spread_text(seeds['test'])} ({len(seeds['seeds'])})"
        weights = [f"{summary['parameters'] / 1000:,.0f} k"] if sizes else []
        table.add_row(name, metric, score_text(summary["test"]), spread, *weights)
    console.print(table)


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Outputs of `gssc train`, seed folders, or folders of several outputs.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write the report into.")] = Path("report"),
    recorded: Annotated[
        Path | None, typer.Option(help="Folder of results that were kept, to put beside the runs.")
    ] = None,
) -> None:
    """Put runs beside the published numbers: tables in Markdown, CSV and LaTeX, and one HTML page with plots.

    Seeds are averaged; runs that change the shipped recipe are variants, named by what they change. Unfinished runs are
    shown as such. With --recorded, what was kept of earlier runs of the same recipes stands beside them. The page needs
    no network and no other file.
    """
    from gssc.report import write_report
    from gssc.train.display import plain_console

    written = write_report(runs, output, recorded)
    table = Table(box=box.SIMPLE)
    for heading in ("recipe", "variant", "seeds", "test", "published", "difference"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "recipe")
    for recipe, one in written.tables.items():
        published = next((row.text for row in one.rows if row.own), "")
        for row in one.rows:
            if row.ours:
                name = recipe if row is one.rows[0] else ""
                cells = (name, row.model, str(row.seeds or ""), row.text, published, row.difference)
                table.add_row(*map(escape, cells), style=STYLES.get(row.verdict))
    Console().print(table)
    for note in written.notes:
        plain_console().print(f"note: {note}", style="yellow")
    plain_console().print(f"written: {', '.join(map(str, written.files))}")
