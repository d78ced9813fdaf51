"""Captured steps, called as they are where there is no GPU, against the plain loop."""

import pytest
import torch
from small_run import small_dataset, small_recipe

from gssc.train.build import about_data, build_model, build_stores
from gssc.train.evaluate import default_dtype
from gssc.train.processes import Processes
from gssc.train.replayed import ReplayedTrainer, why_not
from gssc.train.step import Position, Trainer

CPU = torch.device("cpu")
GPU = pytest.param(
    torch.device("cuda"), marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
)
CLOSE = {"rtol": 1e-7, "atol": 1e-8}
NO_DROPOUT = ("model.dropout_local=0", "model.dropout_global=0", "train.precision=float64", "train.batch_size=5")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


def trainers(root, *overrides, device=CPU):
    recipe, dataset = small_recipe(*NO_DROPOUT, *overrides), small_dataset(root)
    stores = build_stores(dataset, recipe, device, root / "cache")
    for kind in (Trainer, ReplayedTrainer):
        torch.manual_seed(0)
        model = build_model(recipe, about_data(recipe, dataset)).to(device)
        yield kind(model, stores["train"], dataset.task, recipe, 0, Processes()), stores


def never():
    return False


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("train.ema=0.9", "optim.clip=0"),
        ("train.ema=0.5", "train.batch_stats=reestimated"),
        ("train.batch_stats=reestimated",),
        ("model.norm=layer", "optim.clip=0.01", "train.batch_stats=reestimated"),
        ("model.local=gcn",),
        ("model.glob=attention", "spectrum.rwse=4", "model.rwse_channels=4"),
        ("model.glob=grit",),
        ("model.glob=exphormer",),
    ],
)
@pytest.mark.parametrize("device", [CPU, GPU])
def test_steps_and_scores_are_those_of_the_plain_loop(root, device, overrides):
    """Batches of 5, 5 and 2 graphs, padded to static shapes. On a GPU in float32, which is what can be captured."""
    on_gpu = device.type == "cuda"
    if on_gpu:
        overrides = (*overrides, "train.precision=float32")
    with default_dtype("float32" if on_gpu else "float64"):
        found = []
        for trainer, stores in trainers(root, *overrides, device=device):
            losses = []
            for epoch in (1, 2):
                position = Position(epoch, 0, [])
                assert trainer.run_epoch(position, never)
                losses += [float(loss) for loss in position.losses]
            scores = [trainer.evaluate(stores[split]) for split in ("val", "test", "val")]
            torch.testing.assert_close(scores[0], scores[2], rtol=1e-6 if on_gpu else 1e-9, atol=0)
            found.append((losses, scores, trainer.model.state_dict(), trainer.weights()))
        torch.testing.assert_close(found[0][:2], found[1][:2], **({"rtol": 1e-2, "atol": 1e-3} if on_gpu else CLOSE))
        # Adam divides by the size of a gradient, and some are little more than rounding: such a weight moves by the
        # learning rate in every step, either way.
        moved = 2 * 6 * small_recipe(*overrides).optim.lr if on_gpu else 1e-6
        for plain, captured in zip(found[0][2:], found[1][2:], strict=True):
            assert plain.keys() == captured.keys()
            for name, value in plain.items():
                # A statistic is that of a sum over eight channels, each with a weight of its own that may have moved.
                limit = moved * 8 if on_gpu and "running" in name else moved
                torch.testing.assert_close(captured[name], value, rtol=0, atol=limit, msg=name)


def test_an_epoch_goes_on_where_it_stopped(root):
    with default_dtype("float64"):
        whole, parts = (trainer for _ in range(2) for trainer, _ in list(trainers(root))[1:])
        complete, position = Position(1, 0, []), Position(1, 0, [])
        assert whole.run_epoch(complete, never)
        assert not parts.run_epoch(position, lambda: position.step == 2)
        assert len(position.losses) == position.step == 2
        assert parts.run_epoch(Position(1, 2, position.losses), never)
        torch.testing.assert_close(parts.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


def test_a_gradient_that_overflows_counts_as_a_loss_that_is_no_number(root):
    with default_dtype("float64"):
        _, (trainer, _) = trainers(root)
        next(trainer.model.parameters()).register_hook(lambda gradient: gradient * float("inf"))
        position = Position(1, 0, [])
        trainer.run_epoch(position, never)
        assert not torch.stack(position.losses).isfinite().any()


def test_what_cannot_be_captured_has_a_reason():
    cuda = torch.device("cuda")
    assert why_not(small_recipe(), cuda, Processes()) is None
    assert why_not(small_recipe(), CPU, Processes()) == "there is no GPU"
    assert "several processes" in why_not(small_recipe(), cuda, Processes(0, 2))
    assert why_not(small_recipe("train.capture=false"), cuda, Processes()) == "train.capture is false"
    assert why_not(small_recipe("model.local=gcn"), cuda, Processes()) is None
    assert "pairs of nodes" in why_not(small_recipe(), cuda, Processes(), level="edge")
    assert "model.local=gat looks at values" in why_not(small_recipe("model.local=gat"), cuda, Processes())
    pairs = small_recipe("model.glob=grit")
    assert why_not(pairs, cuda, Processes(), torch.tensor([20, 100])) is None
    assert "grit would pad all graphs to the 9000 nodes" in why_not(pairs, cuda, Processes(), torch.full((5,), 9000))
    attention = small_recipe("model.glob=attention")
    assert why_not(attention, cuda, Processes(), torch.tensor([20, 100])) is None
    assert why_not(attention, cuda, Processes(), torch.full((5,), 1000)) is None
    # One large graph among small ones, and graphs that are all too large.
    assert "the 4000 nodes of the largest" in why_not(attention, cuda, Processes(), torch.tensor([4000] + 99 * [20]))
    assert "the 9000 nodes of the largest" in why_not(attention, cuda, Processes(), torch.full((5,), 9000))
