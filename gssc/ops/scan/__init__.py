"""The selective scan of state space models (S6) along the nodes of each graph, in the order in which they stand."""

from torch import Tensor

from gssc.checks import check_choice, check_shapes
from gssc.ops.scan import naive, torch, triton
from gssc.ops.triton_support import can_fuse, check_fusible

__all__ = ["selective_scan"]

FORMS = {"naive": naive, "torch": torch, "triton": triton}


def selective_scan(
    u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, ptr: Tensor, backend: str = "auto"
) -> Tensor:
    r"""A linear recurrence whose steps depend on what it reads; h = 0 where a graph begins.

    .. math:: h_t = \exp(\delta_t A) \odot h_{t-1} + (\delta_t \odot u_t) b_t^\top, \qquad y_t = h_t c_t

    From `Mamba <https://arxiv.org/abs/2312.00752>`_, Algorithm 2.

    Args:
        u: What is read, [N, E].
        delta: Lengths of steps, not negative, [N, E].
        a: Rates of decay A, not positive, [E, S].
        b: How the state takes in, [N, S].
        c: How it is read out, [N, S].
        ptr: First node of every graph and, last, N: [G + 1].
        backend: ``"naive"``, ``"torch"`` (stores [N, E, S]), ``"triton"`` (stores a state for 32 nodes), or
            ``"auto"``: triton where it can be, else torch.

    Returns:
        y, [N, E].
    """
    check_choice("backend", backend, ("auto", *FORMS))
    check_shapes(("u", u, (None, None)), ("a", a, (u.shape[1], None)), ("ptr", ptr, (None,)))
    per_node = (u.shape[0], a.shape[1])
    check_shapes(("delta", delta, tuple(u.shape)), ("b", b, per_node), ("c", c, per_node))
    tensors = {"u": u, "delta": delta, "a": a, "b": b, "c": c}
    if backend == "triton":
        check_fusible(**tensors)
    if backend == "auto":
        backend = "triton" if can_fuse(*tensors.values()) else "torch"
    return FORMS[backend].selective_scan(*tensors.values(), ptr)
