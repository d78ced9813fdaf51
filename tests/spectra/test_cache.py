"""Entries on disk: keys by content, complete files only, damage detected."""

import multiprocessing
import os
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from gssc.spectra import cache as module
from gssc.spectra.cache import Cache, CacheWarning, content_key, default_folder, narrowed, open_cache

TENSORS = {"a": torch.arange(12.0).view(3, 4), "b": torch.tensor([True, False]), "empty": torch.empty(0, 5)}
ABOUT = {"available": 3, "gap": float("inf"), "name": "crc32= is no trap"}
KEY = "ab" * 32
TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool)


def test_what_is_stored_is_loaded(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "new" / "folder")
    assert cache.load(KEY) is None
    cache.store(KEY, TENSORS, ABOUT)
    tensors, about = cache.load(KEY)
    assert about == ABOUT
    assert tensors.keys() == TENSORS.keys()
    assert all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)
    assert [path.name for path in cache.folder.iterdir()] == [f"{KEY}.safetensors"]
    # Others may read an entry where they may read any other new file.
    (tmp_path / "other").touch()
    assert cache.path(KEY).stat().st_mode == (tmp_path / "other").stat().st_mode


def test_every_type(tmp_path: Path) -> None:
    tensors = {str(dtype): torch.arange(21).view(7, 3).to(dtype) for dtype in TYPES}
    tensors["turned"] = torch.arange(6.0).view(2, 3).T
    tensors["number"] = torch.tensor(2.5)
    cache = Cache(tmp_path)
    cache.store(KEY, tensors, {})
    loaded, _ = cache.load(KEY)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)


def test_narrow_integers_are_equal_only_if_equal() -> None:
    for top, dtype in ((255, torch.uint8), (256, torch.int16), (-1, torch.int16), (1 << 20, torch.int32)):
        wide = torch.tensor([[0, top], [1, 2]])
        assert narrowed(wide).dtype == dtype
        assert torch.equal(narrowed(wide).long(), wide)
    assert narrowed(torch.tensor([1 << 40])).dtype == torch.int64
    assert narrowed(None) is None
    empty = torch.empty(2, 0, dtype=torch.long)
    assert narrowed(empty) is empty


def test_every_flipped_bit_and_every_truncation_is_noticed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store(KEY, TENSORS, ABOUT)
    path = cache.path(KEY)
    sound = path.read_bytes()
    for position in range(len(sound)):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << (position % 8)
        path.write_bytes(damaged)
        with pytest.warns(CacheWarning, match="damaged"):
            assert cache.load(KEY) is None
    for length in [*range(0, len(sound), 7), len(sound) - 1]:
        path.write_bytes(sound[:length])
        with pytest.warns(CacheWarning, match="damaged"):
            assert cache.load(KEY) is None
    path.write_bytes(sound + b"\0")
    with pytest.warns(CacheWarning, match="damaged"):
        assert cache.load(KEY) is None
    path.write_bytes(sound)
    assert cache.load(KEY) is not None


def test_an_entry_under_another_name_is_not_used(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store(KEY, TENSORS, ABOUT)
    os.rename(cache.path(KEY), cache.path("cd" * 32))
    with pytest.warns(CacheWarning, match="another key"):
        assert cache.load("cd" * 32) is None


def test_failed_writes_leave_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path)
    cache.store(KEY, TENSORS, ABOUT)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    def refused(*_: object) -> None:
        raise SafetensorError("I/O error: No space left on device")

    for owner, name, failure in ((module.os, "fsync", full), (module, "save_file", refused)):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failure)
            with pytest.warns(CacheWarning, match="was not written .*No space left"):
                cache.store(KEY, {"a": torch.zeros(3)}, {})
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.safetensors"]
    assert cache.load(KEY)[1] == ABOUT


def test_keys_depend_on_content_names_shapes_and_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"edge_index": torch.tensor([[0, 1], [1, 0]]), "weight": None}
    settings = {"k": 3, "operator": "sym"}
    keys = [
        content_key(base, settings),
        content_key(base, {**settings, "k": 4}),
        content_key(base, {**settings, "operator": "adjacency"}),
        content_key({**base, "weight": torch.ones(2)}, settings),
        content_key({**base, "weight": torch.ones(2).double()}, settings),
        content_key({**base, "edge_index": base["edge_index"].view(1, 4)}, settings),
        content_key({**base, "edge_index": base["edge_index"].flip(0)}, settings),
        content_key({"edge_index": None, "weight": base["edge_index"]}, settings),
    ]
    monkeypatch.setattr(module, "SOLVER_VERSION", module.SOLVER_VERSION + 1)
    keys.append(content_key(base, settings))
    assert len(set(keys)) == len(keys)
    monkeypatch.undo()
    assert content_key(dict(reversed(base.items())), dict(reversed(settings.items()))) == keys[0]


def test_the_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_cache(None) is None
    assert open_cache(False) is None
    assert open_cache(str(tmp_path)).folder == tmp_path
    monkeypatch.setenv("GSSC_CACHE", str(tmp_path / "env"))
    assert open_cache(True).folder == tmp_path / "env"
    monkeypatch.setenv("GSSC_CACHE", "~/mine")
    assert default_folder() == Path.home() / "mine"
    assert open_cache("~/mine").folder == Path.home() / "mine"
    monkeypatch.delenv("GSSC_CACHE")
    assert default_folder() == Path.home() / ".cache" / "gssc"
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="cache: expected a folder"):
        open_cache(file)


def write_and_read(folder: str, rounds: int, failures: "multiprocessing.Queue[str]") -> None:
    """Write one entry again and again, and fail on any read that is not the whole of it."""
    import warnings

    warnings.simplefilter("error")
    cache = Cache(folder)
    tensors = {"a": torch.arange(50_000.0)}
    for _ in range(rounds):
        cache.store(KEY, tensors, {"n": 1})
        try:
            loaded = cache.load(KEY)
        except CacheWarning as error:
            failures.put(str(error))
            return
        if loaded is None or not torch.equal(loaded[0]["a"], tensors["a"]):
            failures.put("wrong entry")
            return


def test_two_processes_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    failures = context.Queue()
    workers = [context.Process(target=write_and_read, args=(str(tmp_path), 25, failures)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert failures.empty()
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.safetensors"]
