"""The command: pictures and numbers of a run, on the report's page too."""

import csv
import os
import re
import sys

import pytest
from small_run import run_small
from typer.testing import CliRunner

from gssc.cli import app, main
from gssc.explain import write
from gssc.report import write_report

runner = CliRunner()
NAMES = [
    "influence-test-1-node-2-pairs.csv",
    "influence-test-1-node-2.csv",
    "influence-test-1-node-2.png",
    "influence-test-1-node-2.svg",
    "kernel-test-1-node-2.csv",
    "kernel-test-1-node-2.png",
    "kernel-test-1-node-2.svg",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run_small(folder, "out/seed-0", "model.layers=2", "train.epochs=1", "optim.warmup_epochs=0")
    run_small(folder, "none/seed-0", "model.layers=2", "model.glob=none", "train.epochs=1", "optim.warmup_epochs=0")
    return folder


def command(root, *more, run="out/seed-0"):
    place = ["--data-root", str(root), "--device", "cpu"]
    return ["explain", str(root / run), "--graph", "1", "--node", "2", *place, *more]


def explained(root, *more, run="out/seed-0"):
    return runner.invoke(app, command(root, *more, run=run), catch_exceptions=False).output


def read(path):
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_pictures_numbers_and_the_page(root):
    said = explained(root)
    assert "same weights, switched off" in said
    found = re.findall(r"influence from (\d+\.\d\d) edges away on average, as PyG's total_influence counts(.*)", said)
    assert len(found) == 2
    assert re.fullmatch(r"; test mae/std \d+\.\d+", found[0][1].strip())
    folder = root / "out/seed-0/explain"
    assert sorted(path.name for path in folder.iterdir()) == NAMES
    rows = read(folder / NAMES[1])
    assert {row["model"] for row in rows} == {"glob=gssc", "the same weights, global part switched off"}
    kernel = read(folder / NAMES[4])
    assert {row["layer"] for row in kernel} == {"0", "1"}
    assert {row["u"] for row in kernel} == {"2"}
    first = {name: (folder / name).read_bytes() for name in NAMES}
    explained(root)
    assert {name: (folder / name).read_bytes() for name in NAMES} == first

    (folder / "kernel-test-3-node-0.svg").write_text("<svg cut")
    (folder / "other.svg").write_text("<svg></svg>")
    report = write_report([root / "out"], root / "report")
    page = (root / "report/report.html").read_text()
    assert page.count("data:image/svg+xml;base64,") == 2
    assert "Seed 0: kernels of node 2, graph 1 of test." in page
    assert any("kernel-test-3-node-0.svg: expected a complete SVG" in note for note in report.notes)
    (folder / "kernel-test-3-node-0.svg").unlink()


def test_beside_another_run_and_for_one_layer_and_channel(root, tmp_path):
    more = ["--against", str(root / "none/seed-0"), "--layer", "1", "--channel", "3", "--nodes", "all"]
    said = explained(root, *more, "-o", str(tmp_path / "there"))
    assert "trained by itself" in said
    rows = read(tmp_path / "there" / NAMES[1])
    assert {row["model"] for row in rows} == {"glob=gssc", "glob=none, a run of its own"}
    kernel = read(tmp_path / "there" / NAMES[4])
    assert {row["layer"] for row in kernel} == {"1"}
    assert len(kernel) == len({row["v"] for row in kernel}) + 1


def test_a_model_without_a_kernel_has_influence(root, tmp_path):
    said = explained(root, "-o", str(tmp_path), run="none/seed-0")
    assert "no kernel is drawn" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES[:4]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--graph", "4"], "--graph: expected a test graph of 0..3, got 4"),
        (["--node", "99"], "--node: expected a node of 0.."),
        (["--node", "-1"], "--node: expected a number from 0, got -1"),
        (["--graph", "-1"], "--graph: expected a number from 0, got -1"),
        (["--layer", "2"], "layer: expected a layer of 0..1, got 2"),
        (["--layer", "first"], "--layer: expected a number from 0, or all"),
        (["--channel", "8"], "--channel: expected a channel of 0..7, got 8"),
        (["--channel", "max"], "--channel: expected mean, rms or a number of 0..7"),
        (["--nodes", "0"], "--nodes: expected a positive number, or all"),
        (["--split", "tset"], "--split: expected one of"),
        (["--against", "no/where"], "run: expected the folder of a run"),
    ],
)
def test_errors_are_one_line_and_leave_nothing(root, tmp_path, monkeypatch, capsys, more, told):
    monkeypatch.setattr(sys, "argv", ["gssc", *command(root, *more, "-o", str(tmp_path / "out"))])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    line = capsys.readouterr().err
    assert line.startswith(f"error: {told}")
    assert line.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_what_was_there(root, tmp_path, monkeypatch):
    (tmp_path / NAMES[2]).write_bytes(b"earlier")
    monkeypatch.setattr(write, "rendered", lambda figure, name: {f"{name}.png": b"", f"{name}.svg": b""})

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ValueError, match="output folder: expected one that can be written"):
        explained(root, "-o", str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [NAMES[2]]
    assert (tmp_path / NAMES[2]).read_bytes() == b"earlier"


def test_molecules_have_symbols_and_what_their_atoms_add(tmp_path, monkeypatch):
    pytest.importorskip("rdkit")
    monkeypatch.setenv("GSSC_CACHE", str(tmp_path / "cache"))
    rows = [f"{'C' * n}Cl,{n}.5,{-n}" for n in range(1, 14)]
    (tmp_path / "m.csv").write_text("\n".join(["smiles,size,loss", *rows]))
    table = ["--csv", str(tmp_path / "m.csv"), "--target-column", "size,loss"]
    small = ["train.epochs=1", "model.layers=1", "spectrum.rwse=0", "train.tensorboard=false"]
    words = ["train", *table, *small, "--out", str(tmp_path / "out"), "--device", "cpu"]
    assert runner.invoke(app, words, catch_exceptions=False).exit_code == 0
    words = ["explain", str(tmp_path / "out/seed-0"), "-o", str(tmp_path / "there"), "--device", "cpu"]
    said = runner.invoke(app, words, catch_exceptions=False).output
    assert "atoms-test-0.png" in said
    added = read(tmp_path / "there" / "atoms-test-0.csv")
    assert list(added[0]) == ["v", "atom", "size", "loss"]
    assert [row["atom"] for row in added][-1] == "Cl"
    assert {row["atom"] for row in added} <= {"C", "Cl"}
    assert any(float(row["size"]) for row in added)
    assert (tmp_path / "there" / "atoms-test-0.svg").exists()
