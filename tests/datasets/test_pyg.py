import sys

import pytest

from gssc.datasets import DATASETS, DatasetError, load_dataset
from gssc.datasets import pyg as source
from gssc.datasets.places import RAW_FILES


@pytest.fixture
def no_network(monkeypatch):
    """Every dataset class fails as it would without a network."""

    def fail(root, split):
        raise OSError("Name or service not known")

    monkeypatch.setattr(source, "_class", lambda name: fail)


@pytest.mark.parametrize("name", sorted(set(RAW_FILES) - {"molhiv"}))
def test_without_network_the_error_says_which_file_belongs_where(name, no_network, tmp_path):
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
    with pytest.raises(ValueError, match=r"molhiv: expected the package ogb \(pip install 'gssc\[ogb\]'\)"):
        load_dataset("molhiv", tmp_path)
