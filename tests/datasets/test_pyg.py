import sys
import urllib.error
import urllib.request

import pytest

from gssc.datasets import DATASETS, DatasetError, load_dataset
from gssc.datasets import pyg as source
from gssc.datasets.pyg import RAW_FILES, find_place, raw_paths, remove_empty_folders


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
    if name == "molhiv":
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


@pytest.mark.parametrize("name", sorted(set(RAW_FILES) - {"molhiv"}))
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
    for name in ("zinc-12k", "zinc-full", "voc-sp", "malnet-tiny", "pattern"):
        source._class(name)("ROOT", "val")
    assert made == [
        ("ZINC", ("ROOT",), {"subset": True, "split": "val"}),
        ("ZINC", ("ROOT",), {"subset": False, "split": "val"}),
        ("LRGBDataset", ("ROOT", "PascalVOC-SP"), {"split": "val"}),
        ("MalNetTiny", ("ROOT",), {"split": "val"}),
        ("GNNBenchmarkDataset", ("ROOT", "PATTERN"), {"split": "val"}),
    ]


def test_unknown_dataset(tmp_path):
    with pytest.raises(ValueError, match=r"dataset: expected one of .*did you mean 'cifar10'"):
        load_dataset("cifar", tmp_path)
    assert "molhiv" in DATASETS


def test_without_ogb_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ogb", None)
    monkeypatch.setitem(sys.modules, "ogb.graphproppred", None)
    with pytest.raises(ValueError, match=r"molhiv: expected the package ogb \(pip install ogb\)"):
        load_dataset("molhiv", tmp_path)
