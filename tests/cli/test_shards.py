"""``gssc plan`` says what the formulas say; ``gssc partition`` refuses what it cannot cut."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

from gssc.cli import app
from gssc.shards import cut


def test_plan_of_a_billion_nodes():
    result = CliRunner().invoke(app, ["plan", "--nodes", "1e9", "--degree", "10", "--gpus", "256"])
    lines = result.output.splitlines()
    assert lines[0] == "each of 256 processes: 3,906,250 nodes, 39,062,500 edges, 3,906,250 nodes in the halo"
    assert "a layer sends, state: 24,576 bytes, 0.000 ms" in lines  # 2 · 32 · 96 · 4
    assert any(line.startswith("a layer sends, halo: 1,500,000,000 bytes") for line in lines)
    alone = CliRunner().invoke(app, ["plan", "--nodes", "1e6", "--degree", "4", "--gpus", "1"]).output
    assert "0 nodes in the halo" in alone
    timed = ["--latency", "1e-3", "--speed", "1e9", "--local", "gcn", "--bandwidth", "1e6", "--width", "4"]
    words = ["plan", "--nodes", "2e3", "--degree", "4", "--gpus", "2", "--channels", "10", "--layers", "1", *timed]
    # 1,000 · (3 · 7 · 100 + 7 · 32 · 10) multiply-adds; halo 2 · 400 · 10 · 4, state 2,560 and norms 744 bytes.
    said = CliRunner().invoke(app, words).output
    assert "a step: 0.035 s to send, 0.010 s of 10 collectives" in said
    assert "a step: 0.004 s of work, so 0.004 s (all behind work) to 0.050 s (none)" in said


def test_only_one_graph_of_nodes_is_cut(tmp_path):
    graphs = [Data(x=torch.randn(3, 2), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([i % 2])) for i in range(9)]
    torch.save(graphs, tmp_path / "graphs.pt")
    result = CliRunner().invoke(app, ["partition", str(tmp_path / "graphs.pt"), "-o", str(tmp_path / "out")])
    assert isinstance(result.exception, ValueError)
    assert "data: expected one graph whose nodes are predicted" in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("words", "said"), [(["--method", "mets"], "did you mean 'metis'"), (["-p", "0"], "")])
def test_options_are_checked(tmp_path, words, said):
    masks = {f"{name}_mask": torch.arange(9) % 3 == i for i, name in enumerate(("train", "val", "test"))}
    y = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])
    torch.save(Data(x=torch.randn(9, 2), edge_index=torch.tensor([[0], [1]]), y=y, **masks), tmp_path / "graph.pt")
    result = CliRunner().invoke(app, ["partition", str(tmp_path / "graph.pt"), "-o", str(tmp_path / "out"), *words])
    assert result.exit_code
    assert said in str(result.exception)


def test_a_folder_of_arrays_has_the_shards_of_the_graph(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    edges, part = torch.randint(0, 40, (2, 90), generator=generator), torch.arange(40) % 3
    masks = {f"{name}_mask": part == number for number, name in enumerate(("train", "val", "test"))}
    x, edge_attr = torch.randn(40, 2, generator=generator), torch.randn(90, 1, generator=generator)
    data = Data(x=x, edge_index=edges, edge_attr=edge_attr, y=torch.arange(40) % 4, **masks)
    torch.save(data, tmp_path / "graph.pt")
    (tmp_path / "arrays").mkdir()
    for name, values in data.to_dict().items():
        np.save(tmp_path / "arrays" / f"{name}.npy", values.numpy())
    for chunk, source in ((1 << 22, "graph.pt"), (13, "arrays")):
        monkeypatch.setattr(cut, "CHUNK", chunk)
        words = ["partition", tmp_path / source, "-p", 3, "-o", tmp_path / f"of-{source}", "--no-spectra"]
        result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
        assert "90 edges are set aside by process" in result.output
    for rank in range(3):
        one, other = (tmp_path / f"of-{source}" / f"shard-{rank}.safetensors" for source in ("graph.pt", "arrays"))
        assert one.read_bytes() == other.read_bytes()
    # What is wrong is one line, and nothing is left beside it.
    np.save(tmp_path / "arrays" / "edge_index.npy", edges.numpy() + 1)
    words = ["partition", str(tmp_path / "arrays"), "-o", str(tmp_path / "other")]
    result = CliRunner().invoke(app, words)
    assert str(result.exception) == "edge_index: expected node numbers in 0..39, got 1..40"
    names = {"graph.pt", "arrays", "of-graph.pt", "of-arrays"}
    assert {path.name for path in tmp_path.iterdir()} == names
