"""Norms with what stands around them in a layer: residuals, dropout, ReLU."""

from collections.abc import Sequence

from torch import Tensor
from torch import bool as boolean

from gssc.checks import check_choice, check_probability, check_shape, fail
from gssc.ops.norm import naive, torch, triton
from gssc.ops.norm.types import Branch, NormState
from gssc.ops.seeds import check_seed, new_seeds
from gssc.ops.triton_support import can_fuse, check_on_gpu

__all__ = ["Branch", "NormState", "residual_norm"]

BACKENDS = ("auto", "naive", "torch", "triton")


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
    if backend in ("auto", "torch"):
        # PyTorch's ops and the modules check for themselves.
        states = None if backend == "torch" else _fusible(x, branches, training)
        if states is None:
            return torch.residual_norm(x, branches, mask, training, activation)
        return triton.residual_norm(x, branches, states, mask, _drawn(seed, branches, training), site, activation)
    check_choice("backend", backend, BACKENDS)
    states = [state for branch in branches if (state := branch.state()) is not None]
    _check(x, branches, states, mask, activation)
    if not training:
        branches, seed = [branch._replace(dropout=0.0) for branch in branches], None
    check_seed(seed, any(branch.dropout for branch in branches))
    if backend == "naive":
        return naive.residual_norm(x, branches, states, mask, seed, site, activation)
    check_on_gpu("rows", branches[0].rows)
    return triton.residual_norm(x, branches, states, mask, seed, site, activation)


def _fusible(x: Tensor | None, branches: Sequence[Branch], training: bool) -> list[NormState] | None:
    """The states of the norms where the kernels can stand for them.

    Not where settings or modes differ, nor where a ``training`` layer, which drops out, holds norms that do not train.
    """
    if not can_fuse(x, *[branch.rows for branch in branches]):
        return None
    states: list[NormState] = []
    for branch in branches:
        state = branch.state()
        if state is None or (training and not state.training):
            return None
        if states and state[5:] != states[0][5:]:
            return None
        states.append(state)
    return states


def _drawn(seed: Tensor | None, branches: Sequence[Branch], training: bool) -> Tensor | None:
    for branch in branches:
        if branch.dropout and training:
            return new_seeds(1, branch.rows.device)[0] if seed is None else seed
    return None


def _check(
    x: Tensor | None, branches: Sequence[Branch], states: list[NormState], mask: Tensor | None, activation: bool
) -> None:
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
    if x is not None:
        check_shape("x", x, rows, channels)
    if mask is not None:
        check_shape("mask", mask, rows)
        if mask.dtype != boolean:
            fail("mask", "a boolean tensor (True = real)", mask.dtype)
