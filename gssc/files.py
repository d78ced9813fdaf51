"""Files that appear complete or not at all; those of tensors are read without executing anything.

A file is written beside its place, flushed to the disk, renamed, and its folder flushed: a process killed at any moment
leaves the old file or the new one. Tensors travel as safetensors with a JSON-able ``about``, every byte covered by a
checksum.
"""

import errno
import json
import lzma
import mmap
import os
import platform
import re
import shutil
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save
from torch import Tensor

from gssc.checks import fail
from gssc.readers import NONSENSE, TEXT, parse_json, read_bytes, unpacked
from gssc.readers import DamagedFileError as DamagedFileError
from gssc.readers import read_json as read_json

# One metadata string, since safetensors writes several in arbitrary order; the digits are filled in at the end.
CHECKSUM, DIGITS = b"crc32=", b"00000000"
# The weights of a run or published model; those that ship are compressed.
WEIGHTS = ("model.safetensors", "model.safetensors.xz")
LARGEST = 1 << 27  # bytes that a compressed file may grow to, far above any model of a recipe (5 MB)
LARGEST_TENSORS = 1 << 40  # bytes of one that is not


def write_atomic(path: Path, content: bytes | str) -> None:
    """Replace a file by this content."""
    _replace({path: content.encode() if isinstance(content, str) else content})


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """A text file that is written piece by piece, and replaces what was there once it is complete."""
    with _replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder: all of them under temporary names first, then each replaces what was there."""
    try:
        for name in contents:
            if (folder / name).is_dir():
                raise IsADirectoryError(errno.EISDIR, f"{name} is a folder")
        _replace({folder / name: content for name, content in contents.items()})
    except OSError as error:
        fail("output folder", "one that can be written", f"{folder} ({error.strerror})")


def _replace(contents: Mapping[Path, bytes]) -> None:
    with ExitStack() as stack:
        for path, content in contents.items():
            with stack.enter_context(_replacing(path)).open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A place for what replaces a file at the end; nothing is left of it where something goes wrong."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_dead(path.parent)
    temporary = path.parent / f".{path.name}.{_mark()}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def temporary_folder(beside: Path) -> Iterator[Path]:
    """A new folder beside another place, which is gone afterwards unless it was renamed."""
    temporary = beside.parent / f".{beside.name}.{_mark()}.tmp"
    temporary.mkdir(parents=True)
    remove_dead(beside.parent)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def replace_folder(out: Path, contents: Mapping[str, bytes] | Iterable[tuple[str, bytes]]) -> None:
    """Make a folder with these files, by their paths below it, in place of what was there; complete or not at all."""
    before = out.parent / f".{out.name}.{_mark()}.old"
    try:
        with temporary_folder(out) as temporary:
            for file, data in contents.items() if isinstance(contents, Mapping) else contents:
                write_atomic(temporary / file, data)
            if out.exists():
                os.rename(out, before)
            os.rename(temporary, out)
            sync_folder(out.parent)
    except OSError as error:
        if before.exists() and not out.exists():
            os.rename(before, out)
        fail("out", "a folder that can be written", f"{out} ({error.strerror})")
    finally:
        shutil.rmtree(before, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what writers that were killed left beside the places of their files."""
    for path in folder.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def _mark() -> str:
    """What tells a temporary file from others: machine and process, in hexadecimal, and chance."""
    return f"{_machine():08x}{os.getpid():08x}{uuid.uuid4().hex[:16]}"


def _machine() -> int:
    return zlib.crc32(platform.node().encode())


@lru_cache(maxsize=256)  # once, in a process
def remove_dead(folder: Path) -> None:
    """Remove what processes of this machine that live no more have left unfinished in a folder."""
    for path in folder.glob(f".*.{_machine():08x}*.tmp") if os.name == "posix" else ():
        written_by = re.search(r"\.[0-9a-f]{8}([0-9a-f]{8})[0-9a-f]{16}\.tmp$", path.name)
        if written_by and not Path(f"/proc/{int(written_by[1], 16)}").exists() and Path("/proc/self").exists():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def json_bytes(values: Any) -> bytes:
    """A file of indented JSON."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def write_json(path: Path, values: Any) -> None:
    """Replace a file by values as indented JSON."""
    write_atomic(path, json_bytes(values))


def save_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Replace a file by tensors and ``about``."""
    write_atomic(path, tensor_bytes(tensors, about))


def tensor_bytes(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> bytes:
    """The safetensors file of tensors and ``about``; the same content gives the same bytes."""
    text = f"{(CHECKSUM + DIGITS).decode()} {json.dumps(about, sort_keys=True)}"
    raw: bytes = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, {"gssc": text})
    return raw.replace(CHECKSUM + DIGITS, CHECKSUM + f"{zlib.crc32(raw):08x}".encode(), 1)


def weights_file(folder: Path) -> Path | None:
    """The file of a folder's selected weights, if it has one."""
    return next((folder / name for name in WEIGHTS if (folder / name).exists()), None)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and ``about`` of a file that `save_tensors` wrote (``.xz``: compressed); else a `DamagedFileError`."""
    raw = read_bytes(path, LARGEST_TENSORS, "safetensors file of gssc")
    try:
        if path.suffix == ".xz":
            raw = unpacked(raw, lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=LARGEST), LARGEST)
        about = _verified_about(raw)
        return load(raw), about
    except (ValueError, LookupError, TypeError, AttributeError, SafetensorError, lzma.LZMAError) as error:
        raise DamagedFileError(f"{path}: expected an intact safetensors file of gssc, got {error}") from None


def map_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """`load_tensors` of a file that stays on the disk: its pages are read when they are needed, and can be dropped."""
    try:
        with path.open("rb") as file:
            about = _verified_about(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        with safe_open(path, "pt") as tensors:
            return {name: tensors.get_tensor(name) for name in tensors.keys()}, about  # noqa: SIM118 (no mapping)
    except (*NONSENSE, OSError, SafetensorError) as error:
        raise DamagedFileError(f"{path}: expected an intact safetensors file of gssc, got {error}") from None


def _verified_about(raw: bytes | mmap.mmap) -> dict[str, Any]:
    """The ``about`` inside a file's bytes, or a ValueError where the checksum is not that of the bytes."""
    at, view = raw.find(CHECKSUM) + len(CHECKSUM), memoryview(raw)
    if at < len(CHECKSUM):
        raise ValueError("a file without its mark")
    # The checksum was taken with zeros in its own place.
    checksum = zlib.crc32(view[at + len(DIGITS) :], zlib.crc32(DIGITS, zlib.crc32(view[:at])))
    if view[at : at + len(DIGITS)] != f"{checksum:08x}".encode():
        raise ValueError("a wrong checksum (the file was altered or cut)")
    header = parse_json(raw[8 : 8 + int.from_bytes(raw[:8], "little")], "its header", {"__metadata__": {"gssc": TEXT}})
    about: dict[str, Any] = parse_json(
        header["__metadata__"]["gssc"].partition(" ")[2], "its description", {}, finite=False
    )
    return about


def sync_folder(folder: Path) -> None:
    """Make a rename durable; systems without folder handles (Windows) do so by themselves."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
