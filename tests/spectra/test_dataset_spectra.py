"""A dataset prepared at once equals the transforms graph by graph, and a second run only loads."""

import multiprocessing
import warnings
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.loader import DataLoader

from gssc.spectra import CacheWarning, EmptySpectrumWarning, LaplacianSpectrum, RandomWalkSE, prepare, prepare_spectra
from gssc.spectra import dataset_spectra as module
from gssc.spectra.operators import OPERATORS


def graphs(count: int = 12, seed: int = 0, weighted: bool = False) -> list[Data]:
    generator = torch.Generator().manual_seed(seed)
    out = []
    for n in torch.randint(1, 25, (count,), generator=generator).tolist():
        # A path underneath: connected, so that every graph keeps its zero mode.
        near = torch.arange(n).view(-1, 1) + 1 == torch.arange(n)
        upper = (near | (torch.rand(n, n, generator=generator) < 0.1)).triu(1).nonzero().T
        data = Data(edge_index=torch.cat([upper, upper.flip(0)], 1), x=torch.rand(n, 2, generator=generator))
        if weighted:
            weight = torch.rand(upper.shape[1], generator=generator) + 0.5
            data.edge_weight = torch.cat([weight, weight])
        data.y = torch.tensor([n])
        out.append(data)
    return out


def in_memory(data: list[Data]) -> InMemoryDataset:
    dataset = InMemoryDataset()
    dataset._data, dataset.slices = dataset.collate(data)
    return dataset


def projector(data: Data) -> torch.Tensor:
    """cos(L) on the span of the kept vectors: the same for every choice of basis."""
    return (data.eigvecs * torch.cos(data.eigvals) * data.eigmask) @ data.eigvecs.T


@pytest.fixture
def count_solves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    real = module.solve_batched

    def counted(*arguments, **named):
        calls.append(1)
        return real(*arguments, **named)

    monkeypatch.setattr(module, "solve_batched", counted)
    return calls


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_transforms(operator, weighted) -> None:
    data = graphs(weighted=weighted)
    spectrum, rwse = LaplacianSpectrum(6, operator), RandomWalkSE(5)
    prepared = prepare(in_memory(data), spectrum, rwse, progress=False)
    listed = prepare(data, spectrum, rwse, progress=False)
    assert isinstance(prepared, InMemoryDataset)
    assert isinstance(listed, list)
    for got, same, graph in zip(prepared, listed, data, strict=True):
        want = rwse(spectrum(graph.clone()))
        assert got.keys() == same.keys()
        for name in ("eigvals", "eigvecs", "eigmask", "rwse", "degree", "x", "edge_index", "y"):
            assert torch.equal(got[name], same[name])
        assert torch.equal(got.eigmask, want.eigmask)
        torch.testing.assert_close(got.eigvals, want.eigvals, atol=1e-12, rtol=0)
        torch.testing.assert_close(projector(got), projector(want), atol=1e-9, rtol=0)
        torch.testing.assert_close(got.rwse, want.rwse, atol=1e-12, rtol=0)
        assert got.degree.sum() == pytest.approx(float(got.edge_weight.sum() if weighted else got.num_edges))


def test_input_is_left_alone_and_loaders_batch_the_output() -> None:
    data = graphs()
    dataset = in_memory(data)
    keys = set(dataset._data.keys())
    prepared = prepare(dataset, LaplacianSpectrum(4), RandomWalkSE(3), progress=False)
    assert set(dataset._data.keys()) == keys
    assert set(dataset.slices) == {"x", "edge_index", "y"}
    prepare(data, LaplacianSpectrum(4), progress=False)
    assert all("eigvecs" not in graph for graph in data)
    batch = next(iter(DataLoader(prepared[2:7], batch_size=5)))
    assert batch.eigvals.shape == batch.eigmask.shape == (5, 4)
    assert batch.eigvecs.shape == (batch.num_nodes, 4)
    assert batch.rwse.shape == (batch.num_nodes, 3)
    assert batch.eigvecs.dtype == torch.float32
    # A subset of a dataset, a dataset of one graph, and none at all.
    subset = prepare(dataset[[5, 1]], LaplacianSpectrum(4), progress=False)
    assert torch.equal(subset[1].eigvecs, prepared[1].eigvecs)
    assert len(subset) == 2
    single = prepare(in_memory(data[:1]), LaplacianSpectrum(4), progress=False)
    assert isinstance(single, InMemoryDataset)
    assert torch.equal(next(iter(DataLoader(single))).eigvecs, prepared[0].eigvecs)
    assert prepare([], LaplacianSpectrum(4), progress=False) == []


def test_class_and_transform_of_the_dataset_stay() -> None:
    class Own(InMemoryDataset):
        def split(self) -> int:
            return 3

    dataset = Own(transform=lambda data: Data(seen=data.eigvals))
    dataset._data, dataset.slices = dataset.collate(graphs())
    for part in (dataset, dataset[3:5], dataset[:1]):
        # The transform needs the spectra, so it must not run before they are there.
        prepared = prepare(part, LaplacianSpectrum(4), progress=False)
        assert prepared.split() == 3
        assert len(prepared) == len(part)
        assert prepared[0].seen.shape == (1, 4)


def test_progress_bar_counts_all_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    prepare(graphs(), LaplacianSpectrum(4), RandomWalkSE(3))
    assert "100%" in capsys.readouterr().out


def test_either_alone_and_neither() -> None:
    data = graphs()
    walks = prepare(data, rwse=RandomWalkSE(3), progress=False)[0]
    assert "eigvals" not in walks
    assert walks.rwse.shape[1] == 3
    assert "rwse" not in prepare(data, LaplacianSpectrum(3), progress=False)[0]
    with pytest.raises(ValueError, match="spectrum, rwse: expected a LaplacianSpectrum"):
        prepare(data, progress=False)


@pytest.mark.usefixtures("float64")
def test_transforms_may_read_the_graph_differently() -> None:
    data = graphs(weighted=True)
    spectrum, rwse = LaplacianSpectrum(4), RandomWalkSE(5, weight_attr=None)
    for got, graph in zip(prepare(data, spectrum, rwse, progress=False), data, strict=True):
        torch.testing.assert_close(got.eigvals, spectrum(graph.clone()).eigvals, atol=1e-12, rtol=0)
        torch.testing.assert_close(got.rwse, rwse(graph.clone()).rwse, atol=1e-12, rtol=0)


def test_one_warning_counts_empty_graphs() -> None:
    five = torch.combinations(torch.arange(5)).T
    complete = Data(edge_index=torch.cat([five, five.flip(0)], 1), num_nodes=5)
    pair = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    with pytest.warns(EmptySpectrumWarning, match="2 graphs keep no eigenpair") as caught:
        out = prepare([complete, pair, complete.clone()], LaplacianSpectrum(2, zero_modes="drop"), progress=False)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert [bool(graph.eigmask.any()) for graph in out] == [False, True, False]


@pytest.mark.usefixtures("float64")
def test_large_graphs_and_forced_solvers_go_one_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = graphs()
    want = prepare(data, LaplacianSpectrum(4), RandomWalkSE(3), progress=False)
    monkeypatch.setattr(module, "BATCHED_NODES", 12)
    calls: list[int] = []
    real = LaplacianSpectrum.solve

    def counted(self, adjacency):
        calls.append(adjacency.shape[0])
        return real(self, adjacency)

    monkeypatch.setattr(LaplacianSpectrum, "solve", counted)
    for _ in range(2):
        got = prepare(data, LaplacianSpectrum(4), RandomWalkSE(3), progress=False, cache=tmp_path)
        for one, other in zip(got, want, strict=True):
            torch.testing.assert_close(one.eigvals, other.eigvals, atol=1e-12, rtol=0)
            torch.testing.assert_close(projector(one), projector(other), atol=1e-9, rtol=0)
            torch.testing.assert_close(one.rwse, other.rwse, atol=1e-12, rtol=0)
            assert torch.equal(one.degree, other.degree)
    # The second round came from the cache.
    assert calls == [graph.num_nodes for graph in data if graph.num_nodes > 12]


@pytest.mark.parametrize("as_list", [False, True])
def test_second_run_loads_the_same_bytes(tmp_path: Path, count_solves: list[int], as_list: bool) -> None:
    data = graphs()
    dataset = data if as_list else in_memory(data)
    first = prepare(dataset, LaplacianSpectrum(4), RandomWalkSE(3), cache=tmp_path, progress=False)
    second = prepare(dataset, LaplacianSpectrum(4, cache=tmp_path), RandomWalkSE(3), progress=False)
    assert len(count_solves) == 1
    for one, other in zip(first, second, strict=True):
        assert one.eigsize == other.eigsize
        names = [name for name in one.keys() if name != "eigsize"]  # noqa: SIM118 (Data is no dict)
        assert all(torch.equal(one[name], other[name]) for name in names)
    assert len(list(tmp_path.iterdir())) == 1


def test_whatever_changes_the_result_changes_the_key(tmp_path: Path, count_solves: list[int]) -> None:
    data = graphs(weighted=True)
    other_weights = [graph.clone() for graph in data]
    other_weights[4].edge_weight *= 2
    runs = [
        (data, LaplacianSpectrum(4), RandomWalkSE(3)),
        (data, LaplacianSpectrum(5), RandomWalkSE(3)),
        (data, LaplacianSpectrum(4, "combinatorial"), RandomWalkSE(3)),
        (data, LaplacianSpectrum(4, zero_modes="drop"), RandomWalkSE(3)),
        (data, LaplacianSpectrum(4, truncation="raw"), RandomWalkSE(3)),
        (data, LaplacianSpectrum(4, solver="dense"), RandomWalkSE(3)),
        (data, LaplacianSpectrum(4, weight_attr=None), RandomWalkSE(3, weight_attr=None)),
        (data, LaplacianSpectrum(4), RandomWalkSE(4)),
        (data, LaplacianSpectrum(4), None),
        (data, None, RandomWalkSE(3)),
        (data[:-1], LaplacianSpectrum(4), RandomWalkSE(3)),
        (other_weights, LaplacianSpectrum(4), RandomWalkSE(3)),
    ]
    for dataset, spectrum, rwse in runs:
        prepare(dataset, spectrum, rwse, cache=tmp_path, progress=False)
    assert len(list(tmp_path.iterdir())) == len(count_solves) == len(runs)
    torch.set_default_dtype(torch.float64)
    try:
        assert prepare(data, LaplacianSpectrum(4), cache=tmp_path, progress=False)[0].eigvecs.dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(count_solves) == len(runs) + 1


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_damaged_entries_are_computed_anew(tmp_path: Path, count_solves: list[int], damage: str) -> None:
    data = graphs()
    first = prepare(data, LaplacianSpectrum(4), cache=tmp_path, progress=False)
    (path,) = tmp_path.iterdir()
    sound = path.read_bytes()
    hurt = bytearray(sound)
    hurt[len(hurt) // 2] ^= 4
    path.write_bytes(sound[:-100] if damage == "truncated" else hurt)
    with pytest.warns(CacheWarning, match="damaged"):
        second = prepare(data, LaplacianSpectrum(4), cache=tmp_path, progress=False)
    assert len(count_solves) == 2
    assert path.read_bytes() == sound
    assert all(torch.equal(a.eigvecs, b.eigvecs) for a, b in zip(first, second, strict=True))


def prepare_in_process(folder: str, start) -> None:
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    start.wait()
    prepare(graphs(40), LaplacianSpectrum(4), RandomWalkSE(3), cache=folder, progress=False)


def test_two_processes_prepare_at_once(tmp_path: Path, count_solves: list[int]) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Event()
    workers = [context.Process(target=prepare_in_process, args=(str(tmp_path), start)) for _ in range(2)]
    for worker in workers:
        worker.start()
    start.set()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    (path,) = tmp_path.iterdir()
    stored = path.read_bytes()
    cached = prepare(graphs(40), LaplacianSpectrum(4), RandomWalkSE(3), cache=tmp_path, progress=False)
    assert not count_solves
    fresh = prepare(graphs(40), LaplacianSpectrum(4), RandomWalkSE(3), cache=tmp_path / "other", progress=False)
    assert (tmp_path / "other" / path.name).read_bytes() == stored
    assert all(torch.equal(a.eigvecs, b.eigvecs) for a, b in zip(cached, fresh, strict=True))


def test_certificates_on_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCHED_NODES", 20)
    for _ in range(2):
        solved = prepare_spectra(graphs(), LaplacianSpectrum(4), cache=tmp_path)
        small = next(g for g, graph in enumerate(graphs()) if 4 < graph.num_nodes <= 20)
        certificate = solved.certificate(small)
        assert (certificate.solver, certificate.level, certificate.miss_probability) == ("batched", "proved", 0.0)
        assert 0 < certificate.residual < 1e-13
        assert certificate.gap > certificate.tolerance >= 10 * 2.2e-16


def test_a_dataset_of_pytorch_is_a_list_of_graphs() -> None:
    part = torch.utils.data.Subset(graphs(), [3, 1])
    prepared = prepare(part, LaplacianSpectrum(3), progress=False)  # type: ignore[type-var]
    expected = prepare([graphs()[3], graphs()[1]], LaplacianSpectrum(3), progress=False)
    assert all(torch.equal(a.eigvecs, b.eigvecs) for a, b in zip(prepared, expected, strict=True))


def test_other_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="spectrum: expected a LaplacianSpectrum, got RandomWalkSE"):
        prepare(graphs(), RandomWalkSE(4), LaplacianSpectrum(3))  # type: ignore[arg-type]
    for dataset in ((one for one in graphs()), graphs()[0]):
        with pytest.raises(ValueError, match="dataset: expected an InMemoryDataset or a list of Data, got"):
            prepare(dataset, LaplacianSpectrum(3))  # type: ignore[type-var]
    with pytest.raises(ValueError, match="device: expected a device such as 'cpu' or 'cuda', got 'cudo'"):
        LaplacianSpectrum(3, device="cudo")
    with pytest.raises(ValueError, match="device: expected a device such as 'cpu' or 'cuda', got 'cudo'"):
        prepare(graphs(), LaplacianSpectrum(3), device="cudo")
