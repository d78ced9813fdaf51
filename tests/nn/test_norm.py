import pytest
import torch
from graphs import edgeless, path, random_graph
from padded import pad_inputs
from ranks import MODELS, RANKS, ROWS, make_model, train, work
from ranks import make_norm as make_random_norm
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Batch
from torch_geometric.transforms import Compose

from gssc import GSSC, LaplacianSpectrum, RandomWalkSE, model_inputs
from gssc.checks import fail
from gssc.nn import BatchNorm
from gssc.nn.norm import make_norm, reestimate_batch_norms, synchronize_batch_norms
from gssc.testing import assert_close


def test_batch_norm_is_pytorchs_for_two_rows_and_more(float64):
    ours, theirs, x = BatchNorm(3), torch.nn.BatchNorm1d(3), torch.randn(5, 3)
    assert_close(ours(x), theirs(x))
    assert_close(ours.running_var, theirs.running_var)


@pytest.mark.parametrize("rows", [0, 1])
def test_small_batches_use_and_keep_the_running_statistics(rows):
    norm = BatchNorm(3)
    norm(torch.randn(10, 3) + 5)
    before = norm.running_mean.clone()
    out = norm(torch.randn(rows, 3))
    assert out.shape == (rows, 3)
    assert torch.isfinite(out).all()
    assert torch.equal(norm.running_mean, before)


MASK = torch.tensor([True, False, True, True, False, True, True])


@pytest.mark.parametrize("momentum", [0.1, None])
def test_masked_rows_do_not_count(float64, momentum):
    masked, plain = BatchNorm(3, momentum=momentum), torch.nn.BatchNorm1d(3, momentum=momentum)
    for _ in range(3):
        x = torch.randn(7, 3, requires_grad=True)
        y = x.detach()[MASK].requires_grad_()
        weight = torch.randn(7, 3)
        out, expected = masked(x, MASK), plain(y)
        assert_close(out[MASK], expected, tolerance=1e-13)
        assert torch.equal(out[~MASK], torch.zeros(2, 3))
        (out * weight).sum().backward()
        (expected * weight[MASK]).sum().backward()
        assert_close(x.grad[MASK], y.grad, tolerance=1e-13)
        assert torch.equal(x.grad[~MASK], torch.zeros(2, 3))
        for ours, theirs in zip(masked.parameters(), plain.parameters(), strict=True):
            assert_close(ours.grad, theirs.grad, tolerance=1e-13)
    assert masked.state_dict().keys() == plain.state_dict().keys()
    for name, buffer in plain.named_buffers():
        assert_close(masked.get_buffer(name).double(), buffer.double(), name, tolerance=1e-13)
    assert_close(masked.eval()(x, MASK)[MASK], plain.eval()(y))


def test_without_a_mask_bits_are_pytorchs():
    ours, theirs, x = BatchNorm(3), torch.nn.BatchNorm1d(3), torch.randn(5, 3)
    assert torch.equal(ours(x), theirs(x))
    assert all(torch.equal(ours.get_buffer(name), buffer) for name, buffer in theirs.named_buffers())


@pytest.mark.parametrize("real", [0, 1])
def test_fewer_than_two_real_rows_use_and_keep_the_running_statistics(float64, real):
    norm = BatchNorm(3)
    norm(torch.randn(10, 3) + 5)
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    x = torch.randn(4, 3, requires_grad=True)
    mask = torch.arange(4) < real
    out = norm(x, mask)
    assert_close(out[:real], norm(x[:real]))
    out.sum().backward()
    assert torch.isfinite(x.grad).all()
    assert torch.equal(x.grad[real:], torch.zeros(4 - real, 3))
    assert all(torch.equal(norm.get_buffer(name), buffer) for name, buffer in before.items())


def test_a_large_mean_costs_no_digits():
    x = torch.randn(1000, 2) + 1e4
    mask = torch.arange(1000) < 800
    norm = BatchNorm(2, momentum=1.0)
    out = norm(x, mask)[mask]
    exact = x[mask].double()
    assert_close(norm.running_var.double(), exact.var(0), tolerance=1e-5)
    assert_close(out.double(), (exact - exact.mean(0)) / (exact.var(0, correction=0) + norm.eps).sqrt(), tolerance=1e-3)


def test_half_precision_is_summed_in_float32():
    x = (torch.randn(5000, 2) + 3).bfloat16()
    mask = torch.arange(5000) < 4000
    norm = BatchNorm(2, momentum=1.0)
    assert norm(x, mask).dtype == torch.bfloat16
    assert_close(norm.running_mean, x[mask].float().mean(0), tolerance=1e-6)
    assert_close(norm.running_var, x[mask].float().var(0), tolerance=1e-5)


class NoWaiting(TorchDispatchMode):
    """Fails where the host would read a value: inside a CUDA graph it cannot."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique"), name
        return function(*args, **(kwargs or {}))


def test_the_host_reads_no_value():
    norm, x = BatchNorm(3), torch.randn(7, 3, requires_grad=True)
    with NoWaiting():
        for momentum in (0.1, None):
            norm.momentum = momentum
            norm(x, MASK).square().sum().backward()
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NoWaiting():
        float(x.detach().sum())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_inside_a_cuda_graph(dtype):
    captured, eager = BatchNorm(3).cuda(), BatchNorm(3).cuda()
    x, mask = torch.zeros(7, 3, device="cuda", dtype=dtype, requires_grad=True), torch.ones(7, device="cuda").bool()

    def step(norm):
        norm.zero_grad(set_to_none=False)
        out = norm(x, mask)
        out.float().square().sum().backward()
        return out.detach()  # a graph that is kept would tie x to the stream of its backward pass

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step(captured)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = step(captured)
    eager.load_state_dict(captured.state_dict())
    for real in (7, 5, 1, 0):
        with torch.no_grad():
            x.copy_(torch.randn(7, 3))
            mask.copy_(torch.arange(7) < real)
        graph.replay()
        expected = step(eager)
        assert_close(out.float(), expected.float(), tolerance=1e-6)
        for name, p in eager.named_parameters():
            assert_close(captured.get_parameter(name).grad, p.grad, name, tolerance=1e-5)
        for name, buffer in eager.named_buffers():
            assert_close(captured.get_buffer(name).float(), buffer.float(), name, tolerance=1e-6)


def test_masks_need_running_statistics_and_their_shape():
    with pytest.raises(ValueError, match="track_running_stats: expected True"):
        BatchNorm(3, track_running_stats=False)(torch.ones(4, 3), torch.ones(4, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"mask: expected shape \[4\], got \[3\]"):
        BatchNorm(3)(torch.ones(4, 3), torch.ones(3, dtype=torch.bool))


def test_names():
    assert isinstance(make_norm("layer", 3), torch.nn.LayerNorm)
    assert isinstance(make_norm("none", 3), torch.nn.Identity)
    with pytest.raises(ValueError, match="norm: expected one of 'batch', 'layer', 'none', got 'group'"):
        make_norm("group", 3)


TRANSFORM = Compose([LaplacianSpectrum(k=5), RandomWalkSE(4)])


def make_graphs():
    graphs = []
    for data in (random_graph(6, 0.4), edgeless(1), path(4), random_graph(9, 0.4, seed=1)):
        data.x, data.edge_attr = torch.randn(data.num_nodes, 3), torch.randn(data.num_edges, 2)
        graphs.append(TRANSFORM(data))
    return graphs


def make_inputs(graphs):
    return model_inputs(Batch.from_data_list(graphs))


def make_rank_cases(graphs):
    """Inputs and weights of outputs, for every process."""
    cases = {"norm": {}, "model": {}}
    for name, (*rows, padding) in ROWS.items():
        cases["norm"][name] = [
            {
                "x": torch.randn(n + padding, 4) + rank,
                "weights": torch.randn(n, 4),
                "mask": torch.arange(n + padding) < n if padding else None,
            }
            for rank, n in enumerate(rows)
        ]
    halves = [make_inputs(graphs[:3]), make_inputs(graphs[3:])]
    padded = [halves[0], pad_inputs(halves[1], 12, 50, 3)]
    nothing = {name: torch.zeros_like(padded[1][name]) for name in ("node_mask", "edge_mask")}
    idle = [make_inputs(graphs), {**padded[1], **nothing}]
    for name, parts, real in (("default", halves, (3, 1)), ("idle", idle, (4, 0)), ("encodings", padded, (3, 1))):
        weights = torch.randn(4, 2).split(real)
        cases["model"][name] = [{"inputs": i, "weights": w} for i, w in zip(parts, weights, strict=True)]
    return cases


def check_ranks(case, results, expected):
    """Rows in order of ranks, gradients of parameters summed, buffers equal on all ranks: to 1e-12."""
    for name, value in expected.items():
        parts = [result[name] for result in results]
        if name in ("output", "gradient of rows"):
            actual = torch.cat(parts)
        elif name.startswith("gradient"):
            actual = torch.stack(parts).sum(0)
        else:
            assert torch.equal(*parts), f"{case}, {name}"
            actual = parts[0]
        assert_close(actual.double(), value.double(), f"{case}, {name}", tolerance=1e-12)


def test_two_processes_are_one_with_the_joint_batch(float64, tmp_path):
    # One test: its processes take seconds to start.
    graphs = make_graphs()
    cases = make_rank_cases(graphs)
    torch.save(cases, tmp_path / "cases.pt")
    torch.multiprocessing.spawn(work, (str(tmp_path),), nprocs=RANKS)
    results = [torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(RANKS)]

    for case, parts in cases["norm"].items():
        real = [part["weights"].shape[0] for part in parts]
        x = torch.cat([part["x"][:n] for part, n in zip(parts, real, strict=True)]).requires_grad_()
        expected = train(make_random_norm(), torch.cat([part["weights"] for part in parts]), x=x)
        for result, n in zip(results, real, strict=True):
            of_rows = result[f"norm {case}"]["gradient of rows"]
            assert torch.equal(of_rows[n:], torch.zeros_like(of_rows[n:]))
            result[f"norm {case}"]["gradient of rows"] = of_rows[:n]
        check_ranks(case, [result[f"norm {case}"] for result in results], {**expected, "gradient of rows": x.grad})

    inputs = make_inputs(graphs)
    assert cases["model"].keys() == MODELS.keys()
    for case, parts in cases["model"].items():
        model = make_model(case)
        expected = train(model, torch.cat([part["weights"] for part in parts]), **inputs)
        averaged = [
            {name.replace("module.", ""): value for name, value in result[f"parallel {case}"].items()}
            for result in results
        ]
        for name, value in expected.items():
            if name.startswith("gradient"):
                for result in averaged:
                    assert_close(result[name], value, f"parallel {case}, {name}", tolerance=1e-12)
        reestimate_batch_norms(model, [inputs])
        expected |= {f"again {name}": buffer for name, buffer in model.named_buffers()}
        check_ranks(case, [result[f"model {case}"] for result in results], expected)


def test_synchronizing_needs_processes():
    with pytest.raises(ValueError, match=r"process_group: expected an initialised torch\.distributed, got none"):
        synchronize_batch_norms(BatchNorm(3))


def test_one_process_alone_keeps_the_bits_of_pytorch_and_foreign_norms_are_refused(tmp_path):
    torch.distributed.init_process_group("gloo", f"file://{tmp_path}/store", world_size=1, rank=0)
    try:
        norm, x = BatchNorm(3), torch.randn(5, 3)
        synchronize_batch_norms(norm)
        assert norm.synchronized
        assert torch.equal(norm(x), torch.nn.BatchNorm1d(3)(x))
        with pytest.raises(ValueError, match=r"1: expected gssc\.nn\.BatchNorm, which can be .*, got BatchNorm1d"):
            synchronize_batch_norms(torch.nn.Sequential(norm, torch.nn.BatchNorm1d(3)))
    finally:
        torch.distributed.destroy_process_group()


class Rows(torch.nn.Module):
    """A norm of random rows, some of them masked, beside dropout."""

    def __init__(self):
        super().__init__()
        self.first, self.second = BatchNorm(3), torch.nn.BatchNorm1d(3)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x, mask=None):
        return self.second(self.dropout(self.first(x, mask)))


@pytest.mark.parametrize("training", [True, False])
def test_reestimated_statistics_are_those_of_all_rows(float64, training):
    model = Rows().train(training)
    model.second.eval()
    modes = [module.training for module in model.modules()]
    batches = [{"x": torch.randn(7, 3) + i, "mask": MASK if i % 2 else None} for i in range(3)]
    tracked = model.first.num_batches_tracked.clone()
    reestimate_batch_norms(model, batches)
    rows = torch.cat([batch["x"] if batch["mask"] is None else batch["x"][MASK] for batch in batches])
    assert_close(model.first.running_mean, rows.mean(0), tolerance=1e-13)
    assert_close(model.first.running_var, rows.var(0), tolerance=1e-13)
    assert [module.training for module in model.modules()] == modes
    assert model.first.momentum == 0.1
    assert torch.equal(model.first.num_batches_tracked, tracked)
    assert not model.first._forward_pre_hooks


def test_reestimation_with_one_batch_gives_its_statistics_again_and_again(float64):
    inputs = make_inputs(make_graphs())
    model = GSSC(2, 8, 2, node_features=3, edge_features=2, rwse=4, rwse_channels=2, dropout_ffn=0.5, dropout_local=0.5)
    plain = GSSC(2, 8, 2, node_features=3, edge_features=2, rwse=4, rwse_channels=2)
    plain.load_state_dict(model.state_dict())
    for module in plain.modules():
        if isinstance(module, BatchNorm):
            module.momentum = 1.0
    plain(**inputs)
    found = []
    for batch in (inputs, inputs, pad_inputs(inputs, 30, 90, 6)):
        model.train()
        model(**inputs)
        reestimate_batch_norms(model, [batch])
        found.append({n: b.clone() for n, b in model.named_buffers() if b.is_floating_point()})
    for name, buffer in found[0].items():
        assert_close(buffer, plain.get_buffer(name), name, tolerance=1e-12)
        assert torch.equal(found[1][name], buffer)
        assert_close(found[2][name], buffer, name, tolerance=1e-12)
    # With these statistics, evaluation does what training did with the batch (variances by n - 1 instead of n).
    assert (model.eval()(**inputs) - plain(**inputs)).abs().max() < 0.2 * plain(**inputs).abs().max()


def test_reestimation_under_autocast():
    inputs, model = make_inputs(make_graphs()), GSSC(2, 8, 2, node_features=3, edge_features=2)
    reestimate_batch_norms(model, [inputs, inputs], torch.autocast("cpu", torch.bfloat16))
    assert all(torch.isfinite(buffer).all() for buffer in model.buffers())


def test_failed_reestimation_changes_nothing():
    norm = BatchNorm(3)
    norm(torch.randn(5, 3))
    before = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    for batches, message in (
        ([], "batches: expected at least one batch, got none"),
        ([{"x": torch.randn(5, 3)}, {"x": torch.full((5, 3), float("inf"))}], "batches: expected finite activations"),
        (({"x": torch.randn(5 if i else fail("disk", "to be there", "none"), 3)} for i in (1, 0)), "disk: expected"),
    ):
        with pytest.raises(ValueError, match=message):
            reestimate_batch_norms(norm, batches)
        assert norm.training
        assert norm.momentum == 0.1
        assert all(torch.equal(norm.get_buffer(name), buffer) for name, buffer in before.items())
    reestimate_batch_norms(norm, [{"x": torch.randn(1, 3)}])
    assert torch.equal(norm.running_mean, before["running_mean"])
