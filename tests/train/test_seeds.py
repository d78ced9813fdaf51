import json
import statistics

import pytest
import torch
from small_run import outcome, run_small, small_dataset, small_recipe

from gssc.train import RunSettings
from gssc.train.seeds import aggregate, parse_seeds, train_seeds, write_aggregate


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("3", [3]), ("0-4", [0, 1, 2, 3, 4]), ("0,2,5-7", [0, 2, 5, 6, 7]), ("1, 1-2", [1, 2]), ("7-7", [7])],
)
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "-1", "1-", "4-2", "0,,1", "1.5", "²"])
def test_other_seeds_are_refused(text):
    with pytest.raises(ValueError, match=r"^seeds: expected numbers and ranges such as 0-4 or 0,2,5, got"):
        parse_seeds(text)


def test_absurdly_many_seeds_are_refused():
    with pytest.raises(ValueError, match=r"^seeds: expected a range of at most 10,000 seeds, got '0-99999999999'"):
        parse_seeds("0-99999999999")


def summary(seed, validation, test):
    about = {"recipe": "r", "dataset": "d", "metric": "mae", "higher_is_better": False, "parameters": 7}
    return {**about, "epochs_run": 2, "seed": seed, "validation": validation, "test": test, "train_seconds": 1.5}


def test_the_spread_is_the_sample_standard_deviation(tmp_path):
    values = [0.1, 0.4, 0.2]
    total = write_aggregate(tmp_path, {seed: summary(seed, x, 2 * x) for seed, x in enumerate(values)})
    assert json.loads((tmp_path / "summary.json").read_text()) == total
    assert total["seeds"] == [0, 1, 2]
    assert total["validation"]["values"] == values
    assert total["validation"]["mean"] == pytest.approx(0.7 / 3)
    assert total["validation"]["std"] == pytest.approx(statistics.stdev(values))
    assert total["test"]["std"] == pytest.approx(2 * statistics.stdev(values))
    assert total["train_seconds"] == 4.5


def test_one_seed_has_no_spread_and_unknown_scores_are_left_out():
    assert aggregate([summary(0, 0.5, None)])["validation"] == {"mean": 0.5, "std": 0.0, "values": [0.5]}
    assert aggregate([summary(0, 0.5, None)])["test"] == {"mean": None, "std": 0.0, "values": [None]}
    total = aggregate([summary(0, 0.5, None), summary(1, None, 1.0)])
    assert total["test"] == {"mean": 1.0, "std": 0.0, "values": [None, 1.0]}


def test_several_seeds_are_the_runs_that_they_are_alone(tmp_path):
    dataset, recipe = small_dataset(tmp_path), small_recipe("train.epochs=1")
    settings = RunSettings(torch.device("cpu"), tmp_path / "cache", quiet=True)
    folders = {seed: tmp_path / f"seed-{seed}" for seed in (0, 3)}
    results = train_seeds(recipe, dataset, folders, settings)
    for seed, folder in folders.items():
        alone, expected = run_small(tmp_path, f"alone-{seed}", "train.epochs=1", seed=seed)
        assert outcome(folder) == outcome(alone)
        assert results[seed]["seed"] == seed
        assert results[seed]["test"] == expected["test"]


def test_processes_train_the_same_runs_and_an_error_names_its_seed(tmp_path):
    dataset, recipe = small_dataset(tmp_path), small_recipe("train.epochs=1")
    settings = RunSettings(torch.device("cpu"), tmp_path / "cache", quiet=True)
    folders = {seed: tmp_path / f"seed-{seed}" for seed in (0, 1)}
    (folders[1] / "checkpoints").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"^seed 1: out: expected a new folder"):
        train_seeds(recipe, dataset, folders, settings, jobs=2)
    alone, _ = run_small(tmp_path, "alone", "train.epochs=1")
    assert outcome(folders[0]) == outcome(alone)


def test_no_seed_starts_after_one_that_ran_out_of_time(tmp_path):
    dataset, recipe = small_dataset(tmp_path), small_recipe()
    settings = RunSettings(torch.device("cpu"), tmp_path / "cache", quiet=True, deadline=0.0)
    folders = {seed: tmp_path / f"seed-{seed}" for seed in (0, 1)}
    assert train_seeds(recipe, dataset, folders, settings) == {0: None}
    assert not folders[1].exists()
