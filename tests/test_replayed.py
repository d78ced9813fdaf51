"""Replayed steps of one's own: what padding does to them, when they are not replayed, that they are the same."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from graphs import random_graph
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

import gssc
from gssc import GSSC, LaplacianSpectrum, RandomWalkSE, model_inputs
from gssc.padding import Shape, StaticBatch
from gssc.replay import Replay, ReplayedStep, pick_shape

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def make_graphs(count=22, level="graph", most=14):
    torch.manual_seed(0)
    graphs = []
    for number in range(count):
        data = random_graph(4 + number * 7 % (most - 4), 0.4, number)
        data.x, data.edge_attr = torch.randn(data.num_nodes, 3), torch.randn(data.num_edges, 2)
        data.y = torch.randn(1, 2) if level == "graph" else torch.randint(3, (data.num_nodes,))
        graphs.append(RandomWalkSE(3)(LaplacianSpectrum(k=4)(data)))
    return graphs


def make_model(level="graph", norm="batch", dropout=0.0, device="cpu"):
    torch.manual_seed(1)
    sizes = {"node_features": 3, "edge_features": 2, "rwse": 3, "rwse_channels": 4}
    drops = {"dropout_local": dropout, "dropout_global": dropout}
    return GSSC(2 if level == "graph" else 3, 16, 2, level=level, norm=norm, **sizes, **drops).to(device)


def make_step(model, optimizer, level="graph"):
    def step(batch):
        optimizer.zero_grad()
        out = model(**model_inputs(batch))
        loss = F.l1_loss(out[: len(batch.y)], batch.y) if level == "graph" else F.cross_entropy(out, batch.y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def replayed(*args, **kwargs):
    """As on a GPU, where there is one; elsewhere all but the capture."""
    if torch.cuda.is_available():
        return gssc.replayed(*args, **kwargs)
    with pytest.warns(UserWarning, match=r"^gssc\.replayed: steps run as they are, because there is no GPU$"):
        step = gssc.replayed(*args, **kwargs)
    step.reason = None
    return step


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("level", ["graph", "node"])
def test_padding_changes_neither_loss_nor_gradients_nor_statistics(level):
    graphs = make_graphs(7, level)
    batch = Batch.from_data_list(graphs)
    static = StaticBatch(batch, Shape(7, batch.num_nodes + 9, batch.num_edges + 13), CPU)
    smaller = Batch.from_data_list(graphs[::-1])
    results = []
    for place in (smaller, static.batch):
        static.load(batch)
        static.load(smaller)  # what stood there before leaves nothing behind
        model = make_model(level)
        out = model(**model_inputs(place))
        loss = F.l1_loss(out[: len(place.y)], place.y) if level == "graph" else F.cross_entropy(out, place.y)
        loss.backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        results.append({"loss": loss.detach(), **gradients, **dict(model.named_buffers())})
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


def test_a_padded_batch_says_what_is_real():
    graphs = make_graphs(3)
    graphs[1].weight = torch.ones(1)
    batch = Batch.from_data_list([graphs[0], graphs[1], graphs[0]], exclude_keys=["weight"])
    batch.names, batch.temperature = ["a", "b", "c"], torch.tensor([[1.0], [2.0], [3.0]])
    nodes, edges = batch.num_nodes, batch.num_edges
    static = StaticBatch(batch, Shape(3, nodes + 4, edges + 6), CPU)
    static.load(batch)
    padded = static.batch
    assert (padded.num_graphs, padded.num_nodes, padded.num_edges) == (4, nodes + 4, edges + 6)
    assert padded.node_mask.tolist() == [True] * nodes + [False] * 4
    assert padded.edge_mask.tolist() == [True] * edges + [False] * 6
    assert padded.ptr.tolist() == [*batch.ptr.tolist(), nodes + 4]
    assert padded.batch.tolist() == [*batch.batch.tolist(), 3, 3, 3, 3]
    assert padded.edge_index[:, edges:].tolist() == 2 * [[nodes, nodes, nodes + 1, nodes + 2, nodes + 2, nodes + 3]]
    assert torch.equal(padded.y, batch.y)
    assert padded.temperature.tolist() == [[1.0], [2.0], [3.0], [0.0]]
    assert padded.eigvals.shape[0] == 4
    assert "names" not in padded


def test_what_cannot_be_padded_has_a_reason():
    batch = Batch.from_data_list(make_graphs(3))
    assert StaticBatch.why_not(batch) is None
    batch.odd = torch.zeros(batch.num_nodes + 1)
    assert "rows of batch.odd are neither those of nodes" in StaticBatch.why_not(batch)
    assert StaticBatch.why_not(Batch.from_data_list([Data(x=torch.zeros(2, 1))])) == "a batch has no edge_index"
    # As many rows as there are graphs, by chance.
    pairs = Data(x=torch.zeros(2, 1), edge_index=torch.zeros(2, 1).long(), edge_label_index=torch.zeros(2, 1).long())
    assert "pairs of nodes" in StaticBatch.why_not(Batch.from_data_list([pairs, pairs]))


def test_shapes_are_few_and_roomy():
    first = pick_shape([], 32, 740, 1600, 8)
    assert first.fits(32, 770, 1650)
    assert pick_shape([first], 32, 700, 1500, 8) == first
    larger = pick_shape([first], 32, 900, 1900, 8)
    assert larger.nodes > first.nodes
    assert pick_shape([first, larger], 32, 740, 1600, 8) == first
    assert pick_shape([first], 16, 740, 1600, 8).graphs == 16  # as many graphs exactly
    assert pick_shape([first], 32, 100, 200, 8).nodes < 200  # not to be more than half empty
    assert pick_shape([first], 32, 100, 200, 1) == first
    assert pick_shape([first], 32, 900, 1900, 1) is None


def test_without_a_gpu_it_says_so_once_and_runs_the_step(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    graphs, results = make_graphs(), []
    for wrapped in (False, True):
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        step = make_step(model, optimizer)
        if wrapped:
            with pytest.warns(UserWarning, match=r"^gssc\.replayed: steps run as they are, because there is no GPU$"):
                step = gssc.replayed(step, model, optimizer)
            assert step.reason == "there is no GPU"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            losses = [float(step(batch)) for batch in DataLoader(graphs, 8)]
        results.append((losses, model.state_dict()))
    torch.testing.assert_close(*results, rtol=0, atol=0)


def loop(model, optimizer, step, graphs, device, epochs=3):
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12) if optimizer is not None else None
    losses = []
    for epoch in range(epochs):
        torch.manual_seed(epoch)
        for batch in DataLoader(graphs, 8, shuffle=True):
            losses.append(step(batch if epoch % 2 and isinstance(step, ReplayedStep) else batch.to(device)))
            if schedule is not None:
                schedule.step()
    return torch.stack(losses).detach().cpu()


@pytest.mark.parametrize("level", ["graph", "node"])
@pytest.mark.parametrize("shapes", [1, 8])
@pytest.mark.parametrize("kind", ["AdamW", "Adam", "SGD"])
def test_training_is_that_of_the_plain_loop(level, shapes, kind):
    """Batches of 8, 8 and 6 graphs, a rate that falls at every step, batches from the CPU and on the device."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    graphs, results = make_graphs(level=level), []
    for wrapped in (False, True):
        model = make_model(level, device=device)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.002)
        step = make_step(model, optimizer, level)
        if wrapped:
            step = replayed(step, model, optimizer, shapes=shapes)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            losses = loop(model, optimizer, step, graphs, device)
        if wrapped:
            assert step.reason is None
            assert 1 <= len(step.batches) <= shapes
            said = [str(warning.message) for warning in caught if "gssc" in str(warning.message)]
            assert all("other shapes are captured" in text for text in said)
            assert len(said) == (shapes == 1)
        results.append((losses, {name: value.cpu() for name, value in model.state_dict().items()}))
    losses, states = zip(*results, strict=True)
    on_gpu = device.type == "cuda"
    torch.testing.assert_close(*losses, rtol=1e-2 if on_gpu else 1e-4, atol=1e-3 if on_gpu else 1e-5)
    # Adam moves a weight whose gradient is rounding by the rate, either way; statistics follow.
    torch.testing.assert_close(*states, rtol=1e-2, atol=2 * 9 * 0.002)


@needs_gpu
def test_the_first_replay_is_the_first_step():
    """Captured at once, for an optimiser that has its state already: nothing remains of the warm-up."""
    model = make_model(dropout=0.3, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    plain = make_step(model, optimizer)
    batches = list(DataLoader(make_graphs(), 8))
    plain(batches[0].to("cuda"))
    step = gssc.replayed(plain, model, optimizer)
    random = torch.cuda.get_rng_state()
    before = copy.deepcopy(model.state_dict())
    counts = {float(entries["step"]) for entries in optimizer.state.values()}
    step(batches[0])
    assert {float(entries["step"]) for entries in optimizer.state.values()} == {count + 1 for count in counts}
    tracked = {name: value for name, value in model.state_dict().items() if name.endswith("num_batches_tracked")}
    assert all(torch.equal(value, before[name] + 1) for name, value in tracked.items())
    assert not torch.equal(torch.cuda.get_rng_state(), random)  # dropout has drawn
    first = [float(step(batches[0])) for _ in range(6)]
    assert len(set(first)) == 6


@pytest.mark.parametrize("training", [False, True])
def test_an_evaluation_step(training):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = make_model(device=device).train(training)
    before = copy.deepcopy(model.state_dict())

    def predict(batch):
        with torch.no_grad():
            out = model(**model_inputs(batch))[: len(batch.y)]
        return {"out": out, "error": (out - batch.y).abs().mean()}

    step = replayed(predict, model)
    batches = list(DataLoader(make_graphs(), 8))
    found = [step(batch) for batch in batches + batches]
    model.load_state_dict(before)
    expected = [predict(batch.to(device)) for batch in batches + batches]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_a_single_graph_is_a_batch_too():
    model = make_model(device="cuda" if torch.cuda.is_available() else "cpu").eval()
    step = replayed(lambda batch: model(**model_inputs(batch))[: len(batch.y)], model)
    (graph,) = make_graphs(1)
    expected = model(**model_inputs(Batch.from_data_list([graph]).to(step.device)))
    torch.testing.assert_close(step(graph), expected.detach(), rtol=1e-3, atol=1e-4)


def test_rates_may_be_set_as_numbers_and_other_settings_are_noticed():
    model = make_model(device="cuda" if torch.cuda.is_available() else "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = replayed(make_step(model, optimizer), model, optimizer)
    batch = next(iter(DataLoader(make_graphs(), 8)))
    step(batch)
    step(batch)
    before = copy.deepcopy([p.detach() for p in model.parameters()])
    optimizer.param_groups[0]["lr"] = 0.0
    step(batch)
    torch.testing.assert_close([p.detach() for p in model.parameters()], before, rtol=0, atol=0)
    assert isinstance(optimizer.param_groups[0]["lr"], torch.Tensor)
    optimizer.param_groups[0]["lr"] = 0.01
    for decay in (0.1, 0.2, 0.3):
        optimizer.param_groups[0]["weight_decay"] = decay
        step(batch)
    optimizer.param_groups[0]["weight_decay"] = 0.4
    with pytest.warns(UserWarning, match="settings of the optimiser other than the learning rate change"):
        step(batch)
    assert step.reason is not None
    step(batch)


@needs_gpu
@pytest.mark.parametrize(
    ("look", "reason"),
    [
        (lambda loss: loss.item(), "it cannot be captured"),
        (lambda loss: "a loss", "it returns more than tensors"),
    ],
)
def test_a_step_that_cannot_be_captured_says_why_and_runs(look, reason):
    results = []
    for wrapped in (False, True):
        model = make_model(device="cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        plain = make_step(model, optimizer)

        def step(batch, plain=plain):
            return look(plain(batch))

        if wrapped:
            step = gssc.replayed(step, model, optimizer)
        batches = [batch.to("cuda") for batch in DataLoader(make_graphs(), 8)]
        step(batches[0])
        if wrapped:
            with pytest.warns(UserWarning, match=reason):
                step(batches[1])
        else:
            step(batches[1])
        step(batches[2])
        results.append(dict(model.state_dict()))
        assert torch.rand(3, device="cuda").isfinite().all()
    torch.testing.assert_close(*results, rtol=0, atol=0.05)


@needs_gpu
def test_a_mistake_in_the_step_is_raised():
    model = make_model(device="cuda")
    step = gssc.replayed(lambda batch: batch.nothing, model)
    with pytest.raises(AttributeError, match="nothing"):
        step(next(iter(DataLoader(make_graphs(), 8))))


def test_a_replay_without_a_gpu_is_the_function():
    count = torch.zeros(())
    replay = Replay(lambda: count.add_(1), CPU, [count])
    assert float(count) == 0.0
    assert float(replay()) == 1.0
