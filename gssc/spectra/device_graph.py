"""A large connected graph on a device: connected or not, its Laplacian and its zero mode, without a detour by the host.

On a GPU the solver itself takes a second for a million nodes; building the operator and finding the components on the
host would take as long.
"""

import scipy.sparse as sp
import torch
from torch import Tensor

from gssc.checks import fail
from gssc.spectra.operators import Operator, zero_mode_mass
from gssc.spectra.sparse_operator import SparseOperator, row_of_entry, upload


class DeviceGraph:
    """A symmetric adjacency matrix copied to a device: crow [n + 1], col, weight and row of every entry [nnz]."""

    def __init__(self, adjacency: sp.csr_array, device: str) -> None:
        self.n: int = adjacency.shape[0]
        self.crow, self.col, self.weight = upload(adjacency, device)
        self.row = row_of_entry(self.crow, self.col.numel())

    def labels(self) -> Tensor:
        """The smallest node of every node's component, [n].

        FastSV: every node points to a smaller one of its component. In each round a node's parent, and the node, learn
        of the smallest grandparent among the node's neighbours, and paths are halved; rounds grow like log n.
        """
        parent = grand = torch.arange(self.n, device=self.row.device)
        col = self.col.long()
        while col.numel():
            least = grand.scatter_reduce(0, self.row, grand[col], "amin")
            parent = parent.scatter_reduce(0, parent, least, "amin")
            parent = torch.minimum(torch.minimum(parent, least), grand)
            following = parent[parent]
            if torch.equal(following, grand):
                break
            grand = following
        return grand

    def laplacian(self, operator: Operator) -> tuple[SparseOperator, Tensor]:
        """D - A or I - D^-1/2 A D^-1/2 of a connected graph, and its zero mode [n]: constant, or ∝ sqrt(degree)."""
        if self.weight.numel() and float(self.weight.min()) < 0:
            fail("edge_weight", f"weights of at least 0 for operator {operator!r}", f"{float(self.weight.min()):g}")
        ones = torch.ones(self.n, 1, dtype=torch.float64, device=self.weight.device)
        # A product rather than atomic additions: the same bytes in every run.
        degree = (SparseOperator(self.n, self.crow, self.col, self.weight).csr() @ ones).squeeze(1)
        mass = zero_mode_mass(degree, operator)
        zero_mode = (mass / mass.sum()).sqrt()
        if operator == "combinatorial":
            return SparseOperator.from_entries(self.crow, self.col, -self.weight, degree), zero_mode
        scale = torch.where(degree > 0, degree.clamp_min(1e-300).rsqrt(), 0.0)
        # In the order of the host: (weight · scale of the row) · scale of the column.
        weight = -(self.weight * scale[self.row] * scale[self.col.long()])
        matrix = SparseOperator.from_entries(self.crow, self.col, weight, (degree > 0).to(torch.float64))
        return matrix, zero_mode
