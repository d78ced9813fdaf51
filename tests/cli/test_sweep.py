import json

import pytest
import torch
from small_run import SMALL, small_recipe, write_cycles
from typer.testing import CliRunner

from gssc.cli import app
from gssc.config import load_recipe
from gssc.datasets.cycles import cycle_counting
from gssc.files import load_tensors, read_json
from gssc.recipes import own_recipe
from gssc.train import open_data, seeds
from gssc.train.sweep import _distribution, parse_axis

runner = CliRunner()


def sweep(tmp_path, *words, recipe="cycles-3"):
    write_cycles(tmp_path)
    small = (*SMALL, "train.epochs=1", "model.rwse_channels=4")
    fixed = [part for text in small for part in ("--set", text)]
    common = ["--data-root", str(tmp_path), "--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    result = runner.invoke(
        app, ["sweep", *filter(None, [recipe]), *words, *fixed, *common, "--device", "cpu"], catch_exceptions=False
    )
    assert result.exit_code == 0, result.output
    listed = tmp_path / "out" / "sweep.json"
    return result.output, read_json(listed) if listed.exists() else []


def test_grid(tmp_path):
    output, results = sweep(tmp_path, "model.glob=gssc,none", "optim.lr=0.001,0.01", "--seeds", "0-1")
    assert len(results) == 4
    assert {tuple(result["overrides"]) for result in results} == {
        (f"model.glob={glob}", f"optim.lr={lr}") for glob in ("gssc", "none") for lr in (0.001, 0.01)
    }
    assert all(result["seeds"] == [0, 1] for result in results)
    assert "4 variants by validation" in output
    summaries = sorted((tmp_path / "out").rglob("seed-*/summary.json"))
    assert len(summaries) == 8
    before = {path: path.stat().st_mtime_ns for path in summaries}
    # The same command again reads what is finished.
    _, again = sweep(tmp_path, "model.glob=gssc,none", "optim.lr=0.001,0.01", "--seeds", "0-1")
    assert again == results
    assert {path: path.stat().st_mtime_ns for path in summaries} == before


def test_study_goes_on_where_it_stopped(tmp_path):
    pytest.importorskip("optuna")
    axes = ["optim.lr=log:1e-4..1e-2", "model.glob=gssc,none"]
    _, results = sweep(tmp_path / "whole", *axes, "--trials", "4")
    sweep(tmp_path / "parts", *axes, "--trials", "2")
    _, parts = sweep(tmp_path / "parts", *axes, "--trials", "4")
    assert [result["overrides"] for result in parts] == [result["overrides"] for result in results]
    assert len({tuple(result["overrides"]) for result in results}) == 4
    assert all(1e-4 <= result["parameters_tried"]["optim.lr"] <= 1e-2 for result in results)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", "axis: expected section.key"),
        ("optim.lr=", "axis: expected section.key"),
        ("optim.lr=a..b", "optim.lr: expected a number"),
        ("optim.lr=1..inf", "optim.lr: expected .*, got"),
        ("optim.lr=2..1", "axis optim.lr: expected low..high with low <= high"),
        ("optim.weight_decay=log:0..1", "axis optim.weight_decay: expected log:low..high with low > 0"),
        ("model.layers=1..2.5", "model.layers: expected an integer, got 2.5"),
        ("model.phi_channels=null..8", "axis model.phi_channels: expected two numbers"),
        ("model.glob=gssc..none", "axis model.glob: expected two numbers"),
        ("model.selective=false..true", "axis model.selective: expected two numbers"),
        ("model.selective=0..1", "model.selective: expected true or false"),
        ("data.smiles_column=a..b", "axis data.smiles_column: expected two numbers"),
        ("data.smiles_column=a,[", "override data.smiles_column: expected a value in YAML"),
        ("data.metric=mae,mse", "axis data.metric: .* cannot be compared"),
        ("data.task=regression,binary", "axis data.task: .* cannot be compared"),
        ("data.dataset=cycles-3,cycles-4", "axis data.dataset: .* cannot be compared"),
        ("data.file=../a.pt,../b.pt", "axis data.file: .* cannot be compared"),
        ("data.target_columns=a,b", "axis data.target_columns: .* cannot be compared"),
    ],
)
def test_bad_axes(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse_axis(text, small_recipe())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind", "low", "high", "log"),
    [
        ("model.layers=1..3", "IntDistribution", 1, 3, False),
        ("model.channels=log:16..64", "IntDistribution", 16, 64, True),
        ("model.phi_channels=8..16", "IntDistribution", 8, 16, False),
        ("model.dropout_ffn=0..0.5", "FloatDistribution", 0.0, 0.5, False),
        ("optim.weight_decay=0..1", "FloatDistribution", 0.0, 1.0, False),
        ("optim.clip=1.0..2.0", "FloatDistribution", 1.0, 2.0, False),
        ("optim.lr=log:1e-4..1e-2", "FloatDistribution", 1e-4, 1e-2, True),
    ],
)
def test_kind_of_a_range_is_that_of_its_key(text, kind, low, high, log):
    distributions = pytest.importorskip("optuna").distributions
    found = _distribution(parse_axis(text, small_recipe()), distributions)
    assert found == getattr(distributions, kind)(low, high, log=log)


def test_study_of_integers(tmp_path):
    pytest.importorskip("optuna")
    _, results = sweep(tmp_path, "model.layers=1..3", "model.channels=log:4..8", "--trials", "2")
    for result in results:
        assert {type(value) for value in result["parameters_tried"].values()} == {int}


def test_wrong_key_fails_before_anything_is_trained(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'lr'"):
        sweep(tmp_path, "optim.lrr=1,2")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.glob=none,gsssc"], "did you mean 'gssc'"),
        (["train.batch_size=4,0"], "train.batch_size: expected a positive integer"),
        (["train.ema=0.5..1.0", "--trials", "1"], "train.ema: expected a probability"),
    ],
)
def test_every_value_is_checked_before_anything_is_trained(tmp_path, words, message):
    with pytest.raises(ValueError, match=message):
        sweep(tmp_path, *words)
    assert not (tmp_path / "out").exists()


def test_variants_have_their_own_data(tmp_path, monkeypatch):
    torch.save(cycle_counting(20, 0), tmp_path / "own.pt")
    seeds = []

    def open_for(recipe, *rest, quiet):
        seeds.append(recipe.data.seed)
        return opening(recipe, *rest, quiet=quiet)

    opening = open_data.open_for
    monkeypatch.setattr(open_data, "open_for", open_for)
    own = [f"data.file={json.dumps(str(tmp_path / 'own.pt'))}", "data.dataset=own", "data.split=random"]
    _, results = sweep(
        tmp_path, "data.seed=1,2", "model.glob=gssc,none", *(part for text in own for part in ("--set", text))
    )
    assert seeds == [1, 2]
    targets = [
        load_tensors(tmp_path / "out" / result["folder"] / "seed-0" / "predictions.safetensors")[0]["target"]
        for result in results
    ]
    assert torch.equal(targets[0], targets[1])
    assert not torch.equal(targets[1], targets[2])


def test_own_graphs_are_swept_as_they_are_trained(tmp_path):
    torch.save(cycle_counting(20, 0), tmp_path / "mine.pt")
    data = ["--data", str(tmp_path / "mine.pt")]
    output, results = sweep(tmp_path, "model.glob=gssc,none", *data, recipe=None)
    assert "mine: 2 variants by validation mae" in output
    config = load_recipe(tmp_path / "out" / results[0]["folder"] / "seed-0" / "config.yaml")
    assert config.data == own_recipe(tmp_path / "mine.pt").data
    assert config.model.glob == "gssc"
    _, results = sweep(tmp_path / "named", "model.glob=gssc,none", *data)  # with the model of a recipe
    assert load_recipe(tmp_path / "named" / "out" / results[0]["folder"] / "seed-0" / "config.yaml").name == "cycles-3"


def test_own_molecules_are_swept(tmp_path):
    pytest.importorskip("rdkit")
    rows = [f"{'C' * n}O,{n}.5" for n in range(1, 13)]
    (tmp_path / "chains.csv").write_text("\n".join(["smiles,size", *rows]))
    table = ["--csv", str(tmp_path / "chains.csv"), "--target-column", "size"]
    output, results = sweep(tmp_path, "optim.lr=0.001,0.002", *table, recipe=None)
    assert len(results) == 2
    assert "chains: 12 graphs" in output


def test_large_graphs_of_ones_own_have_no_walks_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("gssc.recipes.MOST_NODES_FOR_WALKS", 3)
    torch.save(cycle_counting(20, 0), tmp_path / "mine.pt")
    data = ["--data", str(tmp_path / "mine.pt")]
    for folder, axis, walks in (("a", "optim.lr=0.001,0.002", 0), ("b", "spectrum.rwse=2,3", 2)):
        _, results = sweep(tmp_path / folder, axis, *data, recipe=None)
        config = load_recipe(tmp_path / folder / "out" / results[0]["folder"] / "seed-0" / "config.yaml")
        assert config.spectrum.rwse == walks


def test_a_sweep_needs_an_axis_and_something_to_train(tmp_path):
    with pytest.raises(ValueError, match="axes: expected one or more keys that vary"):
        sweep(tmp_path)
    with pytest.raises(ValueError, match="recipe: expected the name of a recipe, --data FILE or --csv FILE"):
        sweep(tmp_path, "model.glob=gssc,none", recipe=None)


def test_a_pack_has_no_other_data(tmp_path):
    with pytest.raises(ValueError, match=r"--pack: expected no axis of section data .*, got data\.seed"):
        sweep(tmp_path, "data.seed=0,1", "--pack", str(tmp_path / "pack"))


@pytest.mark.parametrize("study", [[], ["--trials", "2"]])
def test_stopped_sweep_says_how_to_go_on(tmp_path, monkeypatch, study):
    if study:
        pytest.importorskip("optuna")
    output, _ = sweep(tmp_path, "optim.lr=0.001,0.002", *study, "--time-limit", "0.001s")
    assert "stopped: 0 of 2 variants are done; the same command goes on from there" in output
    assert "by validation" not in output
    train_seeds, variants = seeds.train_seeds, []

    def train_once(recipe, dataset, folders, settings):
        variants.append(recipe)
        return train_seeds(recipe, dataset, folders, settings) if len(variants) == 1 else dict.fromkeys(folders)

    monkeypatch.setattr(seeds, "train_seeds", train_once)
    output, results = sweep(tmp_path, "optim.lr=0.001,0.002", *study)
    assert len(results) == 1
    assert "stopped: 1 of 2 variants are done" in output
    assert "1 variant by validation" in output


def test_one_seed_has_no_deviation(tmp_path):
    assert "±" not in sweep(tmp_path, "model.glob=none")[0]
    assert "±" in sweep(tmp_path / "two", "model.glob=none", "--seeds", "0-1")[0]


def test_range_needs_trials(tmp_path):
    with pytest.raises(ValueError, match="needs --trials"):
        sweep(tmp_path, "optim.lr=1e-4..1e-2")


def test_a_study_takes_up_its_own_trials_alone(tmp_path):
    pytest.importorskip("optuna")
    axis = "optim.lr=log:1e-4..1e-2"
    sweep(tmp_path, axis, "--trials", "1")
    with pytest.raises(ValueError, match=r"another recipe \(model.phi_channels: "):
        sweep(tmp_path, axis, "--set", "model.phi_channels=24", "--trials", "2")
    other = r"^--out: expected a new folder, or that of a study over .*, got .*out with a study over optim.lr$"
    with pytest.raises(ValueError, match=other):
        sweep(tmp_path, axis, "model.layers=1..2", "--trials", "2")
    with pytest.raises(ValueError, match=r"study over optim.lr in these values, got .*out with optim.lr=0.0"):
        sweep(tmp_path, "optim.lr=log:1e-8..1e-7", "--trials", "1")
    _, results = sweep(tmp_path, axis, "--trials", "2", "--seeds", "0-1")
    assert [result["seeds"] for result in results] == [[0, 1], [0, 1]]
    _, results = sweep(tmp_path, axis, "--trials", "2", "--seeds", "0-2")
    assert [result["seeds"] for result in results] == [[0, 1, 2], [0, 1, 2]]
    (tmp_path / "out" / "sweep.json").write_text('{"a": 1}')
    with pytest.raises(ValueError, match=r"got .*out with something else$"):
        sweep(tmp_path, axis, "--trials", "2")


def test_a_study_in_the_folder_of_a_grid(tmp_path):
    pytest.importorskip("optuna")
    sweep(tmp_path, "optim.lr=0.001")
    with pytest.raises(ValueError, match=r"study over optim.lr, got .*out with something else$"):
        sweep(tmp_path, "optim.lr=log:1e-4..1e-2", "--trials", "1")


def test_a_grid_in_the_folder_of_a_study(tmp_path):
    pytest.importorskip("optuna")
    _, before = sweep(tmp_path, "optim.lr=log:1e-4..1e-2", "--trials", "1")
    with pytest.raises(ValueError, match=r"^--out: expected a new folder, or that of a grid, got .*out with a study"):
        sweep(tmp_path, "optim.lr=0.001")
    assert read_json(tmp_path / "out" / "sweep.json") == before


@pytest.mark.parametrize("study", [False, True])
def test_a_variant_that_diverges_is_left_out(tmp_path, study):
    if study:
        pytest.importorskip("optuna")
    axis, more = ("optim.lr=1e30..2e30", ["--trials", "2"]) if study else ("optim.lr=1e30,0.001", [])
    output, results = sweep(tmp_path, axis, *more, "--set", "optim.clip=0", "--set", "optim.warmup_epochs=0")
    assert len(results) == 2
    assert "left out: loss and gradient: expected finite numbers, got" in output
    assert "no score: optim.lr=1e30 (" in output or study
    assert [result["validation"]["mean"] is None for result in results] == [True, study]
