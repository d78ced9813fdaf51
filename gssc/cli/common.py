"""What sub-commands share: options, and what they do first (a device, a deadline).

Here and in the sub-commands, what imports PyTorch is imported where it is used: help comes at once.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gssc.checks import check_choice, check_device, fail

if TYPE_CHECKING:
    import torch

_RECIPE = typer.Argument(help="Name of a recipe or of a variant (see `gssc recipes`), or path of a YAML file.")
RecipeName = Annotated[str, _RECIPE]
MaybeRecipeName = Annotated[str | None, _RECIPE]
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
Data = Annotated[Path | None, typer.Option(help="Own data instead of a recipe's: a .pt file of PyG graphs.")]
Csv = Annotated[Path | None, typer.Option(help="Own molecules: a .csv file with SMILES (needs RDKit).")]
SmilesColumn = Annotated[
    str | None, typer.Option(help="Column of the .csv file that holds SMILES.", show_default="smiles")
]
TargetColumn = Annotated[
    str | None, typer.Option(help="Column of the .csv file to predict; several separated by commas.")
]
OwnSplit = Annotated[
    str | None, typer.Option(help="How own data are split into 80/10/10 %: random, or scaffold for molecules.")
]
SkipInvalid = Annotated[
    bool, typer.Option("--skip-invalid", help="Leave out molecules that cannot be read, instead of an error.")
]
TimeLimit = Annotated[str | None, typer.Option(help="Stop with a checkpoint before this time is over: 90s, 10m, 2h.")]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, help="CPU threads; the default is one per core, but for cores that others use (train, predict)."
    ),
]
_MODEL = "the name of a pretrained model (see `gssc models`), or a model's URL."
Runs = Annotated[str, typer.Argument(help=f"OUT or OUT/seed-N of `gssc train`, {_MODEL}")]
Run = Annotated[str, typer.Argument(help=f"OUT/seed-N of `gssc train`, {_MODEL}")]


Sha256 = Annotated[
    str | None, typer.Option("--sha256", help="For a URL: what the manifest must have, as `gssc publish` printed it.")
]


def pick_device(name: str) -> "torch.device":
    """``auto`` means a GPU where there is one."""
    import torch

    check_choice("--device", name.partition(":")[0], ("auto", "cpu", "cuda"))
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = check_device("--device", name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        fail("--device", f"cuda:0 to cuda:{torch.cuda.device_count() - 1}", repr(name))
    return device


def take_threads(number: int | None) -> None:
    """Use so many threads, where a number was asked for."""
    import torch

    if number is not None:
        torch.set_num_threads(number)


def parse_duration(text: str, option: str = "--time-limit") -> float:
    """``90``, ``90s``, ``10m`` or ``2h`` in seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, factor = (text[:-1], units[text[-1]]) if text and text[-1] in units else (text, 1.0)
    try:
        seconds = float(number) * factor
    except ValueError:
        fail(option, "a time such as 90s, 10m or 2h", repr(text))
    if not seconds > 0:
        fail(option, "a positive time", repr(text))
    return seconds


def deadline(time_limit: str | None) -> float | None:
    """When the time that a command has is over, on ``time.monotonic()``."""
    return None if time_limit is None else time.monotonic() + parse_duration(time_limit)
