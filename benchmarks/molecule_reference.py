"""A model of small graphs on padded dense tensors, in plain PyTorch: the judge of the kernels.

A batch is [B, T, ...]: B slots of T rows, of which a graph of n nodes takes the first n. It computes what `GSSC` does
with the same modules; only dropout, whose masks are a function of a key, is its own.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.molecules.data import MoleculeData
from gssc.molecules.workspace import Workspace

# What dropout of one layer is applied to; a layer has so many salts.
LOCAL, GLOBAL, HIDDEN, OUTPUT, SALTS = 0, 1, 2, 3, 4


def poison(work: Workspace) -> None:
    """Fill with NaN the memory whose content means nothing between steps."""
    sums = (work.sums.partial, work.sums.partial_losses, work.sums.squares, work.sums.now)
    others = [value for name, value in vars(work).items() if isinstance(value, Tensor) and name not in ("raw", "slots")]
    for tensor in (*work.back, *work.spectrum, *sums, *others):
        tensor.fill_(torch.nan)


def in_float64(data: MoleculeData) -> MoleculeData:
    """The same graphs in float64."""
    return MoleculeData(*(tensor.double() if tensor.is_floating_point() else tensor for tensor in data))


def mixed_bits(x: Tensor) -> Tensor:
    """A bijection of 32-bit numbers in which every bit depends on every other."""
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


def dropout(x: Tensor, p: float, key: int | None, salt: int) -> Tensor:
    """Zero numbers of x [B, T, C] with probability p, as key, salt and position say, and scale up the others."""
    if key is None or p == 0.0:
        return x
    index = torch.arange(x.numel(), device=x.device).view(x.shape)
    stream = mixed_bits(torch.tensor((key + salt * 0x9E3779B1) & 0xFFFFFFFF))
    uniform = (mixed_bits(((index * 0x9E3779B1) & 0xFFFFFFFF) ^ stream.to(x.device)) >> 8).double() / 2**24
    kept = uniform >= float(torch.tensor(p, dtype=torch.float32))
    return x * kept / (1.0 - p)


def normalized(norm: nn.Module, x: Tensor, valid: Tensor) -> Tensor:
    """The norm of the valid rows; zeros elsewhere."""
    return torch.zeros_like(x).masked_scatter(valid.unsqueeze(-1), norm(x[valid]))


class DenseBatch:
    """The graphs with these numbers [B] in slots of ``tile`` rows."""

    def __init__(self, data: MoleculeData, graphs: Tensor, tile: int) -> None:
        starts, counts = data.ptr[graphs], data.ptr[graphs + 1] - data.ptr[graphs]
        row = torch.arange(tile, device=graphs.device)
        self.valid = row < counts.unsqueeze(1)
        at = torch.where(self.valid, starts.unsqueeze(1) + row, data.ptr[-1])
        self.counts, self.nodes = counts, data.nodes[at].long()
        self.vectors, self.rwse = data.vectors[at], data.rwse[at]
        self.log_degree = data.log_degree[at].unsqueeze(-1)
        self.eigvals, self.eigmask = data.eigvals[graphs], data.eigmask[graphs].bool()
        self.targets = data.targets[graphs]
        pair = self.valid.unsqueeze(2) & self.valid.unsqueeze(1)
        place = data.bond_ptr[graphs].view(-1, 1, 1) + row.view(-1, 1) * counts.view(-1, 1, 1) + row
        padded = torch.cat([data.bonds, data.bonds.new_zeros(1)])
        self.bonds = padded[torch.where(pair, place, data.bonds.numel())]


def dense_model(model: Any, batch: DenseBatch, key: int | None = None) -> Tensor:
    """Raw outputs [B, O]; dropout needs a key, and takes place only where there is one."""
    table = torch.cat([embedding.weight for embedding in model.node_encoder.embeddings])
    x = table[batch.nodes].sum(2)
    if model.rwse_encoder is not None:
        walks = model.rwse_encoder.linear(normalized(model.rwse_encoder.norm, batch.rwse, batch.valid))
        x = torch.cat([x, walks], dim=2)
    x = torch.where(batch.valid.unsqueeze(-1), x, 0.0)
    edges = x.new_zeros(1, x.shape[2]) if model.edge_encoder is None else model.edge_encoder.embeddings[0].weight
    phi = model.phi(batch.eigvals, batch.eigmask)
    for number, layer in enumerate(model.layers):
        x = dense_layer(layer, x, edges, phi, batch, key, number * SALTS)
    pooled = x.sum(1)
    if model.head.pool == "mean":
        pooled = pooled / batch.counts.clamp(min=1).unsqueeze(1)
    return model.head.mlp(pooled)


def dense_layer(
    layer: Any, x: Tensor, edges: Tensor, phi: Tensor, batch: DenseBatch, key: int | None, salt: int
) -> Tensor:
    """One layer: GINE beside the convolution, then the feed-forward network, [B, T, C] -> [B, T, C]."""
    valid = batch.valid
    conv, feed_forward = layer.glob, layer.feed_forward
    messages = x.clone()
    for kind, e in enumerate(edges):
        messages = messages + (batch.bonds == kind + 1).to(x.dtype) @ F.relu(x + e)
    local = dropout(layer.local.nn(messages), layer.dropout_local, key, salt + LOCAL)

    scaled = x
    if conv.degree_scale is not None:
        scaled = x * (conv.degree_scale + conv.degree_log_scale * batch.log_degree)
    gains, self_gains = conv.gains(phi)
    state = gains * conv.lin_o(batch.vectors.transpose(1, 2) @ scaled)
    far = batch.vectors @ state
    if conv.lin_out is not None:
        far = conv.lin_out(far)
    if conv.self_term:
        far = far + (batch.vectors.square() @ self_gains) * conv.lin_s(scaled)
    far = dropout(far, layer.dropout_global, key, salt + GLOBAL)

    h = normalized(layer.norm_local, x + local, valid) + normalized(layer.norm_global, x + far, valid)
    wide, act, drop, narrow, _ = feed_forward
    hidden = dropout(act(wide(h)), drop.p, key, salt + HIDDEN)
    return normalized(layer.norm_ffn, h + dropout(narrow(hidden), drop.p, key, salt + OUTPUT), valid)
