"""The command ``gssc``: thin, every sub-command calls the library."""

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    help="Graph State Space Convolution for PyTorch Geometric.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

RecipeArgument = Annotated[str, typer.Argument(help="Name of a recipe (see `gssc recipes`) or path of a YAML file.")]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(help="Changes to the recipe, e.g. spectrum.k=32 model.glob=none.")
]
RootOption = Annotated[Path, typer.Option(help="Folder of raw data; what is missing is downloaded there.")]


@app.callback()
def _root() -> None:
    """Graph State Space Convolution for PyTorch Geometric."""


@app.command()
def recipes() -> None:
    """List the recipes with their dataset and what they publish."""
    from gssc.recipes import find_recipe, recipe_folder, recipe_names

    table = Table()
    for heading in ("recipe", "layers × width", "local", "k", "about"):
        table.add_column(heading)
    for name in recipe_names():
        recipe = find_recipe(name)
        about = (recipe_folder() / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        size = f"{recipe.model.layers} × {recipe.model.channels}"
        table.add_row(name, size, recipe.model.local, str(recipe.spectrum.k), about)
    Console().print(table)


@app.command()
def prepare(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    data_root: RootOption = Path("data"),
    cache: Annotated[
        Path | None, typer.Option(help="Folder of the cache; the default is $GSSC_CACHE or ~/.cache/gssc.")
    ] = None,
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


def main() -> None:
    """Run the command; errors meant for people are one line, without a traceback."""
    from gssc.datasets import DatasetError
    from gssc.spectra import SpectrumError

    try:
        app()
    except (ValueError, DatasetError, SpectrumError) as error:
        Console(stderr=True).print(f"[red]error:[/red] {error}", highlight=False, soft_wrap=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
