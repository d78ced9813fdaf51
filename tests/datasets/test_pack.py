import lzma
from dataclasses import fields, replace

import numpy as np
import pytest
import safetensors.numpy
import torch
from typer.testing import CliRunner

from gssc.cli import app
from gssc.datasets import FlatGraphs, GraphDataset, cycles, load_pack, open_dataset, pack, superpixels, write_pack
from gssc.files import load_tensors, save_tensors
from gssc.tasks import Task
from gssc.train.evaluate import default_dtype

GENERATOR = {"name": "cycles-3", "seed": 5}
NO_ODD_EDGES = {"odd_nodes": np.zeros(0, int), "odd_neighbours": np.zeros((0, 8)), "odd_weights": np.zeros((0, 8))}


@pytest.fixture
def few_graphs(monkeypatch):
    monkeypatch.setattr(cycles, "GRAPHS", 20)
    monkeypatch.setattr(cycles, "TRAIN", 8)
    monkeypatch.setattr(cycles, "VALIDATION", 4)


def assert_same(a, b):
    """Bit for bit, types included."""
    for field in fields(a):
        u, v = getattr(a, field.name), getattr(b, field.name)
        assert (u is None) == (v is None), field.name
        if u is not None:
            assert u.dtype == v.dtype, field.name
            assert u.shape == v.shape, field.name
            assert u.contiguous().numpy().tobytes() == v.contiguous().numpy().tobytes(), field.name


def assert_comes_back(dataset, path):
    write_pack(dataset, path)
    back = load_pack(path)
    assert back.about() == dataset.about()
    assert list(back.splits) == list(dataset.splits)
    for name, flat in dataset.splits.items():
        assert_same(back.splits[name], flat.sorted_by_destination())
    return back


def random_flat(sizes, *, directed=False, x="categories", edge="categories", weight=False, level="graph", seed=0):
    """Graphs with one of every kind of features."""
    rng = np.random.default_rng(seed)
    ends, attributes = [], []
    for n in sizes:
        matrix = np.triu(rng.random((n, n)) < 0.4, 1)
        both = matrix | (rng.random((n, n)) < 0.2) if directed else matrix | matrix.T
        pairs = np.stack(np.nonzero(both))
        ends.append(pairs[:, rng.permutation(pairs.shape[1])])
        attributes.append(pairs.min(0) + pairs.max(0))
        attributes[-1] = ends[-1].min(0) + ends[-1].max(0)
    count = np.array([pairs.shape[1] for pairs in ends])
    edge_index = torch.from_numpy(np.concatenate(ends, axis=1))
    attribute = torch.from_numpy(np.concatenate(attributes))
    nodes = int(sum(sizes))
    features = {
        "categories": torch.from_numpy(rng.integers(0, 5, (nodes, 3))),
        "continuous": torch.from_numpy(rng.normal(size=(nodes, 2)).astype(np.float32)),
        None: None,
    }
    edges = {
        "categories": torch.stack([attribute % 4, attribute % 3], dim=1),
        "continuous": (attribute.float() * 0.1234).unsqueeze(1),
        None: None,
    }
    return FlatGraphs(
        torch.tensor([0, *np.cumsum(sizes)]),
        torch.tensor([0, *np.cumsum(count)]),
        edge_index,
        features[x],
        edges[edge],
        torch.from_numpy(rng.normal(size=(len(sizes) if level == "graph" else nodes, 2)).astype(np.float32)),
        weight=(attribute.double() / 7) if weight else None,
    )


def random_dataset(level="graph", **kinds):
    task = Task(level, "regression", 2, "mae", shift=(0.5, 1.0), scale=(2.0, 3.0))
    splits = {
        name: random_flat(sizes, level=level, seed=seed, **kinds)
        for seed, (name, sizes) in enumerate({"train": (7, 1, 12), "val": (0, 5), "test": (9,)}.items())
    }
    return GraphDataset("mine", task, (5, 5, 5), None, splits, {"x": ([1.0], [0.1])})


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("x", ["categories", "continuous", None])
@pytest.mark.parametrize(("edge", "weight"), [("categories", False), ("continuous", True), (None, False)])
def test_every_kind_of_dataset_comes_back(directed, x, edge, weight, tmp_path):
    dataset = random_dataset(directed=directed, x=x, edge=edge, weight=weight)
    assert_comes_back(dataset, tmp_path / "file")


def test_targets_of_nodes_nan_and_classes_come_back(tmp_path):
    dataset = random_dataset(level="node")
    dataset.splits["train"].y[3, 1] = float("nan")
    assert_comes_back(dataset, tmp_path / "file")
    classes = {
        name: replace(flat, y=torch.randint(-1, 3, (flat.num_graphs,)))
        for name, flat in random_dataset().splits.items()
    }
    task = Task("graph", "multiclass", 3, "accuracy")
    assert_comes_back(replace(dataset, task=task, splits=classes), tmp_path / "file")


def test_one_graph_with_three_masks_is_stored_once(tmp_path):
    flat = random_flat((400,), level="node", x="continuous")
    masks = torch.randint(3, (400,))
    splits = {name: replace(flat, mask=masks == number) for number, name in enumerate(("train", "val", "test"))}
    dataset = GraphDataset("one", Task("node", "regression", 2, "mae"), 2, (7, 3), splits, {})
    back = assert_comes_back(dataset, tmp_path / "file")
    assert back.splits["val"].edge_index is back.splits["train"].edge_index
    single = replace(dataset, splits={"train": splits["train"]})
    assert write_pack(dataset, tmp_path / "file") < 1.1 * write_pack(single, tmp_path / "other")


def superpixel_dataset():
    rng = np.random.default_rng(0)
    splits = {}
    for name, sizes in {"train": (12, 40, 9), "val": (20,), "test": (33, 12)}.items():
        ptr = np.array([0, *np.cumsum(sizes)])
        pixels = rng.integers(1, 30, (ptr[-1], 1))
        colours = (rng.integers(0, 255 * pixels + 1) / (255 * pixels)).astype(np.float16).astype(np.float32)
        pos = (rng.integers(0, 27 * pixels + 1, (ptr[-1], 2)) / pixels).astype(np.float16).astype(np.float32)
        x = np.concatenate([colours, pos / np.float32(28)], axis=1)
        arrays = superpixels.decode(ptr, superpixels._encode_nodes(ptr, x) | NO_ODD_EDGES)
        tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
        splits[name] = FlatGraphs(torch.from_numpy(ptr), y=torch.randint(10, (len(sizes),)), **tensors)
    return GraphDataset("pixels", Task("graph", "multiclass", 10, "accuracy"), 3, 1, splits, {})


def columns_of(path):
    """How edges are stored in a file, and its columns."""
    tensors, about = load_tensors(path)
    data = lzma.decompress(tensors["columns"].numpy().tobytes(), lzma.FORMAT_RAW, filters=pack.LZMA)
    return about["edges"], safetensors.numpy.load(data)


def test_superpixels_are_stored_as_pixels_and_sums_without_edges(tmp_path):
    assert_comes_back(superpixel_dataset(), tmp_path / "file")
    edges, columns = columns_of(tmp_path / "file")
    assert edges == "superpixels"
    assert {"pixels", "centres", "levels"} <= set(columns)
    assert not {"gap", "edge_attr", "x"} & set(columns)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max, 0, -1]), "int64"),
        (np.array([-1, 200]), "int16"),
        (np.array([0, 2**31]), "uint32"),
        (np.array([True, False]), "bool"),
        (np.array([0.0, 1.0, 5.0], np.float32), "uint8"),
        (np.array([0.0, -0.0, np.nan, np.inf, 3e9], np.float64), "float32"),
        (np.array([0.1, 1.0]), "float64"),
        (np.zeros((0, 3), np.int64), "uint8"),
        (np.zeros((4, 0), np.float32), "uint8"),
    ],
)
def test_numbers_are_stored_in_the_shortest_type_that_holds_them(values, dtype):
    short = pack._shortest(values)
    assert short.dtype == dtype
    assert short.astype(values.dtype).tobytes() == values.tobytes()


def test_a_bomb_is_not_unpacked(monkeypatch, tmp_path):
    """A stream of zeros without end is left at the limit."""
    path = tmp_path / "file"
    write_pack(random_dataset(), path)
    _, about = load_tensors(path)
    bomb = bytearray(lzma.compress(bytes(10**7), lzma.FORMAT_RAW, filters=pack.LZMA))
    monkeypatch.setattr(pack, "MOST_BYTES", 10**6)
    monkeypatch.setattr(pack, "MOST_TIMES", 10)
    for data in (bomb, bomb[: len(bomb) // 2]):
        save_tensors(path, {"columns": torch.frombuffer(data, dtype=torch.uint8)}, about)
        with pytest.raises(ValueError, match=r"\Apack: expected .* a file that was cut, or is too large\Z"):
            load_pack(path)


def test_superpixels_that_do_not_follow_the_rule_come_back_too(tmp_path):
    dataset = superpixel_dataset()
    flat = dataset.splits["train"]
    for damage in (2.0, 1.0 + 2.0**-23):
        attributes = flat.edge_attr.clone()
        attributes[5] *= damage
        one = replace(dataset, splits={**dataset.splits, "train": replace(flat, edge_attr=attributes)})
        assert_comes_back(one, tmp_path / "file")
        assert columns_of(tmp_path / "file")[0] == "superpixels"
    other = replace(flat, edge_index=flat.edge_index.flip(0)).sorted_by_destination()
    assert_comes_back(replace(dataset, splits={**dataset.splits, "train": other}), tmp_path / "file")


def test_the_command_packs_a_recipe(few_graphs, tmp_path):
    out = tmp_path / "cycles.safetensors"
    command = ["pack", "cycles-3", "--data-root", str(tmp_path), "-o", str(out)]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "8 train, 4 val, 8 test graphs" in result.output
    expected = open_dataset("cycles-3", tmp_path)
    for name, flat in expected.splits.items():
        assert_same(load_pack(out).splits[name], flat.sorted_by_destination())


def test_generated_data_are_packed_as_their_seed(few_graphs, tmp_path):
    out = tmp_path / "cycles.safetensors"
    command = ["pack", "cycles-3", "data.generate=true", "data.seed=5", "-o", str(out)]
    CliRunner().invoke(app, command, catch_exceptions=False)
    assert out.stat().st_size < 2000
    expected = open_dataset("cycles-3", tmp_path, 5, generate=True)
    for name, flat in expected.splits.items():
        assert_same(load_pack(out).splits[name], flat.sorted_by_destination())


def test_generated_data_are_the_same_whatever_the_default_type_is(few_graphs, tmp_path):
    write_pack(open_dataset("cycles-3", tmp_path, 5, generate=True), tmp_path / "file", generator=GENERATOR)
    with default_dtype("float64"):
        assert load_pack(tmp_path / "file").splits["train"].y.dtype == torch.float32
        write_pack(open_dataset("cycles-3", tmp_path, 5, generate=True), tmp_path / "double", generator=GENERATOR)
    assert load_pack(tmp_path / "double").splits["train"].y.dtype == torch.float64
    assert torch.get_default_dtype() == torch.float32


def test_a_pack_and_what_it_was_made_from_have_the_same_content(few_graphs, tmp_path):
    dataset = open_dataset("cycles-3", tmp_path, 5, generate=True)
    write_pack(dataset, tmp_path / "file")
    assert load_pack(tmp_path / "file").content() == dataset.content()
    assert dataset.content() != open_dataset("cycles-3", tmp_path, 6, generate=True).content()


def test_a_seed_that_makes_other_graphs_is_refused(few_graphs, monkeypatch, tmp_path):
    dataset = open_dataset("cycles-3", tmp_path, 5, generate=True)
    write_pack(dataset, tmp_path / "file", generator={"name": "cycles-3", "seed": 6})
    with pytest.raises(ValueError, match=r"pack: expected .* other arrays than were written"):
        load_pack(tmp_path / "file")


def test_the_same_dataset_gives_the_same_bytes(tmp_path):
    write_pack(random_dataset(), tmp_path / "a")
    write_pack(random_dataset(), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_damaged_files_are_errors_of_one_line(tmp_path):
    path = tmp_path / "file"
    write_pack(random_dataset(), path)
    good = path.read_bytes()
    for cut in (0, 5, 100, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(ValueError, match=r"\A.*\Z"):
            load_pack(path)
    for at in range(0, len(good), 97):
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        with pytest.raises(ValueError, match=r"\A.*\Z"):
            load_pack(path)
    with pytest.raises(ValueError, match="no such file"):
        load_pack(tmp_path / "nothing")


def test_foreign_files_are_errors_of_one_line(tmp_path):
    path = tmp_path / "file"
    write_pack(random_dataset(), path)
    tensors, about = load_tensors(path)
    save_tensors(path, tensors, {"weights": 1})
    with pytest.raises(ValueError, match="another kind of file"):
        load_pack(path)
    save_tensors(path, tensors, {**about, "version": 99})
    with pytest.raises(ValueError, match="of version 99"):
        load_pack(path)
    # Well-formed files with nonsense inside: nothing but ValueErrors.
    for key in ("dataset", "splits", "arrays", "edges"):
        for nonsense in (None, [], {}, 3, {**about, "x": 1}):
            save_tensors(path, tensors, {**about, key: nonsense})
            with pytest.raises(ValueError, match=r"\Apack: expected .*\Z"):
                load_pack(path)
    _, columns = columns_of(path)
    for name in ("", *columns):
        other = safetensors.numpy.save({**columns, name: np.zeros(3, np.uint8)}) if name else bytes(3)
        data = bytearray(lzma.compress(other, lzma.FORMAT_RAW, filters=pack.LZMA))
        for stored in ({}, {"columns": torch.zeros(3)}, {"columns": torch.frombuffer(data, dtype=torch.uint8)}):
            save_tensors(path, stored, about)
            with pytest.raises(ValueError, match=r"\Apack: expected .*\Z"):
                load_pack(path)


def test_an_error_leaves_the_file_that_was_there(monkeypatch, tmp_path):
    path = tmp_path / "file"
    path.write_text("precious")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_pack(random_dataset(), path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(few_graphs, tmp_path):
    (tmp_path / "file").write_text("")
    command = ["pack", "cycles-3", "data.generate=true", "-o", str(tmp_path / "file" / "below")]
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, ValueError)
    assert str(result.exception).startswith("out: expected a file that can be written")
