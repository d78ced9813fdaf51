"""``gssc models``."""

from rich import box
from rich.console import Console
from rich.table import Table

CAPTION = "test: of the seed that ships, and mean ± deviation over all seeds; what the data are is on the cards"


def models() -> None:
    """List the trained models that ship with the package, with their test scores.

    Use one by name: `gssc predict NAME graphs`, `gssc evaluate NAME`, `gssc.load_pretrained("NAME")`.
    """
    from gssc.files import read_json
    from gssc.pretrained.find import pretrained_folder, pretrained_names
    from gssc.tasks import score_text

    names = pretrained_names()
    console = Console()
    if not names:
        console.print("no pretrained model ships with this copy; `gssc publish` makes one from a run")
        return
    table = Table(box=box.SIMPLE, caption=CAPTION)
    for heading in ("model", "metric", "test", "all seeds", "weights"):
        table.add_column(heading, no_wrap=True)
    for name in names:
        folder = pretrained_folder() / name
        summary, seeds = read_json(folder / "summary.json"), read_json(folder / "seeds.json")
        metric = f"{summary['metric']} {'↑' if summary['higher_is_better'] else '↓'}"
        several = len(seeds["seeds"]) > 1
        deviation = seeds["test"]["std"] if several else None
        spread = f"{score_text(seeds['test']['mean'], deviation)} ({len(seeds['seeds'])})"
        table.add_row(name, metric, score_text(summary["test"]), spread, f"{summary['parameters'] / 1000:,.0f} k")
    console.print(table)
