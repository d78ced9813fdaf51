import pytest
import torch
from small_run import small_dataset, small_recipe, write_cycles

from gssc.cli.common import pick_device
from gssc.datasets import write_pack
from gssc.train.open_data import open_for


def test_devices():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(ValueError, match="--device: expected"):
        pick_device("gpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu():
    with pytest.raises(ValueError, match="no GPU was found"):
        pick_device("cuda")


def test_pack_gives_the_dataset_and_must_be_of_it(tmp_path):
    dataset = small_dataset(tmp_path)
    write_pack(dataset, tmp_path / "pack.safetensors")
    packed = open_for(small_recipe(), tmp_path / "nothing here", tmp_path / "pack.safetensors")
    assert packed.task == dataset.task
    assert torch.equal(packed.splits["test"].y, dataset.splits["test"].y)
    with pytest.raises(ValueError, match="--pack: expected a pack of cycles-4, got one of cycles-3"):
        open_for(small_recipe("data.dataset=cycles-4"), tmp_path, tmp_path / "pack.safetensors")


def test_a_pack_of_generated_graphs_must_be_of_the_seed(tmp_path, monkeypatch):
    for name, fewer in (("GRAPHS", 50), ("TRAIN", 20), ("VALIDATION", 10)):
        monkeypatch.setattr(f"gssc.datasets.cycles.{name}", fewer)
    generated = small_recipe("data.generate=true", "data.seed=3")
    path = tmp_path / "pack.safetensors"
    write_pack(open_for(generated, tmp_path, None), path, generator={"name": "cycles-3", "seed": 3})
    assert open_for(generated, tmp_path, path).name == "cycles-3"
    with pytest.raises(ValueError, match=r"--pack: expected a pack with data.seed=4, got one with data.seed=3"):
        open_for(small_recipe("data.generate=true", "data.seed=4"), tmp_path, path)
    write_pack(small_dataset(tmp_path), path)
    with pytest.raises(ValueError, match=r"--pack: expected a pack of generated graphs.*, got one of files"):
        open_for(generated, tmp_path, path)


def test_by_name(tmp_path):
    write_cycles(tmp_path)
    assert open_for(small_recipe(), tmp_path, None).name == "cycles-3"
