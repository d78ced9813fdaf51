"""From a recipe to its dataset, and from a dataset of one's own to a recipe that suits it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gssc.checks import fail
from gssc.config import DataConfig, Recipe
from gssc.datasets import GraphDataset, describe, open_csv, open_dataset, open_own
from gssc.datasets.negatives import are_ordered
from gssc.datasets.pack import read_pack
from gssc.datasets.superpixels import with_published_neighbours
from gssc.recipes import for_large_graphs, for_one_graph, settled
from gssc.train.display import plain_console
from gssc.train.evaluate import default_dtype


def open_for(
    recipe: Recipe, root: Path, pack: Path | None = None, quiet: bool = True, beside: Path | None = None
) -> GraphDataset:
    """The dataset of a recipe: from a pack, by name, or from a file of one's own, described unless ``quiet``.

    A file that is not where the recipe says may lie ``beside`` it, in the folder of a run.
    """
    data = recipe.data
    with default_dtype(recipe.train.precision):
        if pack is not None:
            dataset = _open_pack(data, pack)
        elif data.file is None:
            dataset = open_dataset(data.dataset, root, data.seed, generate=data.generate, mask=data.mask)
        else:
            file = Path(data.file)
            inside = None if beside is None else beside / file.name
            dataset = open_file(data, inside if inside is not None and inside.exists() and not file.exists() else file)
            if dataset.mapped:
                fail("data", "a file (a folder of arrays is for gssc partition)", file)
            plain_console(quiet).print(describe(dataset))
        return with_published_neighbours(dataset) if data.neighbours == "published" else dataset


def _open_pack(data: DataConfig, pack: Path) -> GraphDataset:
    packed, generator = read_pack(pack)
    if packed.name != data.dataset:
        fail("--pack", f"a pack of {data.dataset}", f"one of {packed.name} ({pack})")
    if data.generate and generator is None:
        fail("--pack", "a pack of generated graphs, where data.generate=true", f"one of files ({pack})")
    if generator is not None and generator.get("seed") != data.seed:
        fail("--pack", f"a pack with data.seed={data.seed}", f"one with data.seed={generator.get('seed')} ({pack})")
    return packed


def open_file(data: DataConfig, path: Path) -> GraphDataset:
    """The dataset of a file of one's own, or of a folder, which is mapped."""
    split = "random" if data.split == "official" else data.split
    how: dict[str, Any] = {"split": split, "seed": data.seed, "task": data.task, "metric": data.metric}
    if path.suffix.lower() != ".csv":
        return open_own(path, **how, scale=data.scale, mask=data.mask)
    columns = [column.strip() for column in (data.target_columns or "").split(",")]
    how |= {"smiles_column": data.smiles_column, "skip_invalid": data.skip_invalid}
    return open_csv(path, target_columns=columns, **how)


# Of pairs in one graph: it is seen whole in every step, and without much dropout, and layers that smooth, its training
# pairs are learned by heart. Chosen by validation on Citeseer.
ONE_GRAPH_OF_PAIRS = {
    "model.layers": 2, "model.local": "gcn", "spectrum.rwse": 0, "optim.lr": 0.01,
    "model.dropout_local": 0.5, "model.dropout_global": 0.5, "model.dropout_ffn": 0.5,
}  # fmt: skip


def for_pairs(recipe: Recipe, dataset: GraphDataset, asked: Sequence[str], say: Callable[[str], None]) -> Recipe:
    """A recipe for own data as it suits pairs of nodes (level ``"edge"``), but for the overrides ``asked`` for."""
    train = dataset.splits["train"]
    if dataset.task.level != "edge":
        return recipe
    settings: dict[str, Any] = {"model.ordered_pairs": are_ordered(train)}
    if train.num_graphs == 1:
        settings |= ONE_GRAPH_OF_PAIRS
    if dataset.edge_features:
        settings.pop("model.local", None)  # GCN does not read them
    return settled(recipe, settings, asked, say, f"pairs of nodes{', in one graph' * (train.num_graphs == 1)}")


def suited(recipe: Recipe, dataset: GraphDataset, asked: Sequence[str], say: Callable[[str], None]) -> Recipe:
    """A recipe of `gssc.recipes.own_recipe` as it suits these graphs, but for the overrides that were ``asked`` for."""
    recipe = for_one_graph(for_pairs(recipe, dataset, asked, say), dataset, asked, say)
    walks = any(text.startswith("spectrum.rwse=") for text in asked)
    return recipe if walks else for_large_graphs(recipe, dataset.largest(), say)
