"""Keep the small part of finished runs under ``results/RECIPE/NAME/seed-N``, as `read_recorded` reads it.

Weights, checkpoints and predictions are not kept.

    python -m tools.collect runs/zinc-12k
    python -m tools.collect runs/zinc-attention --as ablation-attention
"""

import csv
import gzip
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from gssc.checks import fail
from gssc.files import json_bytes, replace_folder
from gssc.report.provenance import PROVENANCE, provenance, public_command, public_config
from gssc.report.runs import SeedRun, read_runs
from gssc.report.variants import Variant, group_variants
from tools.errors import in_one_line

NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
DIGITS = 5
# Of the epochs; what can be computed from the rest is not kept.
LEFT_OUT = ("graphs_per_second",)
COPIED = ("summary.json", "dataset.json")


def collect(runs: Sequence[Path], results: Path, name: str = "main", remark: str = "") -> list[Path]:
    """Keep finished runs; returns the folders that were written, each complete or not at all.

    Args:
        runs: Outputs of ``gssc train``; the seeds of one recipe in them must be runs of one setting.
        results: Folder of all results; ``RECIPE/NAME`` below it is replaced.
        name: ``main`` for the result of a recipe, ``ablation-…`` for what belongs on the page of ablations.
        remark: What a reader must know of these runs.
    """
    if not NAME.fullmatch(name):
        fail("--as", "a name of small letters, digits, dots and dashes", repr(name))
    written: dict[Path, tuple[str, Variant]] = {}
    for recipe, variants in group_variants(read_runs(runs).seeds).items():
        twice = [variant for variant in variants if variant.folder]
        if twice and len({variant.overrides for variant in variants}) == 1:
            folders = ", ".join(variant.folder for variant in twice)
            fail("runs", "every seed once", f"{recipe}: the same seed of the same setting in {folders}")
        if len(variants) > 1:
            labels = "; ".join(variant.label for variant in variants)
            fail("runs", "runs of one setting of each recipe (call the command once for each)", f"{recipe}: {labels}")
        (variant,) = variants
        if variant.status != "finished":
            fail("runs", "finished runs", f"{recipe}: {variant.status}")
        # A recipe on other data than its own is another result.
        out = results / re.sub(r"[^A-Za-z0-9._-]+", "-", recipe) / name
        if out in written:
            fail("runs", "recipes and data with names that differ", f"{written[out][0]!r} and {recipe!r}")
        written[out] = recipe, variant
    for out, (_, variant) in written.items():
        kept = {f"seed-{run.seed}/{file}": data for run in variant.runs for file, data in _kept(run).items()}
        replace_folder(out, kept | {"run.json": json_bytes(_description(variant, remark))})
    return list(written)


def _kept(run: SeedRun) -> dict[str, bytes]:
    environment = dict(run.environment)
    if environment:
        environment["command"] = public_command(str(environment.get("command") or ""))
    files = {name: (run.folder / name).read_bytes() for name in COPIED if (run.folder / name).exists()}
    files["config.yaml"] = yaml.safe_dump(public_config(run.config), sort_keys=False).encode()
    return files | {"environment.json": json_bytes(environment), "metrics.csv.gz": compact(run.history)}


def _description(variant: Variant, remark: str) -> dict[str, Any]:
    by_run = [provenance(run.environment) for run in variant.runs]
    said = {key: "; ".join(dict.fromkeys(one[key] for one in by_run if one[key])) for key in PROVENANCE}
    said["command"] = "; ".join(dict.fromkeys(public_command(one["command"]) for one in by_run if one["command"]))
    jobs = re.search(r"--jobs[= ](\d+)", said["command"])
    parts = [variant.spread(key) for key in ("prepare_seconds", "train_seconds")]
    return {
        "recipe": variant.recipe,
        "overrides": list(variant.overrides),
        "seeds": [run.seed for run in variant.runs],
        **said,
        "schedule": variant.schedule or "the recipe's",
        "seconds_per_seed": round(sum(part.mean for part in parts if part), 1) if any(parts) else None,
        "seeds_at_once": min(int(jobs[1]), len(variant.runs)) if jobs else 1,
        "remarks": remark,
    }


def compact(history: Sequence[Mapping[str, Any]]) -> bytes:
    """The epochs as a compressed table, numbers to five digits; the same content gives the same bytes."""
    columns = list(dict.fromkeys(key for line in history for key in line if key not in LEFT_OUT))
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    for line in history:
        table.writerow(f"{v:.{DIGITS}g}" if isinstance(v := line.get(key), float) else v for key in columns)
    return gzip.compress(text.getvalue().encode(), mtime=0)


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    runs: Annotated[list[Path], typer.Argument(help="Outputs of `gssc train`: finished seeds of one setting.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of all results.")] = Path("results"),
    name: Annotated[
        str, typer.Option("--as", help="`main`, or `ablation-…` for what belongs on the page of ablations.")
    ] = "main",
    remark: Annotated[str, typer.Option(help="What a reader must know of these runs; a footnote of the number.")] = "",
) -> None:
    """Keep the small part of finished runs, as the source of the pages that `tools.results` writes.

    Below OUTPUT/RECIPE/NAME each seed keeps its scores, settings, environment and epochs (to five digits, compressed),
    and run.json has command, commit, hardware, date, schedule and time. What was there under this name is replaced.
    """
    for folder in collect(runs, output, name, remark):
        print(f"kept in {folder}")


if __name__ == "__main__":
    in_one_line(app)
