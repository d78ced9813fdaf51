"""``gssc prepare``."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gssc.cli.options import CacheOption, OverridesArgument, RecipeArgument, RootOption


def prepare(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    data_root: RootOption = Path("data"),
    cache: CacheOption = None,
    device: Annotated[str, typer.Option(help="Where to solve: cpu, cuda.")] = "cpu",
) -> None:
    """Compute all spectra and encodings of a recipe's dataset into the cache; a second run loads them."""
    from gssc.datasets import load_dataset
    from gssc.recipes import find_recipe
    from gssc.spectra import LaplacianSpectrum, RandomWalkSE, prepare_spectra

    settings = find_recipe(recipe).override(overrides or [])
    spectrum = LaplacianSpectrum(
        settings.spectrum.k,
        settings.spectrum.operator,
        settings.spectrum.zero_modes,
        settings.spectrum.truncation,
    )
    rwse = RandomWalkSE(settings.spectrum.rwse) if settings.spectrum.rwse else None
    table = Table(title=f"spectra of {settings.data.dataset}")
    for heading in ("split", "graphs", "nodes", "seconds", "largest residual", "proved", "checked", "empty"):
        table.add_column(heading, justify="right")
    for split, graphs in load_dataset(settings.data.dataset, data_root, settings.data.seed).items():
        start = time.perf_counter()
        done = prepare_spectra(graphs, spectrum, rwse, device=device, cache=cache or True, progress=True)
        seconds = time.perf_counter() - start
        levels = [certificate.level for certificate in done.by_graph.values()]
        residuals = [float(done.flat.residual.max()), *(c.residual for c in done.by_graph.values())]
        checked = levels.count("checked")
        empty = int((~done.flat.eigmask.any(1)).sum())
        number, nodes = len(graphs), int(done.ptr[-1])
        table.add_row(
            split,
            f"{number:,}",
            f"{nodes:,}",
            f"{seconds:.2f}",
            f"{max(residuals):.1e}",
            f"{number - checked:,}",
            f"{checked:,}",
            f"{empty:,}",
        )
    Console().print(table)
