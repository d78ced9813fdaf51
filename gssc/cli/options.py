"""Arguments and options that several sub-commands share, and how they print."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

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
SplitOption = Annotated[str, typer.Option(help="Which graphs: train, val or test.")]
SkipInvalidOption = Annotated[
    bool, typer.Option("--skip-invalid", help="Leave out molecules that cannot be read, instead of an error.")
]
TimeLimitOption = Annotated[
    str | None, typer.Option(help="Stop with a checkpoint before this time is over: 90s, 10m, 2h.")
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


def plain_console(quiet: bool = False) -> Console:
    """A console that prints text as it is: long lines stay whole, brackets in a path are no markup."""
    return Console(highlight=False, soft_wrap=True, markup=False, quiet=quiet)
