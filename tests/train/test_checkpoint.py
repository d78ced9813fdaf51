import pickle
import random
import shutil

import pytest
import torch
from safetensors.torch import save_file
from small_run import outcome, run_small, small_dataset, small_recipe

from gssc.files import DamagedFileError, load_tensors, save_tensors
from gssc.train.build import build_model, build_stores
from gssc.train.checkpoint import (
    Best,
    check_same_run,
    load_checkpoint,
    part,
    read_checkpoint,
    save_checkpoint,
)
from gssc.train.processes import Processes
from gssc.train.step import Position, Trainer

OVERRIDES = ("train.ema=0.9", "train.epochs=2", "train.eval_every=1")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    run_small(folder, "finished", *OVERRIDES)
    return folder


@pytest.fixture
def stopped(root, tmp_path):
    """A run that has its checkpoint and lacks its end."""
    shutil.copytree(root / "finished", tmp_path / "run")
    for name in ("summary.json", "model.safetensors", "predictions.safetensors"):
        (tmp_path / "run" / name).unlink()
    return tmp_path / "run"


def make_trainer(root, *overrides, seed=0):
    recipe, dataset = small_recipe(*OVERRIDES, *overrides), small_dataset(root)
    torch.manual_seed(seed)
    model = build_model(recipe, dataset.about())
    store = build_stores(dataset, recipe, torch.device("cpu"), root / "cache")["train"]
    return Trainer(model, store, dataset.task, recipe, seed, Processes())


def state(trainer):
    tensors = {f"model {name}": value.clone() for name, value in trainer.model.state_dict().items()}
    tensors |= {f"average {name}": value.clone() for name, value in trainer.average.weights.items()}
    for number, entry in enumerate(trainer.optimizer.state.values()):
        tensors |= {f"optimizer {number} {name}": value.clone() for name, value in entry.items()}
    return tensors | {"steps": torch.as_tensor(trainer.average.steps).clone()}


def test_all_of_the_state_comes_back_to_the_last_bit(root, tmp_path):
    trainer, path = make_trainer(root), tmp_path / "last.safetensors"
    position = Position(1, 0, [])
    trainer.run_epoch(position, lambda: position.step == 2)
    position.losses += [torch.tensor(0.1), torch.tensor(1 / 3)]
    best = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    save_checkpoint(path, trainer, position, Best(1, 0.1 + 0.2, best), {"seed": 0})
    bytes_before = path.read_bytes()
    expected = state(trainer)

    other = make_trainer(root, seed=1)
    there, selected = load_checkpoint(path, other, {"seed": 0})
    assert (there.epoch, there.step, there.losses) == (1, 2, position.losses)
    assert (selected.epoch, selected.score) == (1, 0.1 + 0.2)
    torch.testing.assert_close(selected.weights, best, rtol=0, atol=0)
    torch.testing.assert_close(state(other), expected, rtol=0, atol=0)
    save_checkpoint(path, other, there, selected, {"seed": 0})
    assert path.read_bytes() == bytes_before


def test_parts_are_told_apart():
    tensors = {"model:a:b": torch.zeros(1), "best:a": torch.ones(1), "losses": torch.zeros(0)}
    assert list(part(tensors, "model")) == ["a:b"]
    assert list(part(tensors, "best")) == ["a"]


def test_a_checkpoint_older_than_a_key_had_its_default(tmp_path):
    recipe = small_recipe().to_dict()
    older = recipe | {"model": {key: value for key, value in recipe["model"].items() if key != "head"}}
    check_same_run(tmp_path, {"recipe": older}, {"recipe": recipe})
    newer = recipe | {"model": recipe["model"] | {"head": "wide"}}
    with pytest.raises(DamagedFileError, match=r"another recipe \(model.head: 'halving' there, 'wide' here\)"):
        check_same_run(tmp_path, {"recipe": older}, {"recipe": newer})


@pytest.mark.parametrize(
    ("overrides", "seed", "message"),
    [
        (("optim.lr=0.5",), 0, r"another recipe \(optim.lr: 0.001 there, 0.5 here\)"),
        (("model.channels=16",), 0, r"another recipe \(model.channels: 8 there, 16 here\)"),
        ((), 3, r"another seed \(0 there, 3 here\)"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_by_key(root, tmp_path, stopped, overrides, seed, message):
    shutil.copytree(root / "cycles", tmp_path / "cycles")
    before = files(stopped)
    with pytest.raises(DamagedFileError, match=message) as caught:
        run_small(tmp_path, "run", *OVERRIDES, *overrides, seed=seed, resume=True)
    assert "\n" not in str(caught.value)
    assert files(stopped) == before


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Trap:
    """Unpickled, it creates a file: the proof that something was executed."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def damage(path, how, trap):
    """Replace a good checkpoint by a bad one."""
    raw, chance = bytearray(path.read_bytes()), random.Random(0)
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut":
        path.write_bytes(raw[: chance.randrange(1, len(raw))])
    elif how == "longer":
        path.write_bytes(raw + b"\0")
    elif how == "bit":
        raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        path.write_bytes(raw)
    elif how == "text":
        path.write_text("not a checkpoint\n" * 100)
    elif how == "pickle":
        path.write_bytes(pickle.dumps(Trap(trap)))
    elif how == "torch":
        torch.save({"model": Trap(trap)}, path)
    elif how == "foreign":
        save_file({"weight": torch.zeros(3)}, path)
    elif how == "other kind":
        save_tensors(path, {"weight": torch.zeros(3)}, {"kind": "model", "format": 1})
    elif how == "later format":
        save_tensors(path, {"weight": torch.zeros(3)}, {"kind": "checkpoint", "format": 2})
    elif how == "no tensors":
        tensors, about = load_tensors(path)
        kept = {name: value for name, value in tensors.items() if not name.startswith("optimizer:")}
        save_tensors(path, kept, about)
    elif how == "folder":
        path.unlink()
        path.mkdir()


HOW = (
    "empty",
    "cut",
    "longer",
    "bit",
    "text",
    "pickle",
    "torch",
    "foreign",
    "other kind",
    "later format",
    "no tensors",
)


@pytest.mark.parametrize("how", [*HOW, "folder"])
def test_a_bad_checkpoint_is_refused_and_nothing_is_touched(root, tmp_path, stopped, how):
    shutil.copytree(root / "cycles", tmp_path / "cycles")
    trap = tmp_path / "trap"
    damage(stopped / "checkpoints" / "last.safetensors", how, trap)
    before = files(stopped)
    with pytest.raises(DamagedFileError, match=r"last\.safetensors: expected ") as caught:
        run_small(tmp_path, "run", *OVERRIDES, resume=True)
    assert "\n" not in str(caught.value)
    assert files(stopped) == before
    assert not trap.exists()


def test_a_good_checkpoint_gets_to_the_same_end(root, tmp_path, stopped):
    shutil.copytree(root / "cycles", tmp_path / "cycles")
    run_small(tmp_path, "run", *OVERRIDES, resume=True)
    assert outcome(stopped) == outcome(root / "finished")


def test_every_single_bit_counts(root, tmp_path):
    raw = (root / "finished" / "checkpoints" / "last.safetensors").read_bytes()
    path, chance = tmp_path / "last.safetensors", random.Random(1)
    for _ in range(200):
        changed = bytearray(raw)
        changed[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(DamagedFileError):
            read_checkpoint(path)
