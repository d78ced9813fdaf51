import pytest

from gssc import datasets
from gssc.datasets import DATASETS, DatasetError, load_dataset
from gssc.datasets import pyg as source


@pytest.fixture
def no_network(monkeypatch):
    """Every dataset class fails as it would without a network."""

    def fail(root, split):
        raise OSError("Name or service not known")

    monkeypatch.setattr(source, "_class", lambda name: fail)


@pytest.mark.parametrize("name", sorted(source.RAW_FILES))
def test_without_network_the_error_says_which_file_belongs_where(name, no_network, tmp_path):
    with pytest.raises(DatasetError) as caught:
        load_dataset(name, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{name}: could not be read or downloaded (Name or service not known); put ")
    assert source.RAW_FILES[name] in message
    assert message.endswith(f"below {tmp_path / name}")


def test_files_are_found_in_the_root_and_in_a_folder_of_their_name(tmp_path):
    assert datasets._place("zinc-12k", tmp_path) == tmp_path / "zinc-12k"
    (tmp_path / "raw").mkdir()
    assert datasets._place("zinc-12k", tmp_path) == tmp_path
    assert datasets._place("mnist", tmp_path) == tmp_path / "mnist"
    (tmp_path / "MNIST").mkdir()
    assert datasets._place("mnist", tmp_path) == tmp_path


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
