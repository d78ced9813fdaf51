"""The recipes that ship with the package: one YAML file for each published result."""

from pathlib import Path

from gssc.checks import check_choice
from gssc.config import Recipe, load_recipe


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
