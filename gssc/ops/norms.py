"""What stands between the products of a layer as ops: norms, residuals, ReLU, dropout, scales by degree."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gssc.checks import check_choice, check_probability, check_shape, fail
from gssc.ops.degree_scale import triton as _degree_fused
from gssc.ops.degree_scale import naive as _degree_naive
from gssc.ops.messages import Backend, takes_kernels
from gssc.ops.relu_dropout import triton as _relu_fused
from gssc.ops.relu_dropout import naive as _relu_naive
from gssc.ops.norm import triton as _norm_fused
from gssc.ops.norm import naive as _norm_naive
from gssc.ops.norm.types import Branch, Form
from gssc.ops.triton_support import HAS_TRITON, interpreting

BACKENDS = ("naive", "fused")
SEED_WORDS = 4  # two are used; four keep rows of a table of seeds aligned


def new_seeds(count: int, device: torch.device) -> Tensor:
    """Seeds of dropout [count, 4], drawn on the device by its default generator in one launch."""
    return torch.randint(-(2**31), 2**31, (count, SEED_WORDS), dtype=torch.int32, device=device)


def residual_norm(
    branches: Sequence[Branch],
    x: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    seed: Tensor | None = None,
    form: Form,
    backend: str = "fused",
) -> Tensor:
    r"""Batch normalisation with what stands around it in a layer.

    .. math::
        y = \sum_b \mathrm{norm}_b(x + \mathrm{drop}(h_b)) \qquad \text{or} \qquad
        y = x + \mathrm{drop}(\mathrm{ReLU}(\mathrm{norm}(h)))

    Args:
        branches: One or two h, with the parameters and running statistics of their norms; the latter are changed.
        x: The residual, [N, C], or ``None``.
        mask: Real rows of a padded batch, [N]; others stay out of the statistics, and their norm is zero.
        seed: Of dropout, from ``new_seeds``; ``None`` where nothing is dropped.
        form: Training or not, momentum and eps, ``activation`` for the second formula (of one branch), and the number
            of the first ``site`` of dropout: places with one seed need different ones.
        backend: ``"fused"`` (Triton; float64 is summed in float64, all else in float32) or ``"naive"``.

    Returns:
        y, [N, C].
    """
    if len(branches) not in (1, 2) or (form.activation and len(branches) == 2):
        fail("branches", "one, or two without activation", len(branches))
    rows, channels = branches[0].rows.shape
    for branch in branches:
        check_shape("rows", branch.rows, rows, channels)
        check_probability("dropout", branch.dropout)
        for name in ("weight", "bias", "mean", "variance"):
            check_shape(name, getattr(branch, name), channels)
    if x is not None:
        check_shape("x", x, rows, channels)
    if mask is not None:
        check_shape("mask", mask, rows)
        if mask.dtype != torch.bool:
            fail("mask", "a boolean tensor (True = real)", mask.dtype)
    if not form.training:
        branches, seed = [branch._replace(dropout=0.0) for branch in branches], None
    _check_seed(seed, any(branch.dropout for branch in branches))
    _check_backend(backend, branches[0].rows)
    form_of = _norm_fused.residual_norm if backend == "fused" else _norm_naive.residual_norm
    return form_of(branches, x, mask, seed, form)


def relu_dropout(x: Tensor, p: float, seed: Tensor | None = None, site: int = 0, backend: str = "fused") -> Tensor:
    """drop(ReLU(x)) of x [N, C]; ``p``, ``seed`` and ``site`` as for ``residual_norm``."""
    check_shape("x", x, None, None)
    check_probability("p", p)
    _check_seed(seed, p > 0)
    _check_backend(backend, x)
    return (_relu_fused if backend == "fused" else _relu_naive).relu_dropout(x, p, seed, site)


def degree_scale(x: Tensor, scale: Tensor, log_scale: Tensor, degree: Tensor, backend: Backend = "auto") -> Tensor:
    r"""Features scaled by degree, :math:`x_v \odot (a + b \log(1 + d_v))`.

    Args:
        x: Node features, [N, C].
        scale: a, [C].
        log_scale: b, [C].
        degree: d, [N].
        backend: ``"fused"`` (Triton), ``"eager"`` or, the same, ``"naive"``, or ``"auto"``: fused where it can be.

    Returns:
        [N, C].
    """
    check_shape("x", x, None, None)
    check_shape("degree", degree, x.shape[0])
    for name, row in (("scale", scale), ("log_scale", log_scale)):
        check_shape(name, row, x.shape[1])
    fused = takes_kernels(backend, x=x)
    return (_degree_fused if fused else _degree_naive).degree_scale(x, scale, log_scale, degree)


def _check_seed(seed: Tensor | None, needed: bool) -> None:
    if needed and seed is None:
        fail("seed", "a seed from new_seeds, for dropout", "None")
    if seed is not None:
        check_shape("seed", seed, SEED_WORDS)


def _check_backend(backend: str, rows: Tensor) -> None:
    check_choice("backend", backend, BACKENDS)
    if backend == "naive":
        return
    if not HAS_TRITON:
        fail("backend", "'naive' where Triton is not installed", "'fused'")
    if not rows.is_cuda and not interpreting():
        fail("rows", "a tensor on a GPU for backend='fused'", rows.device)
