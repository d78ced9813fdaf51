"""A small file that claims to be a large one is refused before memory is spent on it."""

import zipfile

import pytest
import torch
from torch_geometric.data import Data

from gssc.datasets import claims
from gssc.datasets.cycles import load_cycles
from gssc.datasets.own import load_saved
from gssc.datasets.smiles import MOST_HEADINGS, read_tables

RING = torch.tensor([[0, 1, 2], [1, 2, 0]])


def graph(**more) -> Data:
    return Data(edge_index=RING, y=torch.tensor([1.0]), **more)


def bomb() -> list[Data]:
    one = graph(x=torch.ones(2000, 8), num_nodes=2000)
    return [one] * 1_500  # which a pickle keeps once


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (graph(num_nodes=10**9), "claims 1,000,000,000"),
        ([graph(num_nodes=10**9)], "claims 1,000,000,000"),
        (Data(edge_index=torch.tensor([[0], [10**12]]), y=torch.tensor([1.0])), "nodes for each number"),
        (graph(x=torch.ones(1).expand(10**9, 1)), "claims more than"),
        (bomb(), "claims more than"),
        ([graph()] * 10**5, "claims 100,000"),
    ],
)
def test_graphs_that_are_not_there(tmp_path, content, message):
    torch.save(content, tmp_path / "graphs.pt")
    with pytest.raises(ValueError, match=message):
        load_saved(tmp_path / "graphs.pt")


def test_graphs_that_are_there(tmp_path):
    torch.save([graph(num_nodes=n, x=torch.ones(1).expand(n, 4)) for n in (3, 3000)], tmp_path / "graphs.pt")
    assert len(load_saved(tmp_path / "graphs.pt")) == 2


def test_archives_that_unpack_to_more_than_they_are(tmp_path):
    path = tmp_path / "cycles" / "raw" / "count_cycle.npz"
    path.parent.mkdir(parents=True)
    for target in (path, tmp_path / "graphs.pt"):
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("n_nodes.npy", bytes(claims.MOST_BYTES + 1))
    with pytest.raises(ValueError, match=r"count_cycle\.npz: expected .*, which claims to hold"):
        load_cycles(3, tmp_path)
    with pytest.raises(ValueError, match=r"data: expected .*, which claims to hold"):
        load_saved(tmp_path / "graphs.pt")


def test_tables_with_hardly_any_cells(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("smiles," + ",".join(map(str, range(MOST_HEADINGS))) + "\nC\n")
    with pytest.raises(ValueError, match="csv: expected at most 10,000 columns, got 10,001"):
        next(read_tables(path, "smiles"))
    path.write_text("smiles," + ",".join(map(str, range(9000))) + "\n" + "C\n" * 2000)
    with pytest.raises(ValueError, match="rows with most of their cells"):
        next(read_tables(path, "smiles"))
