"""Arguments and options that several sub-commands share."""

from pathlib import Path
from typing import Annotated

import typer

_RECIPE = typer.Argument(help="Name of a recipe (see `gssc recipes`) or path of a YAML file.")
Recipe = Annotated[str, _RECIPE]
MaybeRecipe = Annotated[str | None, _RECIPE]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Changes to the recipe, e.g. spectrum.k=32 model.glob=none.")
]
Root = Annotated[Path, typer.Option(help="Folder of raw data; what is missing is downloaded there.")]
Cache = Annotated[
    Path | None, typer.Option(help="Folder of cached spectra; the default is $GSSC_CACHE or ~/.cache/gssc.")
]
Device = Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu or cuda.")]
Pack = Annotated[Path | None, typer.Option(help="A file that `gssc pack` wrote, instead of the dataset's own files.")]
Split = Annotated[str, typer.Option(help="Which graphs: train, val or test.")]
SkipInvalid = Annotated[
    bool, typer.Option("--skip-invalid", help="Leave out molecules that cannot be read, instead of an error.")
]
TimeLimit = Annotated[str | None, typer.Option(help="Stop with a checkpoint before this time is over: 90s, 10m, 2h.")]
_MODEL = "the name of a pretrained model (see `gssc models`), or a model's URL."
Runs = Annotated[str, typer.Argument(help=f"OUT or OUT/seed-N of `gssc train`, {_MODEL}")]
Run = Annotated[str, typer.Argument(help=f"OUT/seed-N of `gssc train`, {_MODEL}")]
