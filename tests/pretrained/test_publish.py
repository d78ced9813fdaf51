"""A model goes out into the world and comes back the same."""

import hashlib
import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from small_run import run_small, small_dataset, small_recipe
from typer.testing import CliRunner

import gssc
from gssc.cli import app
from gssc.datasets.cycles import cycle_counting
from gssc.datasets.specs import OGB_ATOM
from gssc.files import DamagedFileError, load_tensors, read_json, save_tensors
from gssc.pretrained import find, open_model
from gssc.pretrained.find import download
from gssc.pretrained.manifest import read_manifest, sha256
from gssc.pretrained.publish import model_card, publish
from gssc.train.loaded import predict_together

runner = CliRunner()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two seeds; the one that is worse on the test set is made the better one on validation."""
    folder = tmp_path_factory.mktemp("models")
    for seed in (0, 1):
        run_small(folder, f"runs/seed-{seed}", "train.epochs=2", seed=seed)
    summaries = [read_json(folder / f"runs/seed-{seed}/summary.json") for seed in (0, 1)]
    chosen = max((0, 1), key=lambda seed: summaries[seed]["test"])
    for seed, summary in enumerate(summaries):
        summary["validation"] = 0.5 if seed == chosen else 0.6
        (folder / f"runs/seed-{seed}/summary.json").write_text(json.dumps(summary))
    environment = read_json(folder / "runs/seed-0/environment.json")
    environment["command"] = "gssc train cycles-3 --data-root /here/data --seeds 0-1 --out=/there --resume x.y=1"
    for seed in (0, 1):
        (folder / f"runs/seed-{seed}/environment.json").write_text(json.dumps(environment))
    (folder / "notes.yaml").write_text("cycles-3:\n  data: Mind the\n    graphs.\n  licence: Free.\n")
    publish(folder / "runs", folder / "small-cycles", folder / "notes.yaml")
    return folder


def run_of(root: Path) -> Path:
    return root / f"runs/seed-{read_json(root / 'small-cycles/summary.json')['seed']}"


def card_files(root: Path) -> dict:
    names = {"about": "dataset", "environment": "environment", "summary": "summary", "seeds": "seeds"}
    return {name: read_json(root / f"small-cycles/{file}.json") for name, file in names.items()}


def test_the_seed_is_chosen_by_validation(root):
    summaries = [read_json(root / f"runs/seed-{seed}/summary.json") for seed in (0, 1)]
    published = read_json(root / "small-cycles/summary.json")
    assert published == min(summaries, key=lambda summary: summary["validation"])
    assert published["test"] == max(summary["test"] for summary in summaries)  # mae: the worse one
    seeds = read_json(root / "small-cycles/seeds.json")
    assert (seeds["seeds"], seeds["published_seed"]) == ([0, 1], published["seed"])
    assert seeds["test"]["values"] == [summary["test"] for summary in summaries]


def test_files_and_card(root):
    folder = root / "small-cycles"
    listed = read_manifest((folder / "manifest.json").read_bytes(), "manifest")
    assert set(listed) == {path.name for path in folder.iterdir()} - {"manifest.json"}
    for name, (size, digest) in listed.items():
        data = (folder / name).read_bytes()
        assert (len(data), sha256(data)) == (size, digest)
    weights, _ = load_tensors(folder / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()} == {torch.float32}
    card = open_model(folder).card
    assert card.startswith("# small-cycles\n\nPredicts one number for each node, as in cycles-3.")
    for text in ("`gssc train cycles-3 --seeds 0-1 x.y=1`", "Mind the graphs.", "Free.", "mean ± deviation of 2 seeds"):
        assert text in card
    assert "2 of " in card  # epochs, fewer than the recipe's
    assert "/here" not in "".join(path.read_text(errors="replace") for path in folder.iterdir())


def test_the_card_works_as_printed(root, monkeypatch, tmp_path):
    """Its command and its lines of Python, where a user has put the folder, with a file of the name that it says."""
    shutil.copytree(root / "small-cycles", tmp_path / "small-cycles")
    torch.save(cycle_counting(5, seed=1), tmp_path / "graphs.pt")
    monkeypatch.chdir(tmp_path)
    card = (tmp_path / "small-cycles/README.md").read_text()
    (command,) = re.findall(r"```text\n(.*)\n```", card)
    assert runner.invoke(app, shlex.split(command)[1:], catch_exceptions=False).exit_code == 0
    (code,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    done: dict = {}
    exec(code, done)
    table = np.loadtxt("predictions.csv", delimiter=",", skiprows=1)
    assert isinstance(done["model"], gssc.GSSC)
    np.testing.assert_allclose(table[:, -1], done["predictions"][:, 0], rtol=1e-6)
    for shipped in (Path(__file__).parents[2] / "pretrained").glob("*/README.md"):  # those work anywhere
        (command,) = re.findall(r"```text\n(gssc .*)\n```", shipped.read_text())
        assert shlex.split(command)[:3] == ["gssc", "predict", shipped.parent.name]
        if shipped.parent.name == "cycles-3":
            assert runner.invoke(app, shlex.split(command)[1:], catch_exceptions=False).exit_code == 0


@pytest.mark.parametrize(
    ("features", "file"), [(None, "graphs.pt"), (3, "graphs.pt"), ([7], "graphs.pt"), (list(OGB_ATOM), "molecules.smi")]
)
def test_the_card_knows_molecules(root, features, file):
    """By their features: columns of categories, or a number of continuous ones."""
    files = card_files(root)
    about = files.pop("about") | {"node_features": features}
    card = model_card("mine", {}, config=small_recipe().to_dict(), about=about, **files)
    assert f"gssc predict mine {file} " in card


def test_the_card_names_teachers(root):
    files = card_files(root)
    summary, config = files.pop("summary"), small_recipe().to_dict()
    plain, taught = (
        model_card("mine", {}, config=config, summary=summary | teachers, **files)
        for teachers in ({}, {"teachers": [2, 3], "teacher_seconds": 90.0})
    )
    line = "- teachers: it has learned the mean prediction of models with the seeds 2, 3, 1.5 min of training in all\n"
    assert line in taught
    assert taught.replace(line, "") == plain
    later = small_recipe("train.start=runs/first").to_dict()
    line = "- it began with the weights of `runs/first`\n"
    assert model_card("mine", {}, config=later, summary=summary, **files).replace(line, "") == plain


def test_predictions_and_score_are_those_of_the_run(root):
    recorded, _ = load_tensors(run_of(root) / "predictions.safetensors")
    loaded = open_model(root / "small-cycles")
    assert not loaded.model.training
    test = small_dataset(root).splits["test"]
    assert torch.equal(predict_together([loaded], test)[0], recorded["prediction"])
    words = ["evaluate", str(root / "small-cycles"), "--data-root", str(root), "--cache", str(root / "cache")]
    shown = runner.invoke(app, [*words, "--device", "cpu"], catch_exceptions=False).output
    value = loaded.summary["test"]
    assert shown.startswith(f"cycles-3: test mae/std {value:.5f} (recorded: {value:.5f}, the same bits)")


def test_by_name(root, monkeypatch, tmp_path):
    monkeypatch.setattr(find, "pretrained_folder", lambda: root)
    monkeypatch.chdir(tmp_path)
    model = gssc.load_pretrained("small-cycles")
    assert isinstance(model, gssc.GSSC)
    assert gssc.pretrained.pretrained_names() == ["small-cycles"]
    shutil.copytree(root / "small-cycles", root / ".small-cycles.0123.old")
    assert gssc.pretrained.pretrained_names() == ["small-cycles"]
    shutil.rmtree(root / ".small-cycles.0123.old")
    assert "small-cycles" in runner.invoke(app, ["models"], catch_exceptions=False).output
    with pytest.raises(ValueError, match=r"model: expected one of 'small-cycles', got .*\(did you mean 'small-cycles'"):
        gssc.load_pretrained("smal-cycles")
    with pytest.raises(ValueError, match=r"or one of the models small-cycles, got no/such"):
        gssc.load_pretrained("no/such")
    with pytest.raises(ValueError, match=r"the folder of one seed, got .*, which holds seed-0, seed-1"):
        gssc.load_pretrained(root / "runs")
    with pytest.raises(ValueError, match="sha256: expected none"):
        gssc.load_pretrained("small-cycles", sha256="0")
    monkeypatch.setattr(find, "pretrained_folder", lambda: tmp_path)
    with pytest.raises(ValueError, match=r"no pretrained model ships with this copy\), got small-cycles"):
        gssc.load_pretrained("small-cycles")


def test_by_url(root, monkeypatch, tmp_path):
    monkeypatch.setenv("GSSC_CACHE", str(tmp_path / "cache"))
    served = tmp_path / "served"
    shutil.copytree(root / "small-cycles", served)
    digest = sha256((served / "manifest.json").read_bytes())
    weights = gssc.load_pretrained(served.as_uri(), sha256=digest).state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in open_model(served).model.state_dict().items())
    (kept,) = (tmp_path / "cache/pretrained").iterdir()

    # A second time nothing is fetched, and what was kept is verified.
    monkeypatch.setattr(find, "Fetcher", None)
    gssc.load_pretrained(served.as_uri(), sha256=digest)
    (kept / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(DamagedFileError, match=r"model\.safetensors: expected \d+ bytes, got 7\Z"):
        gssc.load_pretrained(served.as_uri(), sha256=digest)


def test_what_is_kept_must_be_what_was_asked_for(root, tmp_path):
    source, cache = root / "small-cycles", tmp_path / "cache"
    digest = hashlib.sha256((source / "manifest.json").read_bytes()).hexdigest()
    kept = download(source.as_uri(), digest.upper(), cache)
    assert download("https://example.invalid/model", digest, cache) == kept
    with pytest.raises(DamagedFileError, match=r"manifest\.json: expected sha256 \w+, got \w+ \(delete the folder"):
        download("https://example.invalid/model", digest[:32] + "0" * 32, cache)
    # Card and manifest altered together agree with each other, not with the digest.
    manifest = json.loads((kept / "manifest.json").read_text())
    (kept / "README.md").write_bytes(b"other")
    manifest["files"]["README.md"] = {"bytes": 5, "sha256": hashlib.sha256(b"other").hexdigest()}
    (kept / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DamagedFileError, match="expected sha256"):
        download(source.as_uri(), digest, cache)
    with pytest.raises(DamagedFileError, match="expected sha256"):
        download(source.as_uri(), cache=cache)


def test_a_damaged_download_leaves_nothing(root, tmp_path):
    served, cache = tmp_path / "served", tmp_path / "cache"
    shutil.copytree(root / "small-cycles", served)
    damaged = bytearray((served / "model.safetensors").read_bytes())
    damaged[-1] ^= 1
    (served / "model.safetensors").write_bytes(damaged)
    with pytest.raises(
        DamagedFileError, match=r"model\.safetensors: expected sha256 \w+, got \w+ \(altered or damaged\)"
    ):
        download(served.as_uri(), cache=cache)
    (served / "model.safetensors").write_bytes(damaged + b"more")
    with pytest.raises(DamagedFileError, match=r"model\.safetensors: expected \d+ bytes"):
        download(served.as_uri(), cache=cache)
    (served / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"\AURL: expected the folder of a published model, got file:"):
        download(served.as_uri(), cache=cache)
    with pytest.raises(DamagedFileError, match=r"expected sha256 0{64}, got"):
        download(served.as_uri(), "0" * 64, cache)
    with pytest.raises(ValueError, match=r"\Asha256: expected 64 hexadecimal digits, got '00'\Z"):
        download(served.as_uri(), "00", cache)
    with pytest.raises(ValueError, match=r"\AURL: expected the folder of a published model, got https://example"):
        download("https://example.invalid/my model", cache=cache)
    manifest = (served / "manifest.json").read_bytes()
    many = {f"file{i}": {"bytes": 1 << 29, "sha256": "0"} for i in range(3)}
    (served / "manifest.json").write_text(json.dumps({"format": 1, "name": "x", "files": many}))
    with pytest.raises(DamagedFileError, match=r"expected at most \d+ bytes in all, got more"):
        download(served.as_uri(), cache=cache)
    (served / "manifest.json").write_bytes(manifest)
    assert not list((cache / "pretrained").glob("*"))
    with pytest.raises(ValueError, match="scheme of the URL: expected one of 'https', 'file', got 'http'"):
        download("http://example.org/model")
    for bad in ({"../../x": {"bytes": 1, "sha256": ""}}, {"x": {"bytes": -1, "sha256": ""}}, [], {"x": {}}):
        with pytest.raises(DamagedFileError):
            read_manifest(json.dumps({"format": 1, "files": bad}).encode(), "here")


def test_seeds_of_a_former_version_belong_to_the_same_training(root, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(root / "runs", runs)
    config = runs / "seed-1/config.yaml"
    older = config.read_text().replace("  teachers: 0\n", "  accumulate: 1\n  also: reestimated\n")
    assert older != config.read_text()  # a key that this version has and the former had not, and some that it had
    config.write_text(older)
    published = publish(runs, tmp_path / "model")
    assert read_json(published.folder / "seeds.json")["seeds"] == [0, 1]


def test_what_cannot_be_published(root, tmp_path):
    with pytest.raises(ValueError, match=r"out: expected a new folder"):
        publish(root / "runs", root / "small-cycles")
    before = (root / "small-cycles/manifest.json").read_bytes()
    publish(root / "runs", root / "small-cycles", root / "notes.yaml", replace=True)
    assert (root / "small-cycles/manifest.json").read_bytes() == before
    with pytest.raises(ValueError, match=r"out: expected a new folder"):
        publish(root / "runs", root / "runs", replace=True)
    runs = tmp_path / "runs"
    shutil.copytree(root / "runs", runs)
    config = runs / "seed-1/config.yaml"
    config.write_text(config.read_text().replace("epochs: 2\n", "epochs: 3\n"))
    with pytest.raises(DamagedFileError, match=r"seed-1/config\.yaml: expected what model\.safetensors was saved with"):
        publish(runs, tmp_path / "model")
    tensors, about = load_tensors(runs / "seed-1/model.safetensors")
    about["recipe"]["train"]["epochs"] = 3
    save_tensors(runs / "seed-1/model.safetensors", tensors, about)
    with pytest.raises(
        ValueError, match=r"seeds of one training, got .*: another recipe \(train\.epochs: 2 there, 3 here\)"
    ):
        publish(runs, tmp_path / "model")
    (runs / "seed-1/summary.json").unlink()
    with pytest.raises(ValueError, match=r"run: expected a finished one, with its summary\.json"):
        publish(runs, tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]
