"""A subject in, pictures and tables out: the work of ``gssc explain``."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gssc.checks import check_installed, fail
from gssc.explain.draw import influence_figure, kernel_figure, rendered
from gssc.explain.jacobian import influence, without_global
from gssc.explain.kernel import convolution_row, convolution_self_weight
from gssc.explain.layout import hops_to, layout
from gssc.explain.subject import Subject
from gssc.explain.tables import by_distance, kernel_csv, pairs_csv, reaches_csv
from gssc.explain.watch import check_number, layers_of, watch_convolution
from gssc.files import write_files

SWITCHED_OFF = "the same weights, global part switched off"


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

    Returns the files, and notes for whoever asked: what is shown, and what could not be.

    Args:
        subject: What is looked at.
        node: u, counted from 0.
        folder: Where to write.
        against: Another model on the same graph, such as one trained without a global part. Without it, influence is
            compared with that of the same weights with the global part switched off.
        layer: Of the kernel; None draws all.
        channel: Number of a channel, ``"mean"`` over channels, or ``"rms"``, their root mean square.
        nodes: How many nodes u influence is averaged over, ``node`` among them; None for all.
    """
    check_installed("gssc explain", "matplotlib", "plot")
    u = check_number("--node", node, subject.nodes, "a node")
    if against is not None and against.nodes != subject.nodes:
        fail("--against", f"a run whose graph {subject.graph} has {subject.nodes} nodes", against.nodes)
    contents: dict[str, bytes] = {}
    notes = []
    where = f"{subject.split}-{subject.graph}"
    if subject.glob in ("gssc", "gsc"):
        contents |= _kernel(subject, u, f"kernel-{where}-node-{u}", layer, channel)
    else:
        notes.append(f"no kernel is drawn: the model has none (model.glob={subject.glob})")
    averaged = sample(subject.nodes, nodes, u)
    influence_files, influence_notes = _influence(subject, against, averaged, f"influence-{where}-node-{u}")
    contents |= influence_files
    write_files(folder, contents)
    return [folder / name for name in contents], [*notes, *influence_notes]


def sample(count: int, wanted: int | None, node: int) -> list[int]:
    """Some of ``count`` nodes, the same every time, ``node`` always among them; in order."""
    if wanted is None or wanted >= count:
        return list(range(count))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).tolist()
    return sorted([node, *(v for v in order if v != node)][: max(wanted, 1)])


def _kernel(subject: Subject, u: int, name: str, layer: int | None, channel: str) -> dict[str, bytes]:
    model, data = subject.model, subject.data
    layers = range(len(model.layers)) if layer is None else [check_number("layer", layer, len(model.layers), "a layer")]
    rows, self_weights, shared = {}, {}, False
    for number in layers:
        conv, inputs = watch_convolution(model, data, number)
        shared = conv.kernel == "shared"
        rows[number] = convolution_row(conv, inputs, u).double().cpu().numpy()
        self_weights[number] = convolution_self_weight(conv, inputs, u).double().cpu().numpy()
    label, over_channels = _channel_choice(channel, layers_of(model)[0].channels)
    panels = [(f"layer {number}", over_channels(values)) for number, values in rows.items()]
    label = "shared by all channels" if shared else label
    title = f"{subject.recipe}: kernel K({u}, ·), graph {subject.graph} of {subject.split}, {label}"
    edges = data.edge_index.cpu().numpy() if data.edge_index is not None else np.zeros((2, 0), dtype=np.int64)
    figure = kernel_figure(layout(data), edges, panels, u, title)
    if shared:  # by all channels: one column says it all
        rows = {number: values[:, :1] for number, values in rows.items()}
        self_weights = {number: values[:1] for number, values in self_weights.items()}
    table = kernel_csv(rows, self_weights, u, hops_to(data, [u])[0])
    return _pictures(name, figure) | {f"{name}.csv": table.encode()}


def _channel_choice(channel: str, channels: int) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """What ``--channel`` means, in words and as a function [N, C] -> [N]."""
    if channel == "mean":
        return "mean over channels", lambda values: values.mean(1)
    if channel == "rms":
        return "root mean square over channels", lambda values: np.sqrt(np.square(values).mean(1))
    if not channel.isdecimal():
        fail("--channel", f"mean, rms or a number of 0..{channels - 1}", repr(channel))
    number = check_number("--channel", int(channel), channels, "a channel")
    return f"channel {channel}", lambda values: values[:, number]


def _influence(
    subject: Subject, against: Subject | None, nodes: Sequence[int], name: str
) -> tuple[dict[str, bytes], list[str]]:
    parts = {f"glob={subject.glob}": influence(subject.model, subject.data, nodes)}
    notes = []
    if against is not None:
        label = f"glob={against.glob}, a run of its own"
        parts[label] = influence(against.model, against.data, nodes)
        notes.append("compared with a model that was trained by itself")
    elif subject.glob == "none":
        notes.append("not compared: the model has no global part")
    elif subject.local == "none":
        notes.append("not compared: the model has no local part that could stay (--against RUN gives another)")
    else:
        with without_global(subject.model) as model:
            parts[SWITCHED_OFF] = influence(model, subject.data, nodes)
        notes.append("compared with the same weights, switched off: not a model that was trained without (--against)")
    arrays = {label: values.double().cpu().numpy() for label, values in parts.items()}
    hops = hops_to(subject.data, list(nodes))
    reaches = [by_distance(label, values, hops) for label, values in arrays.items()]
    depth = len(subject.model.layers)
    title = f"{subject.recipe}: who influences a node, {depth} layers, graph {subject.graph} of {subject.split}"
    count = f"mean over {len(nodes)} nodes u" if len(nodes) > 1 else f"u = {nodes[0]}"
    figure = influence_figure(reaches, title, count)
    files = {f"{name}.csv": reaches_csv(reaches), f"{name}-pairs.csv": pairs_csv(arrays, nodes, hops)}
    return _pictures(name, figure) | {path: text.encode() for path, text in files.items()}, notes


def _pictures(name: str, figure: Any) -> dict[str, bytes]:
    return {f"{name}{ending}": content for ending, content in rendered(figure).items()}
