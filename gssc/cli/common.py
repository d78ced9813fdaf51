"""What sub-commands share: options, and what they do first (a device, a dataset, a model to start from, a deadline)."""

import time
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from gssc.checks import check_choice, fail
from gssc.config import DataConfig, Recipe
from gssc.datasets import GraphDataset, describe, open_csv, open_dataset, open_own
from gssc.datasets.pack import read_pack
from gssc.pretrained.find import find_folder, pretrained_names, seed_folders
from gssc.train.display import plain_console
from gssc.train.evaluate import default_dtype

_RECIPE = typer.Argument(help="Name of a recipe (see `gssc recipes`) or path of a YAML file.")
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
SkipInvalid = Annotated[
    bool, typer.Option("--skip-invalid", help="Leave out molecules that cannot be read, instead of an error.")
]
TimeLimit = Annotated[str | None, typer.Option(help="Stop with a checkpoint before this time is over: 90s, 10m, 2h.")]
_MODEL = "the name of a pretrained model (see `gssc models`), or a model's URL."
Runs = Annotated[str, typer.Argument(help=f"OUT or OUT/seed-N of `gssc train`, {_MODEL}")]
Run = Annotated[str, typer.Argument(help=f"OUT/seed-N of `gssc train`, {_MODEL}")]


def pick_device(name: str) -> torch.device:
    """``auto`` means a GPU where there is one."""
    kind, colon, number = name.partition(":")
    if not colon:
        check_choice("--device", name, ("auto", "cpu", "cuda"))
    elif kind != "cuda" or not number.isdecimal():
        fail("--device", "auto, cpu, cuda or cuda:NUMBER", repr(name))
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda" and not torch.cuda.is_available():
        fail("--device", "auto or cpu (no GPU was found)", repr(name))
    if colon and int(number) >= torch.cuda.device_count():
        fail("--device", f"cuda:0 to cuda:{torch.cuda.device_count() - 1}", repr(name))
    return torch.device(name)


def open_for(recipe: Recipe, root: Path, pack: Path | None, quiet: bool = True) -> GraphDataset:
    """The dataset of a recipe: from a pack, by name, or from a file of one's own, described unless ``quiet``."""
    data = recipe.data
    with default_dtype(recipe.train.precision):
        if pack is not None:
            return _open_pack(data, pack)
        if data.file is None:
            return open_dataset(data.dataset, root, data.seed, generate=data.generate)
        dataset = _open_file(data, Path(data.file))
    plain_console(quiet).print(describe(dataset))
    return dataset


def _open_pack(data: DataConfig, pack: Path) -> GraphDataset:
    packed, generator = read_pack(pack)
    if packed.name != data.dataset:
        fail("--pack", f"a pack of {data.dataset}", f"one of {packed.name} ({pack})")
    if data.generate and generator is None:
        fail("--pack", "a pack of generated graphs, where data.generate=true", f"one of files ({pack})")
    if generator is not None and generator.get("seed") != data.seed:
        fail("--pack", f"a pack with data.seed={data.seed}", f"one with data.seed={generator.get('seed')} ({pack})")
    return packed


def _open_file(data: DataConfig, path: Path) -> GraphDataset:
    split = "random" if data.split == "official" else data.split
    how: dict[str, Any] = {"split": split, "seed": data.seed, "task": data.task, "metric": data.metric}
    if path.suffix.lower() != ".csv":
        return open_own(path, **how)
    columns = [column.strip() for column in (data.target_columns or "").split(",")]
    how |= {"smiles_column": data.smiles_column, "skip_invalid": data.skip_invalid}
    return open_csv(path, target_columns=columns, **how)


def find_start(source: str) -> Path:
    """The folder that ``train.start`` means: of a model by name or URL, of a run, or OUT of `gssc train`."""
    if source not in pretrained_names() and seed_folders(source):
        return Path(source)
    return find_folder(source)


def parse_duration(text: str) -> float:
    """``90``, ``90s``, ``10m`` or ``2h`` in seconds."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, factor = (text[:-1], units[text[-1]]) if text and text[-1] in units else (text, 1.0)
    try:
        seconds = float(number) * factor
    except ValueError:
        fail("--time-limit", "a time such as 90s, 10m or 2h", repr(text))
    if not seconds > 0:
        fail("--time-limit", "a positive time", repr(text))
    return seconds


def deadline(time_limit: str | None) -> float | None:
    """When the time that a command has is over, on ``time.monotonic()``."""
    return None if time_limit is None else time.monotonic() + parse_duration(time_limit)
