"""Which recipes, models and graphs the kernels for small graphs take."""

import torch

from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.molecules.data import MAX_NODES
from gssc.molecules.supported import why_not_model
from gssc.train.build import about_data, build_model

# Every graph of a batch has gradients of its own, which are added up afterwards.
MOST_GRADIENTS = 2**32


def why_not_run(recipe: Recipe, dataset: GraphDataset, device: torch.device) -> str | None:
    """What speaks against it in the recipe, in its model, or in the graphs it is trained and selected on."""
    config, task = recipe.train, dataset.task
    if not config.capture:
        return "train.capture is false"
    if config.precision not in ("float32", "tf32"):
        return f"train.precision is {config.precision}"
    if (task.level, task.kind) != ("graph", "regression"):
        return f"the task is not regression of graphs but {task.kind} of {task.level}s"
    with torch.random.fork_rng(devices=[]):
        model = build_model(recipe, about_data(recipe, dataset))
    reason = why_not_model(model)
    if reason is not None:
        return reason
    parameters = sum(parameter.numel() for parameter in model.parameters())
    if config.batch_size * parameters > MOST_GRADIENTS:
        return f"batches of {config.batch_size} graphs are too large"
    for split in ("train", "val"):
        graphs = dataset.splits[split]
        most = int(graphs.ptr.diff().max()) if graphs.num_graphs else 0
        if not 1 <= most <= MAX_NODES:
            return f"graphs have up to {most} nodes, not {MAX_NODES}"
        if graphs.mask is not None:
            return "only some targets count"
        starts = graphs.ptr[:-1].repeat_interleave(graphs.edge_ptr.diff()).to(device)
        source, target = graphs.edge_index.to(device)
        if torch.unique((starts + target) * MAX_NODES + source).numel() < graphs.num_edges:
            return "two edges join the same nodes"
    return None
