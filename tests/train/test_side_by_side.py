"""Runs that take their steps together, and when they save: each is the run that it is alone."""

import json
import time

import pytest
import torch
from molecule_run import molecule_dataset, molecule_recipe, settings
from small_run import outcome, run_small, small_dataset, small_recipe

from gssc import molecules
from gssc.train import RunSettings, seeds, stopping, train
from gssc.train import run as run_module
from gssc.train.processes import Processes
from gssc.train.run import train_side_by_side
from gssc.train.run_folder import position_of
from gssc.train.run_state import RunState
from gssc.train.seeds import train_seeds
from gssc.train.step import NonFiniteLossError, Trainer
from gssc.train.stopping import Clock, Stopping


class Plainly:
    """Plain trainers that take turns, step by step as far as a run can tell."""

    def __init__(self, trainers):
        self.trainers = trainers

    def run_epoch(self, positions, stop):
        first = self.trainers[0].run_epoch(positions[0], stop)
        end = positions[0].step
        for trainer, position in zip(self.trainers[1:], positions[1:], strict=True):
            trainer.run_epoch(position, lambda position=position: position.step == end)
        return first

    def evaluate(self, store):
        return [trainer.evaluate(store) for trainer in self.trainers]


@pytest.fixture
def plainly(monkeypatch):
    def make(runs, store):
        return Plainly([Trainer(r.model, store, r.dataset.task, r.recipe, r.seed, Processes()) for r in runs]), ""

    monkeypatch.setattr(run_module, "make_trainers", make)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for seed in range(3):
        run_small(folder, f"alone-{seed}", seed=seed)
    return folder


def start(root, folders, **more):
    where = RunSettings(torch.device("cpu"), root / "cache", quiet=True, **more)
    return train_side_by_side(small_recipe(), small_dataset(root), dict(enumerate(folders)), where)


def jump_at(monkeypatch, step):
    """The clock jumps far ahead when so many steps have been taken."""
    now, steps, original = 1000.0, 0, torch.optim.AdamW.step

    def counted(*args, **kwargs):
        nonlocal steps, now
        steps += 1
        now += 1000.0 * (steps == step)
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", counted)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    return now + 100.0


@pytest.mark.parametrize("step", [1, 4, 11])
def test_stopped_together_and_resumed_each_has_its_own_bytes(root, tmp_path, monkeypatch, plainly, step):
    """Inside an epoch of 3 steps, at its end (the first trainer is one epoch of the others ahead), later."""
    folders = [tmp_path / f"seed-{seed}" for seed in range(3)]
    with monkeypatch.context() as patched:
        assert start(root, folders, deadline=jump_at(patched, step)) == dict.fromkeys(range(3))
    assert len({position_of(folder) for folder in folders}) == 1
    results = start(root, folders, resume=True)
    for seed, folder in enumerate(folders):
        assert outcome(folder) == outcome(root / f"alone-{seed}")
        assert results[seed] == json.loads((folder / "summary.json").read_text())


def test_one_whose_loss_is_no_number_leaves_the_others_alone(root, tmp_path, monkeypatch, plainly):
    original = RunState.finish_steps

    def finish_steps(self):
        if self.seed == 0 and self.position.epoch == 2:
            self.position.losses[1] = torch.tensor(float("nan"))
        original(self)

    monkeypatch.setattr(RunState, "finish_steps", finish_steps)
    folders = [tmp_path / f"seed-{seed}" for seed in range(3)]
    with pytest.raises(NonFiniteLossError, match=r"^seed 0: .* at epoch 2, step 2; the last good .* of epoch 1$"):
        start(root, folders)
    assert position_of(folders[0]) == (1, 0)
    assert not (folders[0] / "summary.json").exists()
    for seed in (1, 2):
        assert outcome(folders[seed]) == outcome(root / f"alone-{seed}")


def test_finished_runs_stay_as_they_are_and_the_others_go_on(root, tmp_path, plainly):
    folders = [tmp_path / "seed-0", root / "alone-1"]
    before = outcome(folders[1])
    assert list(start(root, folders, resume=True)) == [0, 1]
    assert outcome(folders[1]) == before
    assert outcome(folders[0]) == outcome(root / "alone-0")


def test_seeds_are_grouped_by_jobs_and_go_alone_where_they_stand_apart(tmp_path, monkeypatch, capsys):
    calls = []

    def together(recipe, dataset, folders, where):
        calls.append(list(folders))
        return {seed: {"seed": seed} for seed in folders}

    monkeypatch.setattr(seeds, "train_side_by_side", together)
    monkeypatch.setattr(molecules, "why_not", lambda *args: None)
    monkeypatch.setattr(seeds, "position_of", lambda folder: (int(folder.name == "seed-3"), 0))
    folders = {seed: tmp_path / f"seed-{seed}" for seed in range(5)}
    for resume, expected in ((False, [[0, 1], [2, 3], [4]]), (True, [[0, 1], [2], [3], [4]])):
        calls.clear()
        where = RunSettings(torch.device("cpu"), resume=resume)
        results = train_seeds(small_recipe(), None, folders, where, jobs=2)
        assert calls == expected
        assert results == {seed: {"seed": seed} for seed in range(5)}
    assert "seeds 2 to 3: trained one after another, because their checkpoints" in capsys.readouterr().out


def test_short_epochs_are_not_saved_too_often(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(stopping, "SECONDS_BETWEEN_CHECKPOINTS", 5.0)
    config = small_recipe("train.checkpoint_every=2", "train.epochs=9").train
    own = Stopping(config, None, Processes(), Clock(), runs=3)
    now += 14.0
    assert not own.saves_after(2)
    assert own.saves_after(9)
    now += 1.0
    assert not own.saves_after(3)
    assert own.saves_after(4)
    with own.timing("checkpoint"):
        pass
    assert not own.saves_after(4)
    now += 601.0
    assert own.saves_after(3)


def test_seeds_through_the_kernels_have_the_bytes_of_single_runs(tmp_path, monkeypatch):
    """Two seeds together, stopped inside the second epoch and resumed, against one of them alone."""
    pytest.importorskip("triton")
    monkeypatch.setattr(molecules, "why_not", lambda *args: None)
    protocol = ("train.ema=0.5", "train.batch_stats=reestimated")
    recipe = molecule_recipe("train.eval_every=2", "train.batch_size=1", *protocol)
    dataset = molecule_dataset((5, 9))
    folders = {seed: tmp_path / f"seed-{seed}" for seed in (0, 1)}
    with monkeypatch.context() as patched:
        stops = iter([False] * 4 + [True] * 9)
        patched.setattr(Stopping, "stops", lambda self: next(stops))
        assert train_seeds(recipe, dataset, folders, settings(tmp_path), jobs=2) == {0: None, 1: None}
    assert position_of(folders[0]) == position_of(folders[1]) == (1, 1)
    train_seeds(recipe, dataset, folders, settings(tmp_path, resume=True), jobs=2)
    train(recipe, dataset, 1, tmp_path / "alone", settings(tmp_path))
    assert outcome(folders[1]) == outcome(tmp_path / "alone")
    assert outcome(folders[0])["model.safetensors"] != outcome(folders[1])["model.safetensors"]
