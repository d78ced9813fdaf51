import shutil

import pytest
import torch
from small_run import run_small

from gssc.files import DamagedFileError, load_tensors
from gssc.pretrained import open_model
from gssc.pretrained.manifest import check_folder
from gssc.pretrained.publish import publish
from tools.compact import compact, rounded


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    run_small(folder, "runs/seed-0", "train.epochs=2")
    publish(folder / "runs", folder / "small")
    return folder / "small"


@pytest.mark.parametrize("bits", [16, 24, 26, 32])
def test_rounding_is_to_the_nearest(bits):
    weight = torch.randn(50, 40, generator=torch.Generator().manual_seed(0)) * torch.logspace(-30, 30, 40)
    stored = rounded(weight, bits)
    assert ((stored - weight).abs() <= weight.abs() * 2.0 ** (8 - bits)).all()
    assert (stored.view(torch.int32) & ((1 << (32 - bits)) - 1) == 0).all()
    assert torch.equal(rounded(stored, bits), stored)
    assert torch.equal(rounded(weight[0], bits), weight[0])  # a vector


@pytest.mark.parametrize("bits", [26, 32])
def test_the_model_stays_the_same_to_rounding(model, tmp_path, bits):
    copy = tmp_path / "small"
    shutil.copytree(model, copy)
    size = compact(copy, bits)
    assert size == (copy / "model.safetensors.xz").stat().st_size < (model / "model.safetensors").stat().st_size
    assert not (copy / "model.safetensors").exists()
    check_folder(copy)
    before, after = open_model(model), open_model(copy)
    tolerance = {"rtol": 2.0 ** (8 - bits), "atol": 0.0} if bits < 32 else {"rtol": 0.0, "atol": 0.0}
    torch.testing.assert_close(after.model.state_dict(), before.model.state_dict(), **tolerance)
    assert ("stored to 26 bits" in after.card) == (bits == 26)
    assert after.card.replace(
        " Weights are stored to 26 bits; the scores are those of the weights as trained.", ""
    ) == (before.card)
    # It can be published again, under another name.
    again = open_model(publish(copy, tmp_path / "other").folder)
    torch.testing.assert_close(again.model.state_dict(), after.model.state_dict(), rtol=0.0, atol=0.0)


def test_damage_is_one_line(model, tmp_path):
    copy = tmp_path / "small"
    shutil.copytree(model, copy)
    compact(copy, 26)
    path = copy / "model.safetensors.xz"
    content = path.read_bytes()
    for damaged in (content[:-100], b"no" + content[2:], content[:300] + b"x" + content[301:]):
        path.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match=r"model\.safetensors\.xz: expected an intact safetensors file"):
            load_tensors(path)
        with pytest.raises(DamagedFileError, match=r"model\.safetensors\.xz: expected "):
            open_model(copy)
    with pytest.raises(ValueError, match="bits: expected one of"):
        compact(model, 8)
