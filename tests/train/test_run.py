import json
import math
import os
import shutil
import signal
import statistics
import time

import pytest
import torch
import yaml
from small_run import outcome, run_small, small_dataset, small_recipe

from gssc.config import load_recipe
from gssc.files import DamagedFileError, load_tensors
from gssc.nn.rivals import RIVALS
from gssc.tasks import Task
from gssc.train import RunSettings, load_run, run_folder, run_state, train
from gssc.train.checkpoint import check_same_run
from gssc.train.run_folder import RunFolder
from gssc.train.run_state import RunState
from gssc.train.step import NonFiniteLossError, Position, Trainer
from gssc.train.stopping import Clock


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with data and cache; ``plain`` in it is a run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("runs")
    run_small(folder, "plain")
    return folder


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


class FakeClock:
    """A clock that stands still, until ``seconds`` are added; replaces the clock of a run."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def jump(self):
        self.now += 1000.0


def at_step(monkeypatch, number, act):
    """Act at this step of the optimiser, counted from 1; returns the numbers of all steps taken."""
    steps, original = [], torch.optim.AdamW.step

    def counted(*args, **kwargs):
        steps.append(len(steps) + 1)
        if len(steps) == number:
            act()
        return original(*args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", counted)
    return steps


def test_the_folder_holds_what_the_documentation_says(root):
    folder = root / "plain"
    summary = json.loads((folder / "summary.json").read_text())
    assert set(summary) == {
        *("recipe", "seed", "dataset", "metric", "higher_is_better", "validation", "test"),
        *("epoch_selected", "epochs_run", "parameters", "protocol", "train_seconds", "prepare_seconds"),
    }
    assert summary["epochs_run"] == 4
    assert sorted(path.name for path in folder.iterdir()) == [
        *("checkpoints", "config.yaml", "dataset.json", "environment.json", "metrics.jsonl", "model.safetensors"),
        *("predictions.safetensors", "summary.json"),
    ]
    assert yaml.safe_load((folder / "config.yaml").read_text()) == small_recipe().to_dict()
    environment = json.loads((folder / "environment.json").read_text())
    assert set(environment) == {"command", "commit", "date", "versions", "hardware"}
    assert environment["versions"]["torch"] == torch.__version__
    for epoch, record in enumerate(lines(folder), start=1):
        assert set(record) == {
            *("epoch", "lr", "train_loss", "val_loss", "val", "best_epoch", "seconds", "graphs_per_second")
        }
        assert record["epoch"] == epoch
    best = min(lines(folder), key=lambda record: record["val"])
    assert summary["validation"] == best["val"]
    assert summary["epoch_selected"] == best["epoch"]


def test_predictions_give_the_score_of_the_summary(root):
    tensors, about = load_tensors(root / "plain" / "predictions.safetensors")
    task = Task(**json.loads((root / "plain" / "dataset.json").read_text())["task"])
    error = (tensors["prediction"] - tensors["target"]).abs().mean() / task.scale
    assert float(error) == pytest.approx(about["test"], rel=1e-6)


def test_the_stored_model_is_the_selected_one(root):
    loaded = load_run(root / "plain")
    tensors, _ = load_tensors(root / "plain" / "checkpoints" / "last.safetensors")
    for name, value in loaded.model.state_dict().items():
        assert torch.equal(value, tensors[f"best:{name}"])
    assert sum(p.numel() for p in loaded.model.parameters()) == loaded.summary["parameters"]


def test_a_run_depends_on_recipe_and_seed_alone(root):
    torch.rand(3)
    again, _ = run_small(root, "again")
    assert outcome(again) == outcome(root / "plain")
    other, summary = run_small(root, "other", seed=1)
    assert outcome(other)["model.safetensors"] != outcome(again)["model.safetensors"]
    assert summary["seed"] == 1


def test_resuming_a_finished_run_changes_nothing(root):
    folder = root / "plain"
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*.*") if path.is_file()}
    _, summary = run_small(root, "plain", resume=True)
    assert summary == json.loads((folder / "summary.json").read_text())
    assert before == {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in folder.rglob("*.*") if p.is_file()}


@pytest.mark.parametrize("kept", ["summary.json", "checkpoints/last.safetensors"])
def test_without_resume_a_used_folder_is_left_alone(root, tmp_path, kept):
    used = tmp_path / kept
    used.parent.mkdir(exist_ok=True)
    used.write_bytes((root / "plain" / kept).read_bytes())
    settings = RunSettings(torch.device("cpu"), root / "cache", quiet=True)
    with pytest.raises(ValueError, match=r"^out: expected a new folder, or --resume"):
        train(small_recipe(), small_dataset(root), 0, tmp_path, settings)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [used]


def test_a_finished_run_of_another_recipe_is_not_taken_for_this_one(root):
    with pytest.raises(DamagedFileError, match=r"another recipe \(train.epochs: 4 there, 5 here\)"):
        run_small(root, "plain", "train.epochs=5", resume=True)
    with pytest.raises(DamagedFileError, match=r"another seed \(0 there, 1 here\)"):
        run_small(root, "plain", seed=1, resume=True)


@pytest.mark.parametrize("step", [0, 2, 6, 12])
def test_a_time_limit_stops_anywhere_and_the_rest_gives_the_same_bytes(root, tmp_path, monkeypatch, step):
    """The clock jumps past the deadline after a step, inside or at the end of an epoch of 3; 12 is the last of all."""
    clock = FakeClock(monkeypatch)
    steps = at_step(monkeypatch, step, clock.jump)
    settings = {"cache": root / "cache", "quiet": True}
    dataset = small_dataset(root)
    deadline = clock.now + (100.0 if step else 0.5)
    where = RunSettings(torch.device("cpu"), deadline=deadline, **settings)
    assert train(small_recipe(), dataset, 0, tmp_path, where) is None
    assert len(steps) == step
    assert not (tmp_path / "summary.json").exists()
    _, about = load_tensors(tmp_path / "checkpoints" / "last.safetensors")
    assert 3 * about["epoch"] + about["step"] == step
    train(small_recipe(), dataset, 0, tmp_path, RunSettings(torch.device("cpu"), resume=True, **settings))
    assert len(steps) == 12
    assert outcome(tmp_path) == outcome(root / "plain")


def test_there_is_time_for_what_was_seen_before(root, tmp_path, monkeypatch):
    """A run stops before a step, or an evaluation, that would end after the deadline."""
    clock = Clock()
    assert clock.needs("step", "checkpoint") == 1.0
    clock.saw("step", 2.0)
    clock.saw("step", 1.0)
    clock.saw("checkpoint", 4.0)
    assert clock.needs("step", "checkpoint") == 10.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_request_to_end_leaves_a_checkpoint(root, tmp_path, monkeypatch, number):
    before = signal.getsignal(number)
    steps = at_step(monkeypatch, 5, lambda: signal.raise_signal(number))
    settings = {"cache": root / "cache", "quiet": True}
    assert train(small_recipe(), small_dataset(root), 0, tmp_path, RunSettings(torch.device("cpu"), **settings)) is None
    assert len(steps) == 5
    assert signal.getsignal(number) is before
    resumed = RunSettings(torch.device("cpu"), resume=True, **settings)
    train(small_recipe(), small_dataset(root), 0, tmp_path, resumed)
    assert outcome(tmp_path) == outcome(root / "plain")


@pytest.mark.parametrize("step", [4, 7])
def test_a_run_can_be_ended_early(root, tmp_path, monkeypatch, step):
    """Inside the second or third epoch of 3 steps; what was selected until then is scored."""
    clock = FakeClock(monkeypatch)
    steps = at_step(monkeypatch, step, clock.jump)
    settings = {"cache": root / "cache", "quiet": True}
    recipe, dataset = small_recipe(), small_dataset(root)
    stopped = RunSettings(torch.device("cpu"), deadline=clock.now + 100.0, **settings)
    assert train(recipe, dataset, 0, tmp_path, stopped) is None
    finish = RunSettings(torch.device("cpu"), resume=True, finish=True, **settings)
    summary = train(recipe, dataset, 0, tmp_path, finish)
    done = lines(root / "plain")[: step // 3]
    assert len(steps) == step
    assert summary["epochs_run"] == len(done) == len(lines(tmp_path))
    best = min(done, key=lambda record: record["val"])
    assert (summary["validation"], summary["epoch_selected"]) == (best["val"], best["epoch"])
    assert summary["test"] == json.loads((tmp_path / "summary.json").read_text())["test"]


def test_a_second_interrupt_ends_at_once(root, tmp_path, monkeypatch):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    steps = at_step(monkeypatch, 5, twice)
    with pytest.raises(KeyboardInterrupt):
        train(small_recipe(), small_dataset(root), 0, tmp_path, RunSettings(torch.device("cpu"), quiet=True))
    assert len(steps) == 5


def test_other_graphs_are_another_dataset(root, tmp_path):
    settings = {"cache": root / "cache", "quiet": True}
    dataset = small_dataset(root)
    stopped = RunSettings(torch.device("cpu"), deadline=time.monotonic(), **settings)
    assert train(small_recipe(), dataset, 0, tmp_path, stopped) is None
    other = small_dataset(root)
    other.splits["train"].y[0] += 1.0
    resumed = RunSettings(torch.device("cpu"), resume=True, **settings)
    with pytest.raises(DamagedFileError, match="expected a checkpoint of the same run, got another dataset"):
        train(small_recipe(), other, 0, tmp_path, resumed)
    assert dataset.content() == small_dataset(root).content() != other.content()
    # Older than the digest: it cannot be compared.
    about = json.loads((root / "plain/dataset.json").read_text())
    identity = {"dataset": about}
    check_same_run(tmp_path, {"dataset": {k: v for k, v in about.items() if k != "graphs"}}, identity)
    # A former digest went by the order of edges: neither is it.
    check_same_run(tmp_path, {"dataset": about | {"content": "other"}}, identity)
    train(small_recipe(), dataset, 0, tmp_path, resumed)
    with pytest.raises(DamagedFileError, match="got another dataset"):
        train(small_recipe(), other, 0, tmp_path, resumed)


def test_one_process_at_a_time_trains_in_a_folder(root, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # as another process would
    settings = RunSettings(torch.device("cpu"), cache=root / "cache", quiet=True)
    with pytest.raises(ValueError, match="out: expected a folder that no other process is training in"):
        train(small_recipe(), small_dataset(root), 0, tmp_path, settings)
    os.close(handle)
    assert train(small_recipe(), small_dataset(root), 0, tmp_path, settings) is not None
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # given back at the end
    os.close(handle)


def test_epochs_without_a_checkpoint_are_a_run_too(root, tmp_path):
    shutil.copytree(root / "plain", tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoints")
    (tmp_path / "run/summary.json").unlink()
    with pytest.raises(ValueError, match="out: expected a new folder, or --resume to go on with the run in it"):
        train(small_recipe(), small_dataset(root), 0, tmp_path / "run", RunSettings(torch.device("cpu"), quiet=True))


def test_weights_that_are_not_numbers_after_the_last_step_are_an_error(root, tmp_path, monkeypatch):
    original, steps = torch.optim.AdamW.step, []

    def step(self, *args, **kwargs):
        steps.append(original(self, *args, **kwargs))
        if len(steps) == 3:
            with torch.no_grad():
                self.param_groups[0]["params"][0].fill_(math.nan)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    settings = RunSettings(torch.device("cpu"), cache=root / "cache", quiet=True)
    with pytest.raises(NonFiniteLossError, match="the weights of epoch 1 are not finite numbers; the last"):
        train(small_recipe("train.epochs=1"), small_dataset(root), 0, tmp_path, settings)
    assert not (tmp_path / "summary.json").exists()


def test_only_a_judged_run_can_be_ended(root, tmp_path):
    settings = {"cache": root / "cache", "quiet": True}
    finish = RunSettings(torch.device("cpu"), resume=True, finish=True, **settings)
    new = tmp_path / "new"
    with pytest.raises(ValueError, match=r"finish: expected a run with a checkpoint, got .*new"):
        train(small_recipe(), small_dataset(root), 0, new, finish)
    assert not new.exists()
    at_once = RunSettings(torch.device("cpu"), deadline=time.monotonic(), **settings)
    assert train(small_recipe(), small_dataset(root), 0, tmp_path / "first", at_once) is None
    with pytest.raises(ValueError, match="finish: expected a run that was evaluated at least once"):
        train(small_recipe(), small_dataset(root), 0, tmp_path / "first", finish)


def test_a_resumed_run_may_write_more_often(root, tmp_path):
    settings = {"cache": root / "cache", "quiet": True}
    stopped = RunSettings(torch.device("cpu"), deadline=time.monotonic(), **settings)
    assert train(small_recipe(), small_dataset(root), 0, tmp_path, stopped) is None
    often = small_recipe("train.checkpoint_every=2", "train.checkpoint_minutes=3", "train.tensorboard=false")
    train(often, small_dataset(root), 0, tmp_path, RunSettings(torch.device("cpu"), resume=True, **settings))
    assert load_recipe(tmp_path / "config.yaml") == often


def nan_at(monkeypatch, number, what="loss"):
    """The loss (or one gradient) of training step ``number`` is not a number."""
    original, steps = Trainer.step, 0

    def step(self, graphs, position):
        nonlocal steps
        steps += 1
        if steps != number:
            return original(self, graphs, position)
        parameter = next(p for p in self.model.parameters() if p.requires_grad)
        if what == "loss":
            with torch.no_grad():
                kept = parameter.clone()
                parameter.fill_(math.nan)
            try:
                return original(self, graphs, position)
            finally:
                with torch.no_grad():
                    parameter.copy_(kept)
        hook = parameter.register_hook(lambda gradient: gradient * math.inf)
        try:
            return original(self, graphs, position)
        finally:
            hook.remove()

    monkeypatch.setattr(Trainer, "step", step)


@pytest.mark.parametrize(
    ("what", "overrides", "number", "message"),
    [
        ("loss", (), 8, "at epoch 3, step 2; the last good checkpoint is of epoch 2"),
        ("gradient", ("train.checkpoint_every=2",), 11, "at epoch 4, step 2; the last good checkpoint is of epoch 2"),
        ("loss", (), 1, "at epoch 1, step 1; there is no checkpoint yet"),
        ("gradient", ("train.checkpoint_minutes=0",), 6, "the last good checkpoint is of epoch 1, step 2 of"),
    ],
)
def test_a_loss_that_is_no_number_stops_the_run(root, tmp_path, monkeypatch, what, overrides, number, message):
    settings = RunSettings(torch.device("cpu"), root / "cache", quiet=True)
    dataset, recipe = small_dataset(root), small_recipe(*overrides)
    with monkeypatch.context() as patched:
        nan_at(patched, number, what)
        with pytest.raises(NonFiniteLossError, match=message):
            train(recipe, dataset, 0, tmp_path, settings)
    assert not (tmp_path / "summary.json").exists()
    # It was the moment, not the data: from the last good checkpoint the run gets to the same end.
    settings = RunSettings(torch.device("cpu"), root / "cache", quiet=True, resume=True)
    train(recipe, dataset, 0, tmp_path, settings)
    assert outcome(tmp_path)["predictions.safetensors"] == outcome(root / "plain")["predictions.safetensors"]


def test_losses_found_late_are_named_too():
    """On a GPU the losses of an epoch are looked at together."""
    position = Position(7, 3, [torch.tensor(1.0), torch.tensor(math.nan), torch.tensor(2.0)])
    with pytest.raises(NonFiniteLossError, match="got nan at epoch 7, step 2"):
        position.finite_losses()


@pytest.mark.parametrize(
    "overrides",
    [
        ("train.ema=0.9",),
        ("train.precision=bf16",),
        ("train.precision=float64",),
        ("train.batch_size=5",),
        ("train.eval_every=3", "train.checkpoint_every=3"),
        ("model.glob=none", "spectrum.rwse=4", "model.rwse_channels=4"),
        ("optim.clip=0",),
        ("train.batch_stats=reestimated",),
        ("train.select_over=3",),
        ("model.local=pna",),
    ],
)
def test_variants_run_and_resume(root, tmp_path, monkeypatch, overrides):
    """Every variant ends, differs from the plain run, and resumed from epoch 2 has the same bytes."""
    dataset, recipe = small_dataset(root), small_recipe(*overrides)
    settings = {"cache": root / "cache", "quiet": True}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    summary = train(recipe, dataset, 0, whole, RunSettings(torch.device("cpu"), **settings))
    assert math.isfinite(summary["test"])
    with monkeypatch.context() as patched:
        clock = FakeClock(patched)
        log = RunFolder.log

        def slow_log(self, record):
            log(self, record)
            clock.now += 10.0

        patched.setattr(RunFolder, "log", slow_log)
        deadline = clock.now + 15.0
        assert train(recipe, dataset, 0, parts, RunSettings(torch.device("cpu"), deadline=deadline, **settings)) is None
    assert len(lines(parts)) == 2
    train(recipe, dataset, 0, parts, RunSettings(torch.device("cpu"), resume=True, **settings))
    assert outcome(parts) == outcome(whole)
    assert outcome(whole)["model.safetensors"] != outcome(root / "plain")["model.safetensors"]


def test_evaluation_and_checkpoints_may_be_rare(root, tmp_path, monkeypatch):
    saved = []
    original = run_folder.save_checkpoint
    monkeypatch.setattr(
        run_folder, "save_checkpoint", lambda *args: (saved.append((args[2].epoch - 1, args[2].step)), original(*args))
    )
    settings = RunSettings(torch.device("cpu"), root / "cache", quiet=True)
    recipe = small_recipe("train.eval_every=3", "train.checkpoint_every=2", "train.epochs=5")
    train(recipe, small_dataset(root), 0, tmp_path, settings)
    assert [record["epoch"] for record in lines(tmp_path) if "val" in record] == [3, 5]
    assert saved == [(2, 0), (4, 0), (5, 0)]


def test_a_checkpoint_that_is_always_due_is_written_at_every_step(root, tmp_path, monkeypatch):
    saved = []
    original = run_folder.save_checkpoint
    monkeypatch.setattr(
        run_folder, "save_checkpoint", lambda *args: (saved.append((args[2].epoch - 1, args[2].step)), original(*args))
    )
    settings = RunSettings(torch.device("cpu"), root / "cache", quiet=True)
    train(small_recipe("train.checkpoint_minutes=0", "train.epochs=2"), small_dataset(root), 0, tmp_path, settings)
    assert saved == [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]


def test_test_scores_have_float32_products(root, tmp_path, monkeypatch):
    seen, original = [], run_state.raw_outputs

    def raw_outputs(*args):
        seen.append(torch.get_float32_matmul_precision())
        return original(*args)

    monkeypatch.setattr(run_state, "raw_outputs", raw_outputs)
    settings = RunSettings(torch.device("cpu"), root / "cache", quiet=True)
    train(small_recipe("train.precision=tf32", "train.epochs=1"), small_dataset(root), 0, tmp_path, settings)
    assert seen == ["highest"]


def test_a_score_that_is_never_a_number_keeps_the_last_weights(root, tmp_path, monkeypatch):
    """Also where averaged weights live in a model of their own, and the run stops before the test."""
    monkeypatch.setattr(Trainer, "score", lambda self, store: (1.0, math.nan))
    monkeypatch.setattr(run_state, "score", lambda *args: (1.0, math.nan))
    settings = {"cache": root / "cache", "quiet": True}
    dataset, recipe = small_dataset(root), small_recipe("train.ema=0.9")
    summary = train(recipe, dataset, 0, tmp_path / "whole", RunSettings(torch.device("cpu"), **settings))
    assert summary["validation"] is None
    assert summary["test"] is None
    assert summary["epoch_selected"] == 4
    with monkeypatch.context() as patched:
        patched.setattr(RunState, "finish", lambda *args: None)
        train(recipe, dataset, 0, tmp_path / "parts", RunSettings(torch.device("cpu"), **settings))
    train(recipe, dataset, 0, tmp_path / "parts", RunSettings(torch.device("cpu"), resume=True, **settings))
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_averaged_weights_are_those_that_are_selected(root, tmp_path):
    settings = RunSettings(torch.device("cpu"), root / "cache", quiet=True)
    train(small_recipe("train.ema=0.9", "train.epochs=1"), small_dataset(root), 0, tmp_path, settings)
    tensors, _ = load_tensors(tmp_path / "checkpoints" / "last.safetensors")
    averaged = {name[5:]: value for name, value in tensors.items() if name.startswith("best:")}
    sources = {name: "average 0.9" if f"average 0.9:{name}" in tensors else "model" for name in averaged}
    assert all(torch.equal(value, tensors[f"{sources[name]}:{name}"]) for name, value in averaged.items())
    assert all("running" in name or "num_batches" in name for name in sources if sources[name] == "model")
    assert any(not torch.equal(value, tensors[f"model:{name}"]) for name, value in averaged.items())


def test_a_median_of_several_scores_selects(root, tmp_path):
    """The end of the stretch with the best median; where there never were so many, the last weights stand."""
    folder, summary = run_small(root, tmp_path / "whole", "train.select_over=3", "train.epochs=7")
    scores = [line["val"] for line in lines(folder)]
    medians = {epoch: statistics.median(scores[epoch - 3 : epoch]) for epoch in range(3, 8)}
    assert summary["epoch_selected"] == min(medians, key=medians.get)
    assert summary["validation"] == min(medians.values())
    assert {line["best_epoch"] for line in lines(folder)[:2]} == {None}
    _, few = run_small(root, tmp_path / "few", "train.select_over=9")
    assert (few["epoch_selected"], few["validation"]) == (4, None)


def test_tensorboard_events_are_written_where_it_is_installed(root, tmp_path):
    pytest.importorskip("tensorboard")
    settings = RunSettings(torch.device("cpu"), root / "cache", quiet=True)
    train(small_recipe("train.tensorboard=true", "train.epochs=1"), small_dataset(root), 0, tmp_path, settings)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert {"train_loss", "val_loss", "val", "lr"} <= set(events.Tags()["scalars"])
    logged = events.Scalars("train_loss")[0].value
    assert logged == pytest.approx(lines(tmp_path)[0]["train_loss"], rel=1e-6)


def test_patience_ends_a_run_with_its_best_weights(root, monkeypatch):
    scores = iter([0.5, 0.4, 0.6, 0.7, 0.3, 0.1])
    evaluate = Trainer.evaluate
    monkeypatch.setattr(Trainer, "evaluate", lambda *args: (evaluate(*args)[0], next(scores)))
    folder, summary = run_small(root, "patient", "train.epochs=6", "train.patience=2")
    assert [line["val"] for line in lines(folder)] == [0.5, 0.4, 0.6, 0.7]
    assert (summary["epoch_selected"], summary["epochs_run"], summary["validation"]) == (2, 4, 0.4)
    # A run that stands where it ended goes no further.
    (folder / "summary.json").unlink()
    _, resumed = run_small(root, "patient", "train.epochs=6", "train.patience=2", resume=True)
    assert (resumed["epochs_run"], resumed["test"]) == (4, summary["test"])


def test_a_training_loss_far_above_validation_is_said_once(root, monkeypatch):
    monkeypatch.setattr(run_state, "LONG_BEHIND", 2)
    losses = iter([1e-9, 1e9, 1e-9, 1e-9, 1e-9])
    evaluate = Trainer.evaluate
    monkeypatch.setattr(Trainer, "evaluate", lambda *args: (next(losses), evaluate(*args)[1]))
    said = []
    monkeypatch.setattr(run_state.Display, "say", lambda self, text: said.append(text))
    run_small(root, "behind", "train.epochs=5")
    (line,) = [text for text in said if "training loss" in text]
    assert line.startswith("the training loss has been more than 2 times that of validation 2 times: too much dropout")


@pytest.mark.parametrize("glob", RIVALS)
def test_global_parts_of_other_papers_are_trained_by_one_word(root, glob):
    words = (f"model.glob={glob}", "model.layers=2", "train.epochs=1", "optim.warmup_epochs=0")
    folder, summary = run_small(root, glob, *words)
    assert summary["test"] > 0
    assert type(load_run(folder).model.layers[1].glob) is RIVALS[glob]
