"""Training steps of zinc-12k through the kernels for small graphs: judged, then timed, for one seed and for several.

    python -m benchmarks.molecule_training [--seconds 150] [--out benchmarks/results.csv]

Every group of kernels is timed as a CUDA graph of its launches alone, then the whole step and the evaluation of 1,000
graphs. The molecules are generated ones of the size of ZINC's; an epoch is 313 steps and one evaluation.
"""

import argparse
import copy
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.graphs import zinc_like
from benchmarks.harness import append
from benchmarks.molecule_reference import DenseBatch, dense_model, in_float64, poison
from benchmarks.training import ABOUT, GRAPHS
from gssc import GSSC
from gssc.molecules.data import MoleculeData, molecule_data
from gssc.molecules.model import WARPS, Launch, MoleculeModel, run
from gssc.molecules.workspace import AdamState, Workspace
from gssc.recipes import find_recipe
from gssc.tasks import Task
from gssc.train import GraphStore, build_model
from gssc.train.build import build_store

STEPS, EVALUATED, STEPS_OF_EPOCH = 2_000, 1_000, 313
DEVICE = "cuda"
RECIPE = find_recipe("zinc-12k")


def new_model(seed: int) -> GSSC:
    """The recipe's model, norms away from their initial values."""
    torch.manual_seed(seed)
    model = build_model(RECIPE, ABOUT).to(DEVICE)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "degree" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.train()


def prepared() -> tuple[GraphStore, MoleculeData]:
    """The graphs, as the model reads them and as the kernels do."""
    store = build_store(zinc_like(GRAPHS), RECIPE, "graph", torch.device(DEVICE), None)
    return store, molecule_data(store, new_model(0), Task("graph", "regression", 1, "mae"))


def training_space(model: MoleculeModel, data: MoleculeData, seeds: list[int]) -> tuple[Workspace, AdamState]:
    """Batches of 32 for STEPS steps, each replica's own, and poisoned scratch memory."""
    work = Workspace(model, data, RECIPE.train.batch_size, STEPS, training=True)
    for row, seed in enumerate(seeds):
        generator = torch.Generator().manual_seed(seed)
        work.tables.order[:, row] = torch.randint(data.num_graphs, (STEPS, work.graphs), generator=generator).to(DEVICE)
        work.tables.keys[:, row] = torch.randint(2**32, (STEPS,), generator=generator).to(DEVICE)
    work.tables.order[0, :, -1] = data.num_graphs  # an empty slot
    t = np.arange(1, STEPS + 1)
    work.tables.rates[:, 0] = RECIPE.optim.lr
    work.tables.rates[:, 1] = torch.from_numpy(1 / (1 - 0.9**t)).to(DEVICE)
    work.tables.rates[:, 2] = torch.from_numpy(1 / np.sqrt(1 - 0.999**t)).to(DEVICE)
    poison(work)
    zeros, tensors = torch.zeros_like(model.flat.params), len(list(model.first.parameters()))
    return work, AdamState(zeros, zeros.clone(), torch.zeros(model.replicas, tensors, device=DEVICE))


def distance(actual: Tensor, expected: Tensor, least: float = 1e-30) -> float:
    """‖a - b‖ / ‖b‖, in float64, the divisor at least ``least``; NaN stays NaN."""
    expected = expected.detach().double()
    return float((actual.detach().double() - expected).norm() / expected.norm().clamp(min=least))


def check(store: GraphStore, data: MoleculeData, precision: str, limit: float) -> bool:
    """Loss, gradients, statistics and outputs against the reference in float64; the same bits twice."""
    model = new_model(1)
    twin = copy.deepcopy(model).double()
    plain = copy.deepcopy(model).eval()
    fused = MoleculeModel([model], precision)
    work, _ = training_space(fused, data, [3])
    before = fused.flat.running.clone()
    start = time.perf_counter()
    launches = fused.forward(work) + fused.backward(work)
    run(launches)
    torch.cuda.synchronize()
    compiled = time.perf_counter() - start
    gradient_sum = work.sums.partial[:, : fused.flat.used].sum(0, keepdim=True)
    running = fused.flat.running.clone()
    fused.flat.running.copy_(before)
    poison(work)
    run(launches)
    again = work.sums.partial[:, : fused.flat.used].sum(0, keepdim=True)
    same = torch.equal(gradient_sum, again) and torch.equal(running, fused.flat.running)
    dense = DenseBatch(in_float64(data), work.tables.order[0, 0], work.tile)
    has_target = dense.targets.isfinite()
    error = torch.where(
        has_target, dense_model(twin, dense, int(work.tables.keys[0, 0])) - dense.targets.nan_to_num(), 0.0
    )
    loss = error.abs().sum() / has_target.sum()
    loss.backward()
    views = fused.flat.views(gradient_sum, 0)
    expected = {name: p.grad for name, p in twin.named_parameters() if p.grad is not None}
    whole = torch.cat([gradient.flatten() for gradient in expected.values()])
    total = distance(torch.cat([views[name].flatten() for name in expected]), whole)
    # Some gradients are zero in exact arithmetic: a bias before a norm.
    least = 1e-3 * float(whole.norm())
    gradients = {name: distance(views[name], gradient, least) for name, gradient in expected.items()}
    worst = max(gradients, key=lambda name: gradients[name])
    statistics = max(
        distance(a, b) for (name, b), a in zip(twin.named_buffers(), model.buffers(), strict=True) if "running" in name
    )
    # Evaluation, from the statistics of the plain twin.
    fused.flat.running.copy_(before)
    evaluated = Workspace(fused, data, 64, 1, training=False)
    evaluated.tables.order.copy_(torch.arange(64, device=DEVICE).view(1, 1, 64))
    run(fused.forward(evaluated))
    with torch.no_grad():
        apart = distance(evaluated.raw[0, :64], plain.double()(**_double(store.batch(torch.arange(64)).inputs)))
    errors = [distance(work.sums.partial_losses.sum(), loss), total, statistics, apart]
    good = same and all(value < limit for value in errors)
    print(
        f"{precision}: {'ok' if good else 'WRONG'} (limit {limit:g}); loss {errors[0]:.1e}, all gradients {total:.1e}, "
        f"worst {gradients[worst]:.1e} {worst}, statistics {statistics:.1e}, outputs {apart:.1e}, "
        f"repeats {'bit by bit' if same else 'NOT'}; first run with compilation {compiled:.1f} s",
        flush=True,
    )
    return good


def _double(inputs: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }


def check_replicas(data: MoleculeData) -> bool:
    """Two replicas trained together for some steps are the two trained alone, bit by bit."""
    alone = []
    for seed in (5, 6):
        model = MoleculeModel([new_model(seed)])
        work, moments = training_space(model, data, [seed])
        for _ in range(5):
            run(model.forward(work) + model.backward(work) + model.step(work, moments, 1.0, 1e-5))
        alone.append(model.flat.params[0].clone())
    both = MoleculeModel([new_model(5), new_model(6)])
    work, moments = training_space(both, data, [5, 6])
    for _ in range(5):
        run(both.forward(work) + both.backward(work) + both.step(work, moments, 1.0, 1e-5))
    good = all(torch.equal(both.flat.params[row], alone[row]) for row in range(2))
    apart = max(distance(both.flat.params[row], alone[row]) for row in range(2))
    print(f"replicas: {'equal bit by bit' if good else f'NOT equal, {apart:.1e} apart'} after 5 steps", flush=True)
    return good or apart < 1e-3


def captured(function: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A function as a CUDA graph, after a call that compiles."""
    function()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph


def replay_ms(graph: torch.cuda.CUDAGraph, repeats: int = 30) -> tuple[float, float, float]:
    """Milliseconds of a replay: p20, p50, p80."""
    for _ in range(3):
        graph.replay()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in pairwise(marks)]
    p20, p50, p80 = np.percentile(times, [20, 50, 80])
    return float(p20), float(p50), float(p80)


def group_us(launches: list[Launch]) -> float:
    """Microseconds per launch of kernels of one kind, one behind the other."""
    repeats = max(1, 40 // len(launches))

    def together() -> None:
        for _ in range(repeats):
            run(launches)

    return 1e3 * replay_ms(captured(together), 10)[1] / (repeats * len(launches))


def resources(launch: Launch) -> str:
    """Registers, spills and shared memory of a kernel."""
    kernel = launch.run()
    return f"{kernel.n_regs} regs, {kernel.n_spills} spills, {kernel.metadata.shared / 1024:.0f} KB"


class Timed:
    """Times of everything for some number of replicas."""

    def __init__(self, data: MoleculeData, replicas: int, precision: str = "tf32") -> None:
        seeds = list(range(replicas))
        self.model = MoleculeModel([new_model(seed) for seed in seeds], precision)
        work, moments = training_space(self.model, data, seeds)
        step = self.model.step(work, moments, RECIPE.optim.clip, RECIPE.optim.weight_decay)
        self.launches = self.model.forward(work) + self.model.backward(work) + step
        graph = captured(lambda: run(self.launches))
        for _ in range(500):
            graph.replay()
        self.step = replay_ms(graph, 200)
        losses = work.tables.losses[: int(work.tables.at)].mean(1).cpu()
        self.trend = f"loss {losses[:20].mean():.3f} -> {losses[-100:].mean():.3f} over {losses.numel()} steps"
        work.tables.at.zero_()
        evaluation = Workspace(self.model, data, EVALUATED // 4, 4, training=False)
        evaluation.tables.order.copy_(torch.arange(EVALUATED, device=DEVICE).view(4, 1, -1).expand(-1, replicas, -1))
        forward = self.model.forward(evaluation)

        def evaluate() -> None:
            evaluation.tables.at.zero_()
            for _ in range(4):
                run(forward)
                evaluation.tables.at.add_(1)

        self.evaluation = replay_ms(captured(evaluate))[1]
        self.kinds = Counter(launch.name for launch in self.launches)
        self.work = work

    def group(self, name: str) -> float:
        self.work.tables.at.zero_()
        return group_us([launch for launch in self.launches if launch.name == name])

    @property
    def epoch(self) -> float:
        """Seconds of an epoch, evaluation included."""
        return (STEPS_OF_EPOCH * self.step[1] + self.evaluation) / 1e3


def main(arguments: list[str] | None = None) -> None:
    """Check, time, print, append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=150.0, help="no new measurement after this time")
    parser.add_argument("--out", type=Path, default=None, help="results file to append to")
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.molecule_training: there is no GPU")
    store, data = prepared()
    print(
        f"{data.num_graphs} graphs of at most {data.most_nodes} nodes; {time.perf_counter() - begin:.1f} s", flush=True
    )
    good = check(store, data, "tf32", 0.1)
    good &= check(store, data, "tf32x3", 2e-4)
    good &= check_replicas(data)
    timed = {replicas: Timed(data, replicas) for replicas in (1, 2, 5)}
    exact = {replicas: Timed(data, replicas, "tf32x3") for replicas in (1, 5)}
    print(f"timed steps at {time.perf_counter() - begin:.0f} s", flush=True)
    one = timed[1]
    lines = []
    for name, count in one.kinds.items():
        times = {replicas: t.group(name) for replicas, t in timed.items()}
        shown = "  ".join(f"{value:7.1f}" for value in times.values())
        first = next(launch for launch in one.launches if launch.name == name)
        lines.append(f"{name:16s} {count:2d} x  {shown}   {count * times[1]:7.0f}   {resources(first)}")
        slow = next(launch for launch in exact[1].launches if launch.name == name)
        shown = "  ".join(f"{t.group(name):7.1f}" for t in exact.values())
        lines.append(f"{'  tf32x3':16s}       {shown[:7]}           {shown[9:]}   {'':7s}   {resources(slow)}")
    layer_kernels = ("mix_forward", "ffn_forward", "ffn_backward", "mix_backward")
    for name in layer_kernels:
        for warps in (4, 8):
            if warps == WARPS.get(name, 4) or time.perf_counter() - begin > options.seconds:
                continue
            microseconds = {}
            for replicas in (1, 5):
                models = [new_model(seed) for seed in range(replicas)]
                model = MoleculeModel(models)
                model.warps[name] = warps
                work, _ = training_space(model, data, list(range(replicas)))
                launches = model.forward(work) + model.backward(work)
                run(launches)
                chosen = [launch for launch in launches if launch.name == name]
                microseconds[replicas] = group_us(chosen)
            shown = f"R=1 {microseconds[1]:.1f} us, R=5 {microseconds[5]:.1f} us, {resources(chosen[0])}"
            lines.append(f"{name} with {warps} warps: {shown}")
    print("\nus per launch            R=1      R=2      R=5   us/step R=1")
    print("\n".join(lines))
    rows: list[dict[str, object]] = []
    print("\nreplicas   ms/step (p20 p50 p80)   evaluation ms   s/epoch   target")
    for precision, replicas, t in [("tf32", *pair) for pair in timed.items()] + [
        ("tf32x3", *pair) for pair in exact.items()
    ]:
        goal = {1: "0.4", 5: "0.6"}.get(replicas, "")
        print(f"{replicas:5d}      {t.step[0]:.3f} {t.step[1]:.3f} {t.step[2]:.3f}   {t.evaluation:10.2f}"
              f"   {t.epoch:13.3f}   {goal:>5s}   {precision:6s} {t.trend}")  # fmt: skip
        row: dict[str, object] = {"benchmark": "training", "workload": "zinc-12k step, generated molecules"}
        row |= {"variant": f"kernels for small graphs, {replicas} seeds, {precision}", "p20_ms": f"{t.step[0]:.4f}"}
        row |= {"p50_ms": f"{t.step[1]:.4f}", "p80_ms": f"{t.step[2]:.4f}"}
        row["note"] = f"evaluation of {EVALUATED} graphs {t.evaluation:.2f} ms, epoch {t.epoch:.3f} s"
        rows.append(row)
    print(f"total {time.perf_counter() - begin:.0f} s")
    if options.out is not None and good:
        append(options.out, rows, "cuda")
    if not good:
        raise SystemExit("benchmarks.molecule_training: some results were wrong")


if __name__ == "__main__":
    main()
