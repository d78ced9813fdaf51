"""The kernels for small graphs against the plain reference: through Triton's interpreter, or on a GPU."""

import copy

import pytest
import torch
from molecule_samples import SIZES, TASK, molecule_model, molecule_store

from benchmarks.molecule_reference import DenseBatch, dense_model, in_float64, poison
from gssc.molecules.data import molecule_data
from gssc.molecules.model import MoleculeModel, run
from gssc.molecules.workspace import AdamState, Workspace
from gssc.testing import assert_close

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EXACT = "tf32x3" if DEVICE == "cuda" else "ieee"
DROPOUTS = {"dropout_local": 0.2, "dropout_global": 0.5, "dropout_ffn": 0.1}


def workspace(model, data, batches, keys, training=True):
    """Batches [steps][replica] of graph numbers, all with the same number of slots; poisoned scratch."""
    order = torch.tensor(batches, device=data.ptr.device)
    work = Workspace(model, data, order.shape[2], order.shape[0], training)
    work.tables.order.copy_(order)
    work.tables.keys.copy_(torch.tensor(keys))
    poison(work)
    return work


def reference(model, data, graphs, key, tile):
    dense = DenseBatch(data, torch.tensor(graphs, device=data.ptr.device), tile)
    out = dense_model(model, dense, key)
    known = dense.targets.isfinite()
    loss = torch.where(known, out - dense.targets.nan_to_num(), 0.0).abs().sum() / known.sum()
    return out, loss


def gradients_of(flat, work, row):
    first = row * work.graphs
    total = work.sums.partial[first : first + work.graphs, : flat.used].sum(0, keepdim=True)
    return flat.views(torch.cat([total.new_zeros(row, flat.used), total]), row)


def check(settings, replicas=1, sizes=SIZES, channels=16, layers=2, graphs=5, tolerance=1e-5, **more):
    store = molecule_store(sizes, DEVICE, **more)
    models = [molecule_model(layers, channels, **settings).to(DEVICE).train() for _ in range(replicas)]
    data = molecule_data(store, models[0], TASK)
    twins = [copy.deepcopy(model).double() for model in models]
    fused = MoleculeModel(models, precision=EXACT)
    generator = torch.Generator().manual_seed(1)
    batches = [
        [*torch.randperm(len(sizes), generator=generator)[: graphs - 1].tolist(), len(sizes)] for _ in range(replicas)
    ]
    keys = [1234567 + 2**31 * r for r in range(replicas)]
    work = workspace(fused, data, [batches], [keys])
    run(fused.forward(work) + fused.backward(work))
    torch.manual_seed(0)
    for row, twin in enumerate(twins):
        _, loss = reference(twin, in_float64(data), batches[row], keys[row], work.tile)
        loss.backward()
        found = work.sums.partial_losses.view(replicas, graphs)[row].sum()
        assert_close(found.double(), loss, "loss", tolerance)
        gradients = gradients_of(fused.flat, work, row)
        for name, parameter in twin.named_parameters():
            assert_close(gradients[name].double(), parameter.grad, name, 10 * tolerance)
        for (name, expected), actual in zip(twin.named_buffers(), models[row].buffers(), strict=True):
            if "tracked" not in name:
                assert_close(actual.double(), expected, name, tolerance)


@pytest.mark.parametrize(
    "settings",
    [
        DROPOUTS,
        {"kernel": "channel", "out_proj": False, "pool": "mean"},
        {"self_term": False, "degree_scaling": False, "edge_features": None},
    ],
    ids=str,
)
def test_gradients(settings):
    check(settings)


def test_replicas_have_their_own_weights_graphs_and_dropout():
    check(DROPOUTS, replicas=2, graphs=3)


def test_evaluation_is_that_of_the_model():
    store = molecule_store(device=DEVICE)
    model = molecule_model().to(DEVICE)
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if "running" in name:
                buffer.add_(0.2 * torch.rand_like(buffer))
    data = molecule_data(store, model, TASK)
    expected = model.eval()(**store.batch(torch.arange(len(SIZES))).inputs).detach()
    fused = MoleculeModel([model], precision=EXACT)
    work = workspace(fused, data, [[[0, 1, 2]], [[3, 4, 5]], [[6, 7, 8]]], [[0]] * 3, training=False)
    before = fused.flat.running.clone()
    for _ in range(3):
        run(fused.forward(work))
        work.tables.at.add_(1)
    assert_close(work.raw[0, :-1], expected, "outputs", 1e-5)
    assert torch.equal(fused.flat.running, before)


@pytest.mark.parametrize("clip", [0.1, 0.0, 1e6])
def test_steps_are_those_of_adamw(clip):
    model = molecule_model(layers=1).to(DEVICE)
    plain = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3, weight_decay=0.1)
    fused = MoleculeModel([model], precision=EXACT)
    data = molecule_data(molecule_store(device=DEVICE), model, TASK)
    work = workspace(fused, data, [[[0, 1, 2]]] * 3, [[0]] * 3)
    tensors = len(list(model.parameters()))
    flat = fused.flat
    moments = AdamState(
        torch.zeros_like(flat.params), torch.zeros_like(flat.params), torch.zeros(1, tensors, device=DEVICE)
    )
    rates = [1e-3, 2e-3, 5e-4]
    work.tables.rates.copy_(
        torch.tensor([[rate, 1 / (1 - 0.9**t), 1 / (1 - 0.999**t) ** 0.5, 0.0] for t, rate in enumerate(rates, 1)])
    )
    work.slots[:, 2] = 5
    for number, rate in enumerate(rates):
        work.sums.partial.normal_()
        work.sums.partial_losses.fill_(number + 1.0)
        optimizer.param_groups[0]["lr"] = rate
        total = gradients_of(flat, work, 0)
        for name, parameter in plain.named_parameters():
            parameter.grad = total[name].clone()
        if clip:
            torch.nn.utils.clip_grad_norm_(plain.parameters(), clip)
        optimizer.step()
        run(fused.step(work, moments, clip, 0.1))
    for (name, parameter), own in zip(plain.named_parameters(), model.parameters(), strict=True):
        assert_close(own, parameter, name, 1e-6)
        for entry, value in (("exp_avg", moments.exp_avg), ("exp_avg_sq", moments.exp_avg_sq)):
            assert_close(flat.views(value, 0)[name], optimizer.state[parameter][entry], f"{entry} of {name}", 1e-5)
    assert moments.steps.eq(3).all()
    assert flat.tracked.eq(3).all()
    assert int(work.tables.at) == 3
    assert_close(work.tables.losses[:, 0], torch.tensor([3.0, 6.0, 9.0], device=DEVICE), "losses", 1e-6)
