"""Arguments and options that several sub-commands share."""

from pathlib import Path
from typing import Annotated

import typer

RecipeArgument = Annotated[str, typer.Argument(help="Name of a recipe (see `gssc recipes`) or path of a YAML file.")]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(help="Changes to the recipe, e.g. spectrum.k=32 model.glob=none.")
]
RootOption = Annotated[Path, typer.Option(help="Folder of raw data; what is missing is downloaded there.")]
CacheOption = Annotated[
    Path | None, typer.Option(help="Folder of cached spectra; the default is $GSSC_CACHE or ~/.cache/gssc.")
]
DeviceOption = Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu or cuda.")]
PackOption = Annotated[
    Path | None, typer.Option(help="A file that `gssc pack` wrote, instead of the dataset's own files.")
]
RunsArgument = Annotated[
    str,
    typer.Argument(
        help="OUT or OUT/seed-N of `gssc train`, the name of a pretrained model (see `gssc models`), or a model's URL."
    ),
]
RunArgument = Annotated[
    str,
    typer.Argument(
        help="OUT/seed-N of `gssc train`, the name of a pretrained model (see `gssc models`), or a model's URL."
    ),
]
