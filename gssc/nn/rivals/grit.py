"""GRIT: attention among all pairs of a graph, whose features begin as probabilities of random walks."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gssc.checks import check_positive, fail
from gssc.nn.norm import make_norm
from gssc.nn.rivals.parts import GlobalPart
from gssc.ops.attention import layouts
from gssc.ops.context import GraphContext
from gssc.ops.segments import Bucket


class Grit(GlobalPart):
    r"""Attention whose weights and values read features of pairs, which every layer updates.

    .. math::
        \hat e_{uv} = \mathrm{ReLU}\big(\rho((Q x_u + K x_v) \odot W_w e_{uv}) + W_b e_{uv}\big), \qquad
        \alpha_{uv} = \mathrm{softmax}_v \langle a, \hat e_{uv}\rangle

        \hat x_u = \sum_v \alpha_{uv} (V x_v + W_v \hat e_{uv}), \qquad
        h_u = W_o \big(\theta_1 \odot \hat x_u + \log(1 + d_u)\, \theta_2 \odot \hat x_u\big), \qquad
        e_{uv} \leftarrow \mathrm{norm}(e_{uv} + W_e \hat e_{uv})

    with :math:`\rho(x) = \mathrm{sign}(x) \sqrt{|x|}`, degrees d, and a and W_v per head. Before the first layer
    :math:`e_{uv} = W [I, M, M^2, …]_{uv}` with M = D^-1 A. From `Graph Inductive Biases in Transformers without
    Message Passing <https://arxiv.org/abs/2305.17589>`_. Equivariant to permutations of nodes.

    Features of pairs are padded by size of graphs, as for softmax attention; of each layer two such tensors are kept
    for the backward pass, and what is between them is computed again.

    Args:
        channels: C, channels of nodes and of pairs.
        heads: Attention heads; must divide ``channels``.
        first: Whether it is the first layer, with which pairs begin.
        last: Whether it is the last one, after which nobody reads them.
        steps: Powers of M, from 0.
    """

    def __init__(self, channels: int, heads: int = 4, first: bool = True, last: bool = False, steps: int = 16) -> None:
        super().__init__(channels, heads)
        check_positive("steps", steps)
        self.steps, width = steps, channels // heads
        self.lin_walks = nn.Linear(steps, channels) if first else None
        self.lin_qkv = nn.Linear(channels, 3 * channels)
        self.lin_gate = nn.Linear(channels, 2 * channels)
        self.lin_out = nn.Linear(channels, channels)
        self.lin_pairs = None if last else nn.Linear(channels, channels)
        self.norm_pairs = None if last else make_norm("batch", channels)
        self.score = nn.Parameter(torch.empty(heads, width))
        self.value = nn.Parameter(torch.empty(heads, width, width))
        self.scale = nn.Parameter(torch.empty(2, channels))
        self._draw()

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        super().reset_parameters()
        self._draw()

    def _draw(self) -> None:
        nn.init.xavier_normal_(self.score)
        nn.init.xavier_normal_(self.value)
        with torch.no_grad():  # degrees begin as if they did not matter
            self.scale.copy_(torch.tensor([[1.0], [0.0]]).expand_as(self.scale))

    def mix(self, x: Tensor, context: GraphContext) -> Tensor:
        pairs: Pairs | None = context.carried.get("pairs")
        if pairs is None:
            if self.lin_walks is None:
                fail("first", "True, for a layer before which there is no other", "False")
            pairs = Pairs(context, x.dtype)
            features = [self.lin_walks(walks) for walks in pairs.walks(context, self.steps, x.dtype)]
        else:
            features = pairs.features
        q, k, v = self.lin_qkv(x).chunk(3, dim=1)
        out, hidden = torch.zeros_like(v), []
        for (bucket, beyond), valid, e in zip(pairs.layouts, pairs.valid, features, strict=True):
            inputs = (*map(bucket.pad, (q, k, v)), e, valid)
            if torch.is_grad_enabled():
                rows, hat = checkpoint(self._attend, *inputs, use_reentrant=False, preserve_rng_state=False)
            else:
                rows, hat = self._attend(*inputs)
            bucket.unpad(rows, out)
            if beyond is not None:
                out = out.masked_fill(beyond, 0.0)
            hidden.append(hat)
        if self.lin_pairs is not None and self.norm_pairs is not None:
            shapes = [e.shape for e in features]
            flat = [(e + self.lin_pairs(hat)).flatten(0, 2) for e, hat in zip(features, hidden, strict=True)]
            rows = self.norm_pairs(flat[0] if len(flat) == 1 else torch.cat(flat), pairs.mask)
            parts = rows.split([part.shape[0] for part in flat])
            pairs = pairs.updated([part.view(shape) for part, shape in zip(parts, shapes, strict=True)])
            context.carried["pairs"] = pairs
        theta, degree = self.scale, torch.log1p(context.degree).to(out.dtype).unsqueeze(1)
        return self.lin_out(out * (theta[0] + degree * theta[1]))

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, e: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """q, k, v [B, n, C], e [B, n, n, C] -> what nodes get [B, n, C], and ê."""
        weight, bias = self.lin_gate(e).chunk(2, dim=3)
        product = (q.unsqueeze(2) + k.unsqueeze(1)) * weight
        # The square root with a gradient at zero, where padding is.
        hat = (product.sign() * product.abs().clamp(min=1e-12).sqrt() + bias).relu()
        by_head = hat.unflatten(3, (self.heads, -1))
        score = (by_head * self.score).sum(4).clamp(-5.0, 5.0)  # [B, n, n, heads]
        if valid is not None:
            score = score.masked_fill(~valid[:, None, :, None], -1e4)
        alpha = score.softmax(2)
        values = torch.einsum("buvh,bvhd->buhd", alpha, v.unflatten(2, (self.heads, -1)))
        read = (alpha.unsqueeze(4) * by_head).sum(2)
        return (values + torch.einsum("buhd,hde->buhe", read, self.value)).flatten(2), hat


class Pairs:
    """Pairs of nodes of the same graph, in buckets [B, n, n, C] of padded graphs; made once for all layers."""

    def __init__(self, context: GraphContext, dtype: torch.dtype) -> None:
        self.layouts: list[tuple[Bucket, Tensor | None]] = layouts(context.ptr, context.nodes, context.largest or 0)
        self.valid: list[Tensor | None] = []
        self.features: list[Tensor] = []
        masks = []
        real = torch.ones(context.nodes, 1, device=context.ptr.device)
        if context.node_mask is not None:
            real = context.node_mask.unsqueeze(1).to(real.dtype)
        for bucket, _ in self.layouts:
            padded = bucket.pad(real).squeeze(2) > 0
            padding = bucket.slots is not None or context.node_mask is not None
            self.valid.append(padded if padding else None)
            masks.append((padded.unsqueeze(2) & padded.unsqueeze(1)).flatten())
        some = any(valid is not None for valid in self.valid)
        self.mask = torch.cat(masks) if some else None

    def updated(self, features: list[Tensor]) -> "Pairs":
        """The same pairs with other features."""
        out = object.__new__(Pairs)
        vars(out).update(vars(self) | {"features": features})
        return out

    @torch.no_grad()
    def walks(self, context: GraphContext, steps: int, dtype: torch.dtype) -> list[Tensor]:
        """[I, M, M², …] of every bucket, [B, n, n, steps]."""
        if context.edge_index is None:
            fail("edge_index", "the edges, in context", "None")
        everywhere = torch.arange(context.nodes, device=context.ptr.device)
        parts: list[Any] = []
        for bucket, _ in self.layouts:
            source, target = context.edge_index
            slots = everywhere if bucket.slots is None else bucket.slots
            if bucket.nodes is not None:  # other edges are of other buckets
                slots = torch.full_like(everywhere, -1).index_copy_(0, bucket.nodes, slots)
                inside = slots[source] >= 0
                source, target = source[inside], target[inside]
            at = slots[source] * bucket.size + slots[target] % max(bucket.size, 1)
            count, n = bucket.count, bucket.size
            adjacency = torch.zeros(count * n * n, dtype=dtype, device=at.device)
            adjacency = adjacency.index_add_(0, at, torch.ones_like(at, dtype=dtype)).view(count, n, n)
            parts.append(random_walks(adjacency, steps))
        return parts


def random_walks(adjacency: Tensor, steps: int) -> Tensor:
    """RRWP: powers 0 … steps - 1 of M = D^-1 A, [B, n, n] -> [B, n, n, steps]; rows without edges are zero."""
    walk = adjacency / adjacency.sum(2, keepdim=True).clamp(min=1)
    powers = [torch.eye(walk.shape[1], dtype=walk.dtype, device=walk.device).expand_as(walk)]
    with torch.autocast(walk.device.type, enabled=False):
        while len(powers) < steps:
            powers.append(powers[-1] @ walk)
    return torch.stack(powers, dim=3)
