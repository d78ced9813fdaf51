"""``gssc recipes``."""

from rich.console import Console
from rich.table import Table


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
