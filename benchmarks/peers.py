"""What ours is compared with: other ways to hear from every node, and a whole model written without this package.

`PlainModel` is the model of the zinc-12k recipe as one writes it with PyTorch and PyG alone. Parameters, their names
and the function are those of ``gssc.GSSC``; nothing comes from ``gssc`` but φ, which is made of PyTorch's modules. As
in the paper and in its released code, every node has its tensor z [K, c], made once per step for all layers, which
every layer multiplies by W_q, W_k, W_sq and W_sk. Autograd does the rest.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import GINEConv, global_add_pool
from torch_geometric.nn.attention import PerformerAttention
from torch_geometric.utils import degree, to_dense_batch

from gssc.config import Recipe
from gssc.nn import DeepSetPhi

HEADS = 4  # of attention, everywhere


def explicit_z(
    x_o: Tensor, x_s: Tensor, vectors: Tensor, phi: Tensor, weights: Sequence[Callable[[Tensor], Tensor]]
) -> Tensor:
    """Eq. 5 as it is printed, for one graph: z [n, K, c] per node, multiplied by every weight, summed over nodes.

    Args:
        x_o: Features that are mixed, [n, C].
        x_s: Features that the self term scales, [n, C].
        vectors: [n, K].
        phi: [1, K, c].
        weights: W_q, W_k, W_sq and W_sk as functions of z.
    """
    z = torch.einsum("nk,kc->nkc", vectors, phi[0])
    query, key, self_query, self_key = (weight(z) for weight in weights)
    state = torch.einsum("nkc,nc->kc", key, x_o)
    mixed = torch.einsum("nkc,kc->nc", query, state)
    return mixed + torch.einsum("nkc,nkc->nc", self_query, self_key) * x_s


def softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention among the nodes of one graph, by whichever kernel PyTorch takes: [n, C] each to [1, H, n, C / H]."""
    heads = [part.unflatten(1, (HEADS, -1)).transpose(0, 1).unsqueeze(0) for part in (q, k, v)]
    return F.scaled_dot_product_attention(*heads)


def performer(channels: int) -> PerformerAttention:
    """Performer attention, which brings its own projections."""
    return PerformerAttention(channels, heads=HEADS)


class ExplicitConv(nn.Module):
    """Eq. 4 and 5 with the kernel summed over channels: from x [N, C] and z [N, K, c] of every node."""

    def __init__(self, channels: int, phi_channels: int) -> None:
        super().__init__()
        self.degree_scale, self.degree_log_scale = (nn.Parameter(torch.zeros(channels)) for _ in range(2))
        self.lin_q, self.lin_k, self.lin_sq, self.lin_sk = (
            nn.Linear(phi_channels, channels, bias=False) for _ in range(4)
        )
        self.lin_o, self.lin_s = (nn.Linear(channels, channels, bias=False) for _ in range(2))
        self.lin_out = nn.Linear(channels, channels)

    def forward(self, x: Tensor, z: Tensor, log_degree: Tensor, batch: Tensor) -> Tensor:
        x = x * (self.degree_scale + self.degree_log_scale * log_degree)
        queries, valid = to_dense_batch(self.lin_q(z).flatten(1), batch)
        keys, _ = to_dense_batch(self.lin_k(z).flatten(1), batch)
        values, _ = to_dense_batch(self.lin_o(x), batch)
        out = self.lin_out((queries @ (keys.transpose(1, 2) @ values))[valid])
        self_gain = (self.lin_sq(z) * self.lin_sk(z)).sum((1, 2))
        return out + self_gain.unsqueeze(1) * self.lin_s(x)


class PlainLayer(nn.Module):
    """GINE beside the convolution, residuals, norms, and a feed-forward network."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        config = recipe.model
        c = config.channels
        self.local = GINEConv(nn.Sequential(nn.Linear(c, c), nn.ReLU(), nn.Linear(c, c)))
        self.glob = ExplicitConv(c, config.phi_channels or c)
        self.norm_local, self.norm_global, self.norm_ffn = (nn.BatchNorm1d(c) for _ in range(3))
        self.dropout_local, self.dropout_global = nn.Dropout(config.dropout_local), nn.Dropout(config.dropout_global)
        self.feed_forward = nn.Sequential(
            nn.Linear(c, 2 * c),
            nn.ReLU(),
            nn.Dropout(config.dropout_ffn),
            nn.Linear(2 * c, c),
            nn.Dropout(config.dropout_ffn),
        )

    def forward(self, x: Tensor, edges: Tensor, e: Tensor, z: Tensor, log_degree: Tensor, batch: Tensor) -> Tensor:
        local = self.norm_local(x + self.dropout_local(self.local(x, edges, e)))
        glob = self.norm_global(x + self.dropout_global(self.glob(x, z, log_degree, batch)))
        h = local + glob
        return self.norm_ffn(h + self.feed_forward(h))


class Categories(nn.Module):
    """An embedding of one column of categories."""

    def __init__(self, categories: int, channels: int) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList([nn.Embedding(categories, channels)])

    def forward(self, column: Tensor) -> Tensor:
        return self.embeddings[0](column[:, 0])


class PlainModel(nn.Module):
    """Encoders, layers, sum pooling, and an MLP that halves the width twice."""

    def __init__(self, recipe: Recipe, atoms: int, bonds: int) -> None:
        super().__init__()
        config, steps = recipe.model, recipe.spectrum.rwse
        c, extra = config.channels, config.rwse_channels
        self.node_encoder, self.edge_encoder = Categories(atoms, c - extra), Categories(bonds, c)
        self.rwse_encoder = nn.ModuleDict({"norm": nn.BatchNorm1d(steps), "linear": nn.Linear(steps, extra)})
        self.phi = DeepSetPhi(config.phi_channels or c)
        self.layers = nn.ModuleList(PlainLayer(recipe) for _ in range(config.layers))
        mlp = nn.Sequential(nn.Linear(c, c // 2), nn.ReLU(), nn.Linear(c // 2, c // 4), nn.ReLU(), nn.Linear(c // 4, 1))
        self.head = nn.ModuleDict({"mlp": mlp})

    def forward(self, data: Batch) -> Tensor:
        walks = self.rwse_encoder["linear"](self.rwse_encoder["norm"](data.rwse))
        x = torch.cat([self.node_encoder(data.x), walks], dim=1)
        e = self.edge_encoder(data.edge_attr)
        log_degree = torch.log1p(degree(data.edge_index[1], data.num_nodes, dtype=x.dtype)).unsqueeze(1)
        phi = self.phi(data.eigvals, data.eigmask)
        z = data.eigvecs.unsqueeze(2) * phi[data.batch]
        for layer in self.layers:
            x = layer(x, data.edge_index, e, z, log_degree, data.batch)
        return self.head["mlp"](global_add_pool(x, data.batch, data.num_graphs))
