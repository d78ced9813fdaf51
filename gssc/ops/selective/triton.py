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
is transposed, reduced across programs or read by the host, so that results repeat and steps can be captured. Graphs
with thousands of nodes have too few programs for it: those take the composition, and so do kernels that all channels
share, more than 64 frequencies, gradients of P, whoever differentiates a gradient, and modules that must be called.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gssc.ops.graph_sums import triton as sums
from gssc.ops.launch import launch
from gssc.ops.op import composed_gradients, op
from gssc.ops.selective import torch as composition
from gssc.ops.triton_support import exporting, power_of_two, wants_exact

TRITON = composition.Products(sums.to_state, sums.from_state, sums.pairs_to_state, sums.pairs_from_state)
MAX_FREQUENCIES = 64
MEAN_NODES = 256  # of a graph, at most
ROWS = 32  # nodes of a block
WARPS = {16: 1, 32: 2, 64: 8}  # by the size of a block of frequencies


def fits(x: Tensor, vectors: Tensor, ptr: Tensor, shared: bool) -> bool:
    """Whether these kernels are the right ones: small graphs, a kernel per channel, no gradient of P."""
    nodes, k = vectors.shape
    graphs, channels = ptr.shape[0] - 1, x.shape[1]
    if shared or vectors.requires_grad or not 1 <= k <= MAX_FREQUENCIES or exporting():
        return False
    return 0 < nodes <= MEAN_NODES * graphs and channels > 0


@dataclass(frozen=True)
class _Plan:
    """Sizes of the launches: numbers only, made without a look at ``ptr``."""

    nodes: int
    graphs: int
    k: int
    c: int
    exact: bool

    def over_nodes(self, kernel: Any, *tensors: Tensor | None, **flags: bool) -> None:
        precision = "tf32x3" if self.exact else "tf32"
        self._launch(kernel, *tensors, self.nodes, BLOCK_N=ROWS, PRECISION=precision, **flags)

    def over_pairs(self, kernel: Any, *tensors: Tensor | None, **flags: bool) -> None:
        self._launch(kernel, *tensors, **flags)

    def _launch(self, kernel: Any, *arguments: Any, **flags: Any) -> None:
        block, grid = power_of_two(self.k, 16), (self.graphs * self.c,)
        sizes = {"K": self.k, "C": self.c, "BLOCK_K": block}
        launch(kernel, grid, *arguments, self.graphs, **sizes, **flags, num_warps=WARPS[block], num_stages=1)


@op("gssc::select")
def select(
    x: Tensor,
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    phi: Tensor,
    pair_gains: Tensor,
    dv: Tensor,
    turns: Tensor,
    ptr: Tensor,
    normalize: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """H [N, C], and for backward E, V, T, T_a in ``dtype`` and k_valid [G]."""
    from gssc.ops.selective import kernels

    plan = _plan(x, x_o, x_s, vectors, ptr)
    encoded = x.new_empty((plan.c, plan.graphs, plan.k, plan.k), dtype=dtype)
    counts = x.new_empty(plan.graphs, dtype=torch.float32)
    vectors, ptr = vectors.contiguous(), ptr.contiguous()
    plan.over_nodes(kernels.encode_forward, x.contiguous(), vectors, phi.contiguous(), ptr, encoded, counts)
    value = _product(dv.to(dtype), encoded)
    tensor = torch.empty_like(value)
    plan.over_pairs(kernels.tame_forward, value, pair_gains.contiguous(), counts, tensor, NORM=normalize)
    turned = _product(turns.to(dtype), tensor)
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    inputs = (_contiguous(x_o), _contiguous(x_s), vectors, ptr, turned, out)
    plan.over_nodes(kernels.mix_forward, *inputs, HAS_GLOBAL=x_o is not None, HAS_SELF=x_s is not None)
    return out, encoded, value, tensor, turned, counts


@op("gssc::select_backward")
def select_backward(
    grad: Tensor,
    x: Tensor,
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    phi: Tensor,
    pair_gains: Tensor,
    dv: Tensor,
    turns: Tensor,
    ptr: Tensor,
    normalize: bool,
    encoded: Tensor,
    value: Tensor,
    tensor: Tensor,
    turned: Tensor,
    counts: Tensor,
) -> list[Tensor]:
    """∂x, ∂Φ, ∂D, ∂W_dv, ∂W_a, then ∂X_o and ∂X_s where these are given. Not differentiable."""
    from gssc.ops.selective import kernels

    plan = _plan(grad, x_o, x_s, vectors, ptr)
    x_o, x_s, vectors, ptr = _contiguous(x_o), _contiguous(x_s), vectors.contiguous(), ptr.contiguous()
    d_o, d_s = (None if part is None else torch.empty_like(part) for part in (x_o, x_s))
    d_turned = torch.empty_like(turned)
    inputs = (grad.contiguous(), x_o, x_s, vectors, ptr, turned, d_o, d_s, d_turned)
    plan.over_nodes(kernels.mix_backward, *inputs, HAS_GLOBAL=x_o is not None, HAS_SELF=x_s is not None)
    d_turns = _weight_gradient(d_turned, tensor)
    d_tensor = _product(turns.to(tensor.dtype).t(), d_turned)
    pair_gains, phi, x = pair_gains.contiguous(), phi.contiguous(), x.contiguous()
    d_value, d_pair, d_phi = torch.empty_like(value), torch.empty_like(pair_gains), torch.empty_like(phi)
    plan.over_pairs(kernels.tame_backward, d_tensor, value, pair_gains, counts, d_value, d_pair, NORM=normalize)
    d_dv = _weight_gradient(d_value, encoded)
    d_encoded, d_x = _product(dv.to(value.dtype).t(), d_value), torch.empty_like(x)
    plan.over_nodes(kernels.encode_backward, d_encoded, x, vectors, phi, ptr, d_x, d_phi)
    gradients = [d_x, d_phi, d_pair, d_dv.to(dv.dtype), d_turns.to(turns.dtype)]
    return gradients + [part for part in (d_o, d_s) if part is not None]


def _plan(x: Tensor, x_o: Tensor | None, x_s: Tensor | None, vectors: Tensor, ptr: Tensor) -> _Plan:
    nodes, k = vectors.shape
    return _Plan(nodes, ptr.shape[0] - 1, k, x.shape[1], wants_exact(x, x_o, x_s, vectors))


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _product(weight: Tensor, pairs: Tensor) -> Tensor:
    """W T over channels, which come first: [D, C], [C, G, K, K] -> [D, G, K, K]."""
    with torch.autocast(pairs.device.type, enabled=False):
        return torch.mm(weight, pairs.flatten(1)).view(weight.shape[0], *pairs.shape[1:])


def _weight_gradient(grad: Tensor, pairs: Tensor) -> Tensor:
    """∂W of the product above, [D, C]."""
    with torch.autocast(pairs.device.type, enabled=False):
        return torch.mm(grad.flatten(1), pairs.flatten(1).t())


@select.register_fake
def _(
    x: Tensor,
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    phi: Tensor,
    pair_gains: Tensor,
    dv: Tensor,
    turns: Tensor,
    ptr: Tensor,
    normalize: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    graphs, k, c = phi.shape
    encoded, value, tensor = (x.new_empty((c, graphs, k, k), dtype=dtype) for _ in range(3))
    turned = x.new_empty((turns.shape[0], graphs, k, k), dtype=dtype)
    return x.new_empty(x.shape), encoded, value, tensor, turned, x.new_empty(graphs, dtype=torch.float32)


@select_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    phi: Tensor,
    pair_gains: Tensor,
    dv: Tensor,
    turns: Tensor,
    ptr: Tensor,
    normalize: bool,
    encoded: Tensor,
    value: Tensor,
    tensor: Tensor,
    turned: Tensor,
    counts: Tensor,
) -> list[Tensor]:
    inputs = (x, phi, pair_gains, dv, turns, x_o, x_s)
    return [tensor.new_empty(tensor.shape) for tensor in inputs if tensor is not None]


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
    gradients = iter(select_backward(grad, *inputs, ctx.normalize, *kept))
    for place in (0, 4, 5, 6, 7, 1, 2):
        if inputs[place] is not None:
            answers[place] = next(gradients)
    return tuple(answers)


def _differentiable_gradients(ctx: Any, inputs: tuple[Any, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
    """Gradients as functions of inputs and ``grad``, by way of the composition."""

    def composed(
        x: Tensor,
        x_o: Tensor | None,
        x_s: Tensor | None,
        vectors: Tensor,
        phi: Tensor,
        pair_gains: Tensor,
        dv: Tensor,
        turns: Tensor,
        ptr: Tensor,
    ) -> Tensor:
        names = _turn_names(x_o, x_s)
        weights = {"dv": dv, **dict(zip(names, turns.chunk(len(names)), strict=True))}
        with torch.autocast(x.device.type, dtype=ctx.dtype, enabled=ctx.dtype != torch.float32):
            return composition.selective_gssc_conv(
                x, x_o, x_s, vectors, phi, pair_gains, weights, ptr, False, ctx.normalize, by=TRITON
            )

    return (*composed_gradients(composed, inputs, ctx.needs_input_grad[:9], grad), None, None)


select.register_autograd(_backward, setup_context=_setup)


def selective_gssc_conv(
    x: Tensor,
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    phi: Tensor,
    pair_gains: Tensor,
    weights: Mapping[str, Tensor | nn.Module],
    ptr: Tensor,
    shared: bool,
    normalize: bool,
) -> Tensor:
    """Arguments as in ``gssc.ops.selective_gssc_conv``; matrix products as autocast has them."""
    inputs = (x, x_o, x_s, vectors, phi, pair_gains)
    tensors = {name: weight for name, weight in weights.items() if isinstance(weight, Tensor)}
    if len(tensors) != len(weights) or not fits(x, vectors, ptr, shared):
        return composition.selective_gssc_conv(*inputs, weights, ptr, shared, normalize, by=TRITON)
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.float32
    turns = torch.cat([tensors[name] for name in _turn_names(x_o, x_s)])
    out: Tensor = select(*inputs, tensors["dv"], turns, ptr, normalize, dtype)[0]
    return out


def _turn_names(x_o: Tensor | None, x_s: Tensor | None) -> list[str]:
    """Names of the weights that turn T into T_a, in the order in which they are stacked."""
    return (["q", "k"] if x_o is not None else []) + (["sq", "sk"] if x_s is not None else [])
