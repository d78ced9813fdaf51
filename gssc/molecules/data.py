"""Small graphs as the kernels read them: flat tensors that one program cuts its graph out of."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from gssc.checks import fail

MAX_NODES = 64
MAX_BONDS = 4


@dataclass(frozen=True)
class MoleculeData:
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

    def to(self, dtype: torch.dtype) -> "MoleculeData":
        """Floating-point tensors in another precision."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: t.to(dtype) for name, t in values.items() if t.is_floating_point()})


def pack_molecules(
    ptr: Tensor,
    edge_ptr: Tensor,
    edge_index: Tensor,
    targets: Tensor,
    vocabularies: list[int],
    tensors: Mapping[str, Tensor],
) -> MoleculeData:
    """`MoleculeData` from flat tensors that end in a row of zeros and describe G graphs and an empty one.

    Args:
        ptr: First node of every graph [G + 2].
        edge_ptr: First edge likewise.
        edge_index: Source and target inside the graph [E + 1, 2].
        targets: [G + 1, O] or [G, O]; what is not finite is unknown.
        vocabularies: Sizes of the columns of ``x``.
        tensors: ``x``, ``eigvecs``, ``eigvals``, ``eigmask``, and where there are any ``edge_attr`` and ``rwse``.
    """
    device, graphs = ptr.device, ptr.numel() - 2
    counts, edge_counts = ptr.diff(), edge_ptr.diff()
    nodes, edges = int(ptr[-1]), int(edge_ptr[-1])
    squares = counts * counts
    bond_ptr = torch.cat([squares.new_zeros(1), squares.cumsum(0)])[:-1]
    owner = torch.repeat_interleave(torch.arange(graphs + 1, device=device), edge_counts)
    source, target = edge_index[:edges].long().unbind(1)
    place = bond_ptr[owner] + target * counts[owner] + source
    if torch.unique(place).numel() < edges:
        fail("edge_index", "at most one edge from a node to another", "several")
    kind = tensors["edge_attr"][:edges].reshape(edges).to(torch.uint8) if "edge_attr" in tensors else 0
    bonds = torch.zeros(int(squares.sum()), dtype=torch.uint8, device=device)
    bonds[place] = kind + torch.ones(edges, dtype=torch.uint8, device=device)
    degree = torch.zeros(nodes + 1, dtype=torch.get_default_dtype(), device=device)
    degree.index_add_(0, ptr[owner] + target, torch.ones_like(degree[:1]).expand(edges))
    starts = torch.tensor([0, *vocabularies[:-1]], device=device).cumsum(0)
    unknown = targets.new_full((graphs + 1 - targets.shape[0], targets.shape[1]), torch.nan)
    targets = torch.cat([targets, unknown])
    targets[-1] = torch.nan
    rwse = tensors.get("rwse", degree.new_zeros(nodes + 1, 0))
    return MoleculeData(
        ptr=ptr,
        nodes=(tensors["x"].reshape(nodes + 1, -1) + starts).to(torch.int32),
        bond_ptr=bond_ptr,
        bonds=bonds,
        log_degree=degree.log1p(),
        rwse=rwse,
        # On the CPU, which adds up in a fixed order: runs that pack the same graphs are to have the same bits.
        rwse_moments=_moments(rwse[:nodes].cpu(), counts.cpu()).to(device),
        vectors=tensors["eigvecs"],
        eigvals=tensors["eigvals"],
        eigmask=tensors["eigmask"].to(torch.uint8),
        targets=torch.where(targets.isfinite(), targets, torch.nan),
    )


def _moments(rows: Tensor, counts: Tensor) -> Tensor:
    """Mean and sum of squared deviations of the rows of every graph [G + 1, 2, S]."""
    owner = torch.repeat_interleave(torch.arange(counts.numel(), device=rows.device), counts)
    zeros = rows.new_zeros(counts.numel(), rows.shape[1])
    mean = zeros.index_add(0, owner, rows) / counts.clamp(min=1).unsqueeze(1)
    squares = zeros.index_add(0, owner, (rows - mean[owner]).square())
    return torch.stack([mean, squares], dim=1)
