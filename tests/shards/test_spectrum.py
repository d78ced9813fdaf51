"""Spectra on shards are those of one process, to what their certificates say."""

import torch
from scipy.sparse.csgraph import connected_components
from shard_ranks import SPECTRA, spectra, start
from torch_geometric.data import Data
from torch_geometric.utils import to_scipy_sparse_matrix

from gssc import LaplacianSpectrum, RandomFeatures, RandomWalkSE
from gssc.spectra.operators import build_operator
from gssc.testing import assert_close


def ladder(columns: int, rows: int, seed: int) -> torch.Tensor:
    """A grid in which one edge of ten is missing, in both directions."""
    number = torch.arange(columns * rows).view(rows, columns)
    pairs = [(number[:-1], number[1:]), (number[:, :-1], number[:, 1:])]
    edges = torch.cat([torch.stack([a.reshape(-1), b.reshape(-1)]) for a, b in pairs], dim=1)
    edges = edges[:, torch.rand(edges.shape[1], generator=torch.Generator().manual_seed(seed)) > 0.1]
    return torch.cat([edges, edges.flip(0)], dim=1)


def test_spectra_features_and_walks_are_those_of_one_process(float64, tmp_path):
    grid = ladder(20, 13, 0)
    two = torch.cat([ladder(5, 12, 0), ladder(6, 12, 1) + 60, torch.tensor([[132], [132]])], dim=1)
    graphs = {"grid": (grid, 260), "components": (two, 134)}  # the second has two large ones and single nodes
    parts = {"grid": torch.arange(260) * 7 % 13 % 2, "components": torch.zeros(134, dtype=torch.long)}
    saved = {name: {"edge_index": edges, "part": parts[name]} for name, (edges, _) in graphs.items()}
    torch.save(saved, tmp_path / "graphs.pt")
    start(spectra, 2, 2, str(tmp_path))
    ranks = [torch.load(tmp_path / f"spectra-{rank}.pt") for rank in range(2)]
    for name, (edges, nodes) in graphs.items():
        found = [result[name] for result in ranks]
        order = torch.argsort(torch.cat([part["nodes"] for part in found]))
        whole = {key: torch.cat([part[key] for part in found])[order] for key in ("component", "walks", "features")}
        data = Data(edge_index=edges, num_nodes=nodes)
        assert bool((whole["component"][edges[0]] == whole["component"][edges[1]]).all())
        components = to_scipy_sparse_matrix(edges, num_nodes=nodes)
        assert whole["component"].unique().numel() == connected_components(components)[0]
        assert_close(whole["walks"], RandomWalkSE(4)(data.clone()).rwse)
        for settings in SPECTRA:
            one, about = LaplacianSpectrum(**settings).spectrum(data), found[0][f"certificate {settings}"]
            vectors = torch.cat([part[str(settings)] for part in found])[order]
            assert about["solver"] == "chebyshev"
            assert about["miss_probability"] < 1e-6
            assert_close(found[0][f"values {settings}"], torch.from_numpy(one.values), tolerance=about["residual"])
            exact = torch.from_numpy(one.vectors)
            assert_close(vectors @ vectors.T, exact @ exact.T, tolerance=2 * about["turn"] + 1e-12)
        operator = torch.from_numpy(build_operator(RandomFeatures().adjacency(data), "sym").toarray())
        kernel = torch.linalg.matrix_exp(-operator)
        assert float((whole["features"] @ whole["features"].T - kernel).square().mean().sqrt()) < 0.05  # 1 / sqrt(400)
    assert all("edge_index: expected an undirected graph" in result["said"] for result in ranks)
