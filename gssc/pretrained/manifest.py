"""The list of a published model's files with their sizes and checksums.

``manifest.json`` is ``{"format": 1, "name": …, "files": {name: {"bytes": …, "sha256": …}}}``. Its own checksum
therefore stands for every byte of the model.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from gssc.files import json_bytes
from gssc.readers import LARGEST_JSON, MANIFEST, MOST_BYTES, MOST_FILES, DamagedFileError, parse_json, read_bytes

NAME = "manifest.json"
FORMAT = 1
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def make_manifest(name: str, contents: Mapping[str, bytes]) -> bytes:
    """The manifest of these files."""
    files = {file: {"bytes": len(data), "sha256": sha256(data)} for file, data in sorted(contents.items())}
    return json_bytes({"format": FORMAT, "name": name, "files": files})


def read_manifest(data: bytes, where: str) -> dict[str, tuple[int, str]]:
    """Size and checksum of each file, from the bytes of a manifest; names are plain ones, without folders."""
    value = parse_json(data, where, MANIFEST)
    listed = {file: (about["bytes"], about["sha256"]) for file, about in value["files"].items()}
    if value["format"] != FORMAT:
        raise DamagedFileError(f"{where}: expected a manifest of format {FORMAT}, got {value['format']!r}")
    for file, (size, _) in listed.items():
        if not PLAIN.fullmatch(file) or file == NAME:
            raise DamagedFileError(f"{where}: expected plain file names and sizes, got {file!r} of {size} bytes")
    if len(listed) > MOST_FILES:
        raise DamagedFileError(f"{where}: expected at most {MOST_FILES} files, got {len(listed)}")
    if sum(size for size, _ in listed.values()) > MOST_BYTES:  # it must not be able to fill the disk
        raise DamagedFileError(f"{where}: expected at most {MOST_BYTES} bytes in all, got more")
    return listed


def check_folder(folder: Path) -> None:
    """Fail unless each file that the manifest of a folder lists is there as it was published."""
    manifest = read_bytes(folder / NAME, LARGEST_JSON)
    for file, (size, digest) in read_manifest(manifest, str(folder / NAME)).items():
        path = folder / file
        if not path.is_file():
            raise DamagedFileError(f"{path}: expected a file of {size} bytes, got no such file")
        data = read_bytes(path, size)
        check_digest(len(data), sha256(data), size, digest, str(path))


def check_digest(count: int, found: str, size: int, digest: str, where: str) -> None:
    """Fail unless so many bytes with this checksum are those that the manifest means."""
    if count != size:
        raise DamagedFileError(f"{where}: expected {size} bytes, got {count}")
    if found != digest:
        raise DamagedFileError(f"{where}: expected sha256 {digest[:16]}, got {found[:16]} (altered or damaged)")


def sha256(data: bytes) -> str:
    """Checksum in hexadecimal."""
    return hashlib.sha256(data).hexdigest()
