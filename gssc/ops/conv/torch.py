"""The convolution in its collapsed form, O(n K C), as a torch.library op with its own backward.

    U = PᵀX_o           H = P (A ⊙ U) + ((P⊙P) A_s) ⊙ X_s
    V = PᵀG             ∂X_o = P (A ⊙ V)              ∂A   = U ⊙ V
                        ∂X_s = ((P⊙P) A_s) ⊙ G        ∂A_s = (P⊙P)ᵀ (G ⊙ X_s)
    ∂P = G (A ⊙ U)ᵀ + X_o (A ⊙ V)ᵀ + 2 P ⊙ ((G ⊙ X_s) A_sᵀ)

The op returns the state U beside H, so that backward need not read X_o again. Its backward is one op, too; where P has
a gradient or the backward pass is itself to be differentiated, it consists of the ops of ``graph_state``. On a CPU,
where nothing traces the program, ``plain.py`` calls the same two functions without the ops.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from gssc.ops.graph_sums.torch import accumulate_dtype, from_state, to_state
from gssc.ops.segments import Bucket, Uniform, buckets

Pieces = list[tuple[Bucket | Uniform, Tensor]]


def convolve(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
) -> tuple[Tensor, Tensor]:
    """H [N, C] and U [G, K, C] (empty without the global term)."""
    dtype = accumulate_dtype(vectors, *(x for x in (x_o, x_s, gains, self_gains) if x is not None))
    pieces, sizes = _pieces(ptr, vectors, dtype), (ptr.numel() - 1, vectors.shape[1])
    out: Tensor | None = None
    state = vectors.new_empty(0, dtype=accumulate_dtype(vectors))
    with without_autocast(vectors):
        if x_o is not None and gains is not None:
            state = _to_graphs(pieces, x_o.to(dtype), *sizes)
            out = _to_nodes(pieces, gains.to(dtype) * state, x_o.shape[0])
        if x_s is not None and self_gains is not None:
            scale, own = _to_nodes(_squared(pieces), self_gains.to(dtype), x_s.shape[0]), x_s.to(dtype)
            out = scale * own if out is None else out.addcmul_(scale, own)
    assert out is not None
    state_dtype = accumulate_dtype(vectors) if x_o is None else accumulate_dtype(vectors, x_o)
    return out.to(_output_dtype(x_o, x_s)), state.to(state_dtype)


def _pieces(ptr: Tensor, vectors: Tensor, dtype: torch.dtype) -> Pieces:
    """The buckets of a batch with their part of P, padded: [B, size, K]."""
    return [(bucket, bucket.pad(vectors.to(dtype))) for bucket in buckets(ptr, vectors.shape[0])]


def _squared(pieces: Pieces) -> Pieces:
    """The same with P⊙P."""
    return [(bucket, p.square()) for bucket, p in pieces]


def _to_graphs(pieces: Pieces, rows: Tensor, graphs: int, frequencies: int) -> Tensor:
    """Pᵀ of rows [N, D], [G, K, D]."""
    if len(pieces) == 1 and pieces[0][0].whole:
        bucket, p = pieces[0]
        return torch.bmm(p.transpose(1, 2), bucket.repeat(rows))
    out = rows.new_zeros(graphs, frequencies, rows.shape[1])
    for bucket, p in pieces:
        bucket.put(torch.bmm(p.transpose(1, 2), bucket.repeat(rows)), out)
    return out


def _to_nodes(pieces: Pieces, states: Tensor, nodes: int) -> Tensor:
    """P of states [G, K, D], [N, D]."""
    out = states.new_empty(nodes, states.shape[2])
    for bucket, p in pieces:
        bucket.unpad(torch.bmm(p, bucket.of(states)), out)
    return out


def without_autocast(like: Tensor) -> AbstractContextManager[Any]:
    """Products in the precision of their operands."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()


def gradients(
    grad: Tensor,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """∂X_o, ∂X_s [N, C], ∂A and ∂A_s like A and A_s; empty for a term that is not there."""
    dtype = accumulate_dtype(vectors, grad, state, *(x for x in (x_s, gains, self_gains) if x is not None))
    pieces, sizes = _pieces(ptr, vectors, dtype), (ptr.numel() - 1, vectors.shape[1])
    answer_dtype = grad.dtype
    grad = grad.to(dtype)
    d_o, d_s, d_a, d_as = (grad.new_empty(0) for _ in range(4))
    with without_autocast(vectors):
        if gains is not None:
            answer = _to_graphs(pieces, grad, *sizes)
            d_o = _to_nodes(pieces, gains.to(dtype) * answer, grad.shape[0])
            d_a = answer.mul_(state).sum_to_size(gains.shape)
        if x_s is not None and self_gains is not None:
            squares = _squared(pieces)
            product = grad * x_s.to(dtype)
            if self_gains.shape[2] == 1:
                product = product.sum(1, keepdim=True)
            d_as = _to_graphs(squares, product, *sizes)
            d_s = _to_nodes(squares, self_gains.to(dtype), x_s.shape[0]) * grad
    return d_o.to(answer_dtype), d_s.to(answer_dtype), d_a.to(answer_dtype), d_as.to(answer_dtype)


@torch.library.custom_op("gssc::conv", mutates_args=())
def conv(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
) -> tuple[Tensor, Tensor]:
    """H [N, C] and U [G, K, C] (empty without the global term)."""
    return convolve(x_o, x_s, vectors, gains, self_gains, ptr)


@torch.library.custom_op("gssc::conv_backward", mutates_args=())
def conv_backward(
    grad: Tensor,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """∂X_o, ∂X_s [N, C], ∂A and ∂A_s like A and A_s; empty for a term that is not there. Not differentiable."""
    return gradients(grad, x_s, vectors, gains, self_gains, ptr, state)


@conv_backward.register_fake
def _(
    grad: Tensor,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    def like(tensor: Tensor | None, shape: Any) -> Tensor:
        return grad.new_empty(0 if tensor is None else shape)

    return (
        like(gains, grad.shape),
        like(self_gains, grad.shape),
        like(gains, gains.shape if gains is not None else 0),
        like(self_gains, self_gains.shape if self_gains is not None else 0),
    )


@conv.register_fake
def _(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
) -> tuple[Tensor, Tensor]:
    like = x_o if x_o is not None else x_s
    assert like is not None
    if x_o is None:
        state = vectors.new_empty(0, dtype=accumulate_dtype(vectors))
    else:
        shape = (ptr.shape[0] - 1, vectors.shape[1], x_o.shape[1])
        state = vectors.new_empty(shape, dtype=accumulate_dtype(vectors, x_o))
    return torch.empty_like(like, dtype=_output_dtype(x_o, x_s), memory_format=torch.contiguous_format), state


def _output_dtype(x_o: Tensor | None, x_s: Tensor | None) -> torch.dtype:
    if x_o is None or x_s is None:
        like = x_o if x_o is not None else x_s
        assert like is not None
        return like.dtype
    return torch.promote_types(x_o.dtype, x_s.dtype)


def setup(ctx: Any, inputs: tuple[Tensor | None, ...], output: Sequence[Tensor]) -> None:
    """Keep what `backward` needs."""
    x_o, *others = inputs
    # The gradient of P alone needs X_o: otherwise its memory is free as soon as nobody else needs it.
    ctx.dtype_o = None if x_o is None else x_o.dtype
    ctx.save_for_backward(x_o if ctx.needs_input_grad[2] else None, *others, output[1])
    ctx.set_materialize_grads(False)


def backward(
    ctx: Any,
    grad: Tensor | None,
    grad_state: Tensor | None,
    by: Callable[..., tuple[Tensor, ...]] = conv_backward,
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs of `conv`; ``by`` computes them where neither P nor another derivative asks for more."""
    x_o, x_s, vectors, gains, self_gains, ptr, state = ctx.saved_tensors
    need_o, need_s, need_p, need_a, need_as, _ = ctx.needs_input_grad
    d_o = d_s = d_p = d_a = d_as = None
    if grad is not None and grad_state is None and not need_p and not torch.is_grad_enabled():
        results = by(grad, x_s, vectors, gains, self_gains, ptr, state)
        wanted = ((need_o, ctx.dtype_o), (need_s, x_s), (need_a, gains), (need_as, self_gains))
        given = [
            value.to(like if isinstance(like, torch.dtype) else like.dtype) if need and like is not None else None
            for value, (need, like) in zip(results, wanted, strict=True)
        ]
        return given[0], given[1], None, given[2], given[3], None
    # A second derivative reaches U twice: through the gradients below, which used it, and as an output of its own.
    d_state = grad_state
    if gains is not None and grad is not None:
        answer = to_state(vectors, grad, ptr)
        d_state = gains * answer if grad_state is None else gains * answer + grad_state
        if need_a:
            d_a = (state * answer).sum_to_size(gains.shape).to(gains.dtype)
        if need_p:
            d_p = from_state(grad, (gains * state).transpose(1, 2), ptr)
    if gains is not None and d_state is not None:
        if need_o:
            d_o = from_state(vectors, d_state, ptr).to(ctx.dtype_o)
        if need_p:
            d_p = _add(d_p, from_state(x_o, d_state.transpose(1, 2), ptr))
    if self_gains is not None and grad is not None and (need_s or need_as or need_p):
        squares = vectors.to(accumulate_dtype(vectors)).square()
        if need_s:
            d_s = (from_state(squares, self_gains, ptr) * grad).to(x_s.dtype)
        if need_as or need_p:
            product = grad.to(squares.dtype) * x_s
            if self_gains.shape[2] == 1:
                product = product.sum(1, keepdim=True)
            if need_as:
                d_as = to_state(squares, product, ptr).to(self_gains.dtype)
            if need_p:
                d_p = _add(d_p, 2.0 * vectors * from_state(product, self_gains.transpose(1, 2), ptr))
    return d_o, d_s, None if d_p is None else d_p.to(vectors.dtype), d_a, d_as, None


def _add(left: Tensor | None, right: Tensor) -> Tensor:
    return right if left is None else left + right


conv.register_autograd(backward, setup_context=setup)
