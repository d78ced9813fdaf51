"""Labelled pairs of nodes in PyG data, as ``RandomLinkSplit`` makes them: ``edge_label_index`` and ``edge_label``.

Messages, spectra and walks of each part come from its own ``edge_index`` alone.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.utils import cumsum

from gssc.checks import check_shape, fail
from gssc.datasets.flat import FlatGraphs, GraphDataset, Graphs, collect
from gssc.datasets.negatives import (
    NegativeSampler,
    are_links,
    are_ordered,
    edge_keys,
    owners,
    pair_keys,
    pairs_of,
)
from gssc.datasets.split import NAMES
from gssc.spectra.packed import stored_graphs
from gssc.tasks import Task

LABEL = "edge_label"
UNSPLIT = "labels of all pairs in edge_label (RandomLinkSplit with split_labels=False)"


def marked_parts(content: Any) -> Any:
    """(train, val, test), of a graph or a list each, or a list of such triples, as one list that knows it as ``split``.

    Three graphs in a list are the parts of one where they have labelled pairs of as many nodes. Anything else comes
    back as it is.
    """
    if isinstance(content, list) and content and all(isinstance(item, tuple) and _are_three(item) for item in content):
        content = tuple(zip(*content, strict=True))  # each graph was split
    if not isinstance(content, list | tuple) or len(content) != 3:
        return content
    if _are_three(content):
        sizes = {graph.num_nodes for graph in content if f"{LABEL}_index" in graph}
        parts = [[graph] for graph in content] if isinstance(content, tuple) or len(sizes) == 1 else None
    else:
        parts = content if all(_are_graphs(part) for part in content) else None
    if parts is None:
        return content
    marked = [(name, graph.clone()) for name, part in zip(NAMES, parts, strict=True) for graph in part]
    for name, graph in marked:
        graph.split = name
    return [graph for _, graph in marked]


def _are_graphs(part: Any) -> bool:
    return isinstance(part, list | tuple) and len(part) > 0 and all(isinstance(graph, Data) for graph in part)


def _are_three(part: Any) -> bool:
    return _are_graphs(part) and len(part) == 3


def label_name(saved: Graphs) -> str | None:
    """What the labels of pairs are called; None where the graphs have no pairs.

    It is ``edge_label`` beside an ``edge_label_index``; in graphs without ``y``, any name beside one that ends in
    ``_index``, such as ``RandomLinkSplit(key=...)`` makes them.
    """
    first = saved._data if isinstance(saved, InMemoryDataset) else saved[0]
    names = sorted(name.removesuffix("_index") for name in first.keys() if name.endswith("_index"))  # noqa: SIM118
    if f"pos_{LABEL}" in names:
        fail(LABEL, UNSPLIT, f"pos_{LABEL}")
    others = [name for name in names if name != "edge"]
    if LABEL in others or "y" in first:
        return LABEL if LABEL in others else None
    if len(others) > 1:
        fail(
            f"{LABEL}_index", "one attribute that lists pairs of nodes", " and ".join(f"{one}_index" for one in others)
        )
    return others[0] if others else None


def with_pairs(saved: Graphs, flat: FlatGraphs, label: str) -> tuple[FlatGraphs, Tensor | None]:
    """The graphs with their pairs, and the labels of these as [M, T], where there are any."""
    index = [graph.get(f"{label}_index") for graph in stored_graphs(saved)]
    for number, (pairs, nodes) in enumerate(zip(index, flat.ptr.diff().tolist(), strict=True)):
        name = f"{label}_index of graph {number}"
        check_shape(name, pairs, 2, None)
        if pairs.is_floating_point() or pairs.dtype == torch.bool:
            fail(name, "node numbers", pairs.dtype)
        if pairs.numel() and (int(pairs.min()) < 0 or int(pairs.max()) >= nodes):
            fail(name, f"node numbers in 0..{nodes - 1}", f"{int(pairs.min())}..{int(pairs.max())}")
    counts = torch.tensor([pairs.shape[1] for pairs in index])
    flat = replace(flat, pair_index=torch.cat(index, dim=1).long(), pair_ptr=cumsum(counts))
    labels, rows = collect(saved, label)
    if labels is None or rows is None:
        return flat, None
    wrong = (rows != counts).nonzero().view(-1).tolist()
    if wrong:
        graph = wrong[0]
        fail(f"{label} of graph {graph}", f"{int(counts[graph])} labels, one for each pair", int(rows[graph]))
    if not len(labels):
        fail(f"{label}_index", "one or more pairs", "none")
    labels = labels.reshape(len(labels), -1)
    yes_no = not labels.is_floating_point() and labels.shape[1] == 1 and bool(((labels == 0) | (labels == 1)).all())
    return flat, labels.to(torch.get_default_dtype()) if yes_no else labels


def finished(splits: dict[str, FlatGraphs], task: Task, seed: int) -> dict[str, FlatGraphs]:
    """Parts that hold their own pairs, and where no part has negatives, validation and test with some, drawn once.

    Training gets others in every epoch, see `gssc.train.build`.
    """
    splits = {name: _marked_alone(part) for name, part in splits.items()}
    for name, part in splits.items():
        if not len(part.y):
            fail(f"{LABEL}_index of the {name} part", "one or more pairs", "none")
    ordered, links = are_ordered(splits["train"]), all(are_links(part, task) for part in splits.values())
    # Of one graph in three parts, what another part knows is no negative.
    one = {part.ptr.numel() for part in splits.values()} == {2} and len(
        {part.num_nodes for part in splits.values()}
    ) == 1
    known = [found(part, ordered) for part in splits.values() for found in (edge_keys, pair_keys)] if one else []
    for number, (name, part) in enumerate(splits.items()):
        if name != "train" and (task.kind, task.outputs) == ("binary", 1):
            _check_leak(name, part, links, ordered)
            if links:
                sampler = NegativeSampler(part, ordered, torch.cat(known) if one else None)
                index, ptr, y = sampler.draw(seed * len(NAMES) + number)
                splits[name] = replace(part, pair_index=index, pair_ptr=ptr, y=y)
    return splits


def _marked_alone(flat: FlatGraphs) -> FlatGraphs:
    """The pairs that are marked, without the others."""
    if flat.mask is None:
        return flat
    index, ptr = pairs_of(flat)
    counts = torch.bincount(owners(ptr)[flat.mask], minlength=flat.num_graphs)
    return replace(flat, pair_index=index[:, flat.mask], pair_ptr=cumsum(counts), y=flat.y[flat.mask], mask=None)


def _check_leak(name: str, flat: FlatGraphs, links: bool, ordered: bool) -> None:
    """Fail where edges tell the answer: some pairs that are joined say yes, and none of them says no."""
    labels, joined = flat.y[:, 0], torch.isin(pair_keys(flat, ordered), edge_keys(flat, ordered))
    given, negative = int((joined & (labels == 1)).sum()), labels == 0
    if given and not bool((joined & negative).any()) and (links or bool(negative.any())):
        expected = "none of the edges to predict (RandomLinkSplit leaves them out)"
        fail(f"edge_index of the {name} part", expected, f"{given} of them")


def describe_pairs(dataset: GraphDataset) -> list[str]:
    """What is to be known of the pairs beside their number, a line each."""
    lines, train = [], dataset.splits["train"]
    if are_links(train, dataset.task):
        lines.append("pairs: all training pairs are links; as many pairs without one are drawn in every epoch")
    if not are_ordered(train):
        return [*lines, "pairs: without order, since every edge goes both ways"]
    lines.append("pairs: ordered, since not every edge goes both ways")
    test = dataset.splits["test"]
    back = replace(test, edge_index=test.edge_index.flip(0))
    if (dataset.task.kind, dataset.task.outputs) == ("binary", 1):
        yes = test.y[:, 0] == 1
        reverse = int((torch.isin(pair_keys(test), edge_keys(back)) & yes).sum())
        if 2 * reverse > int(yes.sum()):
            found = (
                f"note: {reverse} of the {int(yes.sum())} links to find in the test part are edges the other way round"
            )
            lines.append(f"{found}; an undirected graph is split by RandomLinkSplit(is_undirected=True)")
    return lines
