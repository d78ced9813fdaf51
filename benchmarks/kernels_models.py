"""Whole models on large graphs: 4 × (GatedGCN + global part), width 96, forward and backward, and inference.

The model in float32, whose message passing and convolution are fused, is judged by the same model in float64, whose
are not. Time and memory are those of one graph with random vectors in place of eigenvectors: the same work.

For millions of nodes there are bfloat16 and layers computed again in the backward pass (``recompute`` of `GSSC`). With
n nodes, E edges, C channels, b bytes per number, S = bEC the bytes of edge features and T = bnC those of node features,
training of 4 layers with ``recompute=2`` needs about

    3 S       features of the edges that enter the two layers of a group, and their gradient or its room
    5 T       inputs of layers
    20 T      one layer: what its forward pass keeps and, in the backward pass of the edges, float32 sums (2 T each)
    32 E      edges, and in the orders of their ends

that is 110 GB for ten million nodes of degree 10 (`estimated_gb`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.harness import clear, kernels_of, measure
from benchmarks.kernels_conv import DEVICE, Result
from gssc import GSSC

Global = Literal["gssc", "attention"]

# Relative errors, norm by norm, of the output and of gradients: where a ReLU is within rounding of zero, float32 and
# float64 may differ in whether it passes, and then the gradient of a row does.
OUTPUT_LIMIT, LIMIT = 1e-5, 1e-2
HALF_LIMIT = 0.1  # of the output in bfloat16
SLOPE = 1.05  # largest slope of log time against log(n + E) that counts as linear


@dataclass(frozen=True)
class Graph:
    """One random graph; edges sorted by target."""

    name: str
    nodes: int
    edges: int
    k: int = 32
    precision: str = "float32"  # or bf16, throughout
    recompute: int = 0  # see GSSC
    rival: bool = False  # whether softmax attention is timed as well

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.precision == "bf16" else torch.float32

    @property
    def setting(self) -> str:
        """What is not the default, for the name of a variant."""
        words = [] if self.precision == "float32" else [self.precision]
        words += [f"recompute={self.recompute}"] if self.recompute else []
        return "".join(f", {word}" for word in words)

    def inputs(self, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
        """Made where it is used: a hundred million edges take seconds on a GPU, and no more memory than they need."""
        generator = torch.Generator(DEVICE).manual_seed(0)
        edge_index = torch.empty(2, self.edges, dtype=torch.long, device=DEVICE)
        edge_index[0].random_(0, self.nodes, generator=generator)
        torch.arange(self.edges, out=edge_index[1])
        edge_index[1].mul_(self.nodes).div_(max(self.edges, 1), rounding_mode="floor")
        vectors = torch.randn(self.nodes, self.k, generator=generator, device=DEVICE).div_(self.nodes**0.5)
        return {
            "x": torch.randn(self.nodes, 8, generator=generator, device=DEVICE).to(dtype),
            "edge_index": edge_index,
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
]
GROWTH = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000)
CHANNELS, LAYERS = 96, 4


def sparse(nodes: int, degree: int, precision: str, recompute: int) -> Graph:
    """A graph of constant degree."""
    return Graph(f"{nodes:,} nodes, degree {degree}", nodes, nodes * degree, precision=precision, recompute=recompute)


def make_model(
    glob: Global = "gssc",
    layers: int = LAYERS,
    channels: int = CHANNELS,
    recompute: int = 0,
    level: Literal["graph", "node"] = "graph",
) -> GSSC:
    """The model of all workloads, about 490,000 parameters: one output per graph, to be judged one per node."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"node_features": 8, "local": "gatedgcn", "glob": glob, "phi_channels": 32}
    return GSSC(1, channels, layers, recompute=recompute, level=level, **options).to(DEVICE)


def estimated_gb(graph: Graph) -> float:
    """Gigabytes at the peak of training, counted as above; without recomputation every layer keeps its part."""
    wide = 2 if graph.precision == "bf16" else 1  # float32 numbers of the edge kernels, in units of one of the model
    edges, nodes = (graph.dtype.itemsize * CHANNELS * count for count in (graph.edges, graph.nodes))
    # Forward keeps ten node tensors of a layer, and the sums of gates (with those of messages in half precision).
    kept = 10 + (1 if wide == 1 else 2 * wide)
    backward = 7 + 3 * wide  # gradients, what nodes told edges, and u, w and the sums of normalised logits
    if graph.recompute == 0:
        edge_tensors, node_tensors = LAYERS, LAYERS * kept + backward
    else:
        inside = min(graph.recompute, LAYERS)
        groups = -(-LAYERS // inside)
        # The first layer has no edges to keep; besides, gradient and room of one layer.
        edge_tensors = (groups - 1 if inside > 1 else LAYERS - 1) + (1 if inside > 1 else 0) + 1
        node_tensors = groups + inside + 1 + backward + 2 * wide + 1
    fixed = graph.edges * 32 + graph.nodes * graph.dtype.itemsize * (graph.k + 8)
    return (edge_tensors * edges + node_tensors * nodes + fixed) / 1e9


def training(model: nn.Module, inputs: dict[str, Any], weight: Tensor | None = None) -> dict[str, Tensor]:
    """Output and gradients of all parameters that have one, of the (weighted) sum of outputs."""
    out = model(**inputs)
    named = dict(model.named_parameters())
    total = out.sum() if weight is None else (out * weight.to(out.dtype)).sum()
    parts = torch.autograd.grad(total, list(named.values()), allow_unused=True)
    grads = {name: grad for name, grad in zip(named, parts, strict=True) if grad is not None}
    return {"output": out.detach(), **grads}


def errors(graph: Graph, channels: int = CHANNELS, recompute: int = 0) -> tuple[float, float]:
    """The relative error of the output and the largest one of gradients in float32, against float64.

    Outputs are those of nodes, under random weights: the mean of all nodes after a BatchNorm is a constant, whose
    gradients say nothing. Gradients that vanish (a bias before a norm) are measured by the largest of all.
    """
    weight = _weight(graph)
    computed = training(make_model(channels=channels, recompute=recompute, level="node"), graph.inputs(), weight)
    plain = make_model(channels=channels, level="node").double()
    expected = training(plain, graph.inputs(torch.float64), weight)
    largest = max(float(value.norm()) for value in expected.values())
    wrong = {
        name: float((computed[name].double() - value).norm() / value.norm().clamp(min=1e-4 * largest))
        for name, value in expected.items()
    }
    return wrong.pop("output"), max(wrong.values())


def _weight(graph: Graph) -> Tensor:
    return torch.randn(graph.nodes, 1, generator=torch.Generator(DEVICE).manual_seed(1), device=DEVICE)


def half_error(graph: Graph, channels: int = CHANNELS, recompute: int = 0) -> float:
    """The relative error of the output in bfloat16, against float64; infinite where a gradient is not finite."""
    model = make_model(channels=channels, recompute=recompute, level="node").to(torch.bfloat16)
    computed = training(model, graph.inputs(torch.bfloat16), _weight(graph))
    if not all(bool(torch.isfinite(value).all()) for value in computed.values()):
        return float("inf")
    plain = make_model(channels=channels, level="node").double()
    with torch.no_grad():
        expected = plain(**graph.inputs(torch.float64))
    return float((computed["output"].double() - expected).norm() / expected.norm())


def steps(graph: Graph, glob: Global) -> Iterator[tuple[str, Callable[[], object]]]:
    """Training and inference as functions of nothing."""
    model, inputs = make_model(glob, recompute=graph.recompute).to(graph.dtype), graph.inputs(graph.dtype)

    def infer() -> Tensor:
        with torch.no_grad():
            return model(**inputs)

    yield "training", partial(training, model, inputs)
    model.eval()
    yield "inference", infer


def run(graph: Graph, with_rivals: bool = True) -> Iterator[Result]:
    """Training and inference of one graph, launched and, up to 60,000 nodes, replayed."""
    globs: tuple[Global, ...] = ("gssc", "attention") if graph.rival and with_rivals else ("gssc",)
    for glob in globs:
        torch.cuda.empty_cache()
        for name, step in steps(graph, glob):
            captured = graph.nodes <= 60_000 and glob == "gssc" and not graph.recompute
            for replay in (False, True) if captured else (False,):
                label = f"{glob}, {name}{graph.setting}" + (", replayed" if replay else "")
                try:
                    if graph.edges * CHANNELS >= 1 << 31 and not _finite(step()):
                        yield Result(graph.name, label, None, None, None, "wrong: not all numbers are finite")
                        continue
                    yield Result(graph.name, label, measure(step, 100, replay=replay), None, None)
                except torch.cuda.OutOfMemoryError:
                    yield Result(graph.name, label, None, None, None, "out of memory")


def _finite(computed: object) -> bool:
    """Where tensors are larger than 32 bits can count, no reference fits beside them; rubbish would show here."""
    tensors = computed.values() if isinstance(computed, dict) else [computed]
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors if isinstance(tensor, Tensor))


def slopes(sizes: Sequence[float], times: Sequence[float]) -> tuple[float, float]:
    """The slope of log time against log size, by least squares, and the steepest between neighbouring sizes."""
    x, y = np.log(sizes), np.log(times)
    fitted = float(np.polyfit(x, y, 1)[0])
    return fitted, float(np.max(np.diff(y) / np.diff(x)))


def profiled(graph: Graph, top: int = 25) -> Iterator[str]:
    """The kernels of one training step that take the longest."""
    _, step = next(steps(graph, "gssc"))
    step()
    clear()
    yield from kernels_of(step, top)
