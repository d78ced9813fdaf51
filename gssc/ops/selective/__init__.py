"""The convolution with selection: data-dependent positions."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from gssc.checks import check_shape, check_shapes, fail
from gssc.ops import graph_sums as sums
from gssc.ops.conv import Projection, Reduce
from gssc.ops.op import unmodified
from gssc.ops.selective import naive, torch, triton
from gssc.ops.selective.naive import Weights, turn_names
from gssc.ops.triton_support import chosen

__all__ = ["selective_gssc_conv"]

FORMS = {"naive": naive, "torch": torch, "triton": triton}


def selective_gssc_conv(
    x: Tensor,
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    phi: Tensor,
    pair_gains: Tensor,
    weights: Weights,
    ptr: Tensor,
    *,
    shared: bool = False,
    normalize: bool = True,
    projection: Projection = None,
    backend: str = "auto",
    reduce: Reduce | None = None,
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
        weights: Weights [C, C] in the layout of ``nn.Linear``, or modules that stand for them: ``"dv"``, then ``"q"``
            and ``"k"`` where ``x_o`` is given, ``"sq"`` and ``"sk"`` where ``x_s`` is.
        ptr: First node of every graph and, last, N: [G + 1].
        shared: Sum the kernel over channels.
        normalize: Divide z̃ per graph and channel by sqrt(1 + ‖T‖²_F / k_valid), a rotation-invariant measure.
        projection: As for ``gssc_conv``.
        backend: ``"naive"``, ``"torch"``, ``"triton"`` (products between nodes and graphs on a GPU, nothing of size
            n K², no look at sizes of graphs), or ``"auto"``: triton where it can be, else torch.
        reduce: As for ``gssc_conv``: sums the state and the pair moments [G, K, K, C].

    Returns:
        H, [N, C].
    """
    if x_o is None and x_s is None:
        fail("x_o", "a tensor, or None only where x_s is given", "None")
    if projection is not None and x_o is None:
        fail("projection", "None where x_o is", "one")
    check_shapes(("vectors", vectors, (None, None)), ("ptr", ptr, (None,)), ("x", x, (vectors.shape[0], None)))
    per_frequency = (ptr.shape[0] - 1, vectors.shape[1], x.shape[1])
    check_shapes(
        ("x_o", x_o, tuple(x.shape)),
        ("x_s", x_s, tuple(x.shape)),
        ("phi", phi, per_frequency),
        ("pair_gains", pair_gains, per_frequency),
    )
    turns = {name: _turn(name, weights, x.shape[1]) for name in ("dv", *turn_names(x_o, x_s))}
    backend = chosen(backend, x=x, x_o=x_o, x_s=x_s, vectors=vectors, phi=phi)

    def select(x_o: Tensor | None, x_s: Tensor | None) -> Tensor:
        if reduce is not None:
            by = _reduced(reduce, sums.triton if backend == "triton" else sums.torch)
            return torch.selective_gssc_conv(x, x_o, x_s, vectors, phi, pair_gains, turns, ptr, shared, normalize, by)
        form = FORMS[backend].selective_gssc_conv
        return form(x, x_o, x_s, vectors, phi, pair_gains, turns, ptr, shared, normalize)

    if isinstance(projection, nn.Module):
        mixed: Tensor = projection(select(x_o, None))
        return mixed if x_s is None else mixed + select(None, x_s)
    out = select(x_o, x_s)
    return out + projection if isinstance(projection, Tensor) else out


def _reduced(reduce: Reduce, by: Any) -> Any:
    """The products between nodes and graphs ``by`` a module, where nodes are spread over processes."""

    def summed(name: str) -> Callable[..., Tensor]:
        return lambda *inputs: reduce(getattr(by, name)(*inputs))()

    states = {name: summed(name) for name in ("to_state", "pairs_to_state")}
    return SimpleNamespace(from_state=by.from_state, pairs_from_state=by.pairs_from_state, **states)


def _turn(name: str, weights: Weights, channels: int) -> Tensor | nn.Module:
    """The weight of this name: its tensor, where no module wants to be called."""
    if name not in weights:
        fail("weights", f"an entry {name!r}", sorted(weights))
    turn = weights[name]
    if isinstance(turn, nn.Linear) and unmodified(turn) and turn.bias is None:
        turn = turn.weight
    if isinstance(turn, Tensor):
        check_shape(f"weights[{name!r}]", turn, channels, channels)
    return turn
