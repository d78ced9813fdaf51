"""What the layers of a model are given when it looks at a graph, without changing the model."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from gssc.checks import fail
from gssc.model import GSSC, model_inputs
from gssc.nn import GraphContext, GSSCLayer, GSSConv
from gssc.nn.norm import in_eval_mode
from gssc.ops import degree_scale


class ConvolutionInputs(NamedTuple):
    """The arguments of a ``GSSConv`` inside a model, features already scaled by degree."""

    x: Tensor  # [N, C]
    phi: Tensor  # [1, K, c]
    vectors: Tensor  # [N, K]
    context: GraphContext


def check_graph(model: GSSC, data: Data) -> int:
    """The number of nodes of one graph, on the device of the model."""
    if not isinstance(model, GSSC):
        fail("model", "a gssc.GSSC", type(model).__name__)
    if getattr(data, "batch", None) is not None and data.num_graphs != 1:
        fail("data", "one graph", f"a batch of {data.num_graphs}")
    place = next(model.parameters()).device
    if data.edge_index is not None and data.edge_index.device != place:
        fail("data", f"a graph on the device of the model, {place}", str(data.edge_index.device))
    return int(data.num_nodes or 0)


def bare_graph(inputs: Mapping[str, Any], nodes: int) -> Data:
    """A graph with what a model reads of it and nothing else."""
    names = ("x", "edge_index", "eigvals", "eigvecs", "eigmask", "edge_attr", "rwse")
    data = Data(**{name: inputs[name] for name in names if inputs.get(name) is not None})
    data.num_nodes = nodes
    return data


def check_number(name: str, number: int, count: int, what: str) -> int:
    """``number`` as an index of ``count`` things, counted from 0 (or, if negative, from the end)."""
    if isinstance(number, bool) or not isinstance(number, int) or not -count <= number < count:
        fail(name, f"{what} of 0..{count - 1}" if count else f"{what}, of which there is none", number)
    return number % count


def layers_of(model: GSSC) -> list[GSSCLayer]:
    """The layers, by their type."""
    return [layer for layer in model.layers if isinstance(layer, GSSCLayer)]


def watch_convolution(model: GSSC, data: Data, layer: int) -> tuple[GSSConv, ConvolutionInputs]:
    """The convolution of a layer and what it is given for this graph, in evaluation mode and without gradients."""
    conv = layers_of(model)[check_number("layer", layer, len(model.layers), "a layer")].glob
    if not isinstance(conv, GSSConv):
        fail("model", "one with a graph state space convolution (glob gssc or gsc)", f"glob={model.glob}")
    seen: list[ConvolutionInputs] = []

    def look(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x, phi, vectors = args[:3]
        context = kwargs["context"]
        if conv.degree_scale is not None and conv.degree_log_scale is not None:
            x = degree_scale(x, conv.degree_scale, conv.degree_log_scale, context.degree)
        seen.append(ConvolutionInputs(x, phi, vectors, context))

    hook = conv.register_forward_pre_hook(look, with_kwargs=True)
    try:
        with in_eval_mode(model), torch.no_grad():
            model(**model_inputs(data))
    finally:
        hook.remove()
    return conv, seen[0]
