"""Workloads of the convolution alone, forward and backward, and what it is compared with.

X_o, X_s and the gains are given; gradients are taken of all of them. Every variant is judged by the
form of PyTorch's ops in float64 before it is timed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks import peers
from benchmarks.harness import Timing, measure
from gssc import ops

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MOST_FOR_ATTENTION = 60_000  # nodes: beyond, n² takes seconds
# Relative errors ‖computed − expected‖ / ‖expected‖ of output and of every gradient.
LIMITS = {"exact": 1e-5, "tf32": 3e-3, "bf16": 2e-2}
# Of `tune`: rows of a block, warps, stages, tiles per processor.
CANDIDATES = (
    *((64, 4, 3, 4), (64, 4, 3, 2), (64, 4, 4, 4), (32, 4, 3, 8), (32, 4, 3, 4), (32, 4, 4, 8), (32, 4, 4, 4)),
    *((32, 4, 2, 8), (32, 2, 3, 8), (16, 2, 4, 8)),
)


@dataclass(frozen=True)
class Workload:
    """A packed batch: sizes of its graphs, frequencies, channels."""

    name: str
    sizes: tuple[int, ...]
    k: int = 32
    c: int = 64
    shared: bool = False

    @property
    def nodes(self) -> int:
        return sum(self.sizes)

    @property
    def floor_bytes(self) -> int:
        """What must move at least, forward and backward: nodes by 8C + 4K numbers, and the gains and states."""
        gains = len(self.sizes) * self.k * (1 if self.shared else self.c)
        state = len(self.sizes) * self.k * self.c
        return 4 * (self.nodes * (8 * self.c + 4 * self.k) + 6 * gains + 2 * state)

    def inputs(self, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        generator = torch.Generator(DEVICE).manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, device=DEVICE)

        graphs, gain_channels = len(self.sizes), 1 if self.shared else self.c
        vectors = normal(self.nodes, self.k) / (self.nodes / max(graphs, 1)) ** 0.5
        tensors = {
            "x_o": normal(self.nodes, self.c),
            "x_s": normal(self.nodes, self.c),
            "vectors": vectors,
            "gains": normal(graphs, self.k, gain_channels),
            "self_gains": normal(graphs, self.k, gain_channels),
        }
        cast = {name: value.to(dtype) for name, value in tensors.items()}
        return {**cast, "ptr": torch.tensor([0, *self.sizes], device=DEVICE).cumsum(0)}


def molecules(graphs: int) -> tuple[int, ...]:
    """Sizes of 10 to 40 nodes, 23 on average, as in ZINC."""
    generator = torch.Generator().manual_seed(0)
    return tuple((torch.randn(graphs, generator=generator) * 4.5 + 23.2).round().clamp(10, 40).int().tolist())


SMALL = [
    Workload("zinc batch of 32", molecules(32), k=16, shared=True),
    Workload("zinc batch of 4096", molecules(4096), k=16, shared=True),
    Workload("64 graphs of 500", (500,) * 64),
    Workload("one graph of 1,000", (1_000,)),
    Workload("one graph of 10,000", (10_000,)),
    Workload("one graph of 60,000", (60_000,)),
]
LARGE = [Workload("one graph of 250,000", (250_000,)), Workload("one graph of 1,000,000", (1_000_000,))]


def gradients(function: Callable[..., Tensor], inputs: dict[str, Tensor], weight: Tensor) -> dict[str, Tensor]:
    """Output and gradients of everything but the vectors, by name."""
    names = [name for name, value in inputs.items() if value.is_floating_point() and name != "vectors"]
    fresh = {name: value.detach().requires_grad_(name in names) for name, value in inputs.items()}
    out = function(**fresh)
    grads = torch.autograd.grad(out, [fresh[name] for name in names], weight)
    return {"output": out.detach(), **dict(zip(names, grads, strict=True))}


def error(function: Callable[..., Tensor], inputs: dict[str, Tensor]) -> float:
    """The largest relative error of output and gradients, against PyTorch's ops in float64 on the same inputs."""
    weight = torch.randn_like(inputs["x_o"])
    wide = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    expected = gradients(lambda **i: ops.gssc_conv(**i, backend="torch"), wide, weight.double())
    computed = gradients(function, inputs, weight)
    return max(_relative(computed[name], expected[name]) for name in expected)


def _relative(computed: Tensor, expected: Tensor) -> float:
    return float((computed.double() - expected).norm() / expected.norm().clamp(min=1e-30))


def explicit_z(**inputs: Tensor) -> Tensor:
    """The convolution of one graph by explicit z tensors, with weights on z."""
    x_o, x_s, vectors, phi, weights = (inputs[n] for n in ("x_o", "x_s", "vectors", "phi", "weights"))
    return peers.explicit_z(x_o, x_s, vectors, phi, [partial(F.linear, weight=weight.T) for weight in weights])


def _check_explicit_z(inputs: dict[str, Tensor], nodes: int = 1000) -> None:
    few = {n: v[:nodes] if n in ("x_o", "x_s", "vectors") else v for n, v in inputs.items()}
    q, k, sq, sk = (few["phi"] @ weight for weight in few["weights"])
    ptr = torch.tensor([0, nodes], device=q.device)
    expected = ops.gssc_conv(few["x_o"], few["x_s"], few["vectors"], q * k, sq * sk, ptr, backend="torch")
    assert _relative(explicit_z(**few), expected.double()) < LIMITS["exact"]


def flash_attention(**inputs: Tensor) -> Tensor:
    """Attention by the flash kernel, which takes half precision only."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        return peers.softmax_attention(**inputs)


def rivals(work: Workload) -> Iterator[tuple[str, Callable[[], object]]]:
    """Other ways to let every node hear from every other, on one graph of the same size, with as many channels.

    Attention has four heads; it and explicit z are given what the convolution is given, features already projected,
    while Performer brings its own projections.
    """
    if len(work.sizes) != 1:
        return
    base = work.inputs()
    weight = torch.randn_like(base["x_o"])
    extra = {
        "phi": torch.randn(1, work.k, work.c, device=DEVICE),
        "weights": torch.randn(4, work.c, work.c, device=DEVICE) / work.c**0.5,
    }
    inputs = {"x_o": base["x_o"], "x_s": base["x_s"], "vectors": base["vectors"], **extra}
    _check_explicit_z(inputs, min(work.nodes, 1000))
    yield "explicit z", lambda: gradients(explicit_z, inputs, weight)
    if work.nodes <= MOST_FOR_ATTENTION:
        parts = {n: torch.randn(work.nodes, work.c, device=DEVICE) for n in ("q", "k", "v")}
        halves = {name: part.to(torch.bfloat16) for name, part in parts.items()}
        shape = torch.randn(1, peers.HEADS, work.nodes, work.c // peers.HEADS, device=DEVICE)
        yield "PyTorch attention, float32", lambda: gradients(peers.softmax_attention, parts, shape)
        yield "flash attention, bf16", lambda: gradients(flash_attention, halves, shape.to(torch.bfloat16))
    performer = peers.performer(work.c).to(DEVICE)
    x = base["x_o"].unsqueeze(0)
    leaves = list(performer.parameters())

    def step() -> object:
        inside = x.detach().requires_grad_()
        return torch.autograd.grad(performer(inside), [inside, *leaves], weight.unsqueeze(0), allow_unused=True)

    yield "PyG Performer", step


def variants(work: Workload) -> Iterator[tuple[str, str, bool, Callable[..., Tensor], torch.dtype]]:
    """Name, kind of precision, whether it can be captured, function, dtype."""

    def by(backend: Literal["torch", "triton"]) -> Callable[..., Tensor]:
        return lambda **inputs: ops.gssc_conv(**inputs, backend=backend)

    def tf32(**inputs: Any) -> Tensor:
        torch.set_float32_matmul_precision("high")
        return ops.gssc_conv(**inputs, backend="triton")

    yield "fused", "exact", True, by("triton"), torch.float32
    yield "fused, tf32", "tf32", True, tf32, torch.float32
    yield "fused, bf16", "bf16", True, by("triton"), torch.bfloat16
    yield "eager", "exact", False, by("torch"), torch.float32


@dataclass(frozen=True)
class Result:
    """One variant of one workload."""

    workload: str
    variant: str
    timing: Timing | None
    error: float | None
    floor_ms: float | None
    problem: str = ""


def run(work: Workload, bandwidth: float, with_rivals: bool = True) -> Iterator[Result]:
    """Check and time all variants of a workload; what is wrong or does not fit is not timed."""
    for name, kind, capture, function, dtype in variants(work):
        try:
            inputs = work.inputs(dtype)
            wrong = error(function, inputs)
            floor = work.floor_bytes / bandwidth * 1e3 * (dtype.itemsize / 4)
            if not wrong <= LIMITS[kind]:
                yield Result(work.name, name, None, wrong, floor, f"wrong: error {wrong:.1e}, limit {LIMITS[kind]:.0e}")
                continue
            weight = torch.randn_like(inputs["x_o"])

            def step(
                function: Callable[..., Tensor] = function, inputs: dict[str, Tensor] = inputs, weight: Tensor = weight
            ) -> object:
                return gradients(function, inputs, weight)

            yield Result(work.name, name, measure(step, replay=capture), wrong, floor)
            if capture and name == "fused":
                yield Result(work.name, "fused, launched", measure(step), wrong, floor)
        finally:
            torch.set_float32_matmul_precision("highest")
    if with_rivals:
        for name, rival in rivals(work):
            torch.cuda.empty_cache()
            try:
                yield Result(work.name, name, measure(rival), None, None)
            except torch.cuda.OutOfMemoryError:
                yield Result(work.name, name, None, None, None, "out of memory")


def tune(work: Workload, bandwidth: float) -> Iterator[str]:
    """Forward and backward separately for several ways to cut the work, by replay."""
    from gssc.ops.conv import triton

    inputs = work.inputs()
    weight = torch.randn_like(inputs["x_o"])
    x_o, x_s, p, a, a_s, ptr = (inputs[n] for n in ("x_o", "x_s", "vectors", "gains", "self_gains", "ptr"))
    state = triton.conv_triton(x_o, x_s, p, a, a_s, None, ptr)[1]
    floors = [4e3 * work.nodes * (m * work.c + 2 * work.k) / bandwidth for m in (3, 5)]

    def forward() -> object:
        return triton.conv_triton(x_o, x_s, p, a, a_s, None, ptr)

    def backward() -> object:
        return triton.conv_triton_backward(weight, x_s, p, a, a_s, ptr, state)

    default = triton.FORWARD, triton.BACKWARD
    for rows, warps, stages, tiles in CANDIDATES:
        tuning = triton.Tuning(rows=rows, warps=warps, stages=stages, tiles=tiles)
        triton.FORWARD = triton.BACKWARD = tuning
        label = f"{work.nodes:>9,} {tuning.exact:7} rows {rows:3} warps {warps} stages {stages} tiles {tiles:2}"
        try:
            wrong = error(lambda **i: ops.gssc_conv(**i, backend="triton"), inputs)
            times = [measure(function, 60, replay=True).p50 for function in (forward, backward)]
            parts = " ".join(f"{t:.4f} ms ({t / floor:.2f}×)" for t, floor in zip(times, floors, strict=True))
            yield f"{label}: forward, backward {parts} error {wrong:.1e}"
        except Exception as problem:  # a shape that does not fit is a result too
            yield f"{label}: {type(problem).__name__}: {str(problem)[:80]}"
        finally:
            triton.FORWARD, triton.BACKWARD = default
