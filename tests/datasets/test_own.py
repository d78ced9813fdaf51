import io
import pickle

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData, InMemoryDataset

from gssc.datasets import describe, open_own
from gssc.datasets.flat import flatten
from gssc.datasets.inputs import open_inputs
from gssc.datasets.own import count_splits


def graphs(count=20, y=lambda n: torch.randn(1), **extra):
    made = []
    for i in range(count):
        n = 3 + i % 4
        edge_index = torch.stack([torch.arange(n), (torch.arange(n) + 1) % n])
        made.append(
            Data(
                x=torch.randint(7, (n, 2)),
                edge_index=torch.cat([edge_index, edge_index.flip(0)], dim=1),
                edge_attr=torch.randn(2 * n, 3),
                y=y(n),
                **{name: values[i] for name, values in extra.items()},
            )
        )
    return made


def saved(tmp_path, content, name="mine.pt"):
    torch.save(content, tmp_path / name)
    return tmp_path / name


@pytest.mark.parametrize("form", ["list", "tuple", "save"])
def test_graphs_in_every_form_are_the_same_dataset(form, tmp_path):
    data = graphs()
    path = tmp_path / "mine.pt"
    if form == "save":
        InMemoryDataset.save(data, path)
    else:
        torch.save(data if form == "list" else tuple(data), path)
    dataset = open_own(path, seed=3)
    assert dataset.name == "mine"
    assert {name: len(flat) for name, flat in dataset.splits.items()} == {"train": 16, "val": 2, "test": 2}
    assert (dataset.task.level, dataset.task.kind) == ("graph", "regression")
    assert dataset.node_features == tuple((torch.cat([g.x for g in data]).amax(0) + 1).tolist())
    assert dataset.edge_features == 3
    reference = open_own(saved(tmp_path, data, "other.pt"), seed=3)
    for name, flat in dataset.splits.items():
        for field in ("ptr", "edge_index", "x", "edge_attr", "y"):
            assert torch.equal(getattr(flat, field), getattr(reference.splits[name], field))


def test_scales_are_those_of_the_training_part(tmp_path):
    dataset = open_own(saved(tmp_path, graphs(y=lambda n: torch.randn(1, 2) * 5 + 3)))
    train = dataset.splits["train"]
    torch.testing.assert_close(train.edge_attr.mean(0), torch.zeros(3), atol=1e-6, rtol=0)
    torch.testing.assert_close(train.edge_attr.std(0, unbiased=False), torch.ones(3))
    scaled = (train.y - torch.tensor(dataset.task.shift)) / torch.tensor(dataset.task.scale)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(scaled.std(0, unbiased=False), torch.ones(2))
    assert set(dataset.standardize) == {"edge_attr"}


def test_the_split_of_the_data_is_kept(tmp_path):
    words = ["train", "test", "valid", "train"] * 5
    for values in (words, [torch.tensor({"train": 0, "valid": 1, "test": 2}[word]) for word in words]):
        data = graphs(split=values)
        for path in (saved(tmp_path, data), tmp_path / "other.pt"):
            if path.name == "other.pt":
                InMemoryDataset.save(data, path)
            splits = open_own(path).splits
            assert {name: len(flat) for name, flat in splits.items()} == {"train": 10, "val": 5, "test": 5}
            expected = flatten([g for g, word in zip(data, words, strict=True) if word == "test"], open_own(path).task)
            assert torch.equal(splits["test"].x, expected.x)
    with pytest.raises(ValueError, match="graphs in each of train, val and test, got none in val"):
        open_own(saved(tmp_path, graphs(split=["train", "test"] * 10)))
    with pytest.raises(ValueError, match=r"split of a graph: expected one of .*did you mean 'train'"):
        open_own(saved(tmp_path, graphs(split=["trian", "test"] * 10)))


def one_graph(nodes=50, **masks):
    edge_index = torch.randint(nodes, (2, 200))
    return Data(x=torch.randn(nodes, 4) * 3 + 1, edge_index=edge_index, y=torch.randint(3, (nodes,)), **masks)


def test_one_graph_with_masks_is_shared_by_the_parts(tmp_path):
    part = torch.arange(50) % 3
    masks = {f"{name}_mask": part == number for number, name in enumerate(("train", "val", "test"))}
    data = one_graph(**masks)
    for content in (data, [data]):
        dataset = open_own(saved(tmp_path, content))
        assert dataset.task.level == "node"
        assert dataset.task.outputs == 3
        for name, flat in dataset.splits.items():
            assert torch.equal(flat.mask, masks[f"{name}_mask"])
            assert flat.x is dataset.splits["train"].x
            assert flat.edge_index is dataset.splits["train"].edge_index
        # Standardised by the nodes that are trained on.
        torch.testing.assert_close(dataset.splits["train"].x[part == 0].mean(0), torch.zeros(4), atol=1e-6, rtol=0)
        assert "17 train nodes, 17 val nodes, 16 test nodes" in describe(dataset)
        assert "1 graph (" in describe(dataset)


def test_masks_with_columns_are_several_splits(tmp_path):
    part = torch.arange(50).unsqueeze(1) % 3 + torch.arange(2)
    masks = {f"{name}_mask": part % 3 == number for number, name in enumerate(("train", "val"))}
    path = saved(tmp_path, one_graph(**masks, test_mask=torch.zeros(50) > 0))
    with pytest.raises(ValueError, match="test_mask: expected one or more nodes"):
        open_own(path)
    path = saved(tmp_path, one_graph(**masks, test_mask=part == 2))
    assert count_splits(path) == 2
    for split in range(2):
        found = open_own(path, mask=split).splits
        assert torch.equal(found["val"].mask, masks["val_mask"][:, split])
    with pytest.raises(ValueError, match=r"data\.mask: expected a split from 0 to 1, as train_mask has them, got 2"):
        open_own(path, mask=2)
    with pytest.raises(ValueError, match=r"data\.mask: expected 0, or masks with several columns, got 1"):
        open_own(saved(tmp_path, one_graph()), mask=1)


def test_one_graph_without_masks_is_split_by_nodes(tmp_path):
    dataset = open_own(saved(tmp_path, one_graph()))
    masks = torch.stack([flat.mask for flat in dataset.splits.values()])
    assert masks.sum(0).tolist() == [1] * 50
    assert masks.sum(1).tolist() == [40, 5, 5]


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"train_mask": torch.ones(50, dtype=torch.bool)}, "val_mask: expected given, like train_mask, got none"),
        (
            {f"{n}_mask": torch.ones(50, 2, 2) > 0 for n in ("train", "val", "test")},
            r"a column of them for each split, got \[50, 2, 2\]",
        ),
        ({f"{n}_mask": torch.ones(49) > 0 for n in ("train", "val", "test")}, "one truth value for each of 50 nodes"),
        ({f"{n}_mask": torch.zeros(50) > 0 for n in ("train", "val", "test")}, "one or more nodes, got none"),
        (
            {f"{n}_mask": torch.ones(50) > 0 for n in ("train", "val", "test")},
            "no nodes of train_mask, got 50 that",
        ),
    ],
)
def test_masks_that_do_not_fit(masks, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        open_own(saved(tmp_path, one_graph(**masks)))


def test_molecules_split_by_scaffold(tmp_path):
    pytest.importorskip("rdkit")
    smiles = ["c1ccccc1", "Cc1ccccc1", "C1CCCCC1", "C1CCNCC1", "CCO", "c1ccncc1", "CCc1ccccc1", "C1CC1"] * 2
    dataset = open_own(saved(tmp_path, graphs(16, smiles=smiles)), split="scaffold")
    assert sum(len(flat) for flat in dataset.splits.values()) == 16
    with pytest.raises(ValueError, match="an attribute smiles in every graph"):
        open_own(saved(tmp_path, graphs()), split="scaffold")
    with pytest.raises(ValueError, match="split: expected one of 'random', 'scaffold'"):
        open_own(saved(tmp_path, graphs()), split="scafold")


class Harmful:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"which cannot be read \(EOFError\)\Z"),
        (b"hello", r"which cannot be read \(KeyError: 101\)\Z"),
        (b"<html>", r"which cannot be read \(UnpicklingError: Unsupported operand 60\)\Z"),
        (pickle.dumps([1, 2], protocol=2), "data: expected a list of torch_geometric"),
        ([1, 2], "got .*list of int"),
        ([], "got .*list"),
        ({"a": 1}, "got .*dict"),
        (torch.zeros(3), "got .*Tensor"),
        (Harmful(), "without objects of other classes"),
        ([HeteroData()], "HeteroData|without objects of other classes"),
        ([Data(x=torch.zeros(2, 1), edge_index=torch.zeros(2, 0).long())] * 4, "y: expected a target"),
        (graphs(2), "three or more graphs"),
    ],
)
def test_other_files_are_errors_of_one_line(content, message, tmp_path, capsys):
    path = tmp_path / "mine.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ValueError, match=message) as caught:
        open_own(path)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_truncated_files_and_missing_ones(tmp_path):
    file = io.BytesIO()
    torch.save(graphs(), file)
    path = tmp_path / "mine.pt"
    path.write_bytes(file.getvalue()[: len(file.getvalue()) // 2])
    with pytest.raises(ValueError, match=r"data: expected .*cannot be read"):
        open_own(path)
    with pytest.raises(ValueError, match="data: expected an existing file"):
        open_own(tmp_path / "nothing.pt")


def test_a_name_that_is_taken_gets_another(tmp_path):
    assert open_own(saved(tmp_path, graphs(), "mnist.pt")).name == "mnist-own"


def test_description_says_what_was_found(tmp_path):
    dataset = open_own(saved(tmp_path, graphs(y=lambda n: torch.randint(4, (n,)))))
    text = describe(dataset)
    assert text.splitlines()[0] == "mine: 20 graphs (16 train, 2 val, 2 test), 4.5 nodes and 9.0 edges on average"
    assert text.splitlines()[1] == "task: classification into 4 classes per node, metric accuracy"
    assert text.splitlines()[2] == "nodes: 2 categorical columns of 7, 7 values; edges: 3 continuous columns"


@pytest.mark.parametrize(
    ("part", "y", "message"),
    [
        ("train", lambda: torch.tensor([float("nan")]), "y of the train part: expected one or more known targets"),
        ("train", lambda: torch.tensor([-1]), "y of the train part: expected one or more known targets"),
        ("train", lambda: torch.tensor([[0.5, float("nan")]]), "y of the train part, column 1: expected one or more"),
        (
            "val",
            lambda: torch.tensor([float("nan")]),
            "y of the val part: expected one or more known targets, got none",
        ),
    ],
)
def test_a_part_without_known_targets(part, y, message, tmp_path):
    words = ["train"] * 10 + ["val"] * 5 + ["test"] * 5
    data = graphs(split=words)
    for number, (graph, word) in enumerate(zip(data, words, strict=True)):
        known = torch.full_like(y(), 0.5 + number) if y().is_floating_point() else torch.tensor([number % 2])
        graph.y = y() if word == part else known
    with pytest.raises(ValueError, match=message):
        open_own(saved(tmp_path, data))


def test_infinite_targets_are_no_unknown_ones(tmp_path):
    data = graphs()
    for number, graph in enumerate(data):
        graph.y = torch.tensor([float("inf") if number == 3 else 0.5])
    with pytest.raises(
        ValueError, match="y: expected finite numbers, or NaN where a target is unknown, got 1 infinite"
    ):
        open_own(saved(tmp_path, data))


def test_edge_weights_are_given_for_all_graphs_and_said(tmp_path):
    data = graphs()
    for graph in data:
        graph.edge_weight = torch.ones(graph.num_edges)
    path = saved(tmp_path, data)
    dataset = open_own(str(path))
    assert describe(dataset).endswith(", weighted")
    assert dataset.about()["edge_weights"]
    assert open_inputs(path, dataset.about()).graphs.weight is not None
    for graph in data[:2]:
        del graph.edge_weight
    with pytest.raises(ValueError, match="edge_weight: expected given, as in training, got none"):
        open_inputs(data[:2], dataset.about())
    with pytest.raises(ValueError, match="edge_weight: expected given for every graph or for none, got 2 of 20"):
        open_own(saved(tmp_path, data))


def test_a_saved_batch_is_named(tmp_path):
    path = tmp_path / "batch.pt"
    torch.save(Batch.from_data_list(graphs()), path)
    with pytest.raises(ValueError, match=r"without objects of other classes, got .*batch\.pt: torch_geometric\.\S+\Z"):
        open_own(path)
