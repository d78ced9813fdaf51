"""Which recipes, models and graphs the kernels for small graphs take.

They stand for the whole forward pass of a `GSSC`, so every module of it has to be what they compute. `implemented` says
what that is; a model is compared with it module by module, so that an option that the kernels do not know, of any
layer, is a reason to refuse and never ignored.
"""

from importlib.util import find_spec
from types import NoneType
from typing import Any

import torch
from torch import nn

from gssc.config import Recipe
from gssc.datasets.flat import GraphDataset
from gssc.model import GSSC
from gssc.nn import GINE, GSSCLayer, GSSConv
from gssc.nn.encoders import FeatureEncoder, GraphHead, RandomWalkEncoder
from gssc.nn.layer import FeedForward
from gssc.nn.phi import DeepSetPhi
from gssc.train.build import about_data, build_model
from gssc.train.processes import Processes

MAX_NODES = 64
# Every graph of a batch has gradients of its own, which are added up afterwards.
MOST_GRADIENTS = 2**32
WIDTHS = (16, 32, 64)
MAX_CATEGORIES, MAX_BONDS, MAX_STEPS = 256, 4, 64

# Modules that options are read off, where they are there.
READ = {
    "node_encoder": FeatureEncoder,
    "edge_encoder": FeatureEncoder,
    "rwse_encoder": RandomWalkEncoder,
    "rwse_encoder.linear": nn.Linear,
    "layers.0": GSSCLayer,
    "layers.0.local": GINE,
    "layers.0.glob": GSSConv,
    "layers.0.feed_forward": FeedForward,
    "layers.0.feed_forward.2": nn.Dropout,
    "phi": DeepSetPhi,
    "head": GraphHead,
}
NEEDED = ("layers.0.local", "layers.0.glob", "phi")  # may be left out of a GSSC
INTERNALS = vars(nn.Module()).keys()
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
COMPARED = (bool, int, float, str, tuple, list, dict, set, NoneType)  # by value; others have to be the same object
NOT_COMPARED = {"recompute", "inspector"}  # where memory is saved, results are the same; PyG's own


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
    if recipe.optim.decay != "decoupled":
        return f"optim.decay is {recipe.optim.decay}"
    if config.precision not in ("float32", "tf32"):
        return f"train.precision is {config.precision}"
    if (task.level, task.kind) != ("graph", "regression"):
        return f"the task is not regression of graphs but {task.kind} of {task.level}s"
    with torch.random.fork_rng(devices=[]):
        model = build_model(recipe, about_data(recipe, dataset))
    if (reason := why_not_model(model)) is not None:
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


def why_not_model(model: nn.Module) -> str | None:
    """Why the kernels for small graphs do not take a model, in a few words; None where they do."""
    if type(model) is not GSSC or model.level != "graph":
        return "it does not predict graphs with a GSSC"
    modules: dict[str, Any] = dict.fromkeys(NEEDED) | dict(model.named_modules())
    for name, module in modules.items():
        kind = nn.Embedding if ".embeddings." in name else READ.get(name)
        if kind is not None and type(module) is not kind:
            return f"{name} is a {type(module).__name__}, not a {kind.__name__}"
    channels, phi_channels = modules["layers.0"].channels, modules["phi"].channels
    if channels not in WIDTHS or phi_channels not in WIDTHS:
        return f"its widths are {channels} and {phi_channels}, not of {', '.join(map(str, WIDTHS))}"
    if not 1 <= sum(categories(model.node_encoder)) <= MAX_CATEGORIES:
        return f"nodes do not have at most {MAX_CATEGORIES} categories"
    if not 1 <= bond_types(model) <= MAX_BONDS:
        return f"edges do not have at most {MAX_BONDS} types"
    if model.head.pool == "max":
        return "it pools by the largest number"
    if _head_widths(model)[:-1] != [channels // 2, channels // 4]:
        return "its head does not halve the width twice"
    if model.rwse_encoder is not None and model.rwse_encoder.linear.in_features > MAX_STEPS:
        return f"it reads more than {MAX_STEPS} random-walk steps"
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32:
            return f"its weights are {parameter.dtype}"
        if not parameter.requires_grad:
            return f"{name} is not trained"
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            return f"{name} has hooks"
    if (reason := difference(model, implemented(model))) is not None:
        return reason
    parts = (module for name, module in modules.items() if name.endswith(".local"))
    return "eps of GINE is not zero" if any(float(part.eps) for part in parts) else None


def implemented(model: Any) -> GSSC:
    """The model that the kernels compute in place of one, without memory: its options, read off the first layer."""
    layer, walks = model.layers[0], model.rwse_encoder
    conv = layer.glob
    with torch.device("meta"):
        return GSSC(
            _head_widths(model)[-1],
            layer.channels,
            len(model.layers),
            node_features=categories(model.node_encoder),
            edge_features=None if model.edge_encoder is None else [bond_types(model)],
            rwse=0 if walks is None else walks.linear.in_features,
            rwse_channels=0 if walks is None else walks.linear.out_features,
            local="gine",
            glob="gssc",
            phi=DeepSetPhi(model.phi.channels, len(model.phi.pool)),
            kernel=conv.kernel,
            normalize=conv.normalize,  # nothing without selection
            self_term=conv.self_term,
            degree_scaling=conv.degree_scale is not None,
            out_proj=conv.lin_out is not None,
            degree_init=conv.degree_init,  # by now they are what they are
            dropout_local=layer.dropout_local,
            dropout_global=layer.dropout_global,
            dropout_ffn=layer.feed_forward[2].p,
            norm="batch",
            level="graph",
            pool=model.head.pool,
            head="halving",
        )


def difference(model: nn.Module, expected: nn.Module) -> str | None:
    """The first module, option or parameter in which a model is not as expected, values of weights apart."""
    modules, others = dict(model.named_modules()), dict(expected.named_modules())
    for name in dict.fromkeys([*modules, *others]):
        if name not in modules or name not in others:
            return f"it has no {name}" if name in others else f"they do not know its {name}"
        if (reason := _difference_of_modules(modules[name], others[name])) is not None:
            return f"{name or 'the model'}{reason}"
    for kind in ("named_parameters", "named_buffers"):
        tensors, other_tensors = ({name: tuple(t.shape) for name, t in getattr(m, kind)()} for m in (model, expected))
        if tensors != other_tensors:
            name = min(set(tensors.items()) ^ set(other_tensors.items()))[0]
            return f"{name} is {tensors.get(name, 'missing')}, not {other_tensors.get(name, 'there')}"
    return None


def _difference_of_modules(module: nn.Module, other: nn.Module) -> str | None:
    if type(module) is not type(other):
        return f" is a {type(module).__name__}, not a {type(other).__name__}"
    if any(getattr(module, hooks) for hooks in HOOKS):
        return " has hooks"
    options, other_options = ({k: v for k, v in vars(m).items() if k not in INTERNALS} for m in (module, other))
    for name in dict.fromkeys([*options, *other_options]):
        if name not in options or name not in other_options:
            return f" has no {name}" if name in other_options else f" has a {name} that they do not know"
        value, expected = options[name], other_options[name]
        same = value is expected or (isinstance(value, COMPARED) and value == expected)
        if not same and name not in NOT_COMPARED:
            return f".{name} is not {expected!r}"
    return None


def _head_widths(model: GSSC) -> list[int]:
    """Outputs of the Linears of the head."""
    return [linear.out_features for linear in model.head.modules() if isinstance(linear, nn.Linear)]


def categories(encoder: Any) -> list[int]:
    """Vocabulary sizes of the features that are encoded."""
    return [embedding.num_embeddings for embedding in encoder.embeddings or ()]


def bond_types(model: GSSC) -> int:
    """Number of edge types; 0 where they are not one category."""
    sizes = [1] if model.edge_encoder is None else categories(model.edge_encoder)
    return sizes[0] if len(sizes) == 1 else 0
