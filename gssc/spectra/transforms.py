"""PyG transforms that attach spectra and random-walk encodings to ``Data``."""

import warnings
from typing import Any

import scipy.sparse as sp
import torch
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from gssc.checks import check_choice, check_positive, fail
from gssc.spectra.operators import DIRECTED, OPERATORS, Directed, Operator, adjacency_matrix
from gssc.spectra.random_walk import return_probabilities
from gssc.spectra.solve import solve
from gssc.spectra.truncation import TRUNCATIONS, ZERO_MODES, Spectrum, Truncation, ZeroModes


class EmptySpectrumWarning(UserWarning):
    """Every eigenspace of a graph straddled the cut, so that its global term is zero."""


class LaplacianSpectrum(BaseTransform):
    r"""Attach the first ``k`` eigenpairs :math:`L p = \lambda p` of a graph operator.

    Sets ``data.eigvals [1, K]``, ``data.eigvecs [N, K]`` and ``data.eigmask [1, K]`` (True = valid), K = ``k``, so that
    PyG batches them to [G, K], [N, K] and [G, K]. Solved in float64, stored in the default dtype. Graphs with fewer
    than ``k`` pairs (one node, no edges, n < k) are padded with zeros.

    Args:
        k: Number of eigenpairs kept: the smallest λ, or the largest \|λ\| for ``operator="adjacency"``.
        operator: ``"sym"`` is I - D^-1/2 A D^-1/2, ``"combinatorial"`` is D - A, ``"adjacency"`` is A.
        zero_modes: Whether to ``"keep"`` or ``"drop"`` λ = 0, one mode per connected component (Laplacians only).
        truncation: ``"eigenspace"`` drops the eigenspace that straddles the cut, so that the result does not depend
            on the solver's choice of basis; ``"raw"`` cuts through it.
        directed: ``"symmetrize"`` a directed graph edge by edge, or ``"reject"`` it.
        weight_attr: Attribute that holds edge weights, used where present; ``None`` ignores weights.

    Example:
        >>> from torch_geometric.data import Data
        >>> triangle = Data(edge_index=torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]]), num_nodes=3)
        >>> LaplacianSpectrum(k=4)(triangle).eigvals
        tensor([[0.0000, 1.5000, 1.5000, 0.0000]])
    """

    def __init__(
        self,
        k: int = 32,
        operator: Operator = "sym",
        zero_modes: ZeroModes = "keep",
        truncation: Truncation = "eigenspace",
        directed: Directed = "symmetrize",
        weight_attr: str | None = "edge_weight",
    ) -> None:
        check_positive("k", k)
        check_choice("operator", operator, OPERATORS)
        check_choice("zero_modes", zero_modes, ZERO_MODES)
        check_choice("truncation", truncation, TRUNCATIONS)
        check_choice("directed", directed, DIRECTED)
        self.k = k
        self.operator: Operator = operator
        self.zero_modes: ZeroModes = zero_modes
        self.truncation: Truncation = truncation
        self.directed: Directed = directed
        self.weight_attr = weight_attr

    def forward(self, data: Any) -> Data:
        spectrum = self.solve(read_adjacency(data, self.directed, self.weight_attr))
        if spectrum.available and not spectrum.mask.any():
            warnings.warn(
                f"1 graph keeps no eigenpair: its first eigenspace has more than k = {self.k} dimensions, "
                "so its global term is zero (a larger k or truncation='raw' keeps some)",
                EmptySpectrumWarning,
                stacklevel=3,
            )
        device, dtype = data.edge_index.device if data.edge_index is not None else None, torch.get_default_dtype()
        data.eigvals = torch.as_tensor(spectrum.values, dtype=dtype, device=device).unsqueeze(0)
        data.eigvecs = torch.as_tensor(spectrum.vectors, dtype=dtype, device=device)
        data.eigmask = torch.as_tensor(spectrum.mask, device=device).unsqueeze(0)
        return data

    def solve(self, adjacency: sp.csr_array) -> Spectrum:
        """The truncated spectrum of a symmetric adjacency matrix, in float64."""
        return solve(adjacency, self.operator, self.k, zero_modes=self.zero_modes, truncation=self.truncation)

    def __repr__(self) -> str:
        return (
            f"LaplacianSpectrum(k={self.k}, operator={self.operator!r}, zero_modes={self.zero_modes!r}, "
            f"truncation={self.truncation!r}, directed={self.directed!r}, weight_attr={self.weight_attr!r})"
        )


class RandomWalkSE(BaseTransform):
    """Attach return probabilities ``data.rwse [N, steps]``: diag((D^-1 A)^t), t = 1 … ``steps``.

    Args:
        steps: Number of walk lengths.
        directed: ``"symmetrize"`` a directed graph edge by edge, or ``"reject"`` it.
        weight_attr: Attribute that holds edge weights, used where present; ``None`` ignores weights.
    """

    def __init__(
        self, steps: int = 20, directed: Directed = "symmetrize", weight_attr: str | None = "edge_weight"
    ) -> None:
        check_positive("steps", steps)
        check_choice("directed", directed, DIRECTED)
        self.steps = steps
        self.directed: Directed = directed
        self.weight_attr = weight_attr

    def forward(self, data: Any) -> Data:
        rwse = return_probabilities(read_adjacency(data, self.directed, self.weight_attr), self.steps)
        device = data.edge_index.device if data.edge_index is not None else None
        data.rwse = torch.as_tensor(rwse, dtype=torch.get_default_dtype(), device=device)
        return data

    def __repr__(self) -> str:
        return f"RandomWalkSE(steps={self.steps}, directed={self.directed!r}, weight_attr={self.weight_attr!r})"


def read_adjacency(data: Any, directed: Directed, weight_attr: str | None) -> sp.csr_array:
    """The symmetric adjacency matrix of a PyG ``Data``; no ``edge_index`` means no edges."""
    if not isinstance(data, Data):
        fail("data", "a torch_geometric.data.Data", type(data).__name__)
    if data.num_nodes is None:
        fail("data", "a graph that knows its number of nodes (set data.num_nodes)", "None")
    edge_index = data.edge_index if data.edge_index is not None else torch.empty(2, 0, dtype=torch.long)
    weight = getattr(data, weight_attr, None) if weight_attr is not None else None
    return adjacency_matrix(edge_index, weight, data.num_nodes, directed)
