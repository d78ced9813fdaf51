"""PyG transforms that attach spectra and random-walk encodings to ``Data``."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.transforms import BaseTransform

from gssc.checks import check_choice, check_device, check_positive
from gssc.spectra.attached import SIZE, size_text
from gssc.spectra.cache import CacheArgument, check_stored, content_key, open_cache
from gssc.spectra.certificate import read_certificate
from gssc.spectra.operators import DIRECTED, Directed, Operator, adjacency_matrix
from gssc.spectra.packed import edges_of, read_graph
from gssc.spectra.random_walk import return_probabilities
from gssc.spectra.solve import solve
from gssc.spectra.solver_choice import SOLVERS, Solver
from gssc.spectra.truncation import Spectrum, SpectrumSettings, Truncation, Which, ZeroModes
from gssc.spectra.zero_modes import is_crowded, with_one_zero_mode


class EmptySpectrumWarning(UserWarning):
    """Every eigenspace of a graph straddled the cut, so that its global term is zero."""


def warn_empty(count: int, k: int, stacklevel: int) -> None:
    """Say once how many graphs keep nothing."""
    which = "1 graph keeps no eigenpair: its" if count == 1 else f"{count} graphs keep no eigenpair: their"
    warnings.warn(
        f"{which} first eigenspace has more than k = {k} dimensions, "
        "so the global term is zero there (a larger k or truncation='raw' keeps some)",
        EmptySpectrumWarning,
        stacklevel=stacklevel,
    )


class GraphTransform(BaseTransform):
    """A transform that computes arrays from the adjacency matrix of a graph; its arguments say how to read that."""

    directed: Directed
    weight_attr: str | None

    def adjacency(self, data: Any) -> sp.csr_array:
        """The symmetric adjacency matrix of a PyG ``Data``; no ``edge_index`` means no edges."""
        return adjacency_matrix(*read_graph(data, self.weight_attr), self.directed)


def attach(data: Data, arrays: Mapping[str, np.ndarray]) -> Data:
    """Set attributes of a graph, where its edges are; numbers in the default dtype."""
    device = data.edge_index.device if data.edge_index is not None else None
    for name, array in arrays.items():
        dtype = torch.bool if array.dtype == np.bool_ else torch.get_default_dtype()
        data[name] = torch.as_tensor(array, dtype=dtype, device=device)
    return data


@dataclass(eq=False)
class LaplacianSpectrum(GraphTransform):
    r"""Attach the first ``k`` eigenpairs :math:`L p = \lambda p` of a graph operator.

    Sets ``data.eigvals [1, K]``, ``data.eigvecs [N, K]`` and ``data.eigmask [1, K]`` (True = valid), K = ``k``, so that
    PyG batches them to [G, K], [N, K] and [G, K]. Solved in float64, stored in the default dtype. Graphs with fewer
    than ``k`` pairs (one node, no edges, n < k) are padded with zeros. ``data.eigsize`` tells of what graph it is the
    spectrum: models refuse it once the graph has been cut, sampled or rewired.

    Args:
        k: Number of eigenpairs kept: the smallest λ, or the largest \|λ\| for ``operator="adjacency"``.
        operator: ``"sym"`` is I - D^-1/2 A D^-1/2, ``"combinatorial"`` is D - A, ``"adjacency"`` is A.
        zero_modes: Whether to ``"keep"`` or ``"drop"`` λ = 0, one mode per connected component (Laplacians only). Where
            there are more than ``k``, one mode is kept for all, and the smallest λ > 0: something is always kept.
        truncation: ``"eigenspace"`` drops the eigenspace that straddles the cut, so that the result does not depend
            on the solver's choice of basis; ``"raw"`` cuts through it: of λ = 0 it keeps the modes of those components
            whose first nodes come first, of another eigenspace what the solver has first.
        directed: ``"symmetrize"`` a directed graph edge by edge, or ``"reject"`` it.
        weight_attr: Attribute that holds edge weights, used where present; ``None`` ignores weights.
        solver: ``"auto"``, or the name of a solver to force; see `gssc.spectra.solve.solve`.
        which: Of a Laplacian the ``"low"`` eigenvalues, the ``"high"`` ones, or, of ``"sym"`` with zero modes kept,
            those of ``"both"`` ends that are farthest from 1.
        device: Where to solve, e.g. ``"cuda"``; the result stays with the graph.
        cache: ``True`` to keep results in ``$GSSC_CACHE`` or ``~/.cache/gssc``, a path for that folder, ``None`` for
            no cache. Entries are found by the content of the graph and these settings.

    `prepare` applies it to a whole dataset at once, many times faster than graph by graph.

    Example:
        >>> from torch_geometric.data import Data
        >>> triangle = Data(edge_index=torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]]), num_nodes=3)
        >>> LaplacianSpectrum(k=4)(triangle).eigvals
        tensor([[0.0000, 1.5000, 1.5000, 0.0000]])
    """

    k: int = 32
    operator: Operator = "sym"
    zero_modes: ZeroModes = "keep"
    truncation: Truncation = "eigenspace"
    directed: Directed = "symmetrize"
    weight_attr: str | None = "edge_weight"
    solver: Solver = "auto"
    device: str = "cpu"
    cache: CacheArgument = None
    which: Which = "low"

    def __post_init__(self) -> None:
        _ = self.wanted  # checks its part of the arguments
        check_choice("directed", self.directed, DIRECTED)
        check_choice("solver", self.solver, SOLVERS)
        check_device("device", self.device, present=False)

    def forward(self, data: Any) -> Data:
        spectrum = self.spectrum(data)
        if spectrum.available and not spectrum.mask.any():
            warn_empty(1, self.k, stacklevel=4)
        arrays = {"eigvals": spectrum.values[None], "eigvecs": spectrum.vectors, "eigmask": spectrum.mask[None]}
        data = attach(data, arrays)
        data[SIZE] = size_text(data.num_nodes, edges_of(data).shape[1])
        return data

    def spectrum(self, data: Any) -> Spectrum:
        """The truncated spectrum of a graph with its certificate, in float64, from the cache where it is there."""
        adjacency = self.adjacency(data)
        cache = open_cache(self.cache)
        if cache is None:
            return self.solve(adjacency)
        # The matrix rather than the edges: whatever order they come in, the entry is the same.
        pattern = {name: torch.from_numpy(getattr(adjacency, name)).long() for name in ("indptr", "indices")}
        content = {**pattern, "weights": torch.from_numpy(adjacency.data)}
        key = content_key(content, {"entry": "graph", **self.settings()})
        stored: Spectrum | None = cache.load(key, partial(self._stored, adjacency.shape[0]))
        if stored is not None:
            return stored
        spectrum = self.solve(adjacency)
        tensors = {name: torch.from_numpy(getattr(spectrum, name)) for name in ("values", "vectors", "mask")}
        cache.store(key, tensors, {"available": spectrum.available, "certificate": vars(spectrum.certificate)})
        return spectrum

    def _stored(self, nodes: int, tensors: dict[str, Tensor], about: dict[str, Any]) -> Spectrum:
        """The spectrum of so many nodes that an entry of the cache holds."""
        values = torch.zeros(self.k, dtype=torch.float64)
        like = {"values": values, "vectors": torch.empty(nodes, self.k, dtype=values.dtype), "mask": values.bool()}
        check_stored(tensors, like, tensors["vectors"], torch.tensor([nodes]))
        certificate, available = read_certificate(about["certificate"]), int(about["available"])
        arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
        return Spectrum(**arrays, available=available, certificate=certificate)

    def solve(self, adjacency: sp.csr_array) -> Spectrum:
        """The truncated spectrum of a symmetric adjacency matrix, in float64."""
        crowding = self.wanted.keeps_zeros_whole
        # To count components first saves a solve; a GPU counts them itself, faster.
        if not (crowding and str(self.device) == "cpu" and is_crowded(adjacency, self.k)):
            spectrum = solve(adjacency, **self.settings())
            if not crowding or spectrum.mask.any() or not spectrum.available:
                return spectrum
        others = solve(adjacency, **self.settings() | {"k": max(1, self.k - 1), "zero_modes": "drop"})
        return with_one_zero_mode(others, adjacency, self.operator, self.k)

    @property
    def wanted(self) -> SpectrumSettings:
        """Which eigenpairs of which operator."""
        return SpectrumSettings(self.k, self.operator, self.zero_modes, self.truncation, self.which)

    def settings(self) -> dict[str, Any]:
        """What the spectrum of a given matrix depends on: all arguments but those that say how to read the graph."""
        return {**vars(self.wanted), "solver": self.solver, "device": str(self.device)}


@dataclass(eq=False)
class RandomWalkSE(GraphTransform):
    """Attach return probabilities ``data.rwse [N, steps]``: diag((D^-1 A)^t), t = 1 … ``steps``.

    Args:
        steps: Number of walk lengths.
        directed: ``"symmetrize"`` a directed graph edge by edge, or ``"reject"`` it.
        weight_attr: Attribute that holds edge weights, used where present; ``None`` ignores weights.
    """

    steps: int = 20
    directed: Directed = "symmetrize"
    weight_attr: str | None = "edge_weight"

    def __post_init__(self) -> None:
        check_positive("steps", self.steps)
        check_choice("directed", self.directed, DIRECTED)

    def forward(self, data: Any) -> Data:
        return attach(data, {"rwse": return_probabilities(self.adjacency(data), self.steps)})
