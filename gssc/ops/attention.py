"""Softmax attention inside each graph of a packed batch: the quadratic rival.

    W = softmax(Q Kᵀ / sqrt(D)),  O = W V
    ∂V = Wᵀ∂O,   ∂W = ∂O Vᵀ,   ∂S = W ⊙ (∂W - rowsum(∂W ⊙ W)),   ∂Q = ∂S K / sqrt(D),   ∂K = ∂Sᵀ Q / sqrt(D)

per graph and head, D = C / heads. Graphs are padded by size (see ``segments``), never to the largest graph of the
batch; keys that are padding are masked. Nothing of size n² is kept between the passes: backward computes again, by
PyTorch's fused kernels where there are some, which store no W at all.

Sorting graphs by size means asking the device for the sizes. Where that must not be (inside a CUDA graph), ``largest``
bounds them and all graphs are padded to it: more products with zeros, but shapes that are known beforehand.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from gssc.ops.op import empty_like, op
from gssc.ops.segments import Bucket, buckets


def layouts(ptr: Tensor, nodes: int, largest: int) -> list[tuple[Bucket, Tensor | None]]:
    """Graphs padded by size, or all to ``largest`` unless it is 0; and which nodes are beyond that."""
    return [_bounded(ptr, nodes, largest)] if largest else [(bucket, None) for bucket in buckets(ptr, nodes)]


def _bounded(ptr: Tensor, nodes: int, largest: int) -> tuple[Bucket, Tensor]:
    """All graphs padded to one size, found on the device, and which nodes [N, 1] are beyond ``largest``.

    Those (only nodes of padding may be) neither attend nor are attended to: they share a slot of one more graph.
    """
    size = -(-largest // 16) * 16  # fused attention wants rows of a mask to begin at such places
    node, graphs = torch.arange(nodes, device=ptr.device), ptr.shape[0] - 1
    graph = torch.searchsorted(ptr[1:].contiguous(), node, right=True)
    within = node - ptr.index_select(0, graph)
    beyond = within >= largest
    slots = torch.where(beyond, graphs * size, graph * size + within)
    return Bucket(graphs + 1, size, slots=slots), beyond.unsqueeze(1)


def _per_graph(
    function: Callable[..., Any], rows: tuple[Tensor, ...], out: Any, ptr: Tensor, heads: int, largest: int
) -> Any:
    """Apply a function of [B, heads, n, D] tensors and a key mask [B, 1, 1, n] (or None) to packed rows [N, C].

    Results are written into ``out``, which is returned.
    """
    nodes = rows[0].shape[0]
    with torch.autocast(ptr.device.type, enabled=False):
        for bucket, beyond in layouts(ptr, nodes, largest):
            visible = None
            if bucket.slots is not None:
                visible = bucket.pad(rows[0].new_ones(nodes, 1)).squeeze(2).bool()[:, None, None, :]
            split = [bucket.pad(row).unflatten(2, (heads, -1)).transpose(1, 2) for row in rows]
            for result, into in zip(function(*split, visible), out, strict=True):
                bucket.unpad(result.transpose(1, 2).flatten(2), into)
                if beyond is not None:
                    into.masked_fill_(beyond, 0)
    return out


def _forward_padded(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> tuple[Tensor, ...]:
    return (F.scaled_dot_product_attention(q, k, v, attn_mask=visible),)


def _backward_padded(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    # The derivative of fused attention stores no scores; it adds in any order, and cannot be differentiated.
    if not torch.is_grad_enabled() and not torch.are_deterministic_algorithms_enabled():
        with torch.enable_grad():
            inputs = q_in, k_in, v_in = tuple(rows.detach().requires_grad_() for rows in (q, k, v))
            (out,) = _forward_padded(q_in, k_in, v_in, visible)
        if out.requires_grad:  # not where a compiler has called
            d_q, d_k, d_v = torch.autograd.grad(out, inputs, grad)
            return d_q, d_k, d_v
    scale = q.shape[-1] ** -0.5
    scores = (q @ k.transpose(-1, -2)).float() * scale if q.dtype.itemsize < 4 else q @ k.transpose(-1, -2) * scale
    if visible is not None:
        scores = scores.masked_fill(~visible, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    d_weights = (grad @ v.transpose(-1, -2)).to(weights.dtype)
    d_scores = weights * (d_weights - (d_weights * weights).sum(-1, keepdim=True))
    weights, d_scores = weights.to(q.dtype), (d_scores * scale).to(q.dtype)
    return d_scores @ k, d_scores.transpose(-1, -2) @ q, weights.transpose(-1, -2) @ grad


def _like(*rows: Tensor) -> tuple[Tensor, ...]:
    return tuple(map(empty_like, rows))


@op("gssc::attention", fake=empty_like)
def _attention(q: Tensor, k: Tensor, v: Tensor, ptr: Tensor, heads: int, largest: int) -> Tensor:
    return _per_graph(_forward_padded, (q, k, v), _like(q), ptr, heads, largest)[0]


@op("gssc::attention_backward", fake=lambda grad, q, k, v, *_: _like(q, k, v))
def _attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, ptr: Tensor, heads: int, largest: int
) -> tuple[Tensor, Tensor, Tensor]:
    return _per_graph(_backward_padded, (grad, q, k, v), _like(q, k, v), ptr, heads, largest)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])
    ctx.sizes = inputs[4:]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return (*_attention_backward(grad, *ctx.saved_tensors, *ctx.sizes), None, None, None)


_attention.register_autograd(_backward, setup_context=_setup)


def attention(q: Tensor, k: Tensor, v: Tensor, ptr: Tensor, heads: int, largest: int | None = None) -> Tensor:
    """softmax(q kᵀ / sqrt(C / heads)) v within every graph: q, k, v [N, C], ptr [G + 1] -> [N, C].

    ``largest`` is a bound on the nodes of a graph that spares a look at ``ptr`` on the host (which also checks it);
    ``None``: look.
    """
    return _attention(q, k, v, ptr, heads, largest or 0)
