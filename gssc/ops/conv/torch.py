"""The convolution in its collapsed form, O(n K C), with PyTorch's products.

    U = PᵀX_o           H = P (A ⊙ U) + ((P⊙P) A_s) ⊙ X_s + bias
    V = PᵀG             ∂X_o = P (A ⊙ V)              ∂A   = U ⊙ V
                        ∂X_s = ((P⊙P) A_s) ⊙ G        ∂A_s = (P⊙P)ᵀ (G ⊙ X_s)
    ∂P = G (A ⊙ U)ᵀ + X_o (A ⊙ V)ᵀ + 2 P ⊙ ((G ⊙ X_s) A_sᵀ)

The op returns the state U beside H, so that backward need not read X_o again. Where P has a gradient or the backward
pass is itself to be differentiated, that consists of the ops of ``graph_sums``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gssc.ops.graph_sums.torch import from_state
from gssc.ops.op import composed_gradients, op, promoted
from gssc.ops.segments import Bucket, buckets

Piece = tuple[Bucket, Tensor, Tensor]  # a group of graphs with its part of P and of P⊙P, padded: [B, size, K]
Gradients = tuple[Tensor, Tensor, Tensor, Tensor]
Saved = Sequence[Tensor | None]  # what gradients are made of: X_s, P, A, A_s, ptr, U

# By tensor of eigenvectors: `ptr`, the versions of both, and what was made of them; for a few batches at most.
_KEPT: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
MOST_KEPT = 8


def eigenvectors_once(vectors: Tensor, ptr: Tensor, *others: Tensor | None) -> tuple[list[Piece], torch.dtype]:
    """P and P⊙P by buckets of graphs, padded, and the type of products with ``others``: the widest, at least float32.

    Remembered for these tensors until one of them changes: padding takes as long as the products of a small batch, and
    layers and passes share it. As autograd does, this goes by the tensors' versions: what is written through ``.data``
    or NumPy is not noticed.
    """
    dtype = torch.float32
    for tensor in (vectors, *others):  # as `promoted`, without a call in every pass of every layer
        if tensor is not None and tensor.dtype != dtype:
            dtype = torch.promote_types(dtype, tensor.dtype)
    # Those that may change without telling: inference tensors, and what a numerical derivative moves.
    lasting = not (vectors.dtype != dtype or vectors.requires_grad or vectors.is_inference() or ptr.is_inference())
    if lasting:
        versions = (ptr._version, vectors._version)
        kept = _KEPT.get(vectors)
        if kept is not None and kept[0] is ptr and kept[1] == versions:
            return kept[2], dtype
    wide = vectors.detach().to(dtype)  # detached: a view of the tensor would keep it
    pieces = [(bucket, p, p.square()) for bucket in buckets(ptr, vectors.shape[0]) for p in (bucket.pad(wide),)]
    if lasting:
        if len(_KEPT) >= MOST_KEPT:
            _KEPT.clear()
        _KEPT[vectors] = (ptr, versions, pieces)
    return pieces, dtype


@op("gssc::conv")
def conv(
    x_o: Tensor | None, x_s: Tensor | None, vectors: Tensor, gains: Tensor | None, self_gains: Tensor | None,
    bias: Tensor | None, ptr: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """H [N, C] and U [G, K, C] (empty without the global term)."""
    if torch.is_autocast_enabled(vectors.device.type):
        with torch.autocast(vectors.device.type, enabled=False):
            return conv.function(x_o, x_s, vectors, gains, self_gains, bias, ptr)
    like = x_o if x_o is not None else x_s
    assert like is not None
    pieces, dtype = eigenvectors_once(vectors, ptr, x_o, x_s, gains, self_gains, bias)
    whole = len(pieces) == 1 and pieces[0][0].graphs is None
    out = like.new_empty(0 if whole else like.shape, dtype=dtype)
    state = out.new_zeros(0 if whole or x_o is None else (ptr.shape[0] - 1, vectors.shape[1], like.shape[1]))
    for bucket, p, squares in pieces:
        part, u = None, state
        o, s, a, a_s = (x_o, x_s, gains, self_gains) if whole else _of(bucket, (x_o, x_s), (gains, self_gains))
        if o is not None and a is not None:
            padded = o if bucket.sources is None else o.index_select(0, bucket.sources)
            u = torch.bmm(p.transpose(1, 2), padded.to(dtype).view(bucket.count, bucket.size, o.shape[1]))
            part = torch.bmm(p, a.to(dtype) * u).flatten(0, 1)
            part = part if bucket.slots is None else part.index_select(0, bucket.slots)
        if s is not None and a_s is not None:
            scale = torch.bmm(squares, a_s.to(dtype)).flatten(0, 1)
            scale = scale if bucket.slots is None else scale.index_select(0, bucket.slots)
            part = scale * s.to(dtype) if part is None else part.addcmul_(scale, s.to(dtype))
        assert part is not None
        if whole:
            out, state = part, u
        else:
            _put((out, bucket.nodes, part), (state, bucket.graphs, u))
    if bias is not None:
        out += bias
    return (out if like.dtype == dtype else out.to(promoted(x_o, x_s, bias))), state


def _of(bucket: Bucket, node_rows: Sequence[Any], graph_rows: Sequence[Any]) -> list[Any]:
    """The rows of its nodes, and of its graphs."""
    pairs = [(bucket.nodes, rows) for rows in node_rows] + [(bucket.graphs, rows) for rows in graph_rows]
    return [None if rows is None else rows.index_select(0, index) for index, rows in pairs]


def _put(*parts: tuple[Tensor, Tensor | None, Tensor]) -> None:
    """Write rows to their places in tensors, but in empty ones."""
    for target, index, rows in parts:
        assert index is not None
        if target.numel():
            target.index_copy_(0, index, rows)


def empty_results(inputs: Sequence[Any], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """H, and U of this type, for inputs as of `conv`: their shapes."""
    x_o, x_s, vectors, _, _, bias, ptr = inputs
    like = x_o if x_o is not None else x_s
    shape = (0,) if x_o is None else (ptr.shape[0] - 1, vectors.shape[1], x_o.shape[1])
    return like.new_empty(like.shape, dtype=promoted(x_o, x_s, bias)), vectors.new_empty(shape, dtype=dtype)


conv.register_fake(lambda *inputs: empty_results(inputs, promoted(*inputs[:6], least=torch.float32)))


@op("gssc::conv_backward")
def conv_backward(grad: Tensor, saved: Saved) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """∂X_o, ∂X_s [N, C], ∂A and ∂A_s like A and A_s; empty for a term that is not there. Not differentiable."""
    if torch.is_autocast_enabled(grad.device.type):
        with torch.autocast(grad.device.type, enabled=False):
            return conv_backward.function(grad, saved)
    tensors: Any = saved
    x_s, vectors, gains, self_gains, ptr, state = tensors
    pieces, dtype = eigenvectors_once(vectors, ptr, grad, x_s, gains, self_gains, state)
    whole = len(pieces) == 1 and pieces[0][0].graphs is None
    wanted, grad = grad.dtype, grad.to(dtype)
    d_o = d_s = d_a = d_as = grad.new_empty(0)
    if not whole:
        d_o, d_s, d_a, d_as = empty_gradients(grad, saved)
        d_a.zero_()
        d_as.zero_()
    for bucket, p, squares in pieces:
        part_o, part_s, part_a, part_as = grad.new_empty(0), grad.new_empty(0), grad.new_empty(0), grad.new_empty(0)
        g, s, a, a_s, u = grad, x_s, gains, self_gains, state
        if not whole:
            g, s, a, a_s, u = _of(bucket, (grad, x_s), (gains, self_gains, None if gains is None else state))
        if a is not None:
            padded = g if bucket.sources is None else g.index_select(0, bucket.sources)
            answer = torch.bmm(p.transpose(1, 2), padded.view(bucket.count, bucket.size, g.shape[1]))
            part_o = torch.bmm(p, a.to(dtype) * answer).flatten(0, 1)
            part_o = part_o if bucket.slots is None else part_o.index_select(0, bucket.slots)
            part_a = answer.mul_(u)
            part_a = part_a.sum(2, keepdim=True) if a.shape[2] == 1 else part_a
        if s is not None and a_s is not None:
            scale = torch.bmm(squares, a_s.to(dtype)).flatten(0, 1)
            part_s = (scale if bucket.slots is None else scale.index_select(0, bucket.slots)) * g
            product = g * s.to(dtype)
            product = product.sum(1, keepdim=True) if a_s.shape[2] == 1 else product
            padded = product if bucket.sources is None else product.index_select(0, bucket.sources)
            part_as = torch.bmm(squares.transpose(1, 2), padded.view(bucket.count, bucket.size, product.shape[1]))
        if whole:
            d_o, d_s, d_a, d_as = part_o, part_s, part_a, part_as
        else:
            _put((d_o, bucket.nodes, part_o), (d_s, bucket.nodes, part_s))
            _put((d_a, bucket.graphs, part_a), (d_as, bucket.graphs, part_as))
    return d_o.to(wanted), d_s.to(wanted), d_a, d_as


@conv_backward.register_fake
def empty_gradients(grad: Tensor, saved: Saved) -> Gradients:
    """∂X_o and ∂X_s, ∂A and ∂A_s of the type of U, uninitialised; empty for a term that is not there."""
    tensors: Any = saved
    x_s, _, gains, self_gains, _, state = tensors
    d_o, d_s = (grad.new_empty(0 if like is None else grad.shape) for like in (gains, x_s))
    d_a, d_as = (state.new_empty(0 if gain is None else gain.shape) for gain in (gains, self_gains))
    return d_o, d_s, d_a, d_as


def setup(ctx: Any, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what `backward` needs."""
    x_o, x_s, vectors, gains, self_gains, bias, ptr = inputs
    # The gradient of P alone needs X_o: otherwise its memory is free as soon as nobody else needs it.
    kept_o = x_o if ctx.needs_input_grad[2] else None
    ctx.dtype_o, ctx.dtype_bias = None if x_o is None else x_o.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(x_s, vectors, gains, self_gains, ptr, output[1], kept_o)
    ctx.set_materialize_grads(False)


def backward(
    ctx: Any, grad: Tensor | None, grad_state: Tensor | None, gradients: Callable[..., Gradients] = conv_backward
) -> tuple[Tensor | None, ...]:
    """Gradients of the inputs of `conv`: ``gradients``, where neither P nor another derivative asks for more."""
    *saved, x_o = ctx.saved_tensors
    x_s, vectors, gains, self_gains, ptr, state = saved
    need_o, need_s, need_p, need_a, need_as, need_bias, _ = ctx.needs_input_grad
    d_o = d_s = d_a = d_as = d_bias = None
    if need_bias and grad is not None:
        d_bias = grad.sum(0).to(ctx.dtype_bias)
    if grad is not None and grad_state is None and not need_p and not torch.is_grad_enabled():
        d_o, d_s, d_a, d_as = gradients(grad, saved)
        d_o, d_a = d_o.to(ctx.dtype_o) if need_o else None, d_a.to(gains.dtype) if need_a else None
        d_s, d_as = d_s.to(x_s.dtype) if need_s else None, d_as.to(self_gains.dtype) if need_as else None
        return d_o, d_s, None, d_a, d_as, d_bias, None
    need_state = gains is not None and (need_o or need_p)
    needed, inputs = (need_state, need_s, need_p, need_a, need_as), (state, x_s, vectors, gains, self_gains)
    d_state, d_s, d_p, d_a, d_as = composed_gradients(partial(composed, ptr), inputs, needed, grad)
    # A second derivative reaches U twice: through the gradients above, which used it, and as an output of its own.
    if gains is not None and grad_state is not None:
        d_state = grad_state if d_state is None else d_state + grad_state
    if d_state is not None and need_o:
        d_o = from_state(vectors, d_state, ptr).to(ctx.dtype_o)
    if d_state is not None and need_p:
        more = from_state(x_o, d_state.transpose(1, 2), ptr).to(vectors.dtype)
        d_p = more if d_p is None else d_p + more
    return d_o, d_s, d_p, d_a, d_as, d_bias, None


def composed(
    ptr: Tensor, state: Tensor, x_s: Tensor | None, vectors: Tensor, gains: Tensor | None, self_gains: Tensor | None
) -> Tensor:
    """H up to the bias from U, [N, C], by the ops of ``graph_sums``: differentiable any number of times."""
    mixed: Any = None if gains is None else from_state(vectors, gains * state, ptr)
    if self_gains is None:
        return mixed
    scale = from_state(vectors.to(promoted(vectors, least=torch.float32)).square(), self_gains, ptr)
    return scale * x_s if mixed is None else mixed + scale * x_s


conv.register_autograd(backward, setup_context=setup)
