"""Steps without launch overhead: captured as CUDA graphs over a few padded shapes, and replayed.

A step on small graphs is hundreds of small kernels, and launching them takes longer than running them. A CUDA graph
launches them all at once, but always the same ones, with the same sizes in the same memory. So batches are padded to
one of a few shapes and copied to where the graph of that shape reads them. `Replay` is a captured step, `replayed` all
of it for a step of one's own. The trainer's steps are `Replay`s too (`gssc.train.replayed`).
"""

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map
from torch_geometric.data import Batch, Data

from gssc.checks import check_positive, fail, first_line
from gssc.padding import Shape, StaticBatch, rounded_up, size_of
from gssc.spectra.attached import check_fresh

WARM_UP_STEPS = 3
MOST_CHANGES = 3  # of settings of the optimiser that a captured step cannot follow
HAVE_ONE_KERNEL = torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD
# Capturing, and seeding with the replay that draws from the seed, concern one run at a time.
ONE_AT_A_TIME = threading.RLock()


class CaptureError(RuntimeError):
    """A step cannot be captured; the message says why, in a few words."""


class Replay:
    """A function without arguments, captured as a CUDA graph where there is a GPU, called as it is elsewhere.

    Args:
        function: Every replay reads and writes the memory that it reads and writes here, its result included.
        device: Where it runs.
        state: What it changes and is to find as it is now: the warm-up calls leave no trace in it.
        pool: Memory that several graphs share, of which one runs at a time.
        careful: Raise `CaptureError` where the function waits for the GPU or cannot be captured.
    """

    def __init__(
        self,
        function: Callable[[], Any],
        device: torch.device,
        state: Sequence[Tensor],
        pool: Any = None,
        careful: bool = False,
    ) -> None:
        self.function = function
        self.graph: torch.cuda.CUDAGraph | None = None
        self.result: Any = None
        if device.type != "cuda":
            return
        with ONE_AT_A_TIME:
            current, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
            before = [tensor.detach().clone() for tensor in state]
            side.wait_stream(current)
            try:
                with torch.cuda.stream(side):
                    for turn in range(WARM_UP_STEPS):
                        with _never_waiting(careful and turn == WARM_UP_STEPS - 1):
                            function()
                        _restore(state, before)  # each time: a table may have one row left
                current.wait_stream(side)
                graph = torch.cuda.CUDAGraph()
                # The outer stream comes back also after a capture that fails, which leaves the inner one set.
                with (
                    torch.cuda.stream(current),
                    torch.cuda.graph(graph, pool, stream=side, capture_error_mode="thread_local"),
                ):
                    self.result = function()
                self.graph = graph
            except (RuntimeError, ValueError) as error:
                current.wait_stream(side)
                _restore(state, before)
                if not careful or isinstance(error, torch.OutOfMemoryError):
                    raise
                raise CaptureError(f"it cannot be captured ({first_line(error)})") from None
            current.wait_stream(side)

    def __call__(self) -> Any:
        """Run it; the result of a captured function is overwritten by the next call."""
        if self.graph is None:
            return self.function()
        self.graph.replay()
        return self.result


@torch.no_grad()
def _restore(state: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(state, values, strict=True):
        tensor.copy_(value)


@contextmanager
def _never_waiting(strict: bool) -> Iterator[None]:
    """Where ``strict``, an operation for which the host waits for the GPU raises, before it can spoil a capture."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # That the mode does not notice all such operations, PyTorch says once per process.
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error" if strict else mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


def replayed(
    step: Callable[[Any], Any], model: nn.Module, optimizer: torch.optim.Optimizer | None = None, *, shapes: int = 8
) -> "ReplayedStep":
    """A training or inference step of one's own, replayed as CUDA graphs, for the loop over a PyG ``DataLoader``.

        def step(batch):
            optimizer.zero_grad()
            out = model(**gssc.model_inputs(batch))
            loss = F.l1_loss(out[: len(batch.y)], batch.y)  # rows of padding come last
            loss.backward()
            optimizer.step()
            return loss

        step = gssc.replayed(step, model, optimizer)
        for batch in loader:
            loss = step(batch)

    The step is given batches on the model's device that are padded by one more graph, at the end, which holds the
    padding nodes, and edges among those. ``node_mask`` and ``edge_mask`` say what is real, ``num_graphs`` counts the
    graph of padding. Tensors with a row per graph have one more for it, but ``y``, which stays as it is; integer ``y``
    of nodes is -100 at padding, which ``F.cross_entropy`` leaves out. Layers of this package take the masks; others
    must not mix the nodes of different graphs (as BatchNorm does).

    The first step of an optimiser that has no state yet runs as it is. Each new shape is captured when it comes first;
    weights, statistics, optimiser and random numbers are those before. Learning rates may change from step to step.
    Everything else in Python runs only while a step is captured. Where that cannot be done, steps run as they are, on
    batches as they are, and a warning says why, once.

    Args:
        step: Takes a batch; returns tensors (one, or in tuples, lists, dicts) or None. Must not look at values on the
            host (``.item()``), and be complete: gradients are none when it begins.
        model: What the step changes or reads, parameters and buffers.
        optimizer: If the step has one. It becomes ``capturable``, and ``fused`` unless another way to compute steps was
            asked for; its learning rates become tensors.
        shapes: How many different shapes are captured at most.
    """
    check_positive("shapes", shapes)
    return ReplayedStep(step, model, optimizer, shapes)


class ReplayedStep:
    """See `replayed`. ``reason`` says why steps run as they are; None where they are replayed."""

    def __init__(
        self, step: Callable[[Any], Any], model: nn.Module, optimizer: torch.optim.Optimizer | None, shapes: int
    ) -> None:
        self.step, self.model, self.optimizer, self.most = step, model, optimizer, shapes
        parameter = next(model.parameters(), None)
        if parameter is None:
            fail("model", "one with parameters", type(model).__name__)
        self.device = parameter.device
        self.batches: dict[Shape, StaticBatch] = {}
        self.replays: dict[tuple[Shape, bool, bool], Replay] = {}
        self.reason: str | None = None
        self._warned = False
        self._groups: list[dict[str, Any]] = [] if optimizer is None else optimizer.param_groups
        self._rates = [torch.tensor(float(g["lr"]), dtype=torch.float32, device=self.device) for g in self._groups]
        self._has_state = optimizer is None or bool(optimizer.state)
        self._changes = 0
        if self.device.type != "cuda":
            self._give_up("there is no GPU" if not torch.cuda.is_available() else f"the model is on {self.device}")
        elif optimizer is not None:
            self._make_capturable(optimizer)
        self._pool = torch.cuda.graph_pool_handle() if self.device.type == "cuda" else None
        self._settings = self._frozen_settings()

    def _make_capturable(self, optimizer: torch.optim.Optimizer) -> None:
        """From now on, what an optimiser counts on the host it counts on the device.

        Where it is left to PyTorch how a step is computed, it is in one kernel, which takes a rate on the device.
        """
        for group in self._groups:
            if "capturable" in group:
                group["capturable"] = True
            if isinstance(optimizer, HAVE_ONE_KERNEL) and group["fused"] is None and group["foreach"] is None:
                group["fused"] = True
        for entries in optimizer.state.values():
            if isinstance(entries.get("step"), Tensor):
                entries["step"] = entries["step"].to(self.device, torch.float32)

    def __call__(self, batch: Data) -> Any:
        check_fresh(batch)  # a padded copy would not tell
        if self.reason is not None:
            return self.step(batch.to(self.device))
        self._tie_rates()
        if not self._has_state:
            self._has_state = True
            return self.step(batch.to(self.device))  # it makes the state of the optimiser
        if not isinstance(batch, Batch):
            batch = Batch.from_data_list([batch])
        try:
            self._notice_settings()
            static = self._static(batch)
            if static is not None:
                return self._replay(static, batch)
        except CaptureError as error:
            self._give_up(str(error))
        return self.step(batch.to(self.device))

    def _static(self, batch: Batch) -> StaticBatch | None:
        """The memory for a batch of this size; None where there is none."""
        if not self.batches and (why_not := StaticBatch.why_not(batch)) is not None:
            raise CaptureError(why_not)
        graphs, nodes, edges = size_of(batch)
        shape = pick_shape(list(self.batches), graphs, nodes, edges, self.most)
        if shape is None:
            size = f"{graphs} graphs, {nodes:,} nodes and {edges:,} edges"
            if not self._warned:
                _warn(f"batches such as one of {size} run as they are, because {self.most} other shapes are captured")
            self._warned = True
            return None
        if shape not in self.batches:
            self.batches[shape] = StaticBatch(batch, shape, self.device)
        return self.batches[shape]

    def _replay(self, static: StaticBatch, batch: Batch) -> Any:
        static.load(batch)
        key = static.shape, self.model.training, torch.is_grad_enabled()
        if key not in self.replays:
            self.replays[key] = self._capture(static.batch)
        result = self.replays[key]()
        return tree_map(lambda out: out.detach().clone() if isinstance(out, Tensor) else out, result)

    def _capture(self, batch: Batch) -> Replay:
        parameters = list(self.model.parameters())

        def function() -> Any:
            for parameter in parameters:
                parameter.grad = None
            return self.step(batch)

        state = [*parameters, *self.model.buffers()]
        if self.optimizer is not None:
            in_model = {id(tensor) for tensor in state}
            state += [p for group in self._groups for p in group["params"] if id(p) not in in_model]
            state += tree_leaves([dict(entries) for entries in self.optimizer.state.values()])
        tensors = [tensor for tensor in state if isinstance(tensor, Tensor)]
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            try:
                replay = Replay(function, self.device, tensors, self._pool, careful=True)
            except CaptureError:
                # A capture that failed leaves the generator in the middle of it: it gets another.
                fresh = torch.Generator(self.device)
                torch.cuda.default_generators[self.device.index or 0].graphsafe_set_state(fresh.graphsafe_get_state())
                raise
        others = {type(out).__name__ for out in tree_leaves(replay.result) if not isinstance(out, Tensor | None)}
        if others:
            raise CaptureError(f"it returns more than tensors ({', '.join(sorted(others))})")
        return replay

    def _tie_rates(self) -> None:
        """Learning rates live in tensors that captured steps read; what was put in their place is copied there."""
        for group, rate in zip(self._groups, self._rates, strict=True):
            if group["lr"] is not rate:
                rate.fill_(group["lr"])
                group["lr"] = rate

    def _frozen_settings(self) -> list[dict[str, Any]]:
        """What captured steps have taken from the optimiser once and for all."""
        return [
            {name: value for name, value in group.items() if name not in ("params", "lr", "initial_lr", "swa_lr")}
            for group in self._groups
        ]

    def _notice_settings(self) -> None:
        """Settings that were changed, but for the rate, are captured anew; ones that always change are too much."""
        settings = self._frozen_settings()
        if settings == self._settings:
            return
        self._settings, self._changes = settings, self._changes + 1
        self.replays.clear()
        if self._changes > MOST_CHANGES:
            raise CaptureError("settings of the optimiser other than the learning rate change from step to step")

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        self.replays.clear()
        self.batches.clear()
        _warn(f"steps run as they are, because {reason}")


def _warn(text: str) -> None:
    warnings.warn(f"gssc.replayed: {text}", stacklevel=4)


def pick_shape(shapes: Sequence[Shape], graphs: int, nodes: int, edges: int, most: int) -> Shape | None:
    """The smallest of the shapes in use that holds a batch with so many graphs exactly; else a new, roomy one.

    A shape that is more than half empty is not taken while there may be more of them; None where there may not.
    """
    fitting = [shape for shape in shapes if shape.graphs == graphs and shape.fits(graphs, nodes, edges)]
    smallest = min(fitting, key=lambda shape: (shape.nodes, shape.edges), default=None)
    if smallest is not None and (smallest.nodes <= 2 * nodes + 128 or len(shapes) >= most):
        return smallest
    # A few more than there are, so that most batches of the same kind fit as well.
    roomy = (rounded_up(rows + rows // 16) for rows in (nodes, edges))
    return None if len(shapes) >= most else Shape(graphs, *roomy)
