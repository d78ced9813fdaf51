"""The graph state space convolution of a packed batch of graphs, and what it is made of: features and gains."""

from collections.abc import Callable, Sequence
from functools import partial
from operator import add, attrgetter
from typing import Any

import torch.nn.functional as F
from torch import Tensor, bmm, nn, stack

from gssc.checks import check_choice, check_shape, fail
from gssc.ops.conv import naive as _naive
from gssc.ops.conv import torch as _torch
from gssc.ops.conv import triton as _triton
from gssc.ops.graph_sums import from_state, to_state
from gssc.ops.linears import MERGED, mergeable, op_of_linears
from gssc.ops.op import unmodified
from gssc.ops.triton_support import can_fuse, check_fusible

__all__ = ["conv_features", "conv_of_linears", "frequency_gains", "gssc_conv", "joint_frequency_gains"]

Projection = nn.Module | Tensor | None
Reduce = Callable[[Tensor], Callable[[], Tensor]]
# Each gives H, and what else it has made.
FORMS: dict[str, Callable[..., Any]] = {"naive": _naive.conv, "torch": _torch.conv, "triton": _triton.conv_triton}
LARGEST = 1 << 23  # numbers of the products of all layers; where there are more, a GPU is busy with one layer


def gssc_conv(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    *,
    projection: Projection = None,
    backend: str = "auto",
    reduce: Reduce | None = None,
) -> Tensor:
    r"""Graph state space convolution of a packed batch of graphs (Eq. 4 of arXiv 2406.05815, collapsed).

    .. math:: H = \mathrm{projection}(P (A \odot P^\top X_o)) + ((P \odot P) A_s) \odot X_s

    Time and memory are linear in the number of nodes. Graphs may have any size, also zero, and the batch may be empty.
    Differentiable twice in every input but ``ptr``.

    Args:
        x_o: Features that the global term mixes, [N, C]; ``None`` (with ``gains``) leaves the global term out.
        x_s: Features that the self term scales, [N, C]; ``None`` (with ``self_gains``) leaves the self term out.
        vectors: Eigenvectors P, zero where padded, [N, K].
        gains: A per graph, frequency and channel, [G, K, C], or [G, K, 1] shared by all channels.
        self_gains: A_s likewise.
        ptr: First node of every graph and, last, N: [G + 1].
        projection: A module [N, C] -> [N, C] after the global term, say a Linear; ``None`` for none. A tensor [C] is
            what ``conv_features`` has left of one, a bias.
        backend: ``"torch"`` (collapsed), ``"triton"`` (the same in two passes over memory, on a GPU), ``"naive"`` (the
            double sum over pairs of nodes), or ``"auto"``: triton where it can be, else torch.
        reduce: Where other processes hold nodes of the graph as well, begins to sum the state PᵀX_o [G, K, C] over
            all; what it returns waits for the sum.

    Returns:
        H, [N, C].
    """
    if x_o is None and x_s is None:
        fail("x_o", "a tensor, or None only where x_s is given", "None")
    if ptr.dim() != 1 or ptr.shape[0] < 1:
        check_shape("ptr", ptr, None)
        fail("ptr", "at least one element", "none")
    if vectors.dim() != 2:
        check_shape("vectors", vectors, None, None)
    (nodes, frequencies), graphs, channels = vectors.shape, ptr.shape[0] - 1, None
    for name, x, gain_name, gain in (("x_o", x_o, "gains", gains), ("x_s", x_s, "self_gains", self_gains)):
        if (x is None) != (gain is None):
            fail(gain_name, f"given exactly when {name} is", "only one of the two")
        if x is None or gain is None:
            continue
        if x.dim() != 2 or x.shape[0] != nodes or (channels is not None and x.shape[1] != channels):
            check_shape(name, x, nodes, channels)
        channels = x.shape[1]
        if gain.shape != (graphs, frequencies, 1) and gain.shape != (graphs, frequencies, channels):
            check_shape(gain_name, gain, graphs, frequencies, channels)
    if backend == "auto":
        few = vectors.is_cuda and frequencies <= _triton.MAX_FREQUENCIES
        backend = "triton" if few and can_fuse(x_o, x_s, vectors, gains, self_gains) else "torch"
    elif backend == "triton":
        check_fusible(x_o=x_o, x_s=x_s, vectors=vectors, gains=gains, self_gains=self_gains)
        if frequencies > _triton.MAX_FREQUENCIES:
            fail("vectors", f"at most {_triton.MAX_FREQUENCIES} frequencies for backend='triton'", frequencies)
    else:
        check_choice("backend", backend, ("auto", *FORMS))
    convolve = FORMS[backend] if reduce is None else partial(_spread, backend, reduce)
    if projection is not None and (x_o is None or gains is None):
        fail("projection", "None where x_o is", "one")
    if isinstance(projection, nn.Module):
        mixed = projection(convolve(x_o, None, vectors, gains, None, None, ptr)[0])
        return mixed if x_s is None else mixed + convolve(None, x_s, vectors, None, self_gains, None, ptr)[0]
    return convolve(x_o, x_s, vectors, gains, self_gains, projection, ptr)[0]


def _spread(
    backend: str, reduce: Reduce, x_o: Tensor | None, x_s: Tensor | None, vectors: Tensor, gains: Tensor | None,
    self_gains: Tensor | None, bias: Any, ptr: Tensor,
) -> tuple[Tensor]:  # fmt: skip
    """H where the nodes of the graphs are spread over processes: between both products of P its state is summed."""
    # The self term is made while the sum is on its way.
    state = None if x_o is None else reduce(to_state(vectors, x_o, ptr, backend))
    parts = [] if x_s is None else [FORMS[backend](None, x_s, vectors, None, self_gains, None, ptr)[0]]
    if x_o is not None and state is not None and gains is not None:
        mixed = from_state(vectors, gains * state(), ptr, backend)
        parts.append((mixed if bias is None else mixed + bias).to(x_o.dtype))
    return (add(*parts) if len(parts) == 2 else parts[0],)


def conv_features(
    x: Tensor, lin_o: nn.Module, lin_s: nn.Module | None, projection: nn.Module | None, *, shared: bool
) -> tuple[Tensor, Tensor | None, Projection]:
    """X_o = lin_o(x), X_s = lin_s(x) [N, C] and the projection that is left to do.

    A gain that all channels share (``shared``) commutes with a Linear after the global term: its weight is multiplied
    into that of ``lin_o``, and its bias is left. Modules that are not as PyTorch made them are called.
    """
    if not unmodified(lin_o, lin_s, bias=False):
        return lin_o(x), None if lin_s is None else lin_s(x), projection
    weight: Tensor = lin_o.weight  # type: ignore[assignment]
    rest: Projection = projection
    if projection is not None and shared and unmodified(projection):
        weight, rest = projection.weight @ weight, projection.bias  # type: ignore[operator]
    return F.linear(x, weight), None if lin_s is None else F.linear(x, lin_s.weight), rest  # type: ignore[arg-type]


def conv_of_linears(
    x: Tensor, lin_o: nn.Module, lin_s: nn.Module | None, vectors: Tensor, gains: Tensor, self_gains: Tensor | None,
    ptr: Tensor, projection: nn.Module | None = None, backend: str = "auto", reduce: Reduce | None = None,
) -> Tensor:  # fmt: skip
    """`gssc_conv` of X_o = lin_o(x) and, where there is a self term, X_s = lin_s(x); a single step where it can be."""
    shared = gains.shape[2] == 1
    fused = backend == "triton" or (backend == "auto" and x.is_cuda and can_fuse(x, vectors, gains, self_gains))
    fused = fused and reduce is None and vectors.shape[1] <= _triton.MAX_FREQUENCIES and (shared or projection is None)
    if fused and lin_s is not None and x.numel() <= MERGED and mergeable(x, lin_o, lin_s) and unmodified(projection):
        weights, bias = [lin_o.weight, lin_s.weight], None
        if projection is not None:
            weights[0], bias = projection.weight @ lin_o.weight, projection.bias  # type: ignore[operator]
        return op_of_linears(
            _triton.ConvOfRows, x, weights, (), vectors, gains, self_gains, bias, ptr, reads=2, returned=1
        )[0]
    x_o, x_s, rest = conv_features(x, lin_o, lin_s, projection, shared=shared)
    return gssc_conv(x_o, x_s, vectors, gains, self_gains, ptr, projection=rest, backend=backend, reduce=reduce)


def frequency_gains(phi: Tensor, query: nn.Module, key: nn.Module, shared: bool) -> Tensor:
    """A = (ΦW_q) ⊙ (ΦW_k) [G, K, C]; ``shared``, its sum over channels, diag(Φ W_q W_kᵀ Φᵀ) [G, K, 1]."""
    if shared and unmodified(query, key, bias=False):
        form = query.weight.t() @ key.weight  # type: ignore[operator]
        return ((phi @ form) * phi).sum(-1, keepdim=True)
    gains: Tensor = query(phi) * key(phi)
    return gains.sum(-1, keepdim=True) if shared else gains


def joint_frequency_gains(
    phi: Tensor, pairs: Sequence[tuple[nn.Module, nn.Module]], shared: bool
) -> tuple[Tensor, ...] | None:
    """`frequency_gains` of all pairs of equal shape in a few operations; ``None`` where it is not worth it."""
    queries, keys = zip(*pairs, strict=True)
    if not unmodified(*queries, *keys, bias=False):
        return None
    (graphs, frequencies, width), count = phi.shape, len(queries)
    rows = phi.reshape(-1, width)
    weights = stack([*map(attrgetter("weight"), (*queries, *keys))]).unflatten(0, (2, count))
    if shared:
        # a_k = φ_kᵀ (W_qᵀ W_k) φ_k, with all forms W_qᵀ W_k [c, c] side by side in one product.
        forms = bmm(weights[0].transpose(1, 2), weights[1])
        turned = (rows @ forms.transpose(0, 1).reshape(width, -1)).view(-1, count, width)
        gains = (turned * rows.unsqueeze(1)).sum(-1).t().contiguous()
        return gains.view(count, graphs, frequencies, 1).unbind()
    channels = weights.shape[2]
    if not phi.is_cuda or 2 * count * channels * graphs * frequencies > LARGEST:
        return None
    q, k = (rows @ weights.transpose(2, 3)).unbind()
    return (q * k).view(count, graphs, frequencies, channels).unbind()
