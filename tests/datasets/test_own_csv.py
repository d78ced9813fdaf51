import pytest
import torch

from gssc.datasets import open_csv
from gssc.datasets.specs import OGB_ATOM, OGB_BOND

pytest.importorskip("rdkit")

SMILES = ["CCO", "c1ccccc1", "CC(=O)O", "C1CCNCC1", "CCN", "Cc1ccccc1", "C#N", "OCC", "C1CC1", "c1ccncc1"]


def table(tmp_path, columns, name="molecules.csv"):
    path = tmp_path / name
    rows = [",".join(columns), *(",".join(row) for row in zip(*columns.values(), strict=True))]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_a_table_of_molecules(tmp_path):
    path = table(tmp_path, {"smiles": SMILES, "logp": [str(i / 7) for i in range(10)]})
    dataset = open_csv(path, smiles_column="smiles", target_columns=["logp"], seed=1)
    assert dataset.name == "molecules"
    assert (dataset.node_features, dataset.edge_features) == (OGB_ATOM, OGB_BOND)
    assert (dataset.task.kind, dataset.task.metric) == ("regression", "mae")
    assert {name: len(flat) for name, flat in dataset.splits.items()} == {"train": 8, "val": 1, "test": 1}
    y = dataset.splits["train"].y
    assert dataset.task.shift == pytest.approx(float(y.mean()))
    assert dataset.task.scale == pytest.approx(float(y.std(unbiased=False)))


def test_several_targets_and_empty_cells(tmp_path):
    columns = {"s": SMILES, "a": ["0", "1"] * 5, "b": ["1", "", "0", "1", "0"] * 2}
    dataset = open_csv(table(tmp_path, columns), smiles_column="s", target_columns=["a", "b"])
    assert (dataset.task.kind, dataset.task.outputs, dataset.task.metric) == ("binary", 2, "auroc")
    y = torch.cat([flat.y for flat in dataset.splits.values()])
    assert int(y.isnan().sum()) == 2


def test_whole_numbers_are_classes_unless_told_otherwise(tmp_path):
    path = table(tmp_path, {"s": SMILES, "a": ["0", "1", "2", "3", ""] * 2})
    classes = open_csv(path, smiles_column="s", target_columns=["a"])
    assert (classes.task.kind, classes.task.outputs) == ("multiclass", 4)
    assert int(torch.cat([flat.y for flat in classes.splits.values()]).min()) == -1
    numbers = open_csv(path, smiles_column="s", target_columns=["a"], task="regression", metric="rmse")
    assert (numbers.task.kind, numbers.task.metric) == ("regression", "rmse")
    assert int(torch.cat([flat.y for flat in numbers.splits.values()]).isnan().sum()) == 2


def test_scaffold_split_is_the_same_every_time(tmp_path):
    path = table(tmp_path, {"s": SMILES, "a": [str(i / 3) for i in range(10)]})
    first, second = (
        open_csv(path, smiles_column="s", target_columns=["a"], split="scaffold", seed=seed) for seed in (0, 1)
    )
    assert all(torch.equal(first.splits[name].y, second.splits[name].y) for name in first.splits)
    # Molecules without a ring share the empty scaffold, the most common one here.
    assert {round(3 * value) for value in first.splits["train"].y[:, 0].tolist()} >= {0, 2, 4, 6, 7}


def test_rows_that_cannot_be_read(tmp_path):
    bad = [*SMILES[:3], "C(C", *SMILES[4:]]
    path = table(tmp_path, {"s": bad, "a": [str(i / 3) for i in range(10)]})
    with pytest.raises(ValueError, match=r"\Amolecules.csv line 5: expected a SMILES .* got 'C\(C'\Z"):
        open_csv(path, smiles_column="s", target_columns=["a"])
    kept = open_csv(path, smiles_column="s", target_columns=["a"], skip_invalid=True)
    y = torch.cat([flat.y for flat in kept.splits.values()])
    assert sorted(round(3 * value) for value in y[:, 0].tolist()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "csv: expected an existing file"),
        ("", "csv: expected headings in the first line, got no columns in .*molecules.csv"),
        ("smiles,a\nC,1\n", "column of .*: expected one of 'smiles', 'a', got 's'"),
        ("s,a\n", "csv: expected one or more rows below the headings, got no rows in .*molecules.csv"),
        ("s,a\nC,\nCC,\nCCC,\n", "column a: expected one or more known targets, got none"),
        ("s,a\nC,x\n", "molecules.csv line 2, column a: expected a number or an empty cell, got 'x'"),
        ("s,a\nC\n", "molecules.csv line 2: expected 2 cells, got 1"),
        ("s,a\nC,1,5\n", "molecules.csv line 2: expected 2 cells, got 3"),
        ("s,a,a\nC,1,5\n", "column of molecules.csv: expected one 'a', got 2"),
        ("s,a\nC,1e999\n", "molecules.csv line 2, column a: expected a number or an empty cell, got '1e999'"),
        ("s,a\nC,1.5\nCC,2.5\n", "three or more molecules"),
    ],
)
def test_tables_that_cannot_be_used(content, message, tmp_path):
    path = tmp_path / "molecules.csv"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=message):
        open_csv(path, smiles_column="s", target_columns=["a"])


def test_quotes_commas_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "molecules.csv"
    rows = "".join(f'"{s}","{i}.5","a, b"\n' for i, s in enumerate(SMILES))
    path.write_text("\ufeffs,a,note\n" + rows, encoding="utf-8")
    assert open_csv(path, smiles_column="s", target_columns=["a"]).task.kind == "regression"
    path.write_bytes(b"s,a\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match="a CSV file in UTF-8"):
        open_csv(path, smiles_column="s", target_columns=["a"])
