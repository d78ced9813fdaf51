"""SignNet and SPE are what their papers say, graph by graph, and do not depend on what they must not."""

import runpy
from pathlib import Path

import pytest
import torch
from graphs import complete, edgeless, random_graph, two_triangles
from torch_geometric.data import Batch

from gssc import LaplacianSpectrum, graph_context
from gssc.testing import assert_close, assert_permutation_equivariant, rotate_eigenspaces

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "spectral_encodings.py"))
K, C = 6, 5
pytestmark = pytest.mark.usefixtures("float64")


def encode(encoding, data):
    return encoding(data, graph_context(data.num_nodes, data.num_graphs, data.batch, data.edge_index))


def batch_of(*graphs):
    return Batch.from_data_list([LaplacianSpectrum(k=K)(graph) for graph in graphs])


def gin(columns, rows, adjacency):
    """Two layers on rows [n, ...] of one column."""
    for mlp in columns.mlps:
        rows = mlp(rows + adjacency @ rows)
    return rows


def adjacency_of(data):
    adjacency = torch.zeros(data.num_nodes, data.num_nodes)
    adjacency[data.edge_index[1], data.edge_index[0]] = 1
    return adjacency


def signnet(encoding, data):
    parts = []
    for k in range(K):
        value = data.eigvals[0, k].expand(data.num_nodes)
        ends = [torch.stack([sign * data.eigvecs[:, k], value], 1) for sign in (1, -1)]
        parts.append(sum(gin(encoding.phi, end, adjacency_of(data)) for end in ends) * data.eigmask[0, k])
    return encoding.rho(torch.cat(parts, 1))


def spe(encoding, data):
    phi = encoding.phi(data.eigvals, data.eigmask)[0]
    matrices = torch.stack([data.eigvecs @ torch.diag(column) @ data.eigvecs.T for column in phi.T], 2)
    return sum(gin(encoding.rho, matrices[:, j], adjacency_of(data)) for j in range(data.num_nodes))


@pytest.mark.parametrize(("name", "formula"), [("SignNet", signnet), ("SPE", spe)])
def test_it_is_what_its_paper_says(name, formula):
    encoding = EXAMPLE["SignNet"](K, C) if name == "SignNet" else EXAMPLE["SPE"](C)
    batch = batch_of(random_graph(9), edgeless(1), complete(5), edgeless(3), two_triangles())
    expected = torch.cat([formula(encoding, data) for data in batch.to_data_list()])
    assert_close(encode(encoding, batch), expected)
    flipped = batch.clone()
    flipped.eigvecs = -batch.eigvecs
    assert_close(encode(encoding, flipped), expected)


def test_spe_knows_neither_bases_nor_numbers_of_nodes():
    encoding = EXAMPLE["SPE"](C)
    for data in (complete(5), two_triangles(), random_graph(9)):
        ready = batch_of(data)
        assert_close(encode(encoding, rotate_eigenspaces(ready)), encode(encoding, ready))
        assert_permutation_equivariant(lambda graph: encode(encoding, batch_of(graph)), data)


def test_it_trains():
    for name in ("signnet", "spe"):
        torch.set_default_dtype(torch.float32)
        first, *_, last = EXAMPLE["main"](["--encoding", name, "--graphs", "16", "--steps", "21"])
        assert last < first
