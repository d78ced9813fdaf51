"""``gssc explain``."""

from pathlib import Path
from typing import Annotated

import typer

from gssc.checks import check_choice, fail
from gssc.cli.common import open_for, pick_device
from gssc.cli.options import DeviceOption, PackOption, RootOption, RunArgument, SplitOption, plain_console
from gssc.explain.write import make_subject, write_explanation
from gssc.pretrained import open_model


def explain(
    run: RunArgument,
    graph: Annotated[int, typer.Option(help="Number of the graph in its split, from 0.")] = 0,
    node: Annotated[int, typer.Option(help="Number of the node u in the graph, from 0.")] = 0,
    split: SplitOption = "test",
    nodes: Annotated[
        str, typer.Option(help="Nodes that influence is averaged over: a number (a fixed sample with u), or all.")
    ] = "16",
    against: Annotated[
        str | None, typer.Option(help="Another run to compare influence with, such as one of model.glob=none.")
    ] = None,
    layer: Annotated[str, typer.Option(help="Layer of the kernel, from 0, or all.")] = "all",
    channel: Annotated[str, typer.Option(help="Channel of the kernel, from 0, or mean or rms over all.")] = "mean",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder; the default is RUN/explain, or explain/NAME for a pretrained model."),
    ] = None,
    data_root: RootOption = Path("data"),
    pack: PackOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Draw what a trained model does around one node of a graph.

    First, the kernels K(u, v) that its layers have learned, on the graph, with node u marked. Second, the influence
    |∂h_u/∂x_v| of every node v on the last layer's h_u against the distance of v from u, beside that of a model without
    the global part: of another run (--against), or of the same weights with the global part switched off, as the
    picture then says. Each is written as PNG, SVG and CSV; `gssc report` shows those in RUN/explain on its page.

    For example:

        gssc explain runs/peptides-func/seed-0 --graph 3 --node 20
        gssc explain runs/peptides-func/seed-0 --against runs/peptides-none/seed-0 --nodes all
    """
    check_choice("--split", split, ("train", "val", "test"))
    for option, number in (("--graph", graph), ("--node", node)):
        if number < 0:
            fail(option, "a number from 0", number)
    if layer != "all" and not layer.isdecimal():
        fail("--layer", "a number from 0, or all", repr(layer))
    if nodes != "all" and not (nodes.isdecimal() and int(nodes) > 0):
        fail("--nodes", "a positive number, or all", repr(nodes))
    place = pick_device(device)
    runs = [open_model(source, device=place) for source in (run, against) if source is not None]
    names = [loaded.recipe.data.dataset for loaded in runs]
    if names[-1] != names[0]:
        fail("--against", f"a run on {names[0]}", f"one on {names[-1]} ({against})")
    for key in ("name", "node_features", "edge_features", "standardize"):
        if runs[-1].about.get(key) != runs[0].about.get(key):
            fail("--against", f"a run on the data of {run}", f"one on data with another {key} ({against})")
    dataset = open_for(runs[0].recipe, data_root, pack)
    subjects = [make_subject(loaded, dataset, split, graph, place) for loaded in runs]
    files, notes = write_explanation(
        subjects[0],
        node,
        out or (Path(run) / "explain" if Path(run).is_dir() else Path("explain") / runs[0].recipe.name),
        against=subjects[1] if len(subjects) > 1 else None,
        layer=None if layer == "all" else int(layer),
        channel=channel,
        nodes=None if nodes == "all" else int(nodes),
    )
    for note in notes:
        plain_console().print(f"note: {note}", style="yellow")
    plain_console().print(f"written: {', '.join(map(str, files))}")
