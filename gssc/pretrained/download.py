"""A published model fetched from a URL into the cache: complete and verified, or not at all."""

import http.client
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from gssc.checks import check_choice, fail
from gssc.files import DamagedFileError, replace_folder
from gssc.pretrained.manifest import NAME, check_bytes, check_folder, read_manifest, sha256
from gssc.spectra.cache import default_folder

SCHEMES = ("https", "file")
SECONDS = 60.0
LARGEST_MANIFEST = 1 << 20


def download(url: str, digest: str | None = None, cache: Path | None = None) -> Path:
    """The folder in the cache that holds the published model of a URL.

    The URL is that of the folder: its ``manifest.json`` is read first, then each file it lists, checked against it,
    before they appear in the cache all at once. A model that is already in the cache is
    not fetched again; with ``digest`` nothing is fetched at all.

    Args:
        url: ``https://…`` or ``file://…``.
        digest: The sha256 of ``manifest.json``, where one knows what has to come.
        cache: Folder of caches; the default is ``$GSSC_CACHE`` or ``~/.cache/gssc``.
    """
    parts = urllib.parse.urlsplit(url)
    check_choice("scheme of the URL", parts.scheme, SCHEMES)
    place = (cache or default_folder()) / "pretrained"
    if digest is not None:
        digest = digest.lower()
        if not re.fullmatch("[0-9a-f]{64}", digest):
            fail("sha256", "64 hexadecimal digits", repr(digest))
        cached = place / digest[:32]
        if cached.is_dir():
            return _checked(cached, digest)
    base = url.rstrip("/").removesuffix(f"/{NAME}")
    manifest = _fetch(f"{base}/{NAME}", LARGEST_MANIFEST)
    fetched = sha256(manifest)
    if digest is not None and fetched != digest:
        raise DamagedFileError(f"{base}/{NAME}: expected sha256 {digest}, got {fetched}")
    final = place / fetched[:32]
    if final.is_dir():
        return _checked(final, fetched)
    contents = {NAME: manifest}
    for file, (size, expected) in read_manifest(manifest, f"{base}/{NAME}").items():
        contents[file] = _fetch(f"{base}/{urllib.parse.quote(file)}", size)
        check_bytes(contents[file], size, expected, f"{base}/{file}")
    try:
        if not final.is_dir():
            replace_folder(final, contents, "cache")
    except ValueError:
        if not final.is_dir():  # else another process was first, with the same bytes
            raise
    return final


def _checked(cached: Path, digest: str) -> Path:
    """A folder of the cache, if its manifest is the one asked for and its files are those of the manifest."""
    present = sha256((cached / NAME).read_bytes()) if (cached / NAME).exists() else "none"
    if present != digest:
        raise DamagedFileError(
            f"{cached / NAME}: expected sha256 {digest}, got {present} (delete the folder to fetch it anew)"
        )
    check_folder(cached)
    return cached


def _fetch(url: str, size: int) -> bytes:
    """The bytes at a URL, one more than ``size`` at most."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            reached = urllib.parse.urlsplit(answer.geturl()).scheme
            if reached not in SCHEMES:
                fail("URL", "one that stays with https", f"{url}, which leads to {reached}")
            data: bytes = answer.read(size + 1)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        fail("URL", "the folder of a published model", f"{url} ({getattr(error, 'reason', error)})")
    return data
