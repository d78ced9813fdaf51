"""Results on disk, found by content: safetensors files named by a hash of the graphs, the settings and the solver.

A file appears complete or not at all (temporary file, fsync, `os.replace`, fsync of the folder), so that any number of
processes may read and write one folder; two that compute the same entry write the same bytes. Every byte of a file is
covered by a checksum: a damaged entry counts as missing.
"""

import hashlib
import json
import mmap
import os
import warnings
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from gssc.checks import fail
from gssc.files import CHECKSUM, DIGITS, DamagedFileError, load_tensors, remove_dead, sync_folder, temporary_folder

# Part of every key: raise it when a change to any solver, or to the layout of an entry, may change stored bytes.
SOLVER_VERSION = 10
CacheArgument = bool | str | os.PathLike[str] | None


Read = Callable[[dict[str, Tensor], dict[str, Any]], Any]


class CacheWarning(UserWarning):
    """An entry of the cache was damaged or could not be written; the result was computed all the same."""


def default_folder() -> Path:
    """``$GSSC_CACHE``, or ``~/.cache/gssc``."""
    return Path(os.environ.get("GSSC_CACHE") or "~/.cache/gssc").expanduser()


def open_cache(cache: CacheArgument) -> "Cache | None":
    """No cache for None or False, the default folder for True, else the folder given."""
    if cache is None or cache is False:
        return None
    return Cache(default_folder() if cache is True else Path(cache).expanduser())


def narrowed(tensor: Tensor | None) -> Tensor | None:
    """Integers in the smallest type that holds them all: fewer bytes for `content_key`, equal only if they are."""
    if tensor is None or not tensor.numel():
        return tensor
    low, high = (int(end) for end in tensor.aminmax())
    for dtype in (torch.uint8, torch.int16, torch.int32):
        if torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max:
            return tensor.to(dtype)
    return tensor


def content_key(tensors: Mapping[str, Tensor | None], settings: Mapping[str, Any]) -> str:
    """A name for what these tensors and settings lead to, 32 bytes in hexadecimal."""
    digest = hashlib.blake2b(digest_size=32)
    about = {"solver_version": SOLVER_VERSION, "settings": dict(settings)}
    digest.update(json.dumps(about, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        if tensor is None:
            digest.update(f"|{name}:none|".encode())
            continue
        array = tensor.detach().cpu().contiguous().numpy()
        # Name, type and shape delimit the bytes: no two inputs share one stream.
        digest.update(f"|{name}:{array.dtype.str}:{array.shape}|".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def check_stored(tensors: Mapping[str, Tensor], like: Mapping[str, Tensor], vectors: Tensor, sizes: Tensor) -> None:
    """Fail unless a stored spectrum has the names, types and shapes of another, and the columns that it should have.

    That is ``vectors`` [n, K], end to end for graphs of ``sizes`` [G] nodes, of length one where the mask says so and
    zero elsewhere.
    """
    if {name: (t.dtype, t.shape) for name, t in tensors.items()} != {n: (t.dtype, t.shape) for n, t in like.items()}:
        raise ValueError("tensors of other names, types or shapes")
    mask = tensors["mask"].unsqueeze(0) if "mask" in tensors else tensors["eigmask"]
    graph = torch.arange(sizes.numel()).repeat_interleave(sizes)
    squares = torch.zeros(mask.shape, dtype=torch.float64).index_add_(0, graph, vectors.double().square())
    whole = (squares - mask.double()).abs().amax() if mask.numel() else torch.zeros(())
    finite = all(bool(t.isfinite().all()) for name, t in tensors.items() if name != "gap")
    if not (finite and float(whole) < 1e-2):
        raise ValueError("numbers that are no spectrum")


class Cache:
    """A folder of entries, each a dict of tensors and a small JSON-able ``about``."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            fail("cache", "a folder", f"the file {self.folder}")
        remove_dead(self.folder)

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.safetensors"

    def load(self, key: str, read: Read = lambda tensors, about: (tensors, about)) -> Any:
        """What ``read`` makes of tensors and ``about`` of an entry; None where there is none or it is damaged.

        Damaged is also what ``read`` refuses, by an error of its own or for want of what it looks for.
        """
        path = self.path(key)
        if not os.path.exists(path):
            return None
        try:
            tensors, about = load_tensors(path)
            if about.pop("key") != key:
                raise DamagedFileError(f"{path}: it belongs to another key")
            return read(tensors, about)
        except (DamagedFileError, LookupError, TypeError, ValueError, AttributeError) as error:
            warnings.warn(f"cache: an entry is damaged ({error}), so it is computed anew", CacheWarning, stacklevel=2)
            return None

    def store(self, key: str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        """Write an entry; a full disk or a read-only folder is worth a warning, not the loss of the result."""
        text = f"{(CHECKSUM + DIGITS).decode()} {json.dumps({'key': key, **about}, sort_keys=True)}"
        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with temporary_folder(self.path(key)) as beside:
                temporary = beside / "entry"
                temporary.touch()
                mode = temporary.stat().st_mode
                save_file(stored, temporary, {"gssc": text})
                temporary.chmod(mode)  # safetensors leaves a file that its owner alone may read
                with temporary.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
                    at = content.find(CHECKSUM) + len(CHECKSUM)
                    content[at : at + len(DIGITS)] = f"{zlib.crc32(content):08x}".encode()
                    content.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, self.path(key))
                sync_folder(self.folder)
        except (OSError, SafetensorError) as error:
            warnings.warn(f"cache: {self.path(key)} was not written ({error})", CacheWarning, stacklevel=2)
