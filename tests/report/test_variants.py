import statistics

import pytest
import yaml
from report.fake_runs import fake_run

from gssc.config import ModelConfig
from gssc.recipes import find_recipe
from gssc.report.published import published_rows
from gssc.report.runs import read_runs
from gssc.report.variants import Spread, group_variants


def variants(path):
    return group_variants(read_runs([path]).seeds)


def test_spread():
    values = [0.1, 0.4, 0.2]
    spread = Spread.of(values)
    assert (spread.mean, spread.n) == (pytest.approx(statistics.fmean(values)), 3)
    assert spread.std == pytest.approx(statistics.stdev(values))
    assert Spread.of([0.3]) == Spread(0.3, 0.0, 1)
    assert Spread.of([]) is None
    assert str(Spread.of([0.5, float("inf")])) == "Spread(mean=inf, std=nan, n=2)"


def test_variants_are_named_by_their_overrides(tmp_path):
    fake_run(tmp_path / "a", "zinc-12k", epochs=6)
    fake_run(tmp_path / "b", "zinc-12k", ["model.glob=none", "optim.lr=0.002", "model.phi_channels=null"], epochs=6)
    fake_run(tmp_path / "c", "zinc-12k", ["train.checkpoint_every=9"], seeds=(7,), epochs=6)  # cannot matter
    shipped, changed = variants(tmp_path)["zinc-12k"]
    assert shipped.label == "as shipped"
    assert [run.seed for run in shipped.runs] == [0, 1, 2, 7]
    assert changed.overrides == ("model.glob=none", "model.phi_channels=null", "optim.lr=0.002")


def test_a_run_older_than_a_key_has_its_default(tmp_path):
    """Of a recipe that ships with another value, and of one's own, where nothing differs then."""
    assert find_recipe("peptides-func").model.head != ModelConfig().head
    for folder, name in (("old", "peptides-func"), ("own/a", "mine"), ("own/b", "mine")):
        out = fake_run(tmp_path / folder, "peptides-func", seeds=(len(folder),), epochs=6)
        file = next(out.glob("seed-*/config.yaml"))
        config = yaml.safe_load(file.read_text()) | {"name": name}
        if folder != "own/b":
            del config["model"]["head"]
        else:
            config["model"]["head"] = ModelConfig().head
        file.write_text(yaml.safe_dump(config))
    (old,) = variants(tmp_path / "old")["peptides-func"]
    assert old.overrides == (f"model.head={ModelConfig().head}",)
    own = variants(tmp_path / "own")["mine"]
    assert [variant.overrides for variant in own] == [()] * len(own)


def test_a_key_that_recipes_have_no_longer_counts_where_it_mattered(tmp_path):
    """Runs of former versions, whose protocols of evaluation are told by their summaries."""
    retired = {"accumulate": 1, "last_batch": "keep", "pad": False, "compile": False, "recombined": 0}
    for folder, changes in (("a", {}), ("b", {"also": "running,ema=0.9", "also_every": 3}), ("c", {"recombined": 2})):
        out = fake_run(tmp_path / folder, "zinc-12k", seeds=(ord(folder),), epochs=6)
        file = next(out.glob("seed-*/config.yaml"))
        config = yaml.safe_load(file.read_text())
        config["train"] |= retired | changes
        file.write_text(yaml.safe_dump(config))
    shipped, changed = variants(tmp_path)["zinc-12k"]
    assert [run.folder.parent.name for run in shipped.runs] == ["a", "b"]
    assert (shipped.overrides, changed.overrides) == ((), ("train.recombined=2",))


def test_seeds_of_several_folders_join_unless_one_is_there_twice(tmp_path):
    fake_run(tmp_path / "a", "zinc-12k", seeds=(0, 1), epochs=6)
    fake_run(tmp_path / "b", "zinc-12k", seeds=(2,), epochs=6)
    assert [len(variant.runs) for variant in variants(tmp_path)["zinc-12k"]] == [3]
    fake_run(tmp_path / "c", "zinc-12k", seeds=(2,), epochs=6)
    apart = variants(tmp_path)["zinc-12k"]
    assert [len(variant.runs) for variant in apart] == [2, 1, 1]
    assert apart[1].label == f"as shipped ({tmp_path / 'b'})"


def test_a_recipe_of_ones_own_is_named_by_what_differs(tmp_path):
    for name, lr in (("a", 0.01), ("b", 0.02)):
        out = fake_run(tmp_path / name, "zinc-12k", [f"optim.lr={lr}", "model.layers=3"], seeds=(0,), epochs=6)
        config = out / "seed-0/config.yaml"
        config.write_text(yaml.safe_dump(yaml.safe_load(config.read_text()) | {"name": "mine"}))
    mine = variants(tmp_path)["mine"]
    assert [variant.label for variant in mine] == ["optim.lr=0.01", "optim.lr=0.02"]
    # The dataset is that of the paper, so its rows apply.
    assert mine[0].published_gssc().mean == "0.064"


def test_another_dataset_has_no_published_rows(tmp_path):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=6)
    config = out / "seed-0/config.yaml"
    config.write_text(config.read_text().replace("dataset: zinc-12k", "dataset: my-molecules"))
    fake_run(tmp_path / "b", "zinc-12k", seeds=(0,), epochs=6)
    found = variants(tmp_path)
    assert list(found) == ["zinc-12k", "zinc-12k on my-molecules"]
    (variant,) = found["zinc-12k on my-molecules"]
    assert variant.overrides == ("data.dataset=my-molecules",)
    assert published_rows(variant.dataset, variant.metric) == ()


def test_own_data_has_no_published_rows_whatever_its_recipe(tmp_path):
    out = fake_run(tmp_path / "a", "zinc-12k", seeds=(0,), epochs=6)
    config = out / "seed-0/config.yaml"
    settings = yaml.safe_load(config.read_text())
    settings["data"]["file"] = "data/zinc-12k.pt"
    config.write_text(yaml.safe_dump(settings))
    ((name, (variant,)),) = variants(tmp_path).items()
    assert name == "zinc-12k on zinc-12k.pt"
    assert published_rows(variant.dataset, variant.metric) == ()


def test_status_says_which_seeds_are_missing(tmp_path):
    fake_run(tmp_path / "a", "zinc-12k", seeds=(0, 1, 2), unfinished=(1, 2), epochs=6)
    (variant,) = variants(tmp_path)["zinc-12k"]
    assert variant.status == "seeds 1, 2 unfinished (epoch 2 of 2000)"
    assert variant.spread("test").n == 1
