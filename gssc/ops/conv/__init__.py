"""The graph state space convolution of a packed batch of graphs."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from gssc.checks import check_choice, check_shape, fail
from gssc.ops.conv import naive as _naive
from gssc.ops.conv import torch as _torch
from gssc.ops.conv import triton as _triton
from gssc.ops.conv.features import Projection, conv_features
from gssc.ops.conv.gains import frequency_gains, joint_frequency_gains
from gssc.ops.linears import unmodified
from gssc.ops.triton_support import can_fuse, check_fusible

__all__ = ["conv_features", "frequency_gains", "gssc_conv", "joint_frequency_gains"]

# Each gives H, and what else it has made.
FORMS: dict[str, Callable[..., Any]] = {"naive": _naive.conv, "torch": _torch.conv, "triton": _triton.conv_triton}


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

    Returns:
        H, [N, C].
    """
    _check(x_o, x_s, vectors, gains, self_gains, ptr)
    if backend == "auto":
        few = vectors.is_cuda and vectors.shape[1] <= _triton.MAX_FREQUENCIES
        backend = "triton" if few and can_fuse(x_o, x_s, vectors, gains, self_gains) else "torch"
    elif backend == "triton":
        check_fusible(x_o=x_o, x_s=x_s, vectors=vectors, gains=gains, self_gains=self_gains)
        if vectors.shape[1] > _triton.MAX_FREQUENCIES:
            fail("vectors", f"at most {_triton.MAX_FREQUENCIES} frequencies for backend='triton'", vectors.shape[1])
    else:
        check_choice("backend", backend, ("auto", *FORMS))
    convolve = FORMS[backend]
    if projection is not None and (x_o is None or gains is None):
        fail("projection", "None where x_o is", "one")
    if isinstance(projection, nn.Module):
        if gains.shape[2] != 1 or backend == "naive" or not unmodified(projection):  # type: ignore[union-attr]
            mixed: Tensor = projection(convolve(x_o, None, vectors, gains, None, None, ptr)[0])
            return mixed if x_s is None else mixed + convolve(None, x_s, vectors, None, self_gains, None, ptr)[0]
        # A gain that all channels share commutes with it.
        x_o, projection = F.linear(x_o, projection.weight), projection.bias  # type: ignore[arg-type]
    out: Tensor = convolve(x_o, x_s, vectors, gains, self_gains, projection, ptr)[0]
    return out


def _check(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
) -> None:
    if (x_o is None) != (gains is None):
        fail("gains", "given exactly when x_o is", "only one of the two")
    if (x_s is None) != (self_gains is None):
        fail("self_gains", "given exactly when x_s is", "only one of the two")
    if x_o is None and x_s is None:
        fail("x_o", "a tensor, or None only where x_s is given", "None")
    if ptr.dim() != 1:
        check_shape("ptr", ptr, None)
    if ptr.shape[0] < 1:
        fail("ptr", "at least one element", "none")
    if vectors.dim() != 2:
        check_shape("vectors", vectors, None, None)
    (nodes, frequencies), graphs, channels = vectors.shape, ptr.shape[0] - 1, None
    for name, x, gain_name, gain in (("x_o", x_o, "gains", gains), ("x_s", x_s, "self_gains", self_gains)):
        if x is None or gain is None:
            continue
        if x.dim() != 2 or x.shape[0] != nodes or (channels is not None and x.shape[1] != channels):
            check_shape(name, x, nodes, channels)
        channels = x.shape[1]
        if gain.shape != (graphs, frequencies, 1) and gain.shape != (graphs, frequencies, channels):
            check_shape(gain_name, gain, graphs, frequencies, channels)
