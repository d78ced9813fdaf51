"""Which runs the kernels for small graphs take, and a store as they read it."""

from importlib.util import find_spec

import torch
from torch import Tensor

from gssc.config import Recipe
from gssc.datasets.flat import FlatGraphs, GraphDataset
from gssc.model import GSSC
from gssc.molecules.data import MAX_NODES, MoleculeData, pack_molecules
from gssc.molecules.supported import categories, why_not_model
from gssc.tasks import Task
from gssc.train.build import about_data, build_model
from gssc.train.processes import Processes
from gssc.train.store import GraphStore

# Every graph of a batch has gradients of its own, which are added up afterwards.
MOST_GRADIENTS = 2**32


def why_not_run(recipe: Recipe, dataset: GraphDataset, device: torch.device, processes: Processes) -> str | None:
    """Why the kernels for small graphs do not take a run, in a few words; None where they do."""
    config, task = recipe.train, dataset.task
    if config.kernels == "none":
        return "train.kernels is none"
    if device.type != "cuda":
        return "there is no GPU"
    if find_spec("triton") is None:
        return "Triton is not installed"
    if processes.world > 1:
        return "several processes share each step"
    return why_not_recipe(recipe, task) or why_not_data(recipe, dataset, device)


def why_not_recipe(recipe: Recipe, task: Task) -> str | None:
    """What speaks against it in the recipe."""
    config = recipe.train
    if not config.capture:
        return "train.capture is false"
    if config.precision not in ("float32", "tf32"):
        return f"train.precision is {config.precision}"
    if (task.level, task.kind) != ("graph", "regression"):
        return f"the task is not regression of graphs but {task.kind} of {task.level}s"
    return None


def why_not_data(recipe: Recipe, dataset: GraphDataset, device: torch.device) -> str | None:
    """What speaks against it in the model or in the graphs it is trained and selected on."""
    with torch.random.fork_rng(devices=[]):
        model = build_model(recipe, about_data(recipe, dataset))
    reason = why_not_model(model)
    if reason is not None:
        return reason
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if recipe.train.batch_size * parameters > MOST_GRADIENTS:
        return f"batches of {recipe.train.batch_size} graphs are too large"
    for split in ("train", "val"):
        graphs = dataset.splits[split]
        most = int(graphs.ptr.diff().max()) if graphs.num_graphs else 0
        if not 1 <= most <= MAX_NODES:
            return f"graphs have up to {most} nodes, not {MAX_NODES}"
        if graphs.mask is not None:
            return "only some targets count"
        if _has_parallel_edges(graphs, device):
            return "two edges join the same nodes"
    return None


def _has_parallel_edges(graphs: FlatGraphs, device: torch.device) -> bool:
    starts = graphs.ptr[:-1].repeat_interleave(graphs.edge_ptr.diff()).to(device)
    source, target = graphs.edge_index.to(device)
    return torch.unique((starts + target) * MAX_NODES + source).numel() < graphs.num_edges


def molecule_data(store: GraphStore, model: GSSC, task: Task) -> MoleculeData:
    """The graphs of a store, with what the model reads of them and targets as it predicts them."""
    tensors = {**store.of_nodes, **store.of_edges, **store.of_graphs}
    if model.edge_encoder is None:
        tensors.pop("edge_attr", None)
    if model.rwse_encoder is None:
        tensors.pop("rwse", None)
    shift, scale = (
        torch.as_tensor(value, dtype=store.y.dtype, device=store.device) for value in (task.shift, task.scale)
    )
    targets: Tensor = (store.y - shift) / scale
    return pack_molecules(store.ptr, store.edge_ptr, store.edge_index, targets, categories(model), tensors)
