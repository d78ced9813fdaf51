"""The launches of ``per_graph.py`` as two torch.library ops: forward, and its derivatives.

Both see sizes of tensors alone. Tensors of pairs are [·, G, K, K] with channels first.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gssc.ops.triton_support import power_of_two, wants_exact

ROWS = 32  # nodes of a block
WARPS = {16: 1, 32: 2, 64: 8}  # by the size of a block of frequencies


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
        kernel[grid](*arguments, self.graphs, **sizes, **flags, num_warps=WARPS[block], num_stages=1)


@torch.library.custom_op("gssc::select", mutates_args=())
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


@torch.library.custom_op("gssc::select_backward", mutates_args=())
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
    found = [d_x, d_phi, d_pair, d_dv.to(dv.dtype), d_turns.to(turns.dtype)]
    return found + [part for part in (d_o, d_s) if part is not None]


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
    given = [t for t in (x, phi, pair_gains, dv, turns, x_o, x_s) if t is not None]
    return [t.new_empty(t.shape) for t in given]
