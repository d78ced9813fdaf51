"""``gssc partition``: one graph for many processes."""

from pathlib import Path
from typing import Annotated

import typer

from gssc.cli import common
from gssc.recipes import own_recipe


def partition(
    data: Annotated[Path, typer.Argument(help="A .pt file of one PyG graph with labels and masks of nodes.")],
    overrides: common.Overrides = None,
    parts: Annotated[int, typer.Option("-p", "--parts", min=1, help="Number of shards, one for each process.")] = 2,
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of the shards.")] = Path("shards"),
    method: Annotated[
        str, typer.Option(help="auto (metis where pymetis is installed), metis, propagation or random.")
    ] = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of the partition.")] = 0,
    spectra: Annotated[
        bool, typer.Option(help="Solve the spectrum here; else all processes do together when training begins.")
    ] = True,
    cache: common.Cache = None,
    device: common.Device = "auto",
    threads: common.Threads = None,
) -> None:
    """Cut a graph into shards, from which `gssc train --shards` trains with one process for each.

    A shard holds features, targets, masks and eigenvectors of its nodes, and the edges that enter them. The spectrum is
    solved here, and the recipe that suits the graph chosen: `data` and `spectrum` cannot be changed later.

    For example:

        gssc partition graph.pt -p 4 -o shards/
        gssc partition graph.pt spectrum.k=16 -p 4 -o shards/ --method random
        torchrun --nproc-per-node 4 -m gssc train --shards shards/
    """
    from gssc.shards.folder import one_graph, write_shards
    from gssc.shards.partition import assign_nodes
    from gssc.train.build import prepare_graphs
    from gssc.train.display import plain_console
    from gssc.train.evaluate import default_dtype
    from gssc.train.opening import open_for, suited

    say, place = plain_console().print, common.pick_device(device)
    common.take_threads(threads)
    recipe = own_recipe(data).override(overrides or [])
    dataset = open_for(recipe, Path("data"), quiet=False)
    recipe = suited(recipe, dataset, overrides or [], say)
    with default_dtype(recipe.train.precision):
        graph = one_graph(dataset)
        part, used = assign_nodes(graph.edge_index, graph.num_nodes, parts, method, seed, say)  # type: ignore[arg-type]
        ordered = graph.sorted_by_destination()  # keeps the order of nodes
        prepared = prepare_graphs(ordered, recipe, place, cache or True, progress=True) if spectra else None
        found = {} if prepared is None else prepared.attributes()
        of_graph = {name: rows for name, rows in found.items() if name in ("eigvals", "eigmask")}
        of_nodes = {name: rows for name, rows in found.items() if name not in of_graph}
        about = {"recipe": recipe.to_dict(), "method": used}
        write_shards(out, dataset, part, parts, of_graph, of_nodes, about, say)
    say(f"written to {out}: torchrun --nproc-per-node {parts} -m gssc train --shards {out}")
