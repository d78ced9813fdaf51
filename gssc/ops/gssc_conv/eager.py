"""The convolution in its collapsed form, O(n K C), as a torch.library op with its own backward.

    U = PᵀX_o           H = P (A ⊙ U) + ((P⊙P) A_s) ⊙ X_s
    V = PᵀG             ∂X_o = P (A ⊙ V)              ∂A   = U ⊙ V
                        ∂X_s = ((P⊙P) A_s) ⊙ G        ∂A_s = (P⊙P)ᵀ (G ⊙ X_s)
    ∂P = G (A ⊙ U)ᵀ + X_o (A ⊙ V)ᵀ + 2 P ⊙ ((G ⊙ X_s) A_sᵀ)

The op returns the state U beside H, so that backward need not read X_o again. Its backward consists of the
differentiable ops of ``graph_state``, hence it can itself be differentiated.
"""

from typing import Any

import torch
from torch import Tensor

from gssc.ops.graph_state.eager import accumulate_dtype, from_state, to_state


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
    out: Tensor | None = None
    state = vectors.new_empty(0, dtype=accumulate_dtype(vectors))
    if x_o is not None and gains is not None:
        state = to_state(vectors, x_o, ptr)
        out = from_state(vectors, gains * state, ptr)
    if x_s is not None and self_gains is not None:
        own = from_state(vectors.to(accumulate_dtype(vectors)).square(), self_gains, ptr) * x_s
        out = own if out is None else out.add_(own)
    assert out is not None
    return out.to(_output_dtype(x_o, x_s)), state


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


def _setup(ctx: Any, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, Tensor]) -> None:
    x_o, *others = inputs
    # The gradient of P alone needs X_o: otherwise its memory is free as soon as nobody else needs it.
    ctx.dtype_o = None if x_o is None else x_o.dtype
    ctx.save_for_backward(x_o if ctx.needs_input_grad[2] else None, *others, output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, grad_state: Tensor | None) -> tuple[Tensor | None, ...]:
    x_o, x_s, vectors, gains, self_gains, ptr, state = ctx.saved_tensors
    need_o, need_s, need_p, need_a, need_as, _ = ctx.needs_input_grad
    d_o = d_s = d_p = d_a = d_as = None
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


conv.register_autograd(_backward, setup_context=_setup)


def gssc_conv(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
) -> Tensor:
    """H = P (A ⊙ PᵀX_o) + ((P⊙P) A_s) ⊙ X_s for every graph of the batch, [N, C]."""
    out: Tensor = conv(x_o, x_s, vectors, gains, self_gains, ptr)[0]
    return out
