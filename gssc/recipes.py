"""The recipes that ship with the package: one YAML file for each published result, and named variants of them.

A file ``variants/NAME.yaml`` has what it is ``about`` and, by recipe, ``changes`` as on the command line.
``RECIPE:NAME`` is the recipe with these changes. ``large/graphs.yaml`` names large graphs; their recipe is the one that
files of one's own have.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from gssc.checks import check_choice, fail
from gssc.config import DataConfig, ModelConfig, OptimConfig, Recipe, SpectrumConfig, TrainConfig, load_recipe

if TYPE_CHECKING:
    from gssc.datasets.flat import FlatGraphs, GraphDataset


def recipe_folder() -> Path:
    """Where the files are: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "recipe_files"
    return inside if inside.is_dir() else package.parent / "recipes"


def recipe_names() -> list[str]:
    """Those of the paper's tables, in alphabetical order."""
    return sorted(path.stem for path in recipe_folder().glob("*.yaml"))


class LargeGraph(NamedTuple):
    """One graph whose nodes are predicted: its size, how many splits it comes with, and what it is about."""

    nodes: int
    edges: int  # directed
    splits: int
    about: str


@cache
def large_graphs() -> dict[str, LargeGraph]:
    """The large graphs that have a recipe, by its name."""
    known = yaml.safe_load((recipe_folder() / "large" / "graphs.yaml").read_text("utf-8"))
    return {name: LargeGraph(**about) for name, about in known.items()}


def known_recipes() -> list[str]:
    """All that ship."""
    return [*recipe_names(), *large_graphs()]


class Variant(NamedTuple):
    """What a named variant is about, and what it changes in a recipe."""

    about: str
    changes: tuple[str, ...]


@cache
def recipe_variants(recipe: str) -> dict[str, Variant]:
    """The named variants of a recipe, by name."""
    files = {path.stem: yaml.safe_load(path.read_text("utf-8")) for path in recipe_folder().glob("variants/*.yaml")}
    return {
        name: Variant(file["about"], tuple(file["changes"][recipe]))
        for name, file in sorted(files.items())
        if recipe in file["changes"]
    }


def find_recipe(name: str) -> Recipe:
    """A recipe by name, ``RECIPE`` or ``RECIPE:VARIANT``, or by the path of a YAML file."""
    if name.endswith((".yaml", ".yml")):
        return load_recipe(Path(name))
    base, colon, variant = name.partition(":")
    check_choice("recipe", base, known_recipes())
    large = base in large_graphs()
    recipe = _of_large_graph(base) if large else load_recipe(recipe_folder() / f"{base}.yaml")
    if not colon:
        return recipe
    variants = recipe_variants(base)
    if not variants:
        fail("recipe", f"{base} alone, which has no variants", repr(name))
    check_choice(f"variant of {base}", variant, variants)
    return recipe.override(variants[variant].changes)


def _of_large_graph(name: str) -> Recipe:
    """What `for_one_graph` and `for_large_graphs` choose for a file with this graph; all have labels enough."""
    nodes, edges, *_ = large_graphs()[name]
    recipe = replace(own_recipe(Path(name)), data=DataConfig(name))
    recipe = settled(recipe, _well_labelled(edges), (), lambda line: None, "")
    return for_large_graphs(recipe, nodes, lambda line: None)


# Exact return probabilities of 8,000 nodes with ten edges each take half a minute, of twice as many four times as long.
MOST_NODES_FOR_WALKS = 10_000


def for_large_graphs(recipe: Recipe, nodes: int, say: Callable[[str], None]) -> Recipe:
    """A recipe for own data as it suits graphs of up to so many nodes: large ones have no random-walk encodings."""
    if nodes <= MOST_NODES_FOR_WALKS or not recipe.spectrum.rwse:
        return recipe
    walks = f"spectrum.rwse={recipe.spectrum.rwse}"
    say(f"no random-walk encodings, since a graph has {nodes:,} nodes ({walks} computes them nevertheless)")
    return recipe.override(["spectrum.rwse=0"])


# The kinds of graphs whose nodes are predicted, see `for_one_graph`.
FEW_LABELS = 50  # training nodes per class
MANY_EDGES = 500_000  # directed; more would cost gates of edges seconds per step and gigabytes
EDGES_AT_ONCE = 1 << 22
ENOUGH_EDGES = 20  # between training nodes, to tell whether neighbours differ
# A two-layer GCN; with a global layer besides, scores on Citeseer were 60 to 69 % instead of 72.
FEW_LABELLED: dict[str, Any] = {
    "model.layers": 1, "model.local": "gcn", "model.glob": "none", "model.smooth": "ends", "model.layer_scale": 0.0,
    "model.norm": "none", "model.head": "linear", "model.embedding_init": "xavier", "model.dropout_input": 0.5,
    "optim.lr": 0.01, "optim.weight_decay": 5e-4, "optim.decay": "l2", "optim.warmup_epochs": 0,
    "spectrum.rwse": 0, "train.epochs": 300, "train.patience": 100,
}  # fmt: skip
WELL_LABELLED: dict[str, Any] = {
    "model.dropout_local": 0.2, "model.dropout_global": 0.2, "model.dropout_ffn": 0.2,
    "optim.lr": 3e-3, "train.epochs": 300, "train.patience": 100,
}  # fmt: skip


def for_one_graph(recipe: Recipe, dataset: "GraphDataset", asked: Sequence[str], say: Callable[[str], None]) -> Recipe:
    """A recipe for own data as it suits one graph whose nodes are predicted, but for the overrides ``asked`` for.

    A step sees all of the graph, so an epoch is one step, and there are many, until validation is no better for long.

    - Few labels (`FEW_LABELS` per class, or fewer), unless neighbours are known to differ: what a node is must be
      learned from its neighbours, and little else can be. The frame of a two-layer GCN, nothing of the layer inside.
    - Else: deeper, with residuals, norms and gates, which also suit neighbours that differ; plain sums instead of
      gates where there are more than `MANY_EDGES` edges.
    """
    train = dataset.splits["train"]
    if dataset.task.level != "node" or train.num_graphs > 1 or train.mask is None:
        return recipe
    labels = int(train.mask.sum())
    classes = dataset.task.outputs if dataset.task.kind == "multiclass" else 2
    few = labels <= FEW_LABELS * classes and not _neighbours_differ(train)
    settings = FEW_LABELLED if few else _well_labelled(train.num_edges)
    why = f"{labels:,} training nodes for {classes} classes, treated as {'few' if few else 'many'}"
    if not few and train.num_edges > MANY_EDGES:
        why += f"; {train.num_edges:,} edges"
    return settled(recipe, settings, asked, say, f"one graph, {why}")


def _well_labelled(edges: int) -> dict[str, Any]:
    return WELL_LABELLED | ({"model.local": "gcn"} if edges > MANY_EDGES else {})


def settled(
    recipe: Recipe, settings: dict[str, Any], asked: Sequence[str], say: Callable[[str], None], why: str
) -> Recipe:
    """A recipe with these settings, but for the overrides ``asked`` for, and a line that says which and ``why``."""
    given = {text.partition("=")[0] for text in asked}
    chosen = [f"{key}={json.dumps(value).strip(chr(34))}" for key, value in settings.items() if key not in given]
    say(f"{why}: {' '.join(chosen)}")
    return recipe.override(chosen)


def _neighbours_differ(train: "FlatGraphs") -> bool:
    """Whether most edges that join two training nodes join different labels, where there are enough to tell."""
    assert train.mask is not None
    rows, seen, same = train.y.reshape(len(train.mask), -1), 0, 0
    for piece in train.edge_index.split(EDGES_AT_ONCE, dim=1):
        source, target = piece.long()
        known = train.mask[source] & train.mask[target] & (source != target)
        seen += int(known.sum())
        same += int((rows[source] == rows[target]).all(1)[known].sum())
    return seen >= ENOUGH_EDGES and 2 * same < seen


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
    own: dict[str, Any] = {"dataset": "own", "file": str(file), "split": split or "random", "scale": "auto"}
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
