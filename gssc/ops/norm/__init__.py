"""What stands between the products of a layer: norms with residuals, dropout, ReLU, scales by degree."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.checks import check_choice, check_probability, check_shape, check_shapes, fail
from gssc.ops.context import SEED_WORDS, new_seeds
from gssc.ops.norm import degree as by_degree
from gssc.ops.norm import naive, triton
from gssc.ops.norm.feed_forward import residual_feed_forward as fused_feed_forward
from gssc.ops.norm.naive import Branch, NormState
from gssc.ops.op import is_traced, unmodified
from gssc.ops.triton_support import BACKENDS, can_fuse, check_on_gpu

__all__ = ["Branch", "NormState", "degree_scale", "dropout", "norm_state", "residual_feed_forward", "residual_norm"]

# Probabilities in this range are divided into 256 steps, so that eight random numbers fit into one draw of 64 bits;
# others into 65,536.
FEW_STEPS = (1 / 32, 31 / 32)


def residual_norm(
    x: Tensor | None,
    branches: Sequence[Branch],
    mask: Tensor | None = None,
    *,
    training: bool,
    seed: Tensor | None = None,
    site: int = 0,
    activation: bool = False,
    backend: str = "auto",
) -> Tensor:
    r"""Normalisation with what stands around it in a layer.

    .. math::
        y = \sum_b \mathrm{norm}_b(x + \mathrm{drop}(h_b)) \qquad \text{or} \qquad
        y = x + \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(h)))

    Args:
        x: The residual, [N, C], or ``None``.
        branches: One or two h with their norms; running statistics are changed.
        mask: Real rows of a padded batch, [N]; others stay out of the statistics, and their norm is zero.
        training: Whether to drop out.
        seed: Of dropout, a row of ``new_seeds``; ``None``: drawn where it is needed. Other forms than the kernels draw
            their own numbers.
        site: Number of the first place of dropout: places with one seed need different ones.
        activation: The second formula, of one branch.
        backend: ``"triton"`` (batch normalisation on a GPU; float64 is summed in float64, all else in float32),
            ``"torch"`` (any norm), ``"naive"`` (of a `NormState`), or ``"auto"``: triton where it can be, else torch.

    Returns:
        y, [N, C].
    """
    if backend != "auto":
        check_choice("backend", backend, BACKENDS)
    if not branches:
        fail("branches", "one or two", "none")
    states: Sequence[NormState] | None = None
    if backend in ("naive", "triton"):
        states = _checked(x, branches, mask, seed, activation, backend)
    elif backend == "auto" and branches[0].rows.is_cuda:
        states = _fusible(x, branches, training)
    if states is not None:
        if not (training and any(branch.dropout for branch in branches)):
            seed = None
        elif seed is None:
            seed = new_seeds(1, branches[0].rows.device)[0]
        form = naive if backend == "naive" else triton
        return form.residual_norm(x, branches, states, mask, seed, site, activation)
    normed: list[Callable[[], Tensor]] = []
    for rows, norm, p, residual in branches:
        h = rows if activation else dropout(rows, p, training, x if residual else None)
        state = norm_state(norm) if mask is None else None
        if state is not None and state.momentum is not None and (h.shape[0] > 1 or not state.training):
            # What the module does with an ordinary batch.
            if state.training:
                state.batches.add_(1)
            weight, bias, mean, variance = state[:4]
            plain = mean, variance, weight, bias, state.training, state.momentum, state.eps
            normed.append(partial(F.batch_norm, h, *plain))
        else:
            assert isinstance(norm, nn.Module)
            normed.append(begun_norm(norm, h, mask))
    if activation:
        _, _, p, residual = branches[0]
        return dropout(normed[0]().relu(), p, training, x if residual else None)
    return reduce(add, [norm() for norm in normed])


def begun_norm(norm: Callable[..., Any], h: Tensor, mask: Tensor | None) -> Callable[[], Tensor]:
    """What gives norm(h) when it is called; a norm over processes tells them its moments now."""
    if getattr(norm, "synchronized", False):
        return norm(h, mask, later=True)
    # One that looks at other rows, `gssc.nn.BatchNorm`, is told which of them are real.
    return partial(norm, h) if mask is None or not hasattr(norm, "synchronized") else partial(norm, h, mask)


def norm_state(norm: object) -> NormState | None:
    """A `gssc.nn.BatchNorm` as its numbers, or such a state itself.

    None where the module must be called: another norm or forward, one over processes, or one that somebody watches.
    """
    if isinstance(norm, NormState):
        return norm
    if not isinstance(norm, nn.BatchNorm1d) or getattr(norm, "synchronized", True):
        return None
    state = norm.__dict__  # a module looks for its attributes in several places
    if state["_forward_pre_hooks"] or state["_forward_hooks"] or state["_backward_hooks"]:
        return None
    if state["_backward_pre_hooks"] or type(norm).forward.__module__ != "gssc.nn.norm":
        return None
    known = state["_parameters"]
    weight, bias = known.values() if len(known) == 2 else (norm.weight, norm.bias)
    buffers = [*state["_buffers"].values()]  # running mean and variance, and the number of batches
    if weight is None or len(buffers) != 3 or buffers[0] is None:
        return None
    mean, variance, batches = buffers
    return NormState(weight, bias, mean, variance, batches, state["eps"], state["momentum"], state["training"])


def _fusible(x: Tensor | None, branches: Sequence[Branch], training: bool) -> list[NormState] | None:
    """The states of the norms where the kernels can stand for them.

    Not where settings or modes differ, nor where a ``training`` layer, which drops out, holds norms that do not train.
    """
    states: list[NormState] = []
    for branch in branches:
        state = norm_state(branch.norm)
        if state is None or (training and not state.training) or not can_fuse(x, branch.rows):
            return None
        if states and state[5:] != states[0][5:]:
            return None
        states.append(state)
    return states


def _checked(
    x: Tensor | None, branches: Sequence[Branch], mask: Tensor | None, seed: Tensor | None, activation: bool,
    backend: str,
) -> list[NormState]:  # fmt: skip
    """The states of the norms, for a backend that was asked for; an error where something does not fit."""
    states = [state for branch in branches if (state := norm_state(branch.norm)) is not None]
    if len(branches) not in (1, 2) or (activation and len(branches) == 2):
        fail("branches", "one, or two without activation", len(branches))
    if len(states) != len(branches):
        fail("norm", "a NormState, or a module that has one, for this backend", "another module")
    rows, channels = branches[0].rows.shape
    for branch, state in zip(branches, states, strict=True):
        check_shape("rows", branch.rows, rows, channels)
        check_probability("dropout", branch.dropout)
        for name in ("weight", "bias", "mean", "variance"):
            check_shape(name, getattr(state, name), channels)
    check_shapes(("x", x, (rows, channels)), ("mask", mask, (rows,)), ("seed", seed, (SEED_WORDS,)))
    if mask is not None and mask.dtype != torch.bool:
        fail("mask", "a boolean tensor (True = real)", mask.dtype)
    if backend == "triton":
        check_on_gpu("rows", branches[0].rows)
    return states


def residual_feed_forward(
    x: Tensor,
    network: nn.Sequential,
    norm: nn.Module,
    mask: Tensor | None = None,
    *,
    training: bool,
    seed: Tensor | None = None,
    site: int = 0,
    backend: str = "auto",
) -> Tensor:
    r"""A feed-forward network with its residual, :math:`\mathrm{norm}(x + \mathrm{drop}(\mathrm{network}(x)))`.

    Args:
        x: Rows, [N, C].
        network: Linear, ReLU, dropout, Linear, dropout; the last is left to this op.
        norm: As in a `Branch`; ``mask``, ``training`` and ``seed`` as for ``residual_norm``.
        mask: Real rows of a padded batch, [N].
        training: Whether to drop out.
        seed: Of dropout.
        site: Number of the first of two places of dropout.
        backend: ``"triton"`` (one step of autograd, on a GPU) and ``"naive"``, both from the weights of Linears;
            ``"torch"`` (calls the modules), or ``"auto"``: triton where it can be, else torch.

    Returns:
        [N, C].
    """
    inner, _, drop, outer, last = network
    state: Sequence[NormState] | None = None
    simple = False
    if backend != "torch" and (backend != "auto" or x.is_cuda):
        simple = unmodified(inner, outer, bias=True) and unmodified(network, kind=type(network)) and drop.p == last.p
    if backend == "auto":
        if simple and not is_traced(x):
            state = _fusible(x, [Branch(x, norm)], training)
        backend = "torch" if state is None else "triton"
    if backend == "torch":
        branch = Branch(network(x), norm, last.p)  # type: ignore[arg-type]
        return residual_norm(x, [branch], mask, training=training, seed=seed, site=site + 1)
    check_choice("backend", backend, BACKENDS)
    if not simple:
        fail("backend", "'torch' or 'auto' for modules that must be called", f"{backend!r}")
    p: float = drop.p if training else 0.0  # type: ignore[assignment]
    seed = (new_seeds(1, x.device)[0] if seed is None else seed) if p else None
    if backend == "naive":
        fed = naive.feed_forward(x, inner.weight, inner.bias, outer.weight, outer.bias, seed, p, site)  # type: ignore
        branch = Branch(fed, norm, p)
        return residual_norm(x, [branch], mask, training=training, seed=seed, site=site + 1, backend="naive")
    if state is None:
        state = _checked(x, [Branch(x, norm, p)], mask, seed, False, backend)
    return fused_feed_forward(x, inner, outer, state[0], mask, seed, p, site)  # type: ignore[arg-type]


def degree_scale(x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor, backend: str = "auto") -> Tensor:
    r"""Features scaled by degree, :math:`x_v \odot (a + b \log(1 + d_v))`.

    Args:
        x: Node features, [N, C].
        scale: a, [C].
        log_scale: b, [C].
        degree: d, [N].
        backend: ``"triton"``, ``"torch"``, ``"naive"``, or ``"auto"``: triton where it can be, else torch.

    Returns:
        [N, C].
    """
    if backend != "auto":
        check_choice("backend", backend, BACKENDS)
        check_shape("x", x, None, None)
        rows, channels = x.shape
        check_shapes(("degree", degree, (rows,)), ("scale", scale, (channels,)), ("log_scale", log_scale, (channels,)))
        if backend == "triton":
            check_on_gpu("x", x)
    if backend == "triton" or (backend == "auto" and x.is_cuda and can_fuse(x)):
        return by_degree.degree_scale(x, scale, log_scale, degree)
    if backend == "naive":
        return naive.degree_scale(x, scale, log_scale, degree)
    return x * torch.addcmul(scale, log_scale, torch.log1p(degree.to(x.dtype)).unsqueeze(1))


def dropout(x: Tensor, p: float, training: bool, residual: Tensor | None = None) -> Tensor:
    """Zero each entry with probability ``p`` and scale the others by 1 / (1 - p); then add ``residual``, if given.

    On a CPU PyTorch draws a number for every entry, which costs more than a layer's products. Here one draw serves
    eight entries: ``p`` is rounded up or down to a multiple of 1/256, at random so that an entry is dropped with
    probability ``p``, and the scale with it, so that the mean stays exact.
    """
    if not training or p == 0.0:
        return x if residual is None else residual + x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        dropped = F.dropout(x, p, training)
        return dropped if residual is None else residual + dropped
    few = FEW_STEPS[0] <= p <= FEW_STEPS[1]
    steps, kind, together = (1 << 8, torch.int8, 8) if few else (1 << 16, torch.int16, 4)
    bits = torch.empty(1 - (-x.numel() // together), dtype=torch.int64).random_(-(2**63), None)
    below, rest = divmod(p * steps, 1.0)
    # The last draw rounds p: up with a probability of what is left of it.
    below = min(int(below) + (rest > 0.5 + bits[-1].item() / 2.0**64), steps - 1)
    # In place: comparisons that write booleans, and conversions of those, are not vectorised.
    keep = bits.view(kind)[: x.numel()].view(x.shape).ge_(below - steps // 2)
    scales = keep.to(x.dtype).mul_(steps / (steps - below))
    if residual is None:
        return x * scales
    return torch.addcmul(residual, x, scales) if residual.dtype == x.dtype else residual + x * scales
