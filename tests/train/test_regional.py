"""Layers compiled one by one; the compiler itself is left out, what it is given is not."""

import pytest
import torch
from small_run import small_dataset, small_recipe
from torch._dynamo.utils import counters

from gssc.train import regional
from gssc.train.build import about_data, build_model, build_stores
from gssc.train.captured import CapturedTrainer
from gssc.train.evaluate import default_dtype
from gssc.train.loop import Position
from gssc.train.processes import Processes

CPU = torch.device("cpu")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the compiler, about itself


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    settings = ("model.layers=3", "model.local=gine", "model.dropout_local=0", "model.dropout_global=0")
    recipe, dataset = (
        small_recipe("train.precision=float64", "train.ema=0.9", "train.batch_size=5", *settings),
        small_dataset(root),
    )
    with default_dtype("float64"):
        return recipe, dataset, build_stores(dataset, recipe, CPU, root / "cache")


def make_trainer(parts):
    recipe, dataset, stores = parts
    torch.manual_seed(0)
    model = build_model(recipe, about_data(recipe, dataset))
    return CapturedTrainer(model, stores["train"], dataset.task, recipe, 0, Processes())


def train(trainer, stores):
    position = Position(1, 0, [])
    assert trainer.run_epoch(position, lambda: False)
    return torch.stack(position.losses), torch.tensor(trainer.evaluate(stores["val"])), trainer.model.state_dict()


def test_one_program_serves_all_layers_and_shapes(parts, monkeypatch):
    monkeypatch.setattr(regional, "BACKEND", "eager")
    torch._dynamo.reset()
    counters.clear()
    with default_dtype("float64"):
        trainer, plain = make_trainer(parts), make_trainer(parts)
        before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        assert trainer.compile() is None
        assert all(torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())
        assert all(p.grad is None for p in trainer.model.parameters())
        # A layer and φ, each in training and in evaluation, whole.
        assert counters["stats"]["unique_graphs"] == 4
        assert not counters["graph_break"]
        torch.testing.assert_close(train(trainer, parts[2]), train(plain, parts[2]))
        assert counters["stats"]["unique_graphs"] == 4


def test_a_compiler_that_fails_is_done_without(parts, monkeypatch):
    def failing(graph, inputs):
        raise OSError("no compiler here\nand more lines")

    monkeypatch.setattr(regional, "BACKEND", failing)
    torch._dynamo.reset()
    with default_dtype("float64"):
        trainer, plain = make_trainer(parts), make_trainer(parts)
        reason = trainer.compile()
        assert "no compiler here" in reason
        assert "\n" not in reason
        torch.testing.assert_close(train(trainer, parts[2]), train(plain, parts[2]), rtol=0, atol=0)
