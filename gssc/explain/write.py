"""A model and a graph in, pictures and tables out: the work of ``gssc explain``."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gssc.checks import check_choice, check_installed, fail
from gssc.datasets import GraphDataset
from gssc.datasets.specs import SPECS
from gssc.explain.atoms import atom_symbols, attributions
from gssc.explain.draw import influence_figure, kernel_figure, rendered
from gssc.explain.jacobian import Reach, by_distance, influences, mean_distance, without_global
from gssc.explain.kernel import bare_graph, check_number, node_kernel
from gssc.explain.layout import hops_to, layout
from gssc.files import write_files
from gssc.report.render import csv_text
from gssc.spectra.packed import edges_of
from gssc.tasks import score_text
from gssc.train.build import build_store
from gssc.train.evaluate import default_dtype
from gssc.train.loaded import LoadedRun


@dataclass(frozen=True)
class Subject:
    """What is looked at: a run's model, and one graph of its dataset as that model takes it."""

    run: LoadedRun
    data: Data
    split: str
    graph: int
    atoms: list[str] | None = None  # of a molecule

    @property
    def nodes(self) -> int:
        return int(self.data.num_nodes or 0)

    @property
    def glob(self) -> str:
        return self.run.recipe.model.glob


def make_subject(run: LoadedRun, dataset: GraphDataset, split: str, graph: int, device: torch.device) -> Subject:
    """The graph with this number of a split, with the spectrum and encodings of the run's recipe for it alone."""
    check_choice("--split", split, dataset.splits)
    graphs = dataset.splits[split]
    number = check_number("--graph", graph, graphs.num_graphs, f"a {split} graph")
    with default_dtype(run.recipe.train.precision):
        one = graphs.part(number, number + 1, dataset.task.level)
        store = build_store(one, run.recipe, dataset.task.level, device, None)
        data = bare_graph(store.batch(torch.arange(1)).inputs, one.num_nodes)
    spec = SPECS.get(dataset.name)
    if spec is not None and spec.node[-1] == "pos" and one.x is not None:
        data.pos = one.x[:, -2:]
    return Subject(run, data, split, number, atom_symbols(run.about, one.x))


def write_explanation(
    subject: Subject,
    node: int,
    folder: Path,
    *,
    against: Subject | None = None,
    layer: int | None = None,
    channel: str = "mean",
    nodes: int | None = 16,
) -> tuple[list[Path], list[str]]:
    """Draw the kernels of a node and the reach of influence, and write pictures and numbers, all of them or none.

    Returns the files, and notes for whoever asked: what is shown, and what could not be. Without ``against``, another
    model on the same graph, influence is compared with that of the same weights with the global part switched off.
    ``channel`` of the kernel is a number, ``"mean"`` or ``"rms"``; ``layer`` None draws all; ``nodes`` is how many
    nodes u influence is averaged over, ``node`` among them, None for all.
    """
    check_installed("gssc explain", "matplotlib")
    u = check_number("--node", node, subject.nodes, "a node")
    if against is not None and against.nodes != subject.nodes:
        fail("--against", f"a run whose graph {subject.graph} has {subject.nodes} nodes", against.nodes)
    place = f"{subject.split}-{subject.graph}-node-{u}"
    has_kernel = subject.glob in ("gssc", "gsc")
    kernels = _kernel(subject, u, f"kernel-{place}", layer, channel) if has_kernel else {}
    notes = [] if has_kernel else [f"no kernel is drawn: the model has none (model.glob={subject.glob})"]
    reach, said = _influence(subject, against, sample(subject.nodes, nodes, u), f"influence-{place}")
    contents = kernels | reach
    if subject.atoms is not None and subject.run.task.level == "graph":
        contents |= _atoms(subject, subject.atoms, f"atoms-{subject.split}-{subject.graph}")
    write_files(folder, contents)
    return [folder / name for name in contents], [*notes, *said]


def sample(count: int, wanted: int | None, node: int) -> list[int]:
    """Some of ``count`` nodes, the same every time, ``node`` always among them; in order."""
    if wanted is None or wanted >= count:
        return list(range(count))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
    return sorted([node, *(v for v in order if v != node)][: max(wanted, 1)])


def _atoms(subject: Subject, atoms: list[str], name: str) -> dict[str, bytes]:
    """The files of what each atom adds to the predictions, in their units (logits of labels and classes)."""
    run, data = subject.run, subject.data
    added = attributions(run.model, data, progress=True).T
    if run.task.kind == "regression":
        added = run.task.predict(added) - run.task.predict(torch.zeros_like(added))  # a difference has no shift
    values, names = added.double().cpu().numpy(), [name or "prediction" for name in run.target_names]
    title = f"{run.recipe.name}: what each atom adds, graph {subject.graph} of {subject.split}"
    panels = list(zip(names, values.T, strict=True))
    figure = kernel_figure(layout(data), edges_of(data).cpu().numpy(), panels, None, title, atoms)
    lines = [[v, atom, *row] for v, (atom, row) in enumerate(zip(atoms, values.tolist(), strict=True))]
    return rendered(figure, name) | {f"{name}.csv": _csv(["v", "atom", *names], lines).encode()}


def _kernel(subject: Subject, u: int, name: str, layer: int | None, channel: str) -> dict[str, bytes]:
    """The files of the kernels of a node, ``name`` with the endings of pictures and table."""
    model, data = subject.run.model, subject.data
    layers = range(len(model.layers)) if layer is None else [layer]
    kernels = {number: node_kernel(model, data, u, number) for number in layers}
    panels = [(f"layer {number}", _over_channels(kernel, channel)) for number, (kernel, _) in kernels.items()]
    words = {"mean": "mean over channels", "rms": "root mean square over channels"}.get(channel, f"channel {channel}")
    if subject.run.recipe.model.kernel == "shared":  # one column says it all
        words = "shared by all channels"
        kernels = {number: (kernel[:, :1], weight[:1]) for number, (kernel, weight) in kernels.items()}
    title = f"{subject.run.recipe.name}: kernel K({u}, ·), graph {subject.graph} of {subject.split}, {words}"
    figure = kernel_figure(layout(data), edges_of(data).cpu().numpy(), panels, u, title, subject.atoms)
    return rendered(figure, name) | {f"{name}.csv": kernel_csv(kernels, u, hops_to(data, [u])[0]).encode()}


def _over_channels(kernel: Tensor, channel: str) -> np.ndarray:
    """A kernel [N, C] as ``--channel`` asks for it, [N]."""
    values, channels = kernel.double().cpu().numpy(), kernel.shape[1]
    if channel == "mean":
        return values.mean(1)
    if channel == "rms":
        return np.sqrt(np.square(values).mean(1))
    if not channel.isdecimal():
        fail("--channel", f"mean, rms or a number of 0..{channels - 1}", repr(channel))
    return values[:, check_number("--channel", int(channel), channels, "a channel")]


def _influence(
    subject: Subject, against: Subject | None, nodes: list[int], name: str
) -> tuple[dict[str, bytes], list[str]]:
    """The files of the influence on some nodes, what it was compared with, and how far away it comes from."""
    run, data = subject.run, subject.data
    parts, scores = {f"glob={subject.glob}": influences(run.model, data, nodes, progress=True)}, [_score(run)]
    if against is not None:
        other = influences(against.run.model, against.data, nodes, progress=True)
        parts[f"glob={against.glob}, a run of its own"] = other
        scores.append(_score(against.run))
        note = "compared with a model that was trained by itself"
    elif subject.glob == "none":
        note = "not compared: the model has no global part"
    elif run.recipe.model.local == "none":
        note = "not compared: the model has no local part that could stay (--against RUN gives another)"
    else:
        with without_global(run.model) as model:
            parts["the same weights, global part switched off"] = influences(model, data, nodes, progress=True)
        note = "compared with the same weights, switched off: not a model that was trained without (--against)"
    arrays = {label: values.double().cpu().numpy() for label, (values, _) in parts.items()}
    hops = hops_to(data, nodes)
    far = [mean_distance(sums.double().cpu().numpy(), hops) for _, sums in parts.values()]
    heard = "{}: influence from {:.2f} edges away on average, as PyG's total_influence counts{}"
    notes = [heard.format(*line) for line in zip(parts, far, [*scores, ""], strict=False)]
    reaches = [by_distance(label, values, hops) for label, values in arrays.items()]
    where = f"{len(run.model.layers)} layers, graph {subject.graph} of {subject.split}"
    count = f"mean over {len(nodes)} nodes u" if len(nodes) > 1 else f"u = {nodes[0]}"
    figure = influence_figure(reaches, f"{run.recipe.name}: who influences a node, {where}", count)
    tables = {f"{name}.csv": reaches_csv(reaches), f"{name}-pairs.csv": pairs_csv(arrays, nodes, hops)}
    return rendered(figure, name) | {path: text.encode() for path, text in tables.items()}, [note, *notes]


def _score(run: LoadedRun) -> str:
    """The test score of a run that has one, to stand beside something."""
    return f"; test {run.summary['metric']} {score_text(run.summary['test'])}" if run.summary else ""


def kernel_csv(kernels: Mapping[int, tuple[Tensor, Tensor]], node: int, hops: np.ndarray) -> str:
    """K_c(u, v) [N, C] of layers: a row for each node v, a column for each channel; rows of kind ``self``: K_s(u)."""
    lines: list[Sequence[object]] = []
    for layer, (kernel, self_weight) in kernels.items():
        rows = zip(_distances(hops), kernel.tolist(), strict=True)
        lines += [["kernel", layer, node, v, distance, *row] for v, (distance, row) in enumerate(rows)]
        lines.append(["self", layer, node, node, "0", *self_weight.tolist()])
    channels = [f"c{channel}" for channel in range(len(self_weight))]
    return _csv(["kind", "layer", "u", "v", "distance", *channels], lines)


def pairs_csv(parts: Mapping[str, np.ndarray], nodes: Sequence[int], hops: np.ndarray) -> str:
    """I(u, v) of each model [nodes, N]: a row for each pair."""
    columns = (values.ravel().tolist() for values in parts.values())
    pairs = itertools.product(nodes, range(hops.shape[1]))
    lines = [[*pair, *line] for pair, *line in zip(pairs, _distances(hops), *columns, strict=True)]
    return _csv(["u", "v", "distance", *parts], lines)


def reaches_csv(reaches: Iterable[Reach]) -> str:
    """Influence by distance: what the figure shows."""
    lines = [
        [reach.name, *line]
        for reach in reaches
        for line in zip(_distances(reach.distance), *(column.tolist() for column in reach[2:]), strict=True)
    ]
    return _csv(["model", *Reach._fields[1:]], lines)


def _distances(hops: np.ndarray) -> list[str]:
    return ["" if np.isinf(distance) else str(int(distance)) for distance in hops.ravel()]


def _csv(headings: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    return csv_text(headings, ([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in line] for line in lines))
