import json

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from benchmarks import random_features
from gssc import GSSConv, LaplacianSpectrum
from gssc.nn import GSSCLayer
from gssc.testing import assert_close


@pytest.fixture
def graph():
    torch.manual_seed(0)
    edges = to_undirected(torch.randint(40, (2, 120)))
    masks = {f"{part}_mask": torch.arange(40) % 3 == number for number, part in enumerate(("train", "val", "test"))}
    return Data(x=torch.randn(40, 5), edge_index=edges, y=torch.arange(40) % 2, num_nodes=40, **masks)


def test_random_columns_estimate_the_exact_kernels(graph, monkeypatch):
    monkeypatch.setattr(random_features, "COLUMNS", 60_000)
    estimated, settings = random_features.prepared("random features", graph.clone(), seed=0)
    exact = LaplacianSpectrum(k=40)(graph.clone())
    columns = torch.cat([exact.eigvecs * root for root in random_features.roots(exact.eigvals)[0].T], dim=1)
    code = torch.eye(3).repeat_interleave(exact.eigvecs.shape[1], dim=0).unsqueeze(0)
    conv, x = GSSConv(8, 3, self_term=False), torch.randn(40, 8)
    found = conv(x, settings["phi"](estimated.eigvals, estimated.eigmask), estimated.eigvecs)
    expected = conv(x, code, columns)
    assert_close(found, expected, "random columns", 0.1 * float(expected.detach().abs().max()))


def test_models_differ_by_what_they_mix_with(graph):
    counts = {}
    for name in random_features.MODELS:
        _, settings = random_features.prepared(name, graph.clone(), seed=0)
        model = random_features.GSSC(2, node_features=5, level="node", **settings)
        counts[name] = sum(parameter.numel() for parameter in model.parameters())
        assert any(isinstance(module, GSSConv) for module in model.modules()) == (name != "none")
        assert any(isinstance(module, GSSCLayer) for module in model.modules())
    assert counts["random features"] == counts["random features x4"] == counts["exact kernels"]
    assert counts["none"] < counts["random features"] < counts["eigenvectors"]


def test_a_run_is_kept_and_shown(graph, tmp_path, capsys):
    torch.save(graph, tmp_path / "graph.pt")
    random_features.main(tmp_path / "graph.pt", "random features,none", 2, 6, tmp_path / "rows.json")
    kept = json.loads((tmp_path / "rows.json").read_text())
    assert [len(row["test"]) for row in kept.values()] == [2, 2]
    assert "| graph | accuracy, % | random features |" in capsys.readouterr().out
