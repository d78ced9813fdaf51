"""Selection in Triton: kernels per graph and channel where graphs are small, else the composition of products.

The composition is ``torch.py``, which has the equations, with the products of Triton. Many small graphs take five
launches forward and seven backward:

    forward     1  E = M ⊙ Φ_k                    [C, G, K, K], from the nodes
                2  V = W_dv E                     a matrix product, channels first
                3  T = V ⊙ D_j, tamed
                4  T_a = W_a T                    one product with the weights q, k, sq, sk stacked, [4C, G, K, K]
                5  H                              to the nodes
    backward    the same the other way round, with two more products for the gradients of weights

A program of 1, 3 and 5 does all that concerns one channel of one graph, with its matrix [K, K] in registers: nothing
is transposed, reduced across programs or read by the host, so that results repeat and steps can be captured. What
does not fit, whoever differentiates a gradient, and modules that must be called take the composition.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gssc.ops.graph_sums import triton as sums
from gssc.ops.launch import contiguous, kernels_of, launch
from gssc.ops.op import composed_gradients, op
from gssc.ops.selective import torch as composition
from gssc.ops.selective.naive import Weights, turn_names
from gssc.ops.triton_support import exporting, power_of_two, wants_exact

MAX_FREQUENCIES = 64
MEAN_NODES = 256  # of a graph, at most
ROWS = 32  # nodes of a block
WARPS = {16: 1, 32: 2, 64: 8}  # by the size of a block of frequencies


def fits(x: Tensor, vectors: Tensor, ptr: Tensor, shared: bool) -> bool:
    """Whether these kernels are the right ones: graphs of which there are enough, a kernel per channel, no ∂P."""
    nodes, k = vectors.shape
    graphs, channels = ptr.shape[0] - 1, x.shape[1]
    if shared or vectors.requires_grad or not 1 <= k <= MAX_FREQUENCIES or exporting():
        return False
    return 0 < nodes <= MEAN_NODES * graphs and channels > 0


def _launch(
    graphs: int, k: int, c: int, kernel: Any, *tensors: Any, nodes: int | None = None, **constants: Any
) -> None:
    """One program per channel and graph: sizes are numbers that are known without a look at ``ptr``."""
    block = power_of_two(k, 16)
    launch(
        kernel, (graphs * c,), *tensors, numbers=(graphs,) if nodes is None else (nodes, graphs),
        K=k, C=c, BLOCK_K=block, **constants, num_warps=WARPS[block], num_stages=1,
    )  # fmt: skip


def _node_blocks(*factors: Tensor | None) -> dict[str, Any]:
    """How kernels that pass over nodes take and multiply them."""
    return {"BLOCK_N": ROWS, "PRECISION": "tf32x3" if wants_exact(*factors) else "tf32"}


def _product(left: Tensor, right: Tensor) -> Tensor:
    """The product of two matrices in their own dtype, whatever autocast says."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right


@op("gssc::select")
def select(
    x: Tensor, x_o: Tensor | None, x_s: Tensor | None, phi: Tensor, pair_gains: Tensor, dv: Tensor, turns: Tensor,
    vectors: Tensor, ptr: Tensor, normalize: bool, dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """H [N, C], and for backward E, V, T, T_a in ``dtype``, channels times pairs of all graphs, and k_valid [G]."""
    kernels = kernels_of("selective")
    (graphs, k, c), nodes = phi.shape, x.shape[0]
    run, blocks = partial(_launch, graphs, k, c), _node_blocks(x, x_o, x_s, vectors)
    encoded = x.new_empty((c, graphs * k**2), dtype=dtype)
    counts = x.new_empty(graphs, dtype=torch.float32)
    run(kernels.encode_forward, x, vectors, phi, ptr, encoded, counts, nodes=nodes, **blocks)
    value = _product(dv.to(dtype), encoded)
    tensor, out = torch.empty_like(value), torch.empty_like(x)
    run(kernels.tame_forward, value, pair_gains, counts if normalize else None, tensor)
    turned = _product(turns.to(dtype), tensor)
    run(kernels.mix_forward, x_o, x_s, vectors, ptr, turned, out, nodes=nodes, **blocks)
    return out, encoded, value, tensor, turned, counts


@select.register_fake
def _(x: Tensor, x_o: Any, x_s: Any, phi: Tensor, pair_gains: Any, dv: Any, turns: Tensor, *others: Any) -> Any:
    (graphs, k, c), dtype = phi.shape, others[-1]
    encoded, value, tensor, turned = (
        x.new_empty((rows, graphs * k**2), dtype=dtype) for rows in (c, c, c, turns.shape[0])
    )
    return x.new_empty(x.shape), encoded, value, tensor, turned, x.new_empty(graphs, dtype=torch.float32)


@op("gssc::select_backward")
def select_backward(
    grad: Tensor, inputs: Sequence[Tensor | None], results: Sequence[Tensor], normalize: bool
) -> list[Tensor]:
    """Gradients of what ``select`` was given, up to W_a: those that are there. Not differentiable."""
    kernels = kernels_of("selective")
    tensors: Any = inputs
    x, x_o, x_s, phi, pair_gains, dv, turns, vectors, ptr = tensors
    encoded, value, tensor, turned, counts = results
    (graphs, k, c), nodes = phi.shape, x.shape[0]
    run, blocks = partial(_launch, graphs, k, c), _node_blocks(grad, x_o, x_s, vectors)
    gradients = [None if part is None else torch.empty_like(part) for part in (x, x_o, x_s, phi, pair_gains)]
    d_x, d_o, d_s, d_phi, d_pair = gradients
    d_turned, d_value, taming = torch.empty_like(turned), torch.empty_like(value), counts if normalize else None
    mixed = (grad.contiguous(), x_o, x_s, vectors, ptr, turned, d_o, d_s, d_turned)
    run(kernels.mix_backward, *mixed, nodes=nodes, **blocks)
    d_tensor = _product(turns.to(tensor.dtype).t(), d_turned)
    run(kernels.tame_backward, d_tensor, value, pair_gains, taming, d_value, d_pair)
    d_encoded = _product(dv.to(value.dtype).t(), d_value)
    run(kernels.encode_backward, d_encoded, x, vectors, phi, ptr, d_x, d_phi, nodes=nodes, **blocks)
    gradients += [_product(d_value, encoded.t()).to(dv.dtype), _product(d_turned, tensor.t()).to(turns.dtype)]
    return [gradient for gradient in gradients if gradient is not None]


@select_backward.register_fake
def _(grad: Tensor, inputs: Sequence[Tensor | None], *_: Any) -> list[Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor in inputs[:7] if tensor is not None]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.normalize, ctx.dtype = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 11
    saved = ctx.saved_tensors
    inputs, (vectors, ptr), results = saved[:7], saved[7:9], saved[9:]

    def composed(x: Tensor, x_o: Any, x_s: Any, phi: Tensor, pair_gains: Tensor, dv: Tensor, turns: Tensor) -> Tensor:
        names = turn_names(x_o, x_s)
        weights = {"dv": dv, **dict(zip(names, turns.chunk(len(names)), strict=True))}
        with torch.autocast(x.device.type, dtype=ctx.dtype, enabled=ctx.dtype != torch.float32):
            tensors = (x, x_o, x_s, vectors, phi, pair_gains, weights, ptr)
            return composition.selective_gssc_conv(*tensors, False, ctx.normalize, by=sums)

    if torch.is_grad_enabled():  # somebody will differentiate the result
        return composed_gradients(composed, inputs, ctx.needs_input_grad, grad)
    gradients = iter(select_backward(grad, (*inputs, vectors, ptr), results, ctx.normalize))
    return (*[None if tensor is None else next(gradients) for tensor in inputs], *[None] * 4)


select.register_autograd(_backward, setup_context=_setup)


def selective_gssc_conv(
    x: Tensor, x_o: Tensor | None, x_s: Tensor | None, vectors: Tensor, phi: Tensor, pair_gains: Tensor,
    weights: Weights, ptr: Tensor, shared: bool, normalize: bool,
) -> Tensor:  # fmt: skip
    """Arguments as in ``gssc.ops.selective_gssc_conv``; matrix products as autocast has them."""
    tensors = [weight for weight in weights.values() if isinstance(weight, Tensor)]
    if len(tensors) != len(weights) or not fits(x, vectors, ptr, shared):
        inputs = (x, x_o, x_s, vectors, phi, pair_gains, weights, ptr, shared, normalize)
        return composition.selective_gssc_conv(*inputs, by=sums)
    dv, *turns = tensors
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    *features, vectors, ptr = contiguous(x, x_o, x_s, phi, pair_gains, vectors, ptr)
    return select(*features, dv, torch.cat(turns), vectors, ptr, normalize, dtype)[0]
