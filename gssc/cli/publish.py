"""``gssc publish``."""

from pathlib import Path
from typing import Annotated

import typer

from gssc.cli.options import plain_console
from gssc.pretrained.publish import publish as write
from gssc.tasks import score_text


def publish(
    runs: Annotated[Path, typer.Argument(help="OUT of `gssc train` with one or more seeds, or one OUT/seed-N.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to make; its name is the name of the model.")],
    notes: Annotated[
        Path | None, typer.Option(help="YAML of `recipe: {data: …, licence: …}` for the card of the model.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a published model.")] = False,
) -> None:
    """Make a small folder of a trained model, for others to load, predict with and evaluate.

    Of several seeds, the one with the best validation score is taken; test scores do not count. The folder holds the
    weights, the recipe, what the data look like, the scores of this and of all seeds, a card (README.md) and a manifest
    with the sha256 of every file. It works wherever a run folder does, and from any web server:

        gssc publish runs/zinc-12k -o pretrained/zinc-12k --notes results/notes.yaml
        gssc evaluate pretrained/zinc-12k
        gssc predict https://example.org/models/zinc-12k molecules.smi
    """
    done = write(runs, out, notes, replace=replace)
    metric, validation, test = (done.summary[key] for key in ("metric", "validation", "test"))
    scores = f"validation {metric} {score_text(validation)}, test {score_text(test)}"
    plain_console().print(f"seed {done.seed}: {scores}\n{done.size / 1e6:.2f} MB written to {done.folder}")
