"""Students learn what their teachers say together, from nothing or resumed, whatever calls the training."""

import json
import threading
import time
from dataclasses import replace

import pytest
import torch
from small_run import outcome, small_dataset, small_recipe

from gssc.files import DamagedFileError, load_tensors
from gssc.report.runs import find_seed_folders
from gssc.tasks import Task
from gssc.train import RunSettings, load_run, seeds, train
from gssc.train.build import build_store
from gssc.train.evaluate import float32_products, raw_outputs
from gssc.train.seeds import train_seeds
from gssc.train.teachers import targets_file

CPU = torch.device("cpu")


@pytest.fixture
def settings(tmp_path):
    return RunSettings(CPU, tmp_path / "cache", quiet=True)


def test_a_student_learns_the_mean_prediction_of_its_teachers(tmp_path, settings):
    dataset, recipe = small_dataset(tmp_path), small_recipe("train.teachers=2", "train.epochs=2")
    summary = train(recipe, dataset, 1, tmp_path / "seed-1", settings)
    assert summary["teachers"] == [2, 3]
    assert summary["teacher_seconds"] > 0
    runs = [load_run(tmp_path / "seed-1" / "teachers" / f"seed-{seed}") for seed in (2, 3)]
    assert all(run.recipe == small_recipe("train.epochs=2") for run in runs)
    with float32_products():
        store = build_store(dataset.splits["train"], recipe, "node", CPU, None)
        said = [dataset.task.predict(raw_outputs(run.model, store, 4, "float32")) for run in runs]
    targets, _ = load_tensors(targets_file(tmp_path / "seed-1"))
    torch.testing.assert_close(targets["targets"], (said[0] + said[1]) / 2)
    assert not torch.allclose(targets["targets"], store.y[:-1])
    # The same as a run whose training graphs have these targets from the beginning.
    taught = replace(dataset.splits["train"].sorted_by_destination(), y=targets["targets"])
    other = replace(dataset, splits=dataset.splits | {"train": taught})
    plain = train(small_recipe("train.epochs=2"), other, 1, tmp_path / "plain", settings)
    assert (plain["validation"], plain["test"]) == (summary["validation"], summary["test"])


def test_teachers_are_announced(tmp_path, settings, capsys):
    dataset, recipe = small_dataset(tmp_path), small_recipe("train.teachers=2", "train.epochs=1")
    train(recipe, dataset, 1, tmp_path / "seed-1", replace(settings, quiet=False, live=False))
    said = capsys.readouterr().out
    assert "cycles-3: teachers first, seeds 2, 3\n" in said
    assert said.index("teachers first") < said.index("cycles-3 teacher, seed 2") < said.index("cycles-3 seed 1")


def test_students_of_different_seeds_share_no_teacher(tmp_path, settings):
    dataset, recipe = small_dataset(tmp_path), small_recipe("train.teachers=2", "train.epochs=1")
    folders = {seed: tmp_path / f"seed-{seed}" for seed in (0, 1)}
    first, second = train_seeds(recipe, dataset, folders, settings).values()
    assert (first["teachers"], second["teachers"]) == ([0, 1], [2, 3])
    # Reports see the students; the teachers are theirs.
    assert find_seed_folders(tmp_path) == list(folders.values())
    assert [path.name for path in find_seed_folders(folders[1] / "teachers")] == ["seed-2", "seed-3"]


def test_several_jobs_train_the_same_students(tmp_path, settings, monkeypatch):
    """In turns of one process, which stands for two: these train the runs that they are alone, see `test_seeds`."""
    turn = threading.Lock()

    def in_turn(_, *run):
        with turn:
            return train(*run)

    monkeypatch.setattr(seeds, "_in_process", in_turn)
    dataset, recipe = small_dataset(tmp_path), small_recipe("train.teachers=2", "train.epochs=1")
    alone = train(recipe, dataset, 0, tmp_path / "alone", settings)
    folders = {0: tmp_path / "seed-0", 1: tmp_path / "seed-1"}
    together = train_seeds(recipe, dataset, folders, settings, jobs=2)
    assert outcome(folders[0]) == outcome(tmp_path / "alone")
    # Those that have said all are not trained again.
    for file in (folders[0] / "teachers").rglob("summary.json"):
        file.unlink()
    train_seeds(recipe, dataset, folders, replace(settings, resume=True), jobs=2)
    assert not list((folders[0] / "teachers").rglob("summary.json"))
    assert (together[0]["validation"], together[0]["test"]) == (alone["validation"], alone["test"])


def test_a_student_that_is_resumed_asks_nobody_again(tmp_path, settings):
    dataset = small_dataset(tmp_path)
    recipe = small_recipe("train.teachers=1", "train.epochs=3")
    whole = train(recipe, dataset, 0, tmp_path / "whole", settings)
    over = replace(settings, deadline=time.monotonic())
    assert train(recipe, dataset, 0, tmp_path / "run", over) is None  # in the teacher
    assert not targets_file(tmp_path / "run").exists()
    resumed = replace(settings, resume=True)
    assert train(recipe, dataset, 0, tmp_path / "run", resumed)["test"] == whole["test"]
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    # With what was said, the teachers can go.
    (tmp_path / "run" / "summary.json").unlink()
    for file in (tmp_path / "run" / "teachers" / "seed-0").rglob("*.safetensors"):
        file.unlink()
    assert train(recipe, dataset, 0, tmp_path / "run", resumed)["test"] == whole["test"]


def test_targets_for_another_student_are_refused(tmp_path, settings):
    dataset, recipe = small_dataset(tmp_path), small_recipe("train.teachers=1", "train.epochs=1")
    train(recipe, dataset, 0, tmp_path / "a", settings)
    target = targets_file(tmp_path / "b")
    target.parent.mkdir(parents=True)
    target.write_bytes(targets_file(tmp_path / "a").read_bytes())
    with pytest.raises(DamagedFileError, match=r"expected a checkpoint of the same run, got another seed"):
        train(recipe, dataset, 1, tmp_path / "b", settings)


def test_finished_students_are_read_and_not_trained(tmp_path, settings):
    dataset, recipe = small_dataset(tmp_path), small_recipe("train.teachers=1", "train.epochs=1")
    summary = train(recipe, dataset, 0, tmp_path / "seed-0", settings)
    targets_file(tmp_path / "seed-0").unlink()
    again = train(recipe, dataset, 0, tmp_path / "seed-0", replace(settings, resume=True))
    assert json.dumps(again) == json.dumps(summary)
    assert not targets_file(tmp_path / "seed-0").exists()


@pytest.mark.parametrize("weighted", [False, True])
def test_certain_probabilities_are_classes(weighted):
    """Loss and gradient for probabilities of zero and one are those for class numbers, masked rows or not."""
    task = Task("node", "multiclass", 3, "accuracy", weighted=weighted)
    torch.manual_seed(0)
    classes = torch.tensor([0, 2, 1, 2, 2, 0])
    for mask in (None, torch.tensor([True, True, False, True, False, True])):
        losses, gradients = [], []
        for target in (classes, torch.nn.functional.one_hot(classes, 3).double()):
            raw = torch.arange(18.0, dtype=torch.float64).sin().view(6, 3).requires_grad_()
            losses.append(task.loss(raw, target, mask))
            losses[-1].backward()
            gradients.append(raw.grad)
        torch.testing.assert_close(losses[0], losses[1])
        torch.testing.assert_close(gradients[0], gradients[1])


def test_the_loss_of_probabilities_is_least_where_they_are_predicted():
    task = Task("graph", "multiclass", 3, "accuracy")
    target = torch.tensor([[0.2, 0.5, 0.3], [1 / 3, 1 / 3, 1 / 3]], dtype=torch.float64)
    raw = target.log().requires_grad_()
    task.loss(raw, target).backward()
    torch.testing.assert_close(raw.grad, torch.zeros_like(raw))
