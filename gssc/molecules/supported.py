"""Which recipes and graphs the kernels for small graphs take.

They stand for the whole forward pass of the model that a recipe describes, so every key of its section ``model`` has to
be known here: one that is not is a reason to refuse and never ignored.
"""

from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

import torch

from gssc.config import ModelConfig, Recipe
from gssc.datasets.flat import GraphDataset
from gssc.model import GSSC
from gssc.train.build import about_data, build_model
from gssc.train.processes import Processes

MAX_NODES = 64
# Every graph of a batch has gradients of its own, which are added up afterwards.
MOST_GRADIENTS = 2**32
WIDTHS = (16, 32, 64)
MAX_CATEGORIES, MAX_BONDS, MAX_STEPS = 256, 4, 64

# Keys of a recipe's model whose values are all taken ...
TAKEN = {
    "layers", "kernel", "normalize", "self_term", "degree_scaling", "out_proj", "heads", "embedding_init",
    "rwse_channels", "dropout_local", "dropout_global", "dropout_ffn",
}  # fmt: skip
# ... and of which some are: which, and what is said of others.
SOME_TAKEN: dict[str, tuple[tuple[Any, ...], str]] = {
    "local": (("gine",), "its local part is not GINE"),
    "glob": (("gssc",), "its global part is not GSSC"),
    "selective": ((False,), "its global part is not GSSC without selection"),
    "norm": (("batch",), "its norms are not BatchNorms"),
    "phi": (("deepset",), "phi is not a deep set"),
    "channels": (WIDTHS, f"its width is not of {', '.join(map(str, WIDTHS))}"),
    "phi_channels": ((None, *WIDTHS), f"the width of phi is not of {', '.join(map(str, WIDTHS))}"),
    "diagonal_channels": ((0,), "it has a diagonal encoding"),
    "jumping_knowledge": ((False,), "it has jumping knowledge"),
    "pool": (("sum", "mean"), "it has max pooling"),
    "head": (("halving",), "its head does not halve the width twice"),
}


def why_not(recipe: Recipe, dataset: GraphDataset, device: torch.device, processes: Processes) -> str | None:
    """Why the kernels for small graphs do not take a run, in a few words; None where they do."""
    if recipe.train.kernels == "none":
        return "train.kernels is none"
    if device.type != "cuda":
        return "there is no GPU"
    if find_spec("triton") is None:
        return "Triton is not installed"
    if processes.world > 1:
        return "several processes share each step"
    return why_not_run(recipe, dataset, device)


def why_not_run(recipe: Recipe, dataset: GraphDataset, device: torch.device) -> str | None:
    """What speaks against it in the recipe, in its model, or in the graphs it is trained and selected on."""
    config, task = recipe.train, dataset.task
    if not config.capture:
        return "train.capture is false"
    if config.precision not in ("float32", "tf32"):
        return f"train.precision is {config.precision}"
    if torch.get_default_dtype() != torch.float32:
        return f"its weights are {torch.get_default_dtype()}"
    if (task.level, task.kind) != ("graph", "regression"):
        return f"the task is not regression of graphs but {task.kind} of {task.level}s"
    reason = why_not_model(recipe.model)
    if reason is not None:
        return reason
    with torch.device("meta"):
        model = build_model(recipe, about_data(recipe, dataset))
    if not 1 <= sum(categories(model)) <= MAX_CATEGORIES:
        return f"nodes do not have at most {MAX_CATEGORIES} categories"
    if not 1 <= bond_types(model) <= MAX_BONDS:
        return f"edges do not have at most {MAX_BONDS} types"
    if recipe.spectrum.rwse > MAX_STEPS:
        return f"it reads more than {MAX_STEPS} random-walk steps"
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


def why_not_model(config: ModelConfig) -> str | None:
    """Why the kernels for small graphs do not take a recipe's model, in a few words; None where they do."""
    for key, value in asdict(config).items():
        values, reason = SOME_TAKEN.get(key, ((), f"they do not know model.{key}"))
        if key not in TAKEN and value not in values:
            return reason
    return None


def categories(model: GSSC) -> list[int]:
    """Vocabulary sizes of the node features."""
    return _vocabularies(model.node_encoder)


def bond_types(model: GSSC) -> int:
    """Number of edge types; 0 where they are not one category."""
    sizes = [1] if model.edge_encoder is None else _vocabularies(model.edge_encoder)
    return sizes[0] if len(sizes) == 1 else 0


def _vocabularies(encoder: Any) -> list[int]:
    return [embedding.num_embeddings for embedding in encoder.embeddings or ()]
