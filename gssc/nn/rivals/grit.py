"""GRIT: attention among all pairs of a graph, whose features begin as probabilities of random walks."""

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gssc.checks import fail
from gssc.nn.global_part import GlobalPart
from gssc.nn.norm import make_norm
from gssc.ops.attention import layouts
from gssc.ops.context import GraphContext
from gssc.ops.segments import Bucket

# Buckets of padded graphs with nodes beyond the largest, and those that are there [B, n] (None: all are); which pairs
# are there, of all buckets; features [B, n, n, C].
Pairs = tuple[list[tuple[Bucket, Tensor | None, Tensor | None]], Tensor | None, list[Tensor]]
LARGE = 2**24  # numbers of pairs, from which on memory is worth computing them again


class Grit(GlobalPart):
    r"""Attention whose weights and values read features of pairs, which every layer updates.

    .. math::
        \hat e_{uv} = \mathrm{ReLU}\big(\rho((Q x_u + K x_v) \odot W_w e_{uv}) + W_b e_{uv}\big), \qquad
        \alpha_{uv} = \mathrm{softmax}_v \langle a, \hat e_{uv}\rangle

        \hat x_u = \sum_v \alpha_{uv} (V x_v + W_v \hat e_{uv}), \qquad
        h_u = W_o \big(\theta_1 \odot \hat x_u + \log(1 + d_u)\, \theta_2 \odot \hat x_u\big), \qquad
        e_{uv} \leftarrow \mathrm{norm}(e_{uv} + W_e \hat e_{uv})

    with :math:`\rho(x) = \mathrm{sign}(x) \sqrt{|x|}`, degrees d, and a and W_v per head. Before the first layer
    :math:`e_{uv} = W [I, M, M^2, …]_{uv}` with M = D^-1 A, plus the features of an edge from u to v. From `Graph
    Inductive Biases in Transformers without Message Passing <https://arxiv.org/abs/2305.17589>`_, which has no local
    part. Equivariant to permutations of nodes.

    Features of pairs are padded by size of graphs, as for softmax attention; where they are many, two such tensors of
    each layer are kept for the backward pass, and what is between them is computed again.

    Args:
        first: Whether it is the first layer, with which pairs begin.
        last: Whether it is the last one, after which nobody reads them.
        steps: Powers of M, from 0.
    """

    reads_edges = True

    def __init__(self, channels: int, heads: int = 4, first: bool = True, last: bool = False, steps: int = 16) -> None:
        super().__init__(channels, heads)
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
        self.draw()

    def draw(self) -> None:
        nn.init.xavier_normal_(self.score)
        nn.init.xavier_normal_(self.value)
        nn.init.ones_(self.scale[0])
        nn.init.zeros_(self.scale[1])  # as if degrees did not matter

    def mix(self, x: Tensor, context: GraphContext) -> Tensor:
        pairs = context.carried.get("pairs")
        if pairs is None:
            if self.lin_walks is None:
                fail("first", "True, for a layer before which there is no other", "False")
            pairs = all_pairs(context, self.steps, x.dtype, self.lin_walks)
        parts, mask, features = pairs
        qkv, updated = self.lin_qkv(x), []
        out = torch.zeros_like(qkv[:, : self.channels])
        for (bucket, beyond, valid), e in zip(parts, features, strict=True):
            inputs = bucket.pad(qkv), e, valid
            if torch.is_grad_enabled() and e.numel() > LARGE:
                rows, hat = checkpoint(self._attend, *inputs, use_reentrant=False, preserve_rng_state=False)
            else:
                rows, hat = self._attend(*inputs)
            bucket.unpad(rows.to(out.dtype), out)
            out = out if beyond is None else out.masked_fill(beyond, 0.0)
            if self.lin_pairs is not None:
                updated.append((e + self.lin_pairs(hat)).flatten(0, 2))
        if self.norm_pairs is not None:
            rows = self.norm_pairs(torch.cat(updated) if len(updated) > 1 else updated[0], mask)
            rows = rows.split([part.shape[0] for part in updated])
            context.carried["pairs"] = parts, mask, [row.view(e.shape) for row, e in zip(rows, features, strict=True)]
        degree = torch.log1p(context.degree).to(out.dtype).unsqueeze(1)
        return self.lin_out(out * (self.scale[0] + degree * self.scale[1]))

    def _attend(self, qkv: Tensor, e: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """q, k, v side by side [B, n, 3 C], e [B, n, n, C] -> what nodes get [B, n, C], and ê."""
        q, k, v = qkv.chunk(3, dim=2)
        weight, bias = self.lin_gate(e).chunk(2, dim=3)
        product = (q.unsqueeze(2) + k.unsqueeze(1)) * weight
        hat = (product * (product.abs() + 1e-12).rsqrt() + bias).relu()  # with a gradient at zero, where padding is
        # Heads side by side in one matrix, of whose products some blocks are read: no pass over pairs is made twice.
        blocks = self.score.unsqueeze(2) * torch.eye(self.heads, dtype=e.dtype, device=e.device).unsqueeze(1)
        score = (hat @ blocks.flatten(0, 1)).clamp(-5.0, 5.0)  # [B, n, n, heads]
        if valid is not None:
            score = score.masked_fill(~valid[:, None, :, None], -1e4)
        alpha = score.softmax(2)
        values = torch.einsum("buvh,bvhd->buhd", alpha, v.unflatten(2, (self.heads, -1)))
        read = (alpha.transpose(2, 3) @ hat).unflatten(3, (self.heads, -1)).diagonal(dim1=2, dim2=3)
        return (values + torch.einsum("budh,hde->buhe", read, self.value)).flatten(2), hat


def all_pairs(context: GraphContext, steps: int, dtype: torch.dtype, lin_walks: nn.Linear) -> Pairs:
    """The pairs of a batch, whose features are powers of M and those of edges."""
    assert context.edge_index is not None
    buckets, device = layouts(context.ptr, context.nodes, context.largest or 0), context.ptr.device
    real = torch.ones(context.nodes, 1, dtype=dtype, device=device)
    real = real if context.node_mask is None else context.node_mask.unsqueeze(1).to(dtype)
    full = context.node_mask is None and all(bucket.slots is None for bucket, _ in buckets)
    everywhere, parts, masks, features = torch.arange(context.nodes, device=device), [], [], []
    for bucket, beyond in buckets:
        count, n = bucket.count, bucket.size
        (source, target), slots = context.edge_index, everywhere if bucket.slots is None else bucket.slots
        attr = context.edge_attr
        if bucket.nodes is not None:  # other edges are of other buckets
            slots = torch.full_like(everywhere, -1).index_copy_(0, bucket.nodes, slots)
            inside = slots[source] >= 0
            (source, target), attr = context.edge_index[:, inside], None if attr is None else attr[inside]
        at = slots[source] * n + slots[target] % max(n, 1)
        adjacency = real.new_zeros(count * n * n).index_add_(0, at, torch.ones_like(at, dtype=dtype))
        features.append(lin_walks(random_walks(adjacency.view(count, n, n), steps)))
        if attr is not None:
            features[-1].flatten(0, 2).index_add_(0, at, attr.to(features[-1].dtype))
        valid = bucket.pad(real).squeeze(2) > 0
        parts.append((bucket, beyond, None if full else valid))
        masks.append((valid.unsqueeze(2) & valid.unsqueeze(1)).flatten())
    return parts, None if full else torch.cat(masks), features


def random_walks(adjacency: Tensor, steps: int) -> Tensor:
    """RRWP: powers 0 … steps - 1 of M = D^-1 A, [B, n, n] -> [B, n, n, steps]; rows without edges are zero."""
    walk = adjacency / adjacency.sum(2, keepdim=True).clamp(min=1)
    powers = [torch.eye(walk.shape[1], dtype=walk.dtype, device=walk.device).expand_as(walk)]
    with torch.autocast(walk.device.type, enabled=False):
        while len(powers) < steps:
            powers.append(powers[-1] @ walk)
    return torch.stack(powers, dim=3)
