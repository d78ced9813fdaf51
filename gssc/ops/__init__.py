"""Fast maths on tensors, without parameters or configuration. Each op has a plain reference beside it.

This file and, for message passing, ``messages.py``, for sums over graphs ``states.py``, for norms ``norms.py`` and for
eigenvalues ``encodings.py`` are where a backend is chosen and arguments are checked.
"""

from collections.abc import Callable, Mapping

from torch import Tensor

from gssc.checks import check_choice, check_shape, fail
from gssc.ops.ptr import batch_to_ptr
from gssc.ops.edges.plan import EdgePlan, edge_plan
from gssc.ops.encodings import deep_set
from gssc.ops.gated_gcn.types import EdgeNorm, GatedOutput, Origin
from gssc.ops.conv import triton as _conv_fused
from gssc.ops.conv import naive as _conv_naive
from gssc.ops.conv import plain as _conv_plain
from gssc.ops.messages import Backend, gated_gcn, gine_messages, neighbor_sum, takes_kernels
from gssc.ops.norms import degree_scale, new_seeds, relu_dropout, residual_norm
from gssc.ops.norm.types import Branch, Form
from gssc.ops.selective import torch as _selective_eager
from gssc.ops.selective import triton as _selective_fused
from gssc.ops.selective import naive as _selective_naive
from gssc.ops.states import from_state, segment_sum, to_state
from gssc.ops.triton_support import can_fuse, check_fusible

__all__ = [
    "Branch",
    "EdgeNorm",
    "EdgePlan",
    "Form",
    "GatedOutput",
    "Origin",
    "batch_to_ptr",
    "deep_set",
    "degree_scale",
    "edge_plan",
    "from_state",
    "gated_gcn",
    "gine_messages",
    "gssc_conv",
    "neighbor_sum",
    "new_seeds",
    "relu_dropout",
    "residual_norm",
    "segment_sum",
    "selective_gssc_conv",
    "to_state",
]

CONV_BACKENDS = {"naive": _conv_naive.gssc_conv, "eager": _conv_plain.gssc_conv, "fused": _conv_fused.gssc_conv}
SELECTIVE_BACKENDS: dict[str, Callable[..., Tensor]] = {
    "naive": _selective_naive.selective_gssc_conv,
    "eager": _selective_eager.selective_gssc_conv,
    "fused": _selective_fused.selective_gssc_conv,
}


def gssc_conv(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    backend: Backend = "auto",
) -> Tensor:
    r"""Graph state space convolution of a packed batch of graphs (Eq. 4 of arXiv 2406.05815, collapsed).

    .. math:: H = P (A \odot P^\top X_o) + ((P \odot P) A_s) \odot X_s

    Time and memory are linear in the number of nodes. Graphs may have any size, also zero, and the batch may be empty.
    Differentiable twice in every input but ``ptr``.

    Args:
        x_o: Features that the global term mixes, [N, C]; ``None`` (with ``gains``) leaves the global term out.
        x_s: Features that the self term scales, [N, C]; ``None`` (with ``self_gains``) leaves the self term out.
        vectors: Eigenvectors P, zero where padded, [N, K].
        gains: A per graph, frequency and channel, [G, K, C], or [G, K, 1] shared by all channels.
        self_gains: A_s likewise.
        ptr: First node of every graph and, last, N: [G + 1].
        backend: ``"eager"`` (collapsed), ``"fused"`` (the same in two passes over memory, by Triton on a GPU),
            ``"naive"`` (the double sum over pairs of nodes), or ``"auto"``: fused where it can be, else eager.

    Returns:
        H, [N, C].
    """
    check_choice("backend", backend, ("auto", *CONV_BACKENDS))
    if (x_o is None) != (gains is None):
        fail("gains", "given exactly when x_o is", "only one of the two")
    if (x_s is None) != (self_gains is None):
        fail("self_gains", "given exactly when x_s is", "only one of the two")
    if x_o is None and x_s is None:
        fail("x_o", "a tensor, or None only where x_s is given", "None")
    check_shape("ptr", ptr, None)
    check_shape("vectors", vectors, None, None)
    if ptr.shape[0] < 1:
        fail("ptr", "at least one element", "none")
    nodes, frequencies = vectors.shape
    channels: int | None = None
    for name, x, gain_name, gain in (("x_o", x_o, "gains", gains), ("x_s", x_s, "self_gains", self_gains)):
        if x is None or gain is None:
            continue
        check_shape(name, x, nodes, channels)
        channels = x.shape[1]
        shared = gain.dim() == 3 and gain.shape[2] == 1
        check_shape(gain_name, gain, ptr.shape[0] - 1, frequencies, 1 if shared else channels)
    if backend == "auto":
        fits = frequencies <= _conv_fused.MAX_FREQUENCIES
        backend = "fused" if fits and can_fuse(x_o, x_s, vectors, gains, self_gains) else "eager"
    elif backend == "fused":
        check_fusible(x_o=x_o, x_s=x_s, vectors=vectors, gains=gains, self_gains=self_gains)
    return CONV_BACKENDS[backend](x_o, x_s, vectors, gains, self_gains, ptr)


def selective_gssc_conv(
    x: Tensor,
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    phi: Tensor,
    pair_gains: Tensor,
    weights: Mapping[str, Tensor],
    ptr: Tensor,
    *,
    shared: bool = False,
    normalize: bool = True,
    backend: Backend = "auto",
) -> Tensor:
    r"""Convolution with selection: data-dependent positions z̃ (Eq. 6, collapsed) in place of z.

    .. math:: \tilde z_u = \sum_v \langle z_u W_{dq}, z_v W_{dk} \rangle ((z_v \odot x_v) W_{dv})

    Args:
        x: Features that select, [N, C].
        x_o: Features that the global term mixes, [N, C], or ``None``.
        x_s: Features that the self term scales, [N, C], or ``None``.
        vectors: Eigenvectors P, zero where padded, [N, K].
        phi: Encoded eigenvalues Φ, zero where masked, [G, K, C].
        pair_gains: (ΦW_dq) ⊙ (ΦW_dk), [G, K, C].
        weights: Weights [C, C] in the layout of ``nn.Linear``: ``"dv"``, then ``"q"`` and ``"k"`` where ``x_o`` is
            given, ``"sq"`` and ``"sk"`` where ``x_s`` is.
        ptr: First node of every graph and, last, N: [G + 1].
        shared: Sum the kernel over channels.
        normalize: Divide z̃ per graph and channel by sqrt(1 + ‖T‖²_F / k_valid), a rotation-invariant measure.
        backend: ``"naive"``, ``"eager"``, ``"fused"`` (products between nodes and graphs by Triton, nothing of size
            n K², no look at sizes of graphs), or ``"auto"``: fused where it can be, else eager.

    Returns:
        H, [N, C].
    """
    if x_o is None and x_s is None:
        fail("x_o", "a tensor, or None only where x_s is given", "None")
    check_shape("vectors", vectors, None, None)
    check_shape("ptr", ptr, None)
    nodes, frequencies = vectors.shape
    check_shape("x", x, nodes, None)
    channels = x.shape[1]
    for name, part in (("x_o", x_o), ("x_s", x_s)):
        if part is not None:
            check_shape(name, part, nodes, channels)
    check_shape("phi", phi, ptr.shape[0] - 1, frequencies, channels)
    check_shape("pair_gains", pair_gains, ptr.shape[0] - 1, frequencies, channels)
    needed = ["dv"] + (["q", "k"] if x_o is not None else []) + (["sq", "sk"] if x_s is not None else [])
    for name in needed:
        if name not in weights:
            fail("weights", f"an entry {name!r}", sorted(weights))
        check_shape(f"weights[{name!r}]", weights[name], channels, channels)
    if takes_kernels(backend, x=x, x_o=x_o, x_s=x_s, vectors=vectors, phi=phi):
        backend = "fused"
    return SELECTIVE_BACKENDS["eager" if backend == "auto" else backend](
        x, x_o, x_s, vectors, phi, pair_gains, dict(weights), ptr, shared=shared, normalize=normalize
    )
