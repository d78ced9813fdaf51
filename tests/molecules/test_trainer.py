"""Training through the kernels for small graphs against the plain loop: in Triton's interpreter, or on a GPU."""

import pytest
import torch
from molecule_run import DEVICE, NO_DROPOUT, molecule_dataset, molecule_recipe

from gssc.molecules.trainer import MoleculeGroup
from gssc.train.build import about_data, build_model, build_stores
from gssc.train.checkpoint import Best, load_checkpoint, save_checkpoint
from gssc.train.optimizer import optimizer_tensors
from gssc.train.processes import Processes
from gssc.train.step import NonFiniteLossError, Position, Trainer

pytest.importorskip("triton")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def made(kind, cache, *overrides, seed=0):
    recipe, dataset = molecule_recipe(*overrides), molecule_dataset()
    stores = build_stores(dataset, recipe, DEVICE, cache)
    torch.manual_seed(seed)
    model = build_model(recipe, about_data(recipe, dataset)).to(DEVICE)
    return kind(model, stores["train"], dataset.task, recipe, seed, Processes()), stores


def alone(cache, *overrides, seed=0):
    """A group of one."""
    trainer, stores = made(Trainer, cache, *overrides, seed=seed)
    trainer.group = MoleculeGroup([trainer])
    return trainer, stores


def never():
    return False


def losses_of(position):
    return [float(loss) for loss in position.losses]


@pytest.mark.parametrize(
    "overrides",
    [
        ("train.ema=0.9", "train.batch_stats=reestimated", "optim.clip=0.1"),
        ("train.ema=0.5", "optim.clip=0"),
        ("train.batch_stats=reestimated",),
    ],
)
def test_an_epoch_and_its_scores_are_those_of_the_plain_loop(cache, overrides):
    overrides = (*NO_DROPOUT, *overrides, "optim.lr=1e-4")
    plain, stores = made(Trainer, cache, *overrides)
    fused, _ = alone(cache, *overrides)
    expected, position = Position(1, 0, []), Position(1, 0, [])
    assert plain.run_epoch(expected, never)
    assert fused.group.run_epoch([position], never)
    assert losses_of(position) == pytest.approx(losses_of(expected), rel=1e-5)
    assert fused.group.evaluate(stores["val"])[0] == pytest.approx(plain.evaluate(stores["val"]), rel=1e-4)
    expected, found = (optimizer_tensors(t.model, t.optimizer) for t in (plain, fused))
    largest = max(float(value.abs().max()) for name, value in expected.items() if name.endswith("exp_avg"))
    weights, kept = plain.weights(), fused.weights()
    assert weights.keys() == kept.keys()
    for name, parameter in plain.model.named_parameters():
        for entry, size in (("exp_avg", largest), ("exp_avg_sq", largest**2), ("step", 0.0)):
            key = f"{name}/{entry}"
            torch.testing.assert_close(found[key], expected[key], rtol=0, atol=1e-4 * size, msg=key)
        # Adam divides by the size of a gradient: some, as that of a bias before a norm, are nothing but rounding.
        sure = expected[f"{name}/exp_avg_sq"].sqrt() > 1e-3 * largest
        own = fused.model.get_parameter(name)
        torch.testing.assert_close(own[sure], parameter[sure], rtol=0, atol=2e-7, msg=name)
        torch.testing.assert_close(kept[name][sure], weights[name][sure], rtol=0, atol=2e-7, msg=name)
    for name in weights.keys() - dict(plain.model.named_parameters()).keys():
        torch.testing.assert_close(kept[name], weights[name], rtol=1e-4, atol=2e-4, msg=name)


def test_data_order_is_that_of_the_plain_loop(cache):
    for overrides in ((), ("train.batch_size=7",)):
        fused, _ = alone(cache, *overrides, seed=3)
        group, empty = fused.group, fused.store.num_graphs
        for number in (1, 4):
            group._fill(number, 0)
            rows = [row[row < empty].tolist() for row in group.work.tables.order[: group.steps, 0]]
            assert rows == [graphs.tolist() for graphs in fused.batches(number)]


def test_a_checkpoint_inside_an_epoch_goes_on_with_the_same_bits_also_in_a_group(cache, tmp_path):
    """Dropout and averaged weights; the whole epoch in a group of two, its parts alone."""
    members = [made(Trainer, cache, "train.ema=0.9", seed=seed)[0] for seed in (0, 1)]
    group = MoleculeGroup(members)
    positions = [Position(1, 0, []) for _ in members]
    assert group.run_epoch(positions, never)

    first, _ = alone(cache, "train.ema=0.9", seed=1)
    position, path = Position(1, 0, []), tmp_path / "last.safetensors"
    assert not first.group.run_epoch([position], lambda: position.step == 1)
    save_checkpoint(path, first, position, Best(), {})

    second, _ = alone(cache, "train.ema=0.9", seed=1)
    position, _ = load_checkpoint(path, second, {})
    assert position.step == 1
    assert second.group.run_epoch([position], never)
    assert torch.stack(position.losses).tolist() == torch.stack(positions[1].losses).tolist()
    mine, theirs = ([t.model.state_dict(), t.average.weights] for t in (second, members[1]))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
    for one, other in zip(second.optimizer.state.values(), members[1].optimizer.state.values(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
    assert positions[0].losses != positions[1].losses


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:invalid:RuntimeWarning")
def test_a_gradient_that_overflows_counts_as_a_loss_that_is_no_number(cache):
    fused, _ = alone(cache)
    step = fused.group.fused.step(fused.group.work, fused.group.moments, 1.0, 0.0)
    fused.group._fill(1, 0)
    for value, finite in ((1.0, True), (3e38, False)):
        fused.group.work.sums.partial.fill_(value)
        fused.group.work.sums.partial_losses.fill_(1.0)
        for launch in step:
            launch.run()
        assert bool(fused.group.work.tables.losses[int(fused.group.work.tables.at) - 1].isfinite().all()) is finite
    position = Position(1, 2, list(fused.group.work.tables.losses[:2, 0].cpu()))
    with pytest.raises(NonFiniteLossError, match="at epoch 1, step 2"):
        position.finite_losses()
