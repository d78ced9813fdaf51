"""Spectra on their way from a transform to a layer: found on a graph, and carried by the ``batch`` vector of a loader.

A graph's spectrum is that of the nodes and edges that it had when it was computed, whose numbers stay beside it as
``data.eigsize``, such as "23 nodes, 50 edges": a text, which PyG keeps as it is when graphs are batched, cut or moved,
so that a GPU is not asked.
"""

import re
from typing import Any, NamedTuple, TypeAlias

from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader as PyGDataLoader
from torch_geometric.loader.dataloader import Collater

from gssc.checks import check_shape, fail
from gssc.spectra.packed import edges_of

SIZE = "eigsize"


def size_text(nodes: int, edges: int) -> str:
    """The size of a graph as it stays beside its spectrum."""
    return f"{nodes} nodes, {edges} edges"


class GraphSpectra(NamedTuple):
    """What layers need of a batch beside features and edges, by the names that it has in a ``Data``.

    Eigenvalues [G, K], eigenvectors [N, K], valid frequencies [G, K], and of a padded batch the real nodes and edges.
    """

    eigvals: Tensor
    eigvecs: Tensor
    eigmask: Tensor
    node_mask: Tensor | None = None
    edge_mask: Tensor | None = None

    @classmethod
    def of(cls, data: Data) -> "GraphSpectra | None":
        """Those of a graph or batch; None where it has none."""
        check_fresh(data)
        found = [data.get(name) for name in cls._fields]
        return None if any(part is None for part in found[:3]) else cls(*found)


SpectrumSource: TypeAlias = Data | tuple[Tensor, Tensor, Tensor]


def find_spectrum(source: Any, nodes: int) -> GraphSpectra:
    """The spectra of N ``nodes``: of a ``Data`` or ``Batch``, three tensors, or what a vector ``batch`` carries."""
    if isinstance(source, Data):
        source = GraphSpectra.of(source)
    elif isinstance(source, Tensor) or source is None:
        source = getattr(source, "spectrum", None)
    if not isinstance(source, tuple) or len(source) < 3 or any(part is None for part in source[:3]):
        expected = "the Data or Batch that gssc.LaplacianSpectrum has seen, or batch from a gssc.DataLoader"
        fail("spectrum", expected, "none" if source is None or isinstance(source, tuple) else type(source).__name__)
    spectra = GraphSpectra(*source)
    check_shape("eigvecs", spectra.eigvecs, nodes, spectra.eigvals.shape[-1])
    return spectra


def check_fresh(data: Data) -> None:
    """Fail where a graph has other numbers of nodes and edges than when its spectrum was computed.

    Such a graph was cut or sampled, or got edges, after the transform; where it does not say, nothing is checked.
    """
    sizes = data.get(SIZE)
    if sizes is None:
        return
    # As text: batches have lists of it, batches of batches lists of lists.
    counts = re.findall(r"(\d+) nodes, (\d+) edges", str(sizes))
    then = sum(int(nodes) for nodes, _ in counts), sum(int(edges) for _, edges in counts)
    now = data.num_nodes, edges_of(data).shape[1]
    if now != then:
        expected = f"that of these {size_text(*now)} (computed after the graph was cut, sampled or rewired; to keep it "
        fail("spectrum", f"{expected}all the same: del data.{SIZE})", f"that of {size_text(*then)}")


class SpectralBatch(Batch):
    """A PyG ``Batch`` whose vector ``batch`` brings the spectra of its graphs along, to wherever it is handed.

    The vector is an ordinary tensor; what it carries is as new as the access to it, and follows ``to(device)``.
    """

    @property
    def batch(self) -> Tensor | None:
        """Graph number of every node, [N]."""
        vector: Tensor | None = self._store.get("batch")
        if vector is not None and (spectra := GraphSpectra.of(self)) is not None:
            vector.spectrum = spectra  # type: ignore[attr-defined]
        return vector


class DataLoader(PyGDataLoader):
    """PyG's ``DataLoader``, with the same arguments, whose batches bring their spectra along in the vector ``batch``.

    A model that hands ``batch`` to its layers, as models for PyG do, then hands them the spectra too, see `GSSCBlock`.
    """

    def __init__(self, dataset: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(dataset, *args, **kwargs)
        self.collate_fn = SpectralCollater(dataset, self.follow_batch, self.exclude_keys)


class SpectralCollater(Collater):
    """PyG's, for a `SpectralBatch`."""

    def __call__(self, batch: list[Any]) -> Any:
        if not isinstance(batch[0], Data):
            return super().__call__(batch)
        return SpectralBatch.from_data_list(batch, follow_batch=self.follow_batch, exclude_keys=self.exclude_keys)
