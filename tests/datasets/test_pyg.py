import gzip
import sys
import tarfile
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch

from gssc.datasets import DATASETS, DatasetError, load_dataset, open_dataset
from gssc.datasets import pyg as source
from gssc.datasets.pyg import CITIES, HETEROPHILOUS, RAW_FILES, find_place, raw_paths, remove_empty_folders
from gssc.datasets.specs import ONE_GRAPH, SPECS

OGB = {"molhiv", "ogbn-arxiv", "ogbn-products"}
NODES = 30


def lay_out(name, place, paths=None):
    for path in raw_paths(name) if paths is None else paths:
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text("")


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", refuse)


@pytest.mark.parametrize("name", sorted(RAW_FILES))
def test_without_network_every_class_says_which_file_belongs_where(name, no_network, tmp_path):
    if name in OGB:
        pytest.importorskip("ogb")
    for _ in range(2):  # what a failed attempt leaves behind must not matter to the next
        with pytest.raises(DatasetError) as caught:
            load_dataset(name, tmp_path)
        message = str(caught.value)
        assert message.startswith(
            f"{name}: could not be read or downloaded (<urlopen error Name or service not known>)"
        )
        assert message.endswith(f"; put {' and '.join(RAW_FILES[name])} below {tmp_path / name}")


@pytest.mark.parametrize("name", sorted(RAW_FILES))
def test_files_are_found_in_the_root_and_in_a_folder_of_their_name(name, tmp_path):
    assert find_place(name, tmp_path) == tmp_path / name
    lay_out(name, tmp_path)
    assert find_place(name, tmp_path) == tmp_path
    lay_out(name, tmp_path / name)
    assert find_place(name, tmp_path) == tmp_path / name


@pytest.mark.parametrize("name", sorted(name for name in RAW_FILES if len(raw_paths(name)) > 1))
def test_files_are_never_deleted_because_others_are_missing(name, no_network, tmp_path):
    kept = raw_paths(name)[:-1]
    lay_out(name, tmp_path / name, kept)
    with pytest.raises(DatasetError, match=f"{name}: {raw_paths(name)[-1]} is missing below .* put it there"):
        load_dataset(name, tmp_path)
    assert all((tmp_path / name / path).exists() for path in kept)


def test_foreign_files_in_the_root_are_left_alone(no_network, tmp_path):
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "precious").write_text("")
    for name in ("zinc-12k", "malnet-tiny"):
        with pytest.raises(DatasetError, match="could not be read or downloaded"):
            load_dataset(name, tmp_path)
    assert (tmp_path / "raw" / "precious").exists()


def test_only_empty_folders_are_removed(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    remove_empty_folders(tmp_path / "a")
    assert not (tmp_path / "a").exists()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_text("")
    remove_empty_folders(tmp_path / "a")
    assert (tmp_path / "a" / "b" / "file").exists()


def test_a_folder_of_the_other_zinc_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "_class", lambda name: lambda root, split: [0] * 12)
    with pytest.raises(ValueError, match=r"zinc-full in .*: expected 220,011 training graphs, got 12"):
        load_dataset("zinc-full", tmp_path)


@pytest.fixture
def no_class(monkeypatch):
    """Every dataset class fails as it would without a network, whatever it downloads with."""

    def fail(root, split):
        raise OSError("Name or service not known")

    monkeypatch.setattr(source, "_class", lambda name: fail)


@pytest.mark.parametrize("name", sorted(set(RAW_FILES) - OGB))
def test_without_network_the_error_says_which_file_belongs_where(name, no_class, tmp_path):
    with pytest.raises(DatasetError) as caught:
        load_dataset(name, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{name}: could not be read or downloaded (Name or service not known); put ")
    assert " and ".join(RAW_FILES[name]) in message
    assert message.endswith(f"below {tmp_path / name}")


def test_each_name_makes_its_class(monkeypatch):
    made = []
    for cls in ("ZINC", "LRGBDataset", "MalNetTiny", "GNNBenchmarkDataset"):
        monkeypatch.setattr(source, cls, lambda *args, cls=cls, **kwargs: made.append((cls, args, kwargs)))
    monkeypatch.setattr(source, "HeterophilousGraphDataset", lambda *args: made.append(("Heterophilous", args, {})))
    monkeypatch.setattr(source, "City", lambda *args: made.append(("City", args, {})))
    for name in ("zinc-12k", "zinc-full", "voc-sp", "malnet-tiny", "pattern", "roman-empire", "city-la"):
        source._class(name)("ROOT", "val")
    assert made == [
        ("ZINC", ("ROOT",), {"subset": True, "split": "val"}),
        ("ZINC", ("ROOT",), {"subset": False, "split": "val"}),
        ("LRGBDataset", ("ROOT", "PascalVOC-SP"), {"split": "val"}),
        ("MalNetTiny", ("ROOT",), {"split": "val"}),
        ("GNNBenchmarkDataset", ("ROOT", "PATTERN"), {"split": "val"}),
        ("Heterophilous", ("ROOT", "roman-empire"), {}),
        ("City", ("ROOT", "la"), {}),
    ]


def ring_like(name):
    """Features, edges in one direction, targets and the number of the part of every node, as a dataset might have."""
    generator, spec = np.random.default_rng(0), SPECS[name]
    x = generator.normal(3.0, 2.0, (NODES, spec.node_features)).astype(np.float32)
    edges = np.stack([np.arange(NODES), (np.arange(NODES) + 1) % NODES])
    classes = spec.task.outputs if spec.task.kind == "multiclass" else 2
    return x, edges, np.arange(NODES) % classes, np.arange(NODES) // 2 % 3


def check_graph(name, root, mask=0, shift=0):
    dataset = open_dataset(name, root, mask=mask)
    x, _, y, part = ring_like(name)
    assert (dataset.name, dataset.task, dataset.node_features) == (name, SPECS[name].task, x.shape[1])
    parts = list(dataset.splits.values())
    assert [flat.mask.tolist() for flat in parts] == [((part + shift) % 3 == number).tolist() for number in range(3)]
    for flat in parts:
        assert flat.x is parts[0].x
        assert flat.y.flatten().tolist() == y.tolist()
        assert flat.num_edges == 2 * NODES  # both directions
    assert flat.x[parts[0].mask].mean(0).abs().max() < 1e-5  # standardised by the training nodes


@pytest.mark.parametrize("name", HETEROPHILOUS)
def test_heterophilous_graphs_with_ten_splits(name, no_network, tmp_path):
    (path,) = (tmp_path / path for path in raw_paths(name))
    path.parent.mkdir(parents=True)
    x, edges, y, part = ring_like(name)
    masks = {
        f"{split}_masks": np.stack([(part + shift) % 3 == number for shift in range(10)])
        for number, split in enumerate(("train", "val", "test"))
    }
    np.savez(path, node_features=x, node_labels=y, edges=edges.T, **masks)
    check_graph(name, tmp_path)
    check_graph(name, tmp_path, mask=4, shift=4)
    with pytest.raises(ValueError, match=r"data.mask: expected a split from 0 to 9, as train_mask has them, got 10"):
        open_dataset(name, tmp_path, mask=10)


@pytest.mark.parametrize("name", CITIES[:2])
def test_cities_from_their_archive_downloaded_once(name, no_network, tmp_path):
    place, inside = tmp_path / name, name.removeprefix("city-")
    x, edges, y, part = ring_like(name)
    files = {"node_features_augmented": x, "edge_indices": edges, "10-chunk_16-hop_node_labels": y}
    files |= {f"{split}_mask": part == number for number, split in enumerate(("train", "valid", "test"))}
    (place / inside / "raw").mkdir(parents=True)
    with tarfile.open(place / inside / "raw" / f"{inside}.tar.gz", "w:gz") as archive:
        for file, values in files.items():
            torch.save(torch.as_tensor(values), tmp_path / "values.pt")
            archive.add(tmp_path / "values.pt", f"{inside}/{file}.pt")
    for _ in range(2):
        check_graph(name, tmp_path)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")  # OGB takes what pandas reads
@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbn-products"])
def test_nodes_of_ogb(name, no_network, tmp_path):
    pytest.importorskip("ogb")
    x, edges, y, part = ring_like(name)
    tables = {"edge": edges.T, "node-feat": x, "node-label": y[:, None], "node_year": y[:, None]}
    tables |= {"num-node-list": [[NODES]], "num-edge-list": [[NODES]]}
    tables |= {
        split: np.flatnonzero(part == number)[:, None] for number, split in enumerate(("train", "valid", "test"))
    }
    for path in raw_paths(name):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
        if path.endswith(".csv.gz"):
            rows = tables[path.rpartition("/")[2].partition(".")[0]]
            text = "\n".join(",".join(map(str, row)) for row in rows)
            (tmp_path / path).write_bytes(gzip.compress(text.encode()))
    for _ in range(2):
        check_graph(name, tmp_path)


def test_every_large_graph_is_laid_out_somewhere():
    assert set(ONE_GRAPH) == {*HETEROPHILOUS, *CITIES, "ogbn-arxiv", "ogbn-products"}


def test_unknown_dataset(tmp_path):
    with pytest.raises(ValueError, match=r"dataset: expected one of .*did you mean 'cifar10'"):
        load_dataset("cifar", tmp_path)
    assert "molhiv" in DATASETS


def test_without_ogb_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.setitem(sys.modules, "ogb.graphproppred", None)
    with pytest.raises(ValueError, match=r"molhiv: expected the package ogb \(pip install ogb\)"):
        load_dataset("molhiv", tmp_path)
