"""Selection of many small graphs in five launches forward and seven backward; equations in ``eager.py``.

    forward     1  E = M ⊙ Φ_k                    [C, G, K, K], from the nodes
                2  V = W_dv E                     a matrix product, channels first
                3  T = V ⊙ D_j, tamed
                4  T_a = W_a T                    one product with the weights q, k, sq, sk stacked, [4C, G, K, K]
                5  H                              to the nodes
    backward    the same the other way round, with two more products for the gradients of weights

A program of 1, 3 and 5 does all that concerns one channel of one graph, with its matrix [K, K] in registers: nothing
is transposed, reduced across programs or read by the host, so that results repeat and steps can be captured. Graphs
with thousands of nodes have too few programs for it: those take the composition of products in ``fused.py``, and so
does whoever differentiates a gradient.
"""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.apart import apart
from gssc.ops.graph_sums import triton as fused
from gssc.ops.selective import torch as eager
from gssc.ops.selective.launch import select, select_backward
from gssc.ops.triton_support import exporting

FUSED = eager.Products(fused.to_state, fused.from_state, fused.pairs_to_state, fused.pairs_from_state)
MAX_FREQUENCIES = 64
MEAN_NODES = 256  # of a graph, at most


def fits(x: Tensor, vectors: Tensor, ptr: Tensor, shared: bool) -> bool:
    """Whether these kernels are the right ones: small graphs, a kernel per channel, no gradient of P."""
    nodes, k = vectors.shape
    graphs, channels = ptr.shape[0] - 1, x.shape[1]
    if shared or vectors.requires_grad or not 1 <= k <= MAX_FREQUENCIES or exporting():
        return False
    return 0 < nodes <= MEAN_NODES * graphs and channels > 0


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.normalize, ctx.dtype = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, *others: Tensor | None) -> tuple[Tensor | None, ...]:
    inputs, kept = ctx.saved_tensors[:9], ctx.saved_tensors[9:]
    answers: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
    if grad is None:
        return tuple(answers)
    if torch.is_grad_enabled():  # somebody will differentiate the result
        return _differentiable_gradients(ctx, inputs, grad)
    found = iter(select_backward(grad, *inputs, ctx.normalize, *kept))
    for place in (0, 4, 5, 6, 7, 1, 2):
        if inputs[place] is not None:
            answers[place] = next(found)
    return tuple(answers)


def _differentiable_gradients(ctx: Any, inputs: tuple[Any, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients as functions of inputs and ``grad``, by way of the composition."""
    tensors = apart(inputs[:8])
    x, x_o, x_s, vectors, phi, pair_gains, dv, turns = tensors
    names = _turn_names(x_o, x_s)
    weights = {"dv": dv, **dict(zip(names, turns.chunk(len(names)), strict=True))}
    with torch.autocast(x.device.type, dtype=ctx.dtype, enabled=ctx.dtype != torch.float32):
        out = eager.selective_gssc_conv(
            x, x_o, x_s, vectors, phi, pair_gains, weights, inputs[8], False, ctx.normalize, by=FUSED
        )
    wanted = {place: t for place, t in enumerate(tensors) if ctx.needs_input_grad[place]}
    found = torch.autograd.grad(out, list(wanted.values()), grad, create_graph=True)
    answers: list[Tensor | None] = [None] * len(ctx.needs_input_grad)
    for place, value in zip(wanted, found, strict=True):
        answers[place] = value
    return tuple(answers)


select.register_autograd(_backward, setup_context=_setup)


def selective_gssc_conv(
    x: Tensor,
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    phi: Tensor,
    pair_gains: Tensor,
    weights: dict[str, Tensor],
    ptr: Tensor,
    normalize: bool,
) -> Tensor:
    """Selection with a kernel per channel, where ``fits`` says so; matrix products as autocast has them."""
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    turns = torch.cat([weights[name] for name in _turn_names(x_o, x_s)])
    out: Tensor = select(x, x_o, x_s, vectors, phi, pair_gains, weights["dv"], turns, ptr, normalize, dtype)[0]
    return out


def _turn_names(x_o: Tensor | None, x_s: Tensor | None) -> list[str]:
    """Names of the weights that turn T into T_a, in the order in which they are stacked."""
    return (["q", "k"] if x_o is not None else []) + (["sq", "sk"] if x_s is not None else [])
