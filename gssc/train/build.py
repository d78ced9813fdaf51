"""From a recipe and a dataset to a model and to stores of prepared graphs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.config import ModelConfig, Recipe, SpectrumConfig
from gssc.datasets.flat import FlatGraphs, GraphDataset
from gssc.datasets.negatives import NegativeSampler, are_links
from gssc.model import GSSC
from gssc.spectra import ExpanderGraph, LaplacianSpectrum, RandomWalkSE, prepare_spectra
from gssc.spectra.batched import BATCHED_NODES
from gssc.spectra.cache import CacheArgument
from gssc.spectra.dataset_spectra import PreparedSpectra
from gssc.train.store import GraphStore


def about_data(recipe: Recipe, dataset: GraphDataset) -> dict[str, Any]:
    """What a model must know of its dataset: ``GraphDataset.about()``, and for PNA the degrees of training nodes."""
    about = dataset.about()
    if recipe.model.local == "pna":
        graphs = dataset.splits["train"]
        degrees = torch.bincount(graphs.ends()[1], minlength=graphs.num_nodes)
        about["degree_histogram"] = torch.bincount(degrees).tolist()
    return about


def build_model(recipe: Recipe, about: Mapping[str, Any]) -> GSSC:
    """The model of a recipe for a dataset, described as by `about_data`."""
    arguments = asdict(recipe.model)
    layers, channels = arguments.pop("layers"), arguments.pop("channels")
    return GSSC(
        about["task"]["outputs"],
        channels,
        layers,
        node_features=about["node_features"],
        edge_features=about["edge_features"],
        rwse=recipe.spectrum.rwse,
        level=about["task"]["level"],
        degree_histogram=about.get("degree_histogram"),
        **arguments,
    )


MOST_PARAMETERS = 10**9


def check_weights(recipe: Recipe, about: Mapping[str, Any], weights: Mapping[str, Tensor], where: object) -> None:
    """Fail, before a model is built, unless the weights are those of the model that a recipe describes."""
    layers = {name.split(".")[1] for name in weights if name.startswith("layers.")}
    if len(layers) != recipe.model.layers:
        fail(f"{where}, model.layers", f"{len(layers)}, as there are weights of", recipe.model.layers)
    for side in ("node", "edge"):
        columns = about[f"{side}_features"]
        count = sum(name.startswith(f"{side}_encoder.embeddings.") for name in weights)
        if count != (len(columns) if isinstance(columns, Sequence) else 0):
            fail("dataset.json", f"{count} columns of {side}_features, as there are weights of", columns)
    expected, got = describe_weights(recipe, about), {name: list(tensor.shape) for name, tensor in weights.items()}
    for name in sorted({*expected, *got}):
        if expected.get(name) != got.get(name):
            wanted, found = (str(shapes.get(name, "none")) for shapes in (expected, got))
            fail("run", f"weights of the model that {where} describes, {name} of shape {wanted}", found)


def describe_weights(recipe: Recipe, about: Mapping[str, Any]) -> dict[str, list[int]]:
    """The shapes of a model's tensors by their names, of which none is allocated; fail where they are too large."""
    with torch.device("meta"):
        shapes = {name: list(tensor.shape) for name, tensor in build_model(recipe, about).state_dict().items()}
    count = sum(map(math.prod, shapes.values()))
    if count > MOST_PARAMETERS:
        fail("model", f"at most {MOST_PARAMETERS:,} weights (model.layers, model.channels)", f"{count:,}")
    return shapes


def transforms(spectrum: SpectrumConfig, model: ModelConfig) -> tuple[LaplacianSpectrum | None, RandomWalkSE | None]:
    """What has to be computed for every graph; no spectrum where nothing in the model reads it."""
    wanted = model.glob in ("gssc", "gsc") or model.diagonal_channels > 0 or model.lappe_channels > 0
    settings = asdict(spectrum)
    walks = settings.pop("rwse")
    laplacian = LaplacianSpectrum(**settings)
    return laplacian if wanted else None, RandomWalkSE(walks) if walks else None


def prepare_graphs(
    ordered: FlatGraphs, recipe: Recipe, device: torch.device, cache: CacheArgument, progress: bool = False
) -> PreparedSpectra | None:
    """What the recipe wants to know of graphs whose edges are in order; None where that is nothing."""
    laplacian, walks = transforms(recipe.spectrum, recipe.model)
    if laplacian is None and walks is None:
        return None
    # Small matrices are solved faster by the cores of a CPU than by a GPU's batched solver.
    large = ordered.num_graphs > 0 and int(ordered.ptr.diff().max()) > BATCHED_NODES
    where = device.type if large else "cpu"
    return prepare_spectra(ordered.packed(), laplacian, walks, device=where, cache=cache, progress=progress)


def build_store(
    graphs: FlatGraphs, recipe: Recipe, level: str, device: torch.device, cache: CacheArgument
) -> GraphStore:
    """Spectra and encodings of the graphs, from the cache or computed into it, then everything on the device."""
    ordered = graphs.sorted_by_destination()
    prepared = prepare_graphs(ordered, recipe, device, cache)
    spectra = {} if prepared is None else prepared.attributes()
    if recipe.model.glob == "exphormer":
        spectra["expander"] = ExpanderGraph().rows(ordered.ptr.diff())
    return GraphStore(ordered, spectra, device, level == "node")


def build_stores(
    dataset: GraphDataset, recipe: Recipe, device: torch.device, cache: CacheArgument
) -> dict[str, GraphStore]:
    """A store for every split. Splits of one graph by masks share its spectrum through the cache."""
    level = dataset.task.level
    stores = {split: build_store(graphs, recipe, level, device, cache) for split, graphs in dataset.splits.items()}
    if "train" in stores and are_links(dataset.splits["train"], dataset.task):
        # It draws other negatives in every epoch.
        stores["train"].negatives = NegativeSampler(dataset.splits["train"], recipe.model.ordered_pairs)
    return stores
