"""Whole models on large graphs: 4 × (GatedGCN + global part), width 96, forward and backward, and inference.

The model in float32, whose message passing and convolution are fused, is judged by the same model in float64, whose
are not. Time and memory are those of one graph with random vectors in place of eigenvectors: the same work.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from gssc import GSSC
from gssc.bench.kernels_conv import DEVICE, Result
from gssc.bench.kernels_timing import clear, measure
from gssc.model import Global
from gssc.ops.edges import launch

LIMIT = 1e-3  # relative error of output and gradients, norm by norm


@dataclass(frozen=True)
class Graph:
    """One random graph; edges sorted by target."""

    name: str
    nodes: int
    edges: int
    k: int = 32
    half: bool = False  # bfloat16 throughout, layers checkpointed
    rival: bool = False  # whether softmax attention is timed as well

    def inputs(self, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
        generator = torch.Generator(DEVICE).manual_seed(0)
        target = torch.arange(self.edges, device=DEVICE) * self.nodes // max(self.edges, 1)
        source = torch.randint(0, self.nodes, (self.edges,), generator=generator, device=DEVICE)
        vectors = torch.randn(self.nodes, self.k, generator=generator, device=DEVICE) / self.nodes**0.5
        return {
            "x": torch.randn(self.nodes, 8, generator=generator, device=DEVICE).to(dtype),
            "edge_index": torch.stack([source, target]),
            "eigvals": torch.linspace(0, 2, self.k, device=DEVICE).unsqueeze(0).to(dtype),
            "eigvecs": vectors.to(dtype),
            "eigmask": torch.ones(1, self.k, dtype=torch.bool, device=DEVICE),
        }


DENSE = [
    Graph("1,000 nodes, 10k edges", 1_000, 10_000, rival=True),
    Graph("10,000 nodes, 100k edges", 10_000, 100_000, rival=True),
    Graph("20,000 nodes, 400k edges", 20_000, 400_000, rival=True),
    Graph("40,000 nodes, 1.6M edges", 40_000, 1_600_000),
    Graph("60,000 nodes, 3.6M edges", 60_000, 3_600_000),
]
SPARSE = [
    Graph("100,000 nodes, degree 10", 100_000, 1_000_000),
    Graph("1,000,000 nodes, degree 10", 1_000_000, 10_000_000),
    Graph("10,000,000 nodes, degree 10", 10_000_000, 100_000_000, half=True),
]


def make_model(glob: Global = "gssc", layers: int = 4, channels: int = 96) -> GSSC:
    """The model of all workloads, one output per graph, about 490,000 parameters."""
    torch.manual_seed(0)
    model = GSSC(1, channels, layers, node_features=8, local="gatedgcn", glob=glob, phi_channels=32)
    return model.to(DEVICE)


def checkpointed(model: GSSC) -> GSSC:
    """The same model with every layer computed again in the backward pass."""
    for layer in model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    return model


def training(model: nn.Module, inputs: dict[str, Any]) -> dict[str, Tensor]:
    """Output and gradients of all parameters that have one."""
    out = model(**inputs)
    named = dict(model.named_parameters())
    found = torch.autograd.grad(out.sum(), list(named.values()), allow_unused=True)
    grads = {name: grad for name, grad in zip(named, found, strict=True) if grad is not None}
    return {"output": out.detach(), **grads}


def error(graph: Graph, channels: int = 96) -> float:
    """The largest relative error of output and gradients in float32, against float64.

    Gradients that vanish (a bias before a norm) are measured by the largest of all.
    """
    found = training(make_model(channels=channels), graph.inputs())
    expected = training(make_model(channels=channels).double(), graph.inputs(torch.float64))
    largest = max(float(value.norm()) for value in expected.values())
    errors = [
        float((found[name].double() - value).norm() / value.norm().clamp(min=1e-4 * largest))
        for name, value in expected.items()
    ]
    return max(errors)


def steps(graph: Graph, glob: Global) -> Iterator[tuple[str, Callable[[], object]]]:
    """Training and inference as functions of nothing."""
    dtype = torch.bfloat16 if graph.half else torch.float32
    model, inputs = make_model(glob).to(dtype), graph.inputs(dtype)

    def infer() -> Tensor:
        with torch.no_grad():
            return model(**inputs)

    yield "training", partial(training, checkpointed(model) if graph.half else model, inputs)
    model.eval()
    yield "inference", infer


def run(graph: Graph, with_rivals: bool = True) -> Iterator[Result]:
    """Training and inference of one graph, launched and, up to 60,000 nodes, replayed."""
    globs: tuple[Global, ...] = ("gssc", "attention") if graph.rival and with_rivals else ("gssc",)
    for glob in globs:
        torch.cuda.empty_cache()
        for name, step in steps(graph, glob):
            for replay in (False, True) if graph.nodes <= 60_000 and glob == "gssc" else (False,):
                label = f"{glob}, {name}" + (", bf16, layers checkpointed" if graph.half else "")
                label += ", replayed" if replay else ""
                try:
                    yield Result(graph.name, label, measure(step, 100, replay=replay), None, None)
                except torch.cuda.OutOfMemoryError:
                    yield Result(graph.name, label, None, None, None, "out of memory")


def profiled(graph: Graph, top: int = 25) -> Iterator[str]:
    """The kernels of one training step that take the longest."""
    _, step = next(steps(graph, "gssc"))
    step()
    clear()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as trace:
        step()
        torch.cuda.synchronize()
    found = [event for event in trace.key_averages() if str(event.device_type).endswith("CUDA")]
    found.sort(key=lambda event: -event.self_device_time_total)
    total = sum(event.self_device_time_total for event in found)
    yield f"{graph.name}: kernels take {total / 1e3:.2f} ms, {sum(event.count for event in found)} launches"
    for event in found[:top]:
        yield f"{event.self_device_time_total / 1e3:8.3f} ms {event.count:5} × {event.key[:110]}"


def tune(graph: Graph) -> Iterator[str]:
    """A training step, replayed, for ways to cut the work on edges, and with products in tf32."""
    default = launch.WIDTHS, launch.ELEMENTS, launch.PROGRAMS
    for widths, elements, programs in (default, (default[0], 256, 16), (default[0], 512, 32), ((), 512, 16)):
        launch.WIDTHS, launch.ELEMENTS, launch.PROGRAMS = widths, elements, programs
        try:
            _, step = next(steps(graph, "gssc"))
            timing = measure(step, 100, replay=True)
            cut = f"widths {widths} elements {elements} programs {programs}"
            yield f"{cut}: {timing.p50:.2f} ms {timing.peak_mb:,.0f} MB"
        finally:
            launch.WIDTHS, launch.ELEMENTS, launch.PROGRAMS = default
    torch.set_float32_matmul_precision("high")
    try:
        timing = measure(next(steps(graph, "gssc"))[1], 100, replay=True)
        yield f"default, products in tf32: {timing.p50:.2f} ms"
    finally:
        torch.set_float32_matmul_precision("highest")
