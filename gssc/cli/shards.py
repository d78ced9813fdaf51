"""``gssc partition`` and ``gssc plan``: one graph for many processes."""

from pathlib import Path
from typing import Annotated

import typer

from gssc.cli import common
from gssc.recipes import own_recipe


def partition(
    data: Annotated[Path, typer.Argument(help="A .pt file of one PyG graph with labels of nodes, or a folder.")],
    overrides: common.Overrides = None,
    parts: Annotated[int, typer.Option("-p", "--parts", min=1, help="Number of shards, one for each process.")] = 2,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the shards.")] = Path("shards"),
    method: Annotated[str, typer.Option(help="auto (metis where it is there), metis, propagation, random.")] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of the partition.")] = 0,
    spectra: Annotated[bool, typer.Option(help="Solve spectra here; else all processes do, in training.")] = True,
    cache: common.Cache = None,
    device: common.Device = "auto",
    threads: common.Threads = None,
) -> None:
    """Cut a graph into shards, from which `gssc train --shards` trains with one process for each.

    A shard holds features, targets, masks and eigenvectors of its nodes, and the edges that enter them. Keys of `data`
    and `spectrum` are given here and cannot be changed later.

    A folder holds one graph as edge_index.npy, y.npy and, where there are some, x.npy, edge_attr.npy, train_mask.npy,
    val_mask.npy and test_mask.npy. It is read in pieces, for graphs that do not fit into memory; processes solve its
    spectrum when training begins.

    For example:

        gssc partition graph.pt -p 4 -o shards/
        gssc partition graph.pt spectrum.k=16 -p 4 -o shards/ --method random
        gssc partition arrays/ -p 4 -o shards/
        torchrun --nproc-per-node 4 -m gssc train --shards shards/
    """
    from gssc.datasets import describe
    from gssc.shards.folder import one_graph, write_shards
    from gssc.shards.partition import assign_nodes
    from gssc.train.build import prepare_graphs
    from gssc.train.display import plain_console
    from gssc.train.evaluate import default_dtype
    from gssc.train.open_data import open_file, suited

    say, place = plain_console().print, common.pick_device(device)
    common.take_threads(threads)
    recipe = own_recipe(data).override(overrides or [])
    with default_dtype(recipe.train.precision):
        dataset = open_file(recipe.data, data)
        say(describe(dataset))
        recipe = suited(recipe, dataset, overrides or [], say)
        graph = one_graph(dataset)
        part, used = assign_nodes(graph.edge_index, graph.num_nodes, parts, method, seed, say)  # type: ignore[arg-type]
        prepared = None
        if spectra and not dataset.mapped:
            ordered = graph.sorted_by_destination()  # edges: nodes stay where they are
            prepared = prepare_graphs(ordered, recipe, place, cache or True, progress=True)
        found = {} if prepared is None else prepared.attributes()
        write_shards(out, dataset, part, parts, found, {"recipe": recipe.to_dict(), "method": used}, say)
    say(f"written to {out}: torchrun --nproc-per-node {parts} -m gssc train --shards {out}")


def plan(
    nodes: Annotated[float, typer.Option(help="Of the graph, e.g. 1e9.")],
    degree: Annotated[float, typer.Option(help="Edges that enter a node.")],
    gpus: Annotated[int, typer.Option(min=1, help="Processes, one for each GPU.")],
    cut: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of edges between processes.")] = 0.1,
    channels: Annotated[int, typer.Option(min=1)] = 96,
    frequencies: Annotated[int, typer.Option(min=1)] = 32,
    layers: Annotated[int, typer.Option(min=1)] = 4,
    width: Annotated[int, typer.Option(help="Bytes of a number: 2 for bfloat16.")] = 2,
    local: Annotated[str, typer.Option(help="gatedgcn, gine or gcn.")] = "gatedgcn",
    bandwidth: Annotated[float, typer.Option(help="Bytes per second that a process sends.")] = 50e9,
    latency: Annotated[float, typer.Option(help="Seconds of a collective of few bytes.")] = 0.0,
    speed: Annotated[float | None, typer.Option(help="Multiply-adds per second in a step of one process.")] = None,
) -> None:
    """Say what a step on a large graph needs of each process: memory, bytes sent, and seconds.

    `python -m benchmarks.scale` measures bandwidth, latency and speed of a machine, and compares this with runs.

    For example:

        gssc plan --nodes 1e9 --degree 10 --gpus 256
        gssc plan --nodes 4e4 --degree 3.2 --gpus 2 --cut 0.002 --width 4 --speed 2e10 --bandwidth 1e9 --latency 2e-4
    """
    from gssc.checks import check_choice
    from gssc.shards.plan import LOCALS, collectives, held_bytes, multiply_adds, sent_bytes
    from gssc.train.display import plain_console

    check_choice("local", local, LOCALS)
    own, edges, say = int(nodes / gpus), int(nodes * degree / gpus), plain_console().print
    halo = int(cut * edges) if gpus > 1 else 0
    say(f"each of {gpus:,} processes: {own:,} nodes, {edges:,} edges, {halo:,} nodes in the halo")
    sizes = (own, edges, channels, frequencies, layers)
    for name, size in held_bytes(*sizes, width, local).items():
        say(f"memory, {name}: {size / 1e9:.3f} GB")
    norms = LOCALS[local][1]
    sent = sent_bytes(halo, gpus, channels, frequencies, width, norms)
    for name, size in sent.items():
        say(f"a layer sends, {name}: {size:,} bytes, {1e3 * size / bandwidth:.3f} ms")
    told, waits = layers * sum(sent.values()) / bandwidth, latency * collectives(layers, norms) * (gpus > 1)
    say(f"a step: {told:.3f} s to send, {waits:.3f} s of {collectives(layers, norms)} collectives")
    if speed is not None:
        work = multiply_adds(*sizes, local) / speed
        say(f"a step: {work:.3f} s of work, so {work:.3f} s (all behind work) to {work + told + waits:.3f} s (none)")
