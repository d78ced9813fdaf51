"""``gssc prepare`` and ``gssc pack``: a recipe's dataset before any training."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from gssc.checks import fail
from gssc.cli import common
from gssc.recipes import find_recipe


def prepare(
    recipe: common.RecipeName,
    overrides: common.Overrides = None,
    data_root: common.Root = Path("data"),
    pack: common.Pack = None,
    cache: common.Cache = None,
    device: Annotated[str, typer.Option(help="Where to solve: cpu, cuda.")] = "cpu",
    threads: common.Threads = None,
) -> None:
    """Compute all spectra and encodings of a recipe's dataset into the cache, where `gssc train` finds them.

    A second run reads them. The table shows how good the eigenpairs are: 'proved' means that no eigenvalue can be
    missing, 'checked' that a random check found none missing, 'empty' that a graph keeps no eigenpair.
    """
    from gssc.train.build import prepare_graphs
    from gssc.train.evaluate import default_dtype
    from gssc.train.open_data import open_for

    settings = find_recipe(recipe).override(overrides or [])
    place = common.pick_device(device)
    common.take_threads(threads)
    headings = ("split", "graphs", "nodes", "seconds", "largest residual", "proved", "checked", "empty")
    table = Table(*(Column(name, justify="right") for name in headings), title=f"spectra of {settings.data.dataset}")
    with default_dtype(settings.train.precision):
        dataset = open_for(settings, data_root, pack)
        for split, graphs in dataset.splits.items():
            start = time.perf_counter()
            done = prepare_graphs(graphs.sorted_by_destination(), settings, place, cache or True, progress=True)
            seconds = time.perf_counter() - start
            if done is None:
                fail("recipe", "a model that reads spectra or random walks", f"glob={settings.model.glob}, no rwse")
            levels = [certificate.level for certificate in done.by_graph.values()]
            residuals = [float(done.flat.residual.max()), *(c.residual for c in done.by_graph.values())]
            checked, empty = levels.count("checked"), int((~done.flat.eigmask.any(1)).sum())
            sizes = f"{graphs.num_graphs:,}", f"{graphs.num_nodes:,}"
            counts = (f"{count:,}" for count in (graphs.num_graphs - checked, checked, empty))
            table.add_row(split, *sizes, f"{seconds:.2f}", f"{max(residuals):.1e}", *counts)
    Console().print(table)


def pack(
    recipe: common.RecipeName,
    overrides: common.Overrides = None,
    out: Annotated[Path, typer.Option("-o", "--out", help="The file to write.")] = Path("dataset.safetensors"),
    data_root: common.Root = Path("data"),
) -> None:
    """Write a recipe's dataset into one small file, to train from on another machine.

    The file holds graphs, features, targets and split, losslessly, but no spectra: those are computed where the file
    is used. With data.generate=true it holds the seed alone.
    """
    from gssc.datasets import open_dataset, write_pack
    from gssc.train.display import plain_console

    data = find_recipe(recipe).override(overrides or []).data
    dataset = open_dataset(data.dataset, data_root, data.seed, generate=data.generate, mask=data.mask)
    generator = {"name": data.dataset, "seed": data.seed} if data.generate else None
    try:
        size = write_pack(dataset, out, generator=generator)
    except OSError as error:
        fail("out", "a file that can be written", f"{out} ({error.strerror or error})")
    parts = ", ".join(f"{len(flat):,} {name}" for name, flat in dataset.splits.items())
    plain_console().print(f"{dataset.name}: {parts} graphs in {size:,} bytes, {out}")
