import json
from pathlib import Path

import pytest
import yaml

from gssc import config
from gssc.config import SECTIONS, describe_keys, load_recipe, parse_recipe, with_defaults

ROOT = Path(__file__).parents[1]

MINIMAL = {"name": "mine", "data": {"dataset": "cycles-3"}}


def test_missing_keys_take_defaults_and_all_are_written_out():
    recipe = parse_recipe(MINIMAL)
    assert recipe.model.layers == 4
    assert parse_recipe(recipe.to_dict()) == recipe
    assert set(recipe.to_dict()) == {"name", "data", "spectrum", "model", "optim", "train"}


def test_keys_that_a_run_lacks_have_their_defaults():
    recipe = parse_recipe(MINIMAL).override(["model.layers=7"]).to_dict()
    older = {**recipe, "model": {"layers": 7}}
    assert with_defaults(older) == recipe
    assert with_defaults({"name": "mine", "model": None}) == {"name": "mine", "model": None}
    assert older["model"] == {"layers": 7}


def test_overrides_are_read_as_yaml():
    recipe = parse_recipe(MINIMAL).override(
        ["train.epochs=2", "optim.lr=1e-4", "model.glob=none", "model.selective=true", "model.phi_channels=null"]
    )
    assert recipe.train.epochs == 2
    assert recipe.optim.lr == 1e-4
    assert recipe.model.glob == "none"
    assert recipe.model.selective is True
    assert recipe.model.phi_channels is None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["train.epoch=2"], r"override train: .* got 'epoch' \(did you mean 'epochs'\?\)"),
        (["trian.epochs=2"], r"override section: .* got 'trian' \(did you mean 'train'\?\)"),
        (["epochs=2"], "override: expected section.key=value, got 'epochs=2'"),
        (["train.epochs"], "override: expected section.key=value"),
        (["train.epochs=two"], "train.epochs: expected an integer, got 'two'"),
        (["train.epochs=true"], "train.epochs: expected an integer, got True"),
        (["optim.lr=fast"], "optim.lr: expected a number, got 'fast'"),
        (["model.glob=atention"], r"model.glob: .* got 'atention' \(did you mean 'attention'\?\)"),
        (["model.selective=1"], "model.selective: expected true or false, got 1"),
        (["train.epochs=0"], "train.epochs: expected a positive integer, got 0"),
        (["train.checkpoint_minutes=-1"], "train.checkpoint_minutes: expected a finite number of at least 0, got -1"),
        (["optim.clip=-1"], "optim.clip: expected a finite number of at least 0, got -1"),
        (["optim.lr=.nan"], "optim.lr: expected a finite number of at least 0, got nan"),
        (["optim.lr=.inf"], "optim.lr: expected a finite number of at least 0, got inf"),
        (["optim.weight_decay=-0.1"], "optim.weight_decay: expected a finite number"),
        (["optim.warmup_epochs=-5"], "optim.warmup_epochs: expected a finite number"),
        (["spectrum.k=0"], "spectrum.k: expected a positive integer, got 0"),
        (["spectrum.rwse=-3"], "spectrum.rwse: expected a finite number of at least 0, got -3"),
        (["model.phi_channels=0"], "model.phi_channels: expected a positive integer, got 0"),
        (["model.diagonal_channels=-1"], "model.diagonal_channels: expected a finite number"),
        (["model.dropout_local=-0.1"], r"model.dropout_local: expected a probability in \[0, 1\)"),
        (["data.seed=-1"], "data.seed: expected a finite number of at least 0, got -1"),
    ],
)
def test_bad_overrides(overrides, message):
    with pytest.raises(ValueError, match=message):
        parse_recipe(MINIMAL).override(overrides)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "recipe: expected a mapping"),
        ({"name": "x"}, "recipe: expected a key 'data'"),
        ({**MINIMAL, "modle": {}}, r"recipe key: .*did you mean 'model'"),
        ({**MINIMAL, "model": {"chanels": 3}}, r"recipe key in model: .*did you mean 'channels'"),
        ({**MINIMAL, "model": 3}, "recipe section model: expected a mapping"),
        ({"name": "x", "data": {}}, "recipe section data: expected a key 'dataset'"),
    ],
)
def test_bad_recipes(values, message):
    with pytest.raises(ValueError, match=message):
        parse_recipe(values)


def test_bad_files(tmp_path):
    with pytest.raises(ValueError, match=r"none\.yaml: expected a YAML file, got no such file"):
        load_recipe(tmp_path / "none.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("name: [")
    with pytest.raises(ValueError, match=r"broken\.yaml: expected a YAML file, got"):
        load_recipe(broken)
    good = tmp_path / "good.yaml"
    good.write_text(yaml.safe_dump(MINIMAL))
    assert load_recipe(good) == parse_recipe(MINIMAL)


@pytest.fixture
def anew(monkeypatch):
    """Nothing was said yet of retired keys."""
    monkeypatch.setattr(config, "_said", set())


@pytest.mark.usefixtures("anew")
def test_retired_keys_that_changed_nothing_are_skipped_in_silence(capsys):
    recipe = parse_recipe(MINIMAL)
    old = {path.partition(".")[2]: value for path, (value, _) in config.RETIRED.items()}
    assert parse_recipe({**MINIMAL, "train": old}) == recipe
    assert recipe.override(["train.also=null", "train.pad=false", "train.accumulate=1"]) == recipe
    assert with_defaults({**recipe.to_dict(), "train": recipe.to_dict()["train"] | old}) == recipe.to_dict()
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("anew")
def test_other_values_of_retired_keys_are_ignored_with_a_line(capsys):
    recipe = parse_recipe(MINIMAL)
    for _ in range(2):  # said once
        assert recipe.override(["train.also=reestimated,ema=0.9", "train.also_every=1"]) == recipe
    assert capsys.readouterr().err == (
        "train.also=reestimated,ema=0.9 train.also_every=1: retired and ignored, it evaluated the run in further ways; "
        "there is one, that of train.ema and train.batch_stats\n"
    )
    assert parse_recipe({**MINIMAL, "train": {"recombined": 1, "compile": True}}) == recipe
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["train.recombined=1", "train.compile=True"]
    # What a run was made with stays to be seen by those who compare runs.
    assert with_defaults({"train": {"recombined": 1, "also": None}})["train"] == {
        **recipe.to_dict()["train"],
        "recombined": 1,
    }
    with pytest.raises(ValueError, match=r"override train: .* got 'alsoo'"):
        recipe.override(["train.alsoo=1"])


def test_every_key_has_a_meaning_and_a_default_that_can_be_typed():
    keys = {key.name: key for key in describe_keys()}
    recipe = parse_recipe(MINIMAL)
    assert list(keys) == [f"{name}.{key}" for name in SECTIONS for key in recipe.to_dict()[name]]
    assert [key.name for key in keys.values() if len(key.meaning) < 10] == []  # a remark behind the key in config.py
    typed = [f"{key.name}={key.default}" for key in keys.values() if key.default]
    assert recipe.override(typed) == recipe
    assert keys["spectrum.k"] == ("spectrum.k", "an integer from 1", "16", "eigenpairs per graph")
    assert keys["model.phi_channels"].values == "an integer from 1, or null"
    assert keys["model.kernel"].values == "channel | shared"
    assert (keys["train.ema"].values, keys["data.file"].default) == ("a number in [0, 1)", "null")


RECORDED = sorted([*ROOT.glob("results/*/*/seed-*/config.yaml"), *ROOT.glob("pretrained/*/config.yaml")])


def test_recorded_configurations_are_read(capsys, monkeypatch):
    assert len(RECORDED) > 200
    for path in RECORDED:
        monkeypatch.setattr(config, "_said", set())
        recipe, written = load_recipe(path), yaml.safe_load(path.read_text())
        retired = {key: value for key, value in written["train"].items() if f"train.{key}" in config.RETIRED}
        asked = [key for key, value in retired.items() if value != config.RETIRED[f"train.{key}"][0]]
        said = capsys.readouterr().err.splitlines()
        assert len(said) == bool({"also", "also_every"} & set(asked)) + ("recombined" in asked), path
        kept = recipe.to_dict()
        for section in SECTIONS:  # nothing but retired keys is lost
            values = {key: value for key, value in written[section].items() if key not in asked}
            assert with_defaults({section: values})[section] == kept[section], path
        summary = path.with_name("summary.json")
        if summary.exists() and "protocol" in (recorded := json.loads(summary.read_text())):
            assert recorded["protocol"] == recipe.train.protocol
