"""The recipes that ship with the package: one YAML file for each published result."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gssc.checks import check_choice
from gssc.config import DataConfig, ModelConfig, OptimConfig, Recipe, SpectrumConfig, TrainConfig, load_recipe


def recipe_folder() -> Path:
    """Where the files are: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "recipe_files"
    return inside if inside.is_dir() else package.parent / "recipes"


def recipe_names() -> list[str]:
    """All that ship, in alphabetical order."""
    return sorted(path.stem for path in recipe_folder().glob("*.yaml"))


def find_recipe(name: str) -> Recipe:
    """A recipe by name, or by the path of a YAML file."""
    if name.endswith((".yaml", ".yml")):
        return load_recipe(Path(name))
    check_choice("recipe", name, recipe_names())
    return load_recipe(recipe_folder() / f"{name}.yaml")


# Exact return probabilities of 8,000 nodes with ten edges each take half a minute, of twice as many four times as long.
MOST_NODES_FOR_WALKS = 10_000


def for_large_graphs(recipe: Recipe, nodes: int, say: Callable[[str], None]) -> Recipe:
    """A recipe for own data as it suits graphs of up to so many nodes: large ones have no random-walk encodings."""
    if nodes <= MOST_NODES_FOR_WALKS or not recipe.spectrum.rwse:
        return recipe
    walks = f"spectrum.rwse={recipe.spectrum.rwse}"
    say(f"no random-walk encodings, since a graph has {nodes:,} nodes ({walks} computes them nevertheless)")
    return recipe.override(["spectrum.rwse=0"])


def own_recipe(
    file: Path,
    base: Recipe | None = None,
    *,
    split: str | None = None,
    smiles_column: str | None = None,
    target_columns: str | None = None,
    skip_invalid: bool = False,
) -> Recipe:
    """The recipe for a file of one's own: that of ``base``, or a model of moderate size that suits most graphs."""
    own: dict[str, Any] = {"dataset": "own", "file": str(file), "split": split or "random"}
    own |= {"smiles_column": smiles_column or "smiles", "target_columns": target_columns, "skip_invalid": skip_invalid}
    if base is not None:
        return replace(base, data=replace(base.data, **own))
    return Recipe(
        name=file.stem,
        data=DataConfig(**own),
        spectrum=SpectrumConfig(k=32, operator="sym", zero_modes="keep", rwse=16),  # as LaplacianSpectrum has them
        model=ModelConfig(layers=4, channels=64, rwse_channels=16, dropout_local=0.1, dropout_global=0.1),
        optim=OptimConfig(lr=1e-3, weight_decay=1e-5, warmup_epochs=5),
        train=TrainConfig(epochs=100, batch_size=32),
    )
