"""``gssc pack``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gssc.cli.options import OverridesArgument, RecipeArgument, RootOption


def pack(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write.")] = Path("dataset.safetensors"),
    data_root: RootOption = Path("data"),
) -> None:
    """Write a recipe's dataset into one small file, to train from on another machine.

    The file holds graphs, features, targets and split, losslessly, but no spectra: those are computed where the file
    is used. With data.generate=true it holds the seed alone.
    """
    from gssc.checks import fail
    from gssc.datasets import open_dataset, write_pack
    from gssc.recipes import find_recipe

    data = find_recipe(recipe).override(overrides or []).data
    dataset = open_dataset(data.dataset, data_root, data.seed, generate=data.generate)
    generator = {"name": data.dataset, "seed": data.seed} if data.generate else None
    try:
        size = write_pack(dataset, out, generator=generator)
    except OSError as error:
        fail("out", "a file that can be written", f"{out} ({error.strerror or error})")
    parts = ", ".join(f"{len(flat):,} {name}" for name, flat in dataset.splits.items())
    Console().print(f"{dataset.name}: {parts} graphs in {size:,} bytes, {out}", highlight=False, soft_wrap=True)
