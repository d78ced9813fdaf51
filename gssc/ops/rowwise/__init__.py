"""What happens row by row between the products of a layer: ReLU, dropout, scales by degree."""

from torch import Tensor

from gssc.checks import check_choice, check_probability, check_shape
from gssc.ops.rowwise import naive, torch, triton
from gssc.ops.rowwise.torch import dropout
from gssc.ops.seeds import check_seed, new_seeds
from gssc.ops.triton_support import can_fuse, check_on_gpu

__all__ = ["degree_scale", "dropout", "relu_dropout"]

BACKENDS = ("auto", "naive", "torch", "triton")


def relu_dropout(
    x: Tensor, p: float, training: bool = True, seed: Tensor | None = None, site: int = 0, backend: str = "auto"
) -> Tensor:
    """drop(ReLU(x)) of x [N, C]; ``training``, ``seed``, ``site`` and ``backend`` as for ``residual_norm``."""
    if backend == "auto":
        if not can_fuse(x):
            return torch.relu_dropout(x, p, training)
        if not training or p == 0.0:
            return triton.relu_dropout(x, 0.0, None, site)
        return triton.relu_dropout(x, p, new_seeds(1, x.device)[0] if seed is None else seed, site)
    check_choice("backend", backend, BACKENDS)
    check_shape("x", x, None, None)
    check_probability("p", p)
    if backend == "torch":
        return torch.relu_dropout(x, p, training)
    check_seed(seed, p > 0)
    if backend == "triton":
        check_on_gpu("x", x)
    return (triton if backend == "triton" else naive).relu_dropout(x, p if training else 0.0, seed, site)


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
    if backend == "auto":
        return (triton if can_fuse(x) else torch).degree_scale(x, scale, log_scale, degree)
    check_choice("backend", backend, BACKENDS)
    check_shape("x", x, None, None)
    check_shape("degree", degree, x.shape[0])
    for name, row in (("scale", scale), ("log_scale", log_scale)):
        check_shape(name, row, x.shape[1])
    if backend == "triton":
        check_on_gpu("x", x)
    return {"naive": naive, "torch": torch, "triton": triton}[backend].degree_scale(x, scale, log_scale, degree)
