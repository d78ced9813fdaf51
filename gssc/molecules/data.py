"""Small graphs as the kernels read them: flat tensors that one program cuts its graph out of."""

from typing import NamedTuple

import torch
from torch import Tensor

from gssc.checks import fail
from gssc.model import GSSC
from gssc.molecules.supported import categories
from gssc.tasks import Task
from gssc.train.store import GraphStore


class MoleculeData(NamedTuple):
    """G graphs, and graph G, which is empty: what an unused slot of a batch points to.

    ``bonds`` holds, from ``bond_ptr[g]`` on, a matrix [n, n] for every graph: row i, column j is 0 where there is no
    edge from j to i, else 1 + its type. ``rwse_moments`` [G + 1, 2, S] are mean and sum of squared deviations of the
    encodings over the nodes of each graph: BatchNorm of an input needs no pass over the batch.
    """

    ptr: Tensor  # [G + 2]
    nodes: Tensor  # [N + 1, columns] int32, categories; those of column i follow those of column i - 1
    bond_ptr: Tensor  # [G + 1]
    bonds: Tensor  # [Σ n²] uint8
    log_degree: Tensor  # [N + 1], log(1 + in-degree)
    rwse: Tensor  # [N + 1, S]
    rwse_moments: Tensor  # [G + 1, 2, S]
    vectors: Tensor  # [N + 1, K]
    eigvals: Tensor  # [G + 1, K]
    eigmask: Tensor  # [G + 1, K] uint8
    targets: Tensor  # [G + 1, O], in the units of the model; NaN: unknown

    @property
    def num_graphs(self) -> int:
        return self.ptr.numel() - 2

    @property
    def most_nodes(self) -> int:
        return int(self.ptr.diff().max())


def molecule_data(store: GraphStore, model: GSSC, task: Task) -> MoleculeData:
    """The graphs of a store, with what the model reads of them and targets as it predicts them."""
    ptr, device, graphs = store.ptr, store.device, store.num_graphs
    counts, edge_counts = ptr.diff(), store.edge_ptr.diff()
    nodes, edges = int(ptr[-1]), int(store.edge_ptr[-1])
    squares = counts * counts
    bond_ptr = squares.cumsum(0) - squares
    owner = torch.repeat_interleave(torch.arange(graphs + 1, device=device), edge_counts)
    source, target = store.edge_index[:edges].long().unbind(1)
    place = bond_ptr[owner] + target * counts[owner] + source
    if torch.unique(place).numel() < edges:
        fail("edge_index", "at most one edge from a node to another", "several")
    bonds = torch.zeros(int(squares.sum()), dtype=torch.uint8, device=device)
    bonds[place] = 1
    if model.edge_encoder is not None:
        bonds[place] += store.of_edges["edge_attr"][:edges].reshape(edges).to(torch.uint8)
    degree = torch.bincount(ptr[owner] + target, minlength=nodes + 1).to(torch.get_default_dtype())
    starts = torch.tensor([0, *categories(model.node_encoder)[:-1]], device=device).cumsum(0)
    shift, scale = (torch.as_tensor(value, dtype=store.y.dtype, device=device) for value in (task.shift, task.scale))
    targets = (store.y - shift) / scale
    targets[-1] = torch.nan
    rwse = degree.new_zeros(nodes + 1, 0) if model.rwse_encoder is None else store.of_nodes["rwse"]
    return MoleculeData(
        ptr=ptr,
        nodes=(store.of_nodes["x"].reshape(nodes + 1, -1) + starts).to(torch.int32),
        bond_ptr=bond_ptr,
        bonds=bonds,
        log_degree=degree.log1p(),
        rwse=rwse,
        # On the CPU, which adds up in a fixed order: runs that pack the same graphs are to have the same bits.
        rwse_moments=_moments(rwse[:nodes].cpu(), counts.cpu()).to(device),
        vectors=store.of_nodes["eigvecs"],
        eigvals=store.of_graphs["eigvals"],
        eigmask=store.of_graphs["eigmask"].to(torch.uint8),
        targets=torch.where(targets.isfinite(), targets, torch.nan),
    )


def _moments(rows: Tensor, counts: Tensor) -> Tensor:
    """Mean and sum of squared deviations of the rows of every graph [G + 1, 2, S]."""
    owner = torch.repeat_interleave(torch.arange(counts.numel(), device=rows.device), counts)
    zeros = rows.new_zeros(counts.numel(), rows.shape[1])
    mean = zeros.index_add(0, owner, rows) / counts.clamp(min=1).unsqueeze(1)
    squares = zeros.index_add(0, owner, (rows - mean[owner]).square())
    return torch.stack([mean, squares], dim=1)
