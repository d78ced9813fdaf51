"""LaplacianSpectrum's cache, solver and device."""

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from gssc.spectra import CacheWarning, EmptySpectrumWarning, LaplacianSpectrum, dataset_spectra, prepare, transforms
from gssc.spectra.cache import Cache


def cycle(n: int = 8) -> Data:
    node = torch.arange(n)
    forward = torch.stack([node, (node + 1) % n])
    return Data(edge_index=torch.cat([forward, forward.flip(0)], 1), num_nodes=n)


@pytest.fixture
def count_solves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    real = transforms.solve

    def counted(*arguments, **named):
        calls.append(1)
        return real(*arguments, **named)

    monkeypatch.setattr(transforms, "solve", counted)
    return calls


def test_second_call_loads_the_same_bytes(tmp_path: Path, count_solves: list[int]) -> None:
    transform = LaplacianSpectrum(4, cache=tmp_path)
    first, second = transform(cycle()), transform(cycle())
    assert len(count_solves) == 1
    assert all(torch.equal(first[name], second[name]) for name in ("eigvals", "eigvecs", "eigmask"))
    assert torch.equal(first.eigvecs, LaplacianSpectrum(4)(cycle()).eigvecs)
    stored, solved = transform.spectrum(cycle()), LaplacianSpectrum(4).spectrum(cycle())
    assert (stored.available, stored.certificate) == (solved.available, solved.certificate)


def test_order_of_edges_is_no_content_but_weights_are(tmp_path: Path, count_solves: list[int]) -> None:
    transform = LaplacianSpectrum(4, cache=tmp_path)
    transform(cycle())
    shuffled = cycle()
    shuffled.edge_index = shuffled.edge_index.flip(1)
    transform(shuffled)
    assert len(count_solves) == 1
    weighted = cycle()
    weighted.edge_weight = torch.full((16,), 2.0)
    transform(weighted)
    LaplacianSpectrum(5, cache=tmp_path)(cycle())
    LaplacianSpectrum(4, "adjacency", cache=tmp_path)(cycle())
    LaplacianSpectrum(4, zero_modes="drop", cache=tmp_path)(cycle())
    LaplacianSpectrum(4, truncation="raw", cache=tmp_path)(cycle())
    LaplacianSpectrum(4, solver="dense", cache=tmp_path)(cycle())
    assert len(count_solves) == len(list(tmp_path.iterdir())) == 7


def test_damage_and_warnings_survive_the_cache(tmp_path: Path, count_solves: list[int]) -> None:
    transform = LaplacianSpectrum(1, zero_modes="drop", cache=tmp_path)
    for _ in range(2):
        with pytest.warns(EmptySpectrumWarning, match="1 graph keeps no eigenpair"):
            transform(cycle())
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(CacheWarning, match="damaged"), pytest.warns(EmptySpectrumWarning):
        transform(cycle())
    assert len(count_solves) == 2


def test_solver_and_device_reach_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}
    real = transforms.solve

    def spy(*arguments, solver, device, **named):
        seen.update(solver=solver, device=device)
        return real(*arguments, **named)

    monkeypatch.setattr(transforms, "solve", spy)
    LaplacianSpectrum(2, solver="dense", device="cuda")(cycle())
    assert seen == {"solver": "dense", "device": "cuda"}
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"solver: expected one of .*'dense'"):
        LaplacianSpectrum(2, solver="dens")(cycle())


def test_repr_names_all_arguments() -> None:
    text = repr(LaplacianSpectrum(3, "adjacency", "drop", "raw", "reject", None, "dense", "cuda", "folder"))
    assert text == (
        "LaplacianSpectrum(k=3, operator='adjacency', zero_modes='drop', truncation='raw', directed='reject', "
        "weight_attr=None, solver='dense', device='cuda', cache='folder', which='low')"
    )


def rewrite(folder: Path, change: str) -> None:
    """Replace the one entry of a cache by one with a valid checksum that does not belong to the graph."""
    (path,) = folder.iterdir()
    cache = Cache(folder)
    tensors, about = cache.load(path.stem)
    vectors = "vectors" if "vectors" in tensors else "eigvecs"
    if change == "shape":
        tensors[vectors] = tensors[vectors][:-1].contiguous()
    elif change == "name":
        tensors["other"] = tensors.pop(vectors)
    elif change == "numbers":
        tensors[vectors] = torch.full_like(tensors[vectors], torch.nan)
    elif change == "zeros":
        tensors[vectors] = torch.zeros_like(tensors[vectors])
    elif change == "about":
        about = {}
    else:
        certificate = about["certificate"] if "certificate" in about else about["certificates"]["0"]
        certificate["level"] = 3
    cache.store(path.stem, tensors, about)


@pytest.mark.parametrize("change", ["shape", "name", "numbers", "zeros", "about", "certificate"])
@pytest.mark.parametrize("whole_dataset", [False, True])
def test_an_entry_of_other_content_is_computed_anew(
    tmp_path: Path, change: str, whole_dataset: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_spectra, "BATCHED_NODES", 4)
    transform = LaplacianSpectrum(4, cache=tmp_path)

    def run() -> Data:
        return prepare([cycle()], transform, progress=False)[0] if whole_dataset else transform(cycle())

    first = run()
    (path,) = tmp_path.iterdir()
    sound = path.read_bytes()
    rewrite(tmp_path, change)
    with pytest.warns(CacheWarning, match="damaged"):
        second = run()
    assert torch.equal(first.eigvecs, second.eigvecs)
    assert path.read_bytes() == sound
