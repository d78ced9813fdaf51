"""Normalisation of node and edge features, also of padded batches and of batches spread over processes."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Literal

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from gssc.checks import check_choice, check_shape, fail
from gssc.nn.moments import Moments, joined_moments, moments_over_ranks, row_moments
from gssc.ops.halo import begin, begin_all_reduce
from gssc.ops.norm.naive import move_running_statistics

NormName = Literal["batch", "layer", "none"]
NORMS = ("batch", "layer", "none")
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class BatchNorm(nn.BatchNorm1d):
    """Batch normalisation of rows [N, C] for batches of any size, padded or not, in one process or in several.

    One row has no variance and no row no mean: there, PyTorch raises or writes NaN into the running statistics. Here
    such a batch is normalised by the running statistics, which it leaves alone.

    With ``mask`` [N] (True = real) the statistics are those of the real rows, and the others become zero: what stands
    in them reaches nothing. The number of real rows is never read by the host. After ``synchronize_batch_norms`` the
    statistics are those of the rows of all processes. Names and shapes in the state are those of ``nn.BatchNorm1d``.
    """

    synchronized = False
    process_group: dist.ProcessGroup | None = None

    def forward(self, x: Tensor, mask: Tensor | None = None, later: bool = False) -> Any:
        """The normalised rows; with ``later`` what gives them when called, and may wait for other processes then."""
        if mask is not None:
            check_shape("mask", mask, x.shape[0])
        spread = self.synchronized and dist.get_world_size(self.process_group) > 1
        if self.training and (mask is not None or spread or x.shape[0] < 2):
            if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
                fail("track_running_stats", "True, for masked or synchronised statistics and single rows", False)
            # Half precision sums in float32.
            rows = x.to(torch.promote_types(x.dtype, torch.float32))
            normed = _begin_over_processes(self, rows, mask) if spread else partial(self._by_moments, rows, mask)
        else:
            normed = partial(super().forward, x)

        def end() -> Tensor:
            out = normed().to(x.dtype)
            return out if mask is None else torch.where(mask.unsqueeze(1), out, 0.0)

        return end if later else end()

    def _by_moments(self, rows: Tensor, mask: Tensor | None) -> Tensor:
        """Like F.batch_norm(training=True), from moments whose count is a tensor."""
        mean, var, _ = self.statistics(row_moments(rows, mask))
        scale = torch.rsqrt(var + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        out = (rows - mean) * scale
        return out if self.bias is None else out + self.bias

    def statistics(self, moments: Moments) -> tuple[Tensor, Tensor, Tensor]:
        """By which mean and variance rows are normalised, after the running ones moved on; 1 / n, or 0 for these."""
        mean, var, batches = (self.get_buffer(name) for name in STATISTICS)
        move_running_statistics((moments.mean, moments.squares, moments.n), mean, var, batches, self.momentum)
        enough, n = moments.n >= 2, moments.n.clamp(min=1)
        mean, var = torch.where(enough, moments.mean, mean), torch.where(enough, moments.squares / n, var)
        return mean, var, torch.where(enough, 1.0 / n, 0.0)


def _moments_at_once(x: Tensor, mask: Tensor | None) -> Moments:
    """`row_moments` in PyTorch's own pass, which has no derivative, where there are rows and no mask."""
    if mask is not None or not len(x):
        return row_moments(x, mask)
    mean, var = torch.ops.aten.batch_norm_update_stats(x, None, None, 0.0)
    return Moments(x.new_full((), len(x)), mean, var * len(x))


def _begin_over_processes(norm: BatchNorm, x: Tensor, mask: Tensor | None) -> Callable[[], Tensor]:
    """Normalisation by moments over processes, which depend on all rows, in PyTorch's own passes.

    With x̂ = (x - μ) s and dx̂ = γ ⊙ dy: dx = s (dx̂ - Σ dx̂ / n - x̂ ⊙ Σ (dx̂ ⊙ x̂) / n), sums over all processes.
    """

    def there(x: Tensor) -> Generator[Any, Any]:
        moments = moments_over_ranks(_moments_at_once(x, mask), norm.process_group)
        weight, bias = yield
        mean, var, share = norm.statistics(moments())
        # PyTorch's passes divide by the number of rows.
        out = F.batch_norm(x, mean, var, weight, bias, False, 0.0, norm.eps) if len(x) else x.clone()
        yield out, x, weight, mean, var, share

    def back(dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, var: Tensor, share: Tensor) -> Iterator[Any]:
        s = torch.rsqrt(var + norm.eps)
        sums = s.new_zeros(2, len(s))
        if len(x):
            known = (x, weight, mean, var, mean, s, False, norm.eps, (False, True, True))
            sums = torch.stack(torch.ops.aten.native_batch_norm_backward(dy.contiguous(), *known)[1:])
        total = begin_all_reduce(sums.clone(), norm.process_group)
        yield sums.unbind()
        slope, level = total() * share * weight * s
        slope = slope * s
        dx = torch.addcmul(slope * mean - level, x, slope, value=-1).addcmul_(dy, weight * s)
        yield dx if mask is None else torch.where(mask.unsqueeze(1), dx, 0.0)

    weight = x.new_ones(x.shape[1]) if norm.weight is None else norm.weight
    bias = x.new_zeros(x.shape[1]) if norm.bias is None else norm.bias
    return begin(there, back, x, weight, bias)


def make_norm(name: NormName, channels: int) -> nn.Module:
    """``"batch"``, ``"layer"`` or ``"none"`` for rows of ``channels``."""
    check_choice("norm", name, NORMS)
    if name == "batch":
        return BatchNorm(channels)
    return nn.LayerNorm(channels) if name == "layer" else nn.Identity()


def synchronize_batch_norms(model: nn.Module, process_group: dist.ProcessGroup | None = None) -> None:
    """Let every ``BatchNorm`` of the model normalise by the rows of all processes, on CPU and GPU.

    Data-parallel training then computes what one process computes with the joint batch: the gradients of the sum of
    all losses, and the same running statistics everywhere. A process may hold one row or none, but every process must
    call forward and backward equally often, since each is a collective.

    Args:
        model: Changed in place; to be called after copies of it are made, if ``process_group`` is given.
        process_group: The processes; ``None`` for all.
    """
    if not dist.is_available() or not dist.is_initialized():
        fail("process_group", "an initialised torch.distributed", "none")
    for name, module in model.named_modules():
        if isinstance(module, BatchNorm):
            module.synchronized, module.process_group = True, process_group
        elif isinstance(module, nn.modules.batchnorm._BatchNorm):
            fail(name, "gssc.nn.BatchNorm, which can be synchronised", type(module).__name__)


def reestimate_batch_norms(
    model: nn.Module, batches: Iterable[Mapping[str, Any]], autocast: AbstractContextManager[Any] | None = None
) -> None:
    """Replace running statistics by the exact mean and unbiased variance of all rows of all batches together.

    Running averages remember weights that have changed since; these belong to the weights as they are, and to no
    particular order of batches. Meanwhile BatchNorm works in training mode: later ones must see rows normalised by the
    weights as they are, hence by each batch (larger batches come closer to evaluation). All else is in eval mode:
    statistics are for evaluation, where nothing is dropped, and the variance that dropout adds would be wrong there.
    Modes are as before afterwards; an error leaves the statistics as they were.

    Args:
        model: Called as ``model(**batch)``, without gradient; compiled parts of it run as they are.
        batches: Inputs of ``forward``, with masks where padded. With synchronised norms the statistics are those of
            the batches of all processes, which must have equally many.
        autocast: For example ``torch.autocast("cuda", torch.bfloat16)``.
    """
    totals: dict[nn.Module, Moments] = {}

    def observe(norm: nn.Module, moments: Moments) -> None:
        totals[norm] = joined_moments(totals[norm], moments) if norm in totals else moments

    number = 0
    with observed_batch_norms(model, observe), autocast if autocast is not None else nullcontext():
        for batch in batches:
            model(**batch)
            number += 1
    if not number:
        fail("batches", "at least one batch", "none")
    set_statistics(model, totals)


@contextmanager
def observed_batch_norms(model: nn.Module, observe: Callable[[nn.Module, Moments], None]) -> Iterator[None]:
    """The mode of `reestimate_batch_norms`: ``observe`` is told the moments (float64) of what comes to every norm.

    Modes and statistics are as before afterwards.
    """

    def look(norm: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        named = dict(zip(("x", "mask"), args, strict=False)) | kwargs
        rows = named["x"] if "x" in named else named["input"]  # as PyTorch calls it
        observe(norm, row_moments(rows.double(), named.get("mask")))

    norms = batch_norms(model).values()
    before = [(norm, norm.momentum, [buffer.clone() for buffer in norm.buffers()]) for norm in norms]
    hooks = [norm.register_forward_pre_hook(look, with_kwargs=True) for norm in norms]
    try:
        # Compiled layers may not run hooks, and would be compiled anew for this mode.
        with in_eval_mode(model), torch.compiler.set_stance("force_eager"), torch.no_grad():
            for norm in norms:
                norm.train()
                norm.momentum = 0.0  # a batch of fewer than two rows is to meet the old statistics
            yield
    finally:
        for hook in hooks:
            hook.remove()
        for norm, momentum, buffers in before:
            norm.momentum = momentum
            for buffer, old in zip(norm.buffers(), buffers, strict=True):
                buffer.copy_(old)


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """No dropout, running statistics; every module's own mode comes back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def batch_norms(model: nn.Module) -> dict[str, nn.BatchNorm1d]:
    """The norms of a model that have running statistics, by name."""
    modules = model.named_modules()
    return {name: m for name, m in modules if isinstance(m, nn.BatchNorm1d) and m.track_running_stats}


@torch.no_grad()
def set_statistics(model: nn.Module, totals: Mapping[nn.Module, Moments]) -> None:
    """Those of all norms or of none; of fewer than two rows there are none to set."""
    pairs = []
    for name, norm in batch_norms(model).items():
        if norm not in totals:
            continue
        moments = totals[norm]
        if isinstance(norm, BatchNorm) and norm.synchronized:
            moments = moments_over_ranks(moments, norm.process_group)()
        if not bool(torch.isfinite(moments.squares).all()):
            fail("batches", "finite activations", f"others before {name}")
        pairs.append((norm, moments))
    for norm, (n, mean, squares) in pairs:
        if n >= 2:
            norm.get_buffer("running_mean").copy_(mean)
            norm.get_buffer("running_var").copy_(squares / (n - 1))
