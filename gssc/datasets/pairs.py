"""Labelled pairs of nodes in PyG data, as ``RandomLinkSplit`` makes them: ``edge_label_index`` and ``edge_label``.

Messages, spectra and walks of each part come from its own ``edge_index`` alone.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.utils import cumsum

from gssc.checks import check_pairs, fail
from gssc.datasets.flat import FlatGraphs, GraphDataset, Graphs, collect
from gssc.datasets.negatives import NegativeSampler, are_links, are_ordered, edge_keys, owners, pair_keys, pairs_of
from gssc.datasets.split import NAMES
from gssc.spectra.packed import stored_graphs
from gssc.tasks import Task

LABEL = "edge_label"


def marked_parts(content: Any) -> Any:
    """(train, val, test), of a graph or a list each, or a list of such triples, as one list that knows it as ``split``.

    Three graphs in a list are the parts of one where they have labelled pairs of as many nodes. Anything else comes
    back as it is.
    """
    triples = [item for item in content if _graphs(item) == 3] if isinstance(content, list) else []
    if triples and len(triples) == len(content) and isinstance(content[0], tuple):
        content = tuple(zip(*content, strict=True))  # each graph was split
    parts: Any = content if isinstance(content, list | tuple) and len(content) == 3 else ()
    if _graphs(parts):
        sizes = {graph.num_nodes if f"{LABEL}_index" in graph else None for graph in parts}
        named = isinstance(parts, tuple) or (len(sizes) == 1 and None not in sizes)
        parts = [[graph] for graph in parts] if named else ()
    if not parts or not all(map(_graphs, parts)):
        return content
    marked = [(name, graph.clone()) for name, part in zip(NAMES, parts, strict=True) for graph in part]
    for name, graph in marked:
        graph.split = name
    return [graph for _, graph in marked]


def _graphs(part: Any) -> int:
    """How many graphs these are; 0 where they are something else."""
    return len(part) if isinstance(part, list | tuple) and all(isinstance(graph, Data) for graph in part) else 0


def label_name(saved: Graphs) -> str | None:
    """What the labels of pairs are called; None where the graphs have no pairs.

    It is ``edge_label`` beside an ``edge_label_index``; in graphs without ``y``, any name beside one that ends in
    ``_index``, such as ``RandomLinkSplit(key=...)`` makes them.
    """
    first = saved._data if isinstance(saved, InMemoryDataset) else saved[0]
    names = [name.removesuffix("_index") for name in {**first.to_dict(), "edge_index": None} if name.endswith("_index")]
    names.remove("edge")
    if f"pos_{LABEL}" in names:
        fail(LABEL, "labels of all pairs (RandomLinkSplit with split_labels=False)", f"pos_{LABEL}")
    if LABEL in names or "y" in first or not names:
        return LABEL if LABEL in names else None
    if len(names) > 1:
        fail(f"{LABEL}_index", "one list of pairs", " and ".join(f"{name}_index" for name in names))
    return names[0]


def with_pairs(saved: Graphs, flat: FlatGraphs, label: str) -> tuple[FlatGraphs, Tensor | None]:
    """The graphs with their pairs, and the labels of these as [M, T], where there are any."""
    graphs = stored_graphs(saved)
    index = [graph.get(f"{label}_index") for graph in graphs]
    for number, (pairs, nodes) in enumerate(zip(index, flat.ptr.diff().tolist(), strict=True)):
        check_pairs(f"{label}_index of graph {number}", pairs, nodes)
    counts = torch.tensor([pairs.shape[1] for pairs in index])
    flat = replace(flat, pair_index=torch.cat(index, dim=1).long(), pair_ptr=cumsum(counts))
    labels, rows = collect(graphs, label)
    if labels is None or rows is None:
        return flat, None
    for graph in (rows != counts).nonzero().view(-1).tolist():
        fail(f"{label} of graph {graph}", f"{int(counts[graph])} labels, one for each pair", int(rows[graph]))
    labels = labels.unsqueeze(1) if labels.dim() == 1 else labels
    yes_no = not labels.is_floating_point() and labels.shape[1] == 1 and bool(((labels == 0) | (labels == 1)).all())
    return flat, labels.to(torch.get_default_dtype()) if yes_no else labels


def finished(splits: dict[str, FlatGraphs], task: Task, seed: int) -> dict[str, FlatGraphs]:
    """Parts that hold their own pairs, and where no part has negatives, validation and test with some, drawn once.

    Training gets others in every epoch, see `gssc.train.build`.
    """
    splits = {name: _marked_alone(part) for name, part in splits.items()}
    parts = list(splits.values())
    ordered, links = are_ordered(splits["train"]), all(are_links(part, task) for part in parts)
    # Of one graph in three parts, what another part knows is no negative.
    one = parts[0].num_graphs == 1 and all(torch.equal(part.ptr, parts[0].ptr) for part in parts)
    known = [found(part, ordered) for part in parts * one for found in (edge_keys, pair_keys)]
    for number, (name, part) in enumerate(splits.items()):
        if name != "train" and (task.kind, task.outputs) == ("binary", 1):
            _check_leak(name, part, links, ordered)
            if links:
                index, ptr, y = NegativeSampler(part, ordered, *known).draw(seed * len(NAMES) + number)
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
    task, train, test = dataset.task, dataset.splits["train"], dataset.splits["test"]
    lines = ["pairs: all training pairs are links; as many pairs without one are drawn in every epoch"]
    lines = lines if are_links(train, task) else []
    if not are_ordered(train):
        return [*lines, "pairs: without order, since every edge goes both ways"]
    lines.append("pairs: ordered, since not every edge goes both ways")
    links = test.y[:, 0] == 1 if (task.kind, task.outputs) == ("binary", 1) else test.y.new_zeros(0)
    reverse = int((links & torch.isin(pair_keys(test), edge_keys(test, back=True))).sum()) if len(links) else 0
    if 2 * reverse > int(links.sum()):
        found = f"{reverse} of the {int(links.sum())} links to find in the test part are edges the other way round"
        lines.append(f"note: {found}; an undirected graph is split by RandomLinkSplit(is_undirected=True)")
    return lines
