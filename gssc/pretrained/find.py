"""From a name, a folder or a URL to a model; what comes from a URL is complete and verified, or not there at all."""

import os
import re
import ssl
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import torch

from gssc.checks import check_choice, check_device, fail
from gssc.files import sync_folder, temporary_folder
from gssc.model import GSSC
from gssc.pretrained.fetch import SCHEMES, Fetcher, public
from gssc.pretrained.manifest import NAME, check_digest, check_folder, read_manifest
from gssc.pretrained.manifest import sha256 as checksum
from gssc.readers import DamagedFileError
from gssc.spectra.cache import default_folder
from gssc.train.checkpoint import difference
from gssc.train.loaded import LoadedRun, load_run

LARGEST_MANIFEST = 1 << 20


def load_pretrained(source: str | Path, *, device: str | torch.device | None = None, sha256: str | None = None) -> GSSC:
    """A trained model in evaluation mode.

    `open_model` returns it with its recipe, task, scores and card, and a ``predict`` that takes raw graphs or SMILES.

    Args:
        source: The name of a model that ships with the package (`pretrained_names`), the folder of a published model or
            of a run, or the URL of a published folder (``https://`` or ``file://``), which is kept in the cache.
        device: Where the weights go; the CPU unless said otherwise.
        sha256: For a URL: the checksum of its ``manifest.json``, which covers every file.
    """
    return open_model(source, device=device, sha256=sha256).model


def open_model(source: str | Path, *, device: str | torch.device | None = None, sha256: str | None = None) -> LoadedRun:
    """A trained model with all that is known of it; arguments as for `load_pretrained`."""
    place = check_device("device", device) if device is not None else None
    return load_run(find_folder(source, sha256), place)


def open_seeds(
    source: str | Path,
    say: Callable[[str], None],
    *,
    device: str | torch.device | None = None,
    sha256: str | None = None,
) -> list[LoadedRun]:
    """The finished seeds below OUT of `gssc train`, of one recipe and the same data; else the model of `open_model`.

    ``say`` is told which seeds are not finished and left out.
    """
    # As everywhere, the name of a model that ships goes before a folder of seeds.
    inside = [] if str(source) in pretrained_names() else seed_folders(source)
    if not inside:
        return [open_model(source, device=device, sha256=sha256)]
    if sha256 is not None:
        fail("sha256", "none, since nothing is downloaded", f"one for {source}")
    finished = [seed for seed in inside if (seed / "summary.json").exists()]
    others = ", ".join(seed.name for seed in inside if seed not in finished)
    if not finished:
        fail("run", "at least one finished seed", f"{source} with {others}, none of which is")
    if others:
        say(f"not finished, and left out: {others}")
    models = [open_model(seed, device=device) for seed in finished]
    return check_one_training(models, "runs that differ in their seeds alone")


def check_one_training(runs: list[LoadedRun], expected: str) -> list[LoadedRun]:
    """These runs; fail unless they are seeds of one recipe on the same data."""
    first, *others = [{"recipe": run.recipe.to_dict(), "dataset": run.about} for run in runs]
    for run, training in zip(runs[1:], others, strict=True):
        if (other := difference(first, training)) is not None:
            where = f"{runs[0].folder} there, {run.folder} here"
            fail("run", expected, f"{runs[0].folder.parent}: another {other} ({where})")
    return runs


def find_folder(source: str | Path, sha256: str | None = None) -> Path:
    """The folder of a run or published model; where it has a manifest, its files are as that says."""
    text, folder = str(source), Path(source)
    if "://" in text:
        folder = download(text, sha256)
    elif sha256 is not None:
        fail("sha256", "none, since nothing is downloaded", f"one for {text}")
    elif not (folder / "config.yaml").exists():
        folder = _find_shipped(text)
    if (folder / NAME).exists():
        check_folder(folder)
    return folder


def find_start(source: str) -> Path:
    """The folder that ``train.start`` means: of a model by name or URL, of a run, or OUT of `gssc train`."""
    if source not in pretrained_names() and seed_folders(source):
        return Path(source)
    return find_folder(source)


def _find_shipped(name: str) -> Path:
    """The folder of a model that ships; errors say what else a source may be."""
    names, folder = pretrained_names(), Path(name)
    if name not in names:
        if inside := seed_folders(folder):
            fail("run", "the folder of one seed", f"{folder}, which holds {', '.join(seed.name for seed in inside)}")
        if folder.exists() or len(folder.parts) > 1 or not names:
            shipped = f"or one of the models {', '.join(names)}"
            ships = shipped if names else "(no pretrained model ships with this copy)"
            fail("run", f"the folder of a run with its config.yaml, OUT/seed-N of `gssc train`, {ships}", name)
        check_choice("model", name, names)
    return pretrained_folder() / name


def seed_folders(source: str | Path) -> list[Path]:
    """The runs below OUT of `gssc train`, by their seeds; none where ``source`` is something else."""
    folder = Path(source)
    if (folder / "config.yaml").exists() or not folder.is_dir():
        return []
    seeds = [path.parent for path in folder.glob("seed-*/config.yaml")]
    numbered = [seed for seed in seeds if seed.name.removeprefix("seed-").isdecimal()]
    return sorted(numbered, key=lambda seed: int(seed.name.removeprefix("seed-")))


def pretrained_folder() -> Path:
    """Where the models are that ship: inside an installed package, beside it in a checkout."""
    package = Path(__file__).parents[1]
    inside = package / "pretrained_files"
    return inside if inside.is_dir() else package.parent / "pretrained"


def pretrained_names() -> list[str]:
    """All models that ship, in alphabetical order."""
    names = (path.parent.name for path in pretrained_folder().glob(f"*/{NAME}"))
    return sorted(name for name in names if not name.startswith("."))  # those are left by a command that was killed


def download(
    url: str, digest: str | None = None, cache: Path | None = None, *, context: ssl.SSLContext | None = None
) -> Path:
    """The folder in the cache that holds the published model of a URL, under the manifest that was asked for.

    Its files are not fetched again where it is there already; with ``digest``, the sha256 of ``manifest.json`` that has
    to come, nothing is fetched then. The default ``cache`` is ``$GSSC_CACHE`` or ``~/.cache/gssc``;
    ``context`` says which servers are trusted.
    """
    check_choice("scheme of the URL", urllib.parse.urlsplit(url).scheme, SCHEMES)
    place = (cache or default_folder()) / "pretrained"
    if digest is not None and not re.fullmatch("[0-9a-fA-F]{64}", digest):
        fail("sha256", "64 hexadecimal digits", repr(digest))
    digest = digest and digest.lower()
    if digest is None or not (place / digest[:32]).is_dir():
        parts = urllib.parse.urlsplit(url)
        base = parts._replace(path=parts.path.rstrip("/").removesuffix(f"/{NAME}"))
        digest = _fetch_folder(urllib.parse.urlunsplit(base), place, digest, context)
    kept = place / digest[:32]
    present = checksum((kept / NAME).read_bytes()) if (kept / NAME).exists() else "none"
    if present != digest:
        anew = "(delete the folder to fetch it anew)"
        raise DamagedFileError(f"{kept / NAME}: expected sha256 {digest[:16]}, got {present[:16]} {anew}")
    return kept


def _fetch_folder(base: str, place: Path, digest: str | None, context: ssl.SSLContext | None) -> str:
    """Bring a model into the cache, each file checked, all at once; returns the checksum of its manifest."""
    fetcher, shown, final = Fetcher(context), public(base), place
    try:
        with temporary_folder(place / "download") as temporary:
            _, fetched = fetcher.fetch(base, NAME, LARGEST_MANIFEST, temporary / NAME)
            if digest not in (None, fetched):
                raise DamagedFileError(f"{shown}/{NAME}: expected sha256 {digest}, got {fetched[:16]}")
            final = place / fetched[:32]
            if not final.is_dir():
                for file, told in read_manifest((temporary / NAME).read_bytes(), f"{shown}/{NAME}").items():
                    check_digest(*fetcher.fetch(base, file, told[0], temporary / file), *told, f"{shown}/{file}")
                os.rename(temporary, final)
                sync_folder(place)
    except OSError as error:
        if final == place or not final.is_dir():  # else another process was first, with the same bytes
            fail("cache", "a folder that can be written", f"{place} ({error.strerror})")
    return fetched
