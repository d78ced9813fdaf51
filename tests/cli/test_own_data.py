"""The options of `gssc train` for own data, against the kind of file that is given."""

import pytest
import torch
from torch_geometric.data import Data
from typer.testing import CliRunner

from gssc.cli import app


def train(*words):
    CliRunner().invoke(app, ["train", *map(str, words), "--device", "cpu"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--csv", "rings.pt", "--target-column", "a"], r"--csv: expected a \.csv file \(--data .*\), got rings\.pt"),
        (["--data", "m.csv"], r"--data: expected a \.pt file of PyG graphs \(--csv .*\), got m\.csv"),
        (["--data", "m.smi"], r"--data: expected a \.pt file of PyG graphs \(--csv .*\), got m\.smi"),
        (["--data", "rings.pt", "--target-column", "a"], "--target-column: expected --csv FILE with it, got --data"),
        (
            ["--data", "rings.pt", "--smiles-column", "smiles"],
            "--smiles-column: expected --csv FILE with it, got --data",
        ),
        (["--data", "rings.pt", "--skip-invalid"], "--skip-invalid: expected --csv FILE with it, got --data"),
        (["zinc-12k", "--skip-invalid"], "--skip-invalid: expected --csv FILE with it, got a recipe alone"),
        (["--csv", "m.csv"], "--target-column: expected the column of the .csv file to predict, got none"),
    ],
)
def test_options_must_fit_the_file(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    torch.save([Data(edge_index=ring, num_nodes=3, y=torch.randn(1)) for _ in range(9)], "rings.pt")
    with pytest.raises(ValueError, match=rf"\A{message}"):
        train(*words)
    assert [path.name for path in tmp_path.iterdir()] == ["rings.pt"]


def test_endings_may_be_capitals(tmp_path):
    (tmp_path / "M.CSV").write_text("smiles,a\nC,\n")
    pytest.importorskip("rdkit")
    with pytest.raises(ValueError, match="column a: expected one or more known targets"):
        train("--csv", tmp_path / "M.CSV", "--target-column", "a")
