import json

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import LocalDegreeProfile

from gssc.datasets import flatten, open_csv, open_own, read_inputs
from gssc.datasets.flat import degree_profile, pack_columns
from gssc.datasets.inputs import open_inputs
from gssc.datasets.open import finish
from gssc.datasets.specs import SPECS


def graphs(count=20, x=lambda n: torch.randint(4, (n, 1)), y=True):
    made = []
    for i in range(count):
        n = 3 + i % 4
        edge_index = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
        made.append(Data(x=x(n), edge_index=edge_index, edge_attr=torch.randn(n, 2), num_nodes=n))
        if y:
            made[-1].y = torch.randn(1)
    return made


def about_of(dataset):
    return json.loads(json.dumps(dataset.about()))


def saved(path, content):
    torch.save(content, path)
    return path


def test_inputs_are_treated_like_training_data(tmp_path):
    data = graphs(x=lambda n: torch.randn(n, 2) * 3 + 5)
    for i, graph in enumerate(data):
        graph.split = ("train", "val", "test")[i % 3]
    dataset = open_own(saved(tmp_path / "mine.pt", data))
    flat = read_inputs(saved(tmp_path / "new.pt", data[2::3]), about_of(dataset))
    for name in ("ptr", "edge_ptr", "edge_index", "x", "edge_attr", "y"):
        assert torch.equal(getattr(flat, name), getattr(dataset.splits["test"], name)), name


def test_targets_may_be_missing(tmp_path):
    dataset = open_own(saved(tmp_path / "mine.pt", graphs()))
    flat = read_inputs(
        saved(tmp_path / "new.pt", graphs(4, lambda n: torch.zeros(n, 1).long(), y=False)), about_of(dataset)
    )
    assert flat.y.shape == (4, 1)
    assert bool(flat.y.isnan().all())
    data = graphs()
    for graph in data:
        graph.y = torch.randint(3, (graph.num_nodes,))
    classes = open_own(saved(tmp_path / "mine.pt", data))
    flat = read_inputs(
        saved(tmp_path / "new.pt", graphs(4, lambda n: torch.zeros(n, 1).long(), y=False)), about_of(classes)
    )
    assert flat.y.tolist() == [-1] * flat.num_nodes


def test_categories_that_training_has_not_seen_are_named(tmp_path):
    dataset = open_own(saved(tmp_path / "mine.pt", graphs(x=lambda n: torch.arange(n).unsqueeze(1) % 4)))
    for bad in (9, -1):
        new = graphs(1, lambda n, bad=bad: torch.tensor([[0], [bad], [1]]))
        with pytest.raises(ValueError, match=rf"x, column 0: expected categories 0 to 3, .* got {bad} in row 1\Z"):
            read_inputs(saved(tmp_path / "new.pt", new), about_of(dataset))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (lambda n: torch.zeros(n, 2).long(), "x: expected 1 columns, as in training, got 2 columns"),
        (lambda n: torch.zeros(n, 1), "x: expected integer categories, as in training"),
        (lambda n: None, "x: expected 1 columns, as in training, got none"),
    ],
)
def test_columns_that_differ_from_training(x, message, tmp_path):
    dataset = open_own(saved(tmp_path / "mine.pt", graphs()))
    with pytest.raises(ValueError, match=message):
        read_inputs(saved(tmp_path / "new.pt", graphs(2, x)), about_of(dataset))


def test_named_datasets_know_what_their_columns_are(tmp_path):
    data = [
        Data(
            x=torch.rand(12, 1),
            pos=torch.rand(12, 2),
            edge_index=torch.randint(12, (2, 30)),
            edge_attr=torch.rand(30),
            y=torch.tensor([3]),
        )
        for _ in range(3)
    ]
    spec = SPECS["mnist"]
    flat = flatten(data, spec.task, node=spec.node)
    about = about_of(finish("mnist", spec, {"train": flat}))
    read = read_inputs(saved(tmp_path / "new.pt", data), about)
    assert torch.equal(read.x, flat.x)
    assert torch.equal(read.edge_attr, flat.edge_attr)
    bare = [Data(edge_index=torch.randint(9, (2, 20)), num_nodes=9, y=torch.tensor([1])) for _ in range(4)]
    spec = SPECS["malnet-tiny"]
    dataset = finish("malnet-tiny", spec, {"train": flatten(bare, spec.task, node=spec.node)})
    read = read_inputs(saved(tmp_path / "new.pt", bare), about_of(dataset))
    assert torch.equal(read.x, dataset.splits["train"].x)
    assert degree_profile(read).shape == read.x.shape
    for graph in (*bare, Data(edge_index=torch.tensor([[0, 0, 1], [1, 2, 0]]), num_nodes=4)):
        theirs = LocalDegreeProfile()(Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes)).x
        torch.testing.assert_close(degree_profile(pack_columns([graph])[0]), theirs)


@pytest.mark.parametrize(("name", "columns"), [("molhiv", 9), ("peptides-func", 9), ("zinc-12k", 1), ("zinc-full", 1)])
def test_smiles_for_models_of_named_datasets(name, columns):
    pytest.importorskip("rdkit")
    spec = SPECS[name]
    about = {"name": name, "task": vars(spec.task), "standardize": {}}
    about |= {"node_features": list(spec.node_features), "edge_features": list(spec.edge_features)}
    inputs = open_inputs(["CCO", "C(", "c1ccccc1"], about, skip_invalid=True)
    assert inputs.graphs.x.shape == (9, columns)
    assert (inputs.rows, inputs.skipped, inputs.labels) == ([0, 2], 1, {"smiles": ["CCO", "c1ccccc1"]})
    assert inputs.graphs.y.shape == (2, spec.task.outputs)
    # A string is one molecule, not a list of letters, or the path of a file.
    assert open_inputs("CCO", about).graphs.ptr.tolist() == [0, 3]
    with pytest.raises(ValueError, match=r"input: expected a file of SMILES, got none\.smi"):
        open_inputs("none.smi", about)


def test_molecules_as_table_and_as_lines(tmp_path):
    pytest.importorskip("rdkit")
    smiles = ["CCO", "c1ccccc1", "CC(=O)O", "C1CCNCC1", "CCN"]
    path = tmp_path / "m.csv"
    path.write_text("smiles,a\n" + "".join(f"{s},{i}.5\n" for i, s in enumerate(smiles)))
    dataset = open_csv(path, smiles_column="smiles", target_columns=["a"])
    lines = tmp_path / "m.smi"
    lines.write_text("".join(f"{s} name of {s}\n\n" for s in smiles))
    table, listed = (read_inputs(p, about_of(dataset)) for p in (path, lines))
    for flat in (table, listed):
        assert len(flat) == 5
        assert bool(flat.y.isnan().all())
    assert torch.equal(table.x, listed.x)
    assert torch.equal(table.edge_attr, listed.edge_attr)
    lines.write_text("CC\nC(C\n")
    with pytest.raises(ValueError, match=r"m\.smi line 2: expected a SMILES"):
        read_inputs(lines, about_of(dataset))
    lines.write_text("\n")
    with pytest.raises(ValueError, match="one or more SMILES"):
        read_inputs(lines, about_of(dataset))
    with pytest.raises(ValueError, match=r"input: expected one of '.pt', '.pth', '.csv', '.smi', got '.txt'"):
        read_inputs(tmp_path / "m.txt", about_of(dataset))
    other = open_own(saved(tmp_path / "mine.pt", graphs()))
    with pytest.raises(ValueError, match="the model was trained on mine, not on molecules"):
        read_inputs(path, about_of(other))


def test_plain_numbers_and_tensors_are_the_same_targets(tmp_path):
    data = graphs(x=lambda n: torch.zeros(n, 1).long())
    expected = torch.cat([graph.y for graph in data])
    dataset = open_own(saved(tmp_path / "mine.pt", data))
    for graph in data:
        graph.y = float(graph.y)
    assert open_own(saved(tmp_path / "plain.pt", data)).task == dataset.task
    flat = read_inputs(tmp_path / "plain.pt", about_of(dataset))
    assert torch.equal(flat.y[:, 0], expected)


def test_one_graph_a_batch_and_other_things(tmp_path):
    dataset = open_own(saved(tmp_path / "own.pt", graphs()))
    about = about_of(dataset)
    new = graphs(3)
    assert open_inputs(new[0], about).graphs.num_graphs == 1
    assert torch.equal(open_inputs(Batch.from_data_list(new), about).graphs.x, open_inputs(new, about).graphs.x)
    subset = torch.utils.data.Subset(new, [0, 1, 2])
    assert torch.equal(open_inputs(subset, about).graphs.x, open_inputs(new, about).graphs.x)
    for graph in new:  # a target of another task is not needed
        graph.y = torch.zeros(graph.num_nodes)
    assert open_inputs(new, about).graphs.y.isnan().all()
    with pytest.raises(ValueError, match="graphs: expected PyG graphs, SMILES, or the path of a file, got dict"):
        open_inputs({"a": 1}, about)
