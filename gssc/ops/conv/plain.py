"""The convolution for a CPU where nothing traces the program: ``eager.py`` without its ops, and lean for small batches.

The way through the dispatcher and back to Python takes as long as a small batch. So does padding eigenvectors: they are
padded once for all layers, forward and backward, and kept as long as the tensor of eigenvectors lives. Where one bucket
holds all graphs and all numbers are of one type, the usual case, nothing is done but the products.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from gssc.ops.conv import torch as eager
from gssc.ops.plain import is_plain_cpu
from gssc.ops.segments import Bucket, Uniform, buckets


@dataclass(frozen=True)
class Eigenvectors:
    """P of a batch whose graphs are one bucket, padded [G, size, K], and P⊙P; both also transposed."""

    bucket: Bucket | Uniform
    p: Tensor
    squares: Tensor
    p_t: Tensor
    squares_t: Tensor

    @classmethod
    def of(cls, ptr: Tensor, vectors: Tensor) -> "Eigenvectors | None":
        """None where graphs are so different in size that there are several buckets, or none."""
        groups = buckets(ptr, vectors.shape[0])
        if len(groups) != 1 or not groups[0].whole:
            return None
        p = groups[0].pad(vectors)
        squares = p.square()
        return cls(groups[0], p, squares, p.transpose(1, 2), squares.transpose(1, 2))

    def to_nodes(self, padded: Tensor) -> Tensor:
        """Rows [G, size, D] as those of the packed batch [N, D]."""
        rows = padded.flatten(0, 1)
        return rows if isinstance(self.bucket, Uniform) else rows.index_select(0, self.bucket.slots)


# By tensor of eigenvectors: `ptr`, the versions of both, and what was made of them; for a few batches at most.
_KEPT: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
MOST_KEPT = 8


def eigenvectors_once(ptr: Tensor, vectors: Tensor) -> Eigenvectors | None:
    """``Eigenvectors.of``, remembered for these tensors until one of them changes.

    As autograd does, this goes by the tensors' versions: what is written through ``.data`` or NumPy is not noticed.
    """
    # Those that may change without telling: inference tensors, and what a numerical derivative moves.
    if ptr.is_inference() or vectors.is_inference() or vectors.requires_grad:
        return Eigenvectors.of(ptr, vectors)
    versions = (ptr._version, vectors._version)
    kept = _KEPT.get(vectors)
    if kept is not None and kept[0] is ptr and kept[1] == versions:
        found: Eigenvectors | None = kept[2]
        return found
    made = Eigenvectors.of(ptr, vectors)
    if made is None or isinstance(made.bucket, Bucket):  # of the others P is a view, which would keep itself
        if len(_KEPT) >= MOST_KEPT:
            _KEPT.clear()
        _KEPT[vectors] = (ptr, versions, made)
    return made


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Any:
        x_o, x_s, vectors, gains, self_gains, ptr = inputs
        dtype = vectors.dtype
        same = dtype in (torch.float32, torch.float64)
        same = same and all(t is None or t.dtype == dtype for t in (x_o, x_s, gains, self_gains))
        ctx.at, ctx.scale = eigenvectors_once(ptr, vectors) if same else None, None
        if ctx.at is None:
            out, state = eager.convolve(*inputs)
        else:
            with eager.without_autocast(vectors):
                out, state, ctx.scale = convolve(ctx.at, x_o, x_s, gains, self_gains)
        eager.setup(ctx, inputs, (out, state))
        return out, state

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        grad, grad_state = grads
        further = grad is None or grad_state is not None or ctx.needs_input_grad[2] or torch.is_grad_enabled()
        if ctx.at is None or further or grad.dtype != ctx.at.p.dtype:
            return eager.backward(ctx, grad, grad_state, eager.gradients)
        _, x_s, vectors, gains, _, _, state = ctx.saved_tensors
        with eager.without_autocast(vectors):
            return gradients(ctx.at, ctx.scale, grad, x_s, gains, state)


def convolve(
    at: Eigenvectors, x_o: Tensor | None, x_s: Tensor | None, gains: Tensor | None, self_gains: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """H [N, C], U [G, K, C] (empty without the global term) and (P⊙P) A_s [N, C or 1] (None without the other)."""
    out, state, scale = None, at.p.new_empty(0), None
    if x_o is not None and gains is not None:
        state = torch.bmm(at.p_t, at.bucket.repeat(x_o))
        out = at.to_nodes(torch.bmm(at.p, gains * state))
    if x_s is not None and self_gains is not None:
        scale = at.to_nodes(torch.bmm(at.squares, self_gains))
        out = scale * x_s if out is None else out.addcmul_(scale, x_s)
    assert out is not None
    return out, state, scale


def gradients(
    at: Eigenvectors, scale: Tensor | None, grad: Tensor, x_s: Tensor | None, gains: Tensor | None, state: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of the six inputs of the convolution; none for P."""
    d_o = d_s = d_a = d_as = None
    if gains is not None:
        answer = torch.bmm(at.p_t, at.bucket.repeat(grad))
        d_o = at.to_nodes(torch.bmm(at.p, gains * answer))
        d_a = answer.mul_(state)
        if gains.shape[2] == 1:
            d_a = d_a.sum(2, keepdim=True)
    if scale is not None:
        assert x_s is not None
        product = grad * x_s
        if scale.shape[1] == 1:
            product = product.sum(1, keepdim=True)
        d_as = torch.bmm(at.squares_t, at.bucket.repeat(product))
        d_s = scale * grad
    return d_o, d_s, None, d_a, d_as, None


def gssc_conv(
    x_o: Tensor | None,
    x_s: Tensor | None,
    vectors: Tensor,
    gains: Tensor | None,
    self_gains: Tensor | None,
    ptr: Tensor,
) -> Tensor:
    """H = P (A ⊙ PᵀX_o) + ((P⊙P) A_s) ⊙ X_s for every graph of the batch, [N, C]."""
    inputs = (x_o, x_s, vectors, gains, self_gains, ptr)
    out: Tensor = (_Conv.apply if is_plain_cpu(*inputs) else eager.conv)(*inputs)[0]
    return out
