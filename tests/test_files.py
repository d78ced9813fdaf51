import os
import pickle
import random

import pytest
import torch
from safetensors.torch import save_file

from gssc import files
from gssc.files import (
    DamagedFileError,
    load_tensors,
    read_json,
    remove_leftovers,
    save_tensors,
    write_atomic,
    write_json,
)

TENSORS = {
    "a": torch.arange(6, dtype=torch.float64).reshape(2, 3),
    "empty": torch.zeros(0, 4),
    "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "scalar": torch.tensor(7),
    "transposed": torch.arange(6).reshape(2, 3).t(),
    "yes": torch.tensor([True, False]),
}
ABOUT = {"name": "α [red] crc32=00000000", "list": [1, 2.5, None], "nested": {"x": True}}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "new" / "tensors.safetensors"
    save_tensors(path, TENSORS, ABOUT)
    return path


def test_what_was_saved_is_loaded(saved):
    tensors, about = load_tensors(saved)
    assert about == ABOUT
    assert set(tensors) == set(TENSORS)
    for name, value in TENSORS.items():
        assert tensors[name].dtype == value.dtype
        assert torch.equal(tensors[name], value)


def test_equal_content_gives_equal_bytes(saved, tmp_path):
    again = tmp_path / "again.safetensors"
    save_tensors(again, dict(reversed(TENSORS.items())), dict(reversed(ABOUT.items())))
    assert again.read_bytes() == saved.read_bytes()


def test_a_file_cut_anywhere_is_damaged(saved):
    raw = saved.read_bytes()
    for length in range(len(raw)):
        saved.write_bytes(raw[:length])
        with pytest.raises(DamagedFileError) as caught:
            load_tensors(saved)
        assert "\n" not in str(caught.value)


def test_a_file_with_any_bit_changed_is_damaged(saved):
    raw = saved.read_bytes()
    every = [(at, bit) for at in range(len(raw)) for bit in range(8)]
    for at, bit in random.Random(0).sample(every, 1000) + every[: 8 * 8]:
        changed = bytearray(raw)
        changed[at] ^= 1 << bit
        saved.write_bytes(changed)
        with pytest.raises(DamagedFileError) as caught:
            load_tensors(saved)
        assert "\n" not in str(caught.value)


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("kind", ["pickle", "torch", "safetensors", "marked", "text", "binary", "empty", "folder"])
def test_foreign_files_are_refused_and_nothing_is_executed(tmp_path, kind):
    path, trap = tmp_path / "foreign.safetensors", tmp_path / "trap"
    if kind == "pickle":
        path.write_bytes(pickle.dumps(Trap(trap)))
    elif kind == "torch":
        torch.save(Trap(trap), path)
    elif kind == "safetensors":
        save_file({"a": torch.zeros(2)}, path)
    elif kind == "marked":
        save_file({"a": torch.zeros(2)}, path, {"gssc": "crc32=00000000 {}"})
    elif kind == "folder":
        path.mkdir()
    else:
        content = {"text": b"hello\n" * 20, "binary": bytes(range(256)), "empty": b""}
        path.write_bytes(content[kind])
    before = None if kind == "folder" else path.read_bytes()
    with pytest.raises(DamagedFileError, match=r"^.*foreign\.safetensors: expected ") as caught:
        load_tensors(path)
    assert "\n" not in str(caught.value)
    assert not trap.exists()
    assert kind == "folder" or path.read_bytes() == before


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DamagedFileError, match="got no such file"):
        load_tensors(tmp_path / "none.safetensors")
    with pytest.raises(DamagedFileError, match="got no such file"):
        read_json(tmp_path / "none.json")


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failing):
    path = tmp_path / "file"
    write_atomic(path, "old")

    def full(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(OSError, match="no space left"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_its_folder_after(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, f=original: (calls.append(name), f(*args)))
    write_atomic(tmp_path / "file", b"content")
    assert calls == ["fsync", "replace", "fsync"]


def test_leftovers_of_killed_writers_are_removed(tmp_path, monkeypatch):
    write_atomic(tmp_path / "kept", "text")
    monkeypatch.setattr(os, "replace", lambda *args: None)
    monkeypatch.setattr(files.Path, "unlink", lambda *args, **kwargs: None)
    write_atomic(tmp_path / "lost", "text")
    monkeypatch.undo()
    assert len(list(tmp_path.iterdir())) == 2
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    remove_leftovers(tmp_path / "no such folder")


def test_json_comes_back_and_damage_is_one_line(tmp_path):
    path = tmp_path / "values.json"
    write_json(path, {"mean": 0.1 + 0.2, "name": "α", "none": None})
    assert read_json(path) == {"mean": 0.1 + 0.2, "name": "α", "none": None}
    path.write_bytes(path.read_bytes()[:-4] + b"\xff")
    with pytest.raises(DamagedFileError, match="expected a JSON file") as caught:
        read_json(path)
    assert "\n" not in str(caught.value)
