"""``gssc evaluate``, ``predict``, ``explain`` and ``publish``: what is done with a trained model."""

import csv
import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from gssc.checks import check_choice, fail
from gssc.cli import common

if TYPE_CHECKING:
    from torch import Tensor

    from gssc.datasets.inputs import Inputs
    from gssc.tasks import Task
    from gssc.train.loaded import LoadedRun

PIECE = 4096  # graphs that are in memory at once, about


def evaluate(
    run: common.Runs,
    data_root: common.Root = Path("data"),
    split: common.Split = "test",
    pack: common.Pack = None,
    device: common.Device = "auto",
    cache: common.Cache = None,
    threads: common.Threads = None,
    sha256: common.Sha256 = None,
) -> None:
    """Score the selected weights of a run or of a pretrained model again, beside what was recorded.

    For OUT of several seeds, each of them, and then all together: the mean of their predictions, scored as one.

    The same batches give the same bits on the same machine; other batch sizes and devices agree to rounding. Products
    are those of float32 also where the recipe trains in tf32, as when test scores were recorded.
    """
    from gssc.pretrained.find import open_seeds
    from gssc.tasks import score_text
    from gssc.train.build import build_store
    from gssc.train.display import plain_console
    from gssc.train.evaluate import default_dtype, float32_products, raw_outputs, score
    from gssc.train.open_data import open_for

    check_choice("--split", split, ("train", "val", "test"))
    place = common.pick_device(device)
    common.take_threads(threads)
    console = plain_console()
    models = open_seeds(run, console.print, device=place, sha256=sha256)
    recipe, task = models[0].recipe, models[0].task
    outputs = []
    dataset = open_for(recipe, data_root, pack, beside=models[0].folder)
    with default_dtype(recipe.train.precision), float32_products():
        store = build_store(dataset.splits[split], recipe, task.level, place, cache or True)
        for model in models:
            outputs.append(raw_outputs(model.model, store, recipe.train.batch_size, recipe.train.precision))
            loss, value = score(outputs[-1], store, task)
            name = f"{recipe.name}, {model.folder.name}" if len(models) > 1 else recipe.name
            result = f"{score_text(value)}{_beside(value, model.summary, split)}, loss {loss:.6f}"
            console.print(f"{name}: {split} {task.metric} {result}, {store.num_graphs:,} graphs")
        if len(models) > 1:
            loss, value = score(task.mean(outputs), store, task)
            name = f"{recipe.name}, the mean of {len(models)} predictions"
            console.print(f"{name}: {split} {task.metric} {score_text(value)}, loss {loss:.6f}")


def _beside(value: float, summary: dict[str, Any] | None, split: str) -> str:
    """What was recorded of this part, to print behind a score."""
    from gssc.tasks import score_text

    recorded = None if summary is None else summary.get({"val": "validation", "test": "test"}.get(split, ""))
    if recorded is None:
        return ""
    same = "the same bits" if value == recorded else f"{abs(value - recorded):.1e} from it"
    return f" (recorded: {score_text(recorded)}, {same})"


def predict(
    run: common.Runs,
    graphs: Annotated[Path, typer.Argument(help="Graphs: a .pt file of PyG data, or molecules as .csv or .smi.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .csv file to write.")] = Path("predictions.csv"),
    smiles_column: Annotated[str, typer.Option(help="Column of a .csv file that holds SMILES.")] = "smiles",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Graphs per batch; the default is the run's.")] = None,
    device: common.Device = "auto",
    skip_invalid: common.SkipInvalid = False,
    threads: common.Threads = None,
    sha256: common.Sha256 = None,
) -> None:
    """Predict for new graphs with a trained model: of a run, or a pretrained one.

    Writes one row per graph, per node, or per pair of nodes in edge_label_index: values in the units of the data,
    probabilities of the classes and the most probable one, or the probability of each label. Columns that a table of
    molecules has stay before them; graphs keep their name, id or smiles. For OUT of several seeds it is the mean of
    what they predict, and columns _std have their deviation. The same batches give the same bits as the run's own
    evaluation. Tables may be of any length: they are read and written in pieces.

        gssc predict runs/rings/seed-0 new.pt
        gssc predict runs/rings new.pt
        gssc predict peptides-func peptides.smi -o out.csv
    """
    from gssc.datasets.inputs import open_pieces
    from gssc.files import writing
    from gssc.pretrained.find import open_seeds
    from gssc.train.display import plain_console
    from gssc.train.evaluate import default_dtype
    from gssc.train.loaded import predict_together
    from gssc.train.threads import giving_way

    _check_out(out, graphs)
    common.take_threads(threads)
    console = plain_console()
    place = common.pick_device(device)
    models = open_seeds(run, console.print, device=place, sha256=sha256)
    loaded, written, skipped = models[0], 0, 0
    batch_size = batch_size or loaded.recipe.train.batch_size
    bars = Console(stderr=True)
    size = batch_size * max(1, PIECE // batch_size)  # so that batches are those of the whole file
    shares = threads is None and place.type == "cpu"
    with default_dtype(loaded.recipe.train.precision), giving_way(console.print, shares) as give_way:
        pieces = open_pieces(graphs, loaded.about, smiles_column, skip_invalid=skip_invalid, size=size)
        first = next(pieces)  # no folder is made for a file that cannot be read
        with writing(out) as file, Progress(console=bars, transient=True, disable=not bars.is_terminal) as bar:
            task = bar.add_task("predicting", total=1.0)
            table = csv.writer(file, lineterminator="\n")
            table.writerow(_headings(first, loaded, len(models) > 1))
            for piece in chain([first], pieces):
                give_way()
                skipped += piece.skipped
                if piece.rows:
                    values = predict_together(models, piece.graphs, batch_size)
                    written += _write_piece(table, piece, values, loaded.task)
                bar.update(task, completed=piece.read)
    if skip_invalid:
        console.print(f"{skipped:,} molecule{'s' * (skipped != 1)} left out that cannot be used")
    whose = f", the mean of {len(models)} seeds" if len(models) > 1 else ""
    console.print(f"{written:,} predictions written to {out}{whose}")


def _check_out(out: Path, graphs: Path) -> None:
    """Fail where ``out`` cannot be written or is the input; folders are made later, when there is something in them."""
    if os.path.exists(out):  # unlike Path.exists, False where a folder may not be looked into
        if os.path.exists(graphs) and out.samefile(graphs):
            fail("-o", "another file than the input", out)
        if not out.is_file():
            fail("-o", "a file to write", f"{'a folder' if out.is_dir() else 'something else'}: {out}")
    folder = next(parent for parent in out.absolute().parents if os.path.exists(parent))
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        fail("-o", "a file in a folder that can be written", f"{out}: {folder} is none")


def _headings(inputs: "Inputs", loaded: "LoadedRun", several: bool) -> list[str]:
    """What tells a row, what the user's table has, the outputs by the names of their targets, and their deviations.

    A heading that the table has already gets a line below it.
    """
    task = loaded.task
    word = "prediction" if task.kind == "regression" else "probability"
    outputs = [f"{word}_{name}" if name else word for name in loaded.target_names]
    ours = ["class"] * (task.kind == "multiclass") + outputs + [f"{name}_std" for name in outputs if several]
    keys = ["graph", *{"node": ["node"], "edge": ["source", "target"]}.get(task.level, [])]
    for names in (keys, ours):
        names[:] = [name + "_" * (name in inputs.labels) for name in names]
    return [keys[0], *inputs.labels, *keys[1:], *ours]


def _write_piece(table: Any, inputs: "Inputs", values: "Tensor", task: "Task") -> int:
    """Rows of what several models predict, [models, rows, outputs], one per graph, node or pair; returns how many.

    Numbers keep all their digits.
    """
    import torch

    from gssc.datasets.negatives import owners, pairs_of

    keys: list[list[Any]] = [list(row) for row in zip(inputs.rows, *inputs.labels.values(), strict=True)]
    if task.level == "node":
        counts = inputs.graphs.ptr.diff().tolist()
        keys = [[*row, u] for row, count in zip(keys, counts, strict=True) for u in range(count)]
    elif task.level == "edge":
        index, ptr = pairs_of(inputs.graphs)
        keys = [[*keys[g], *pair] for g, pair in zip(owners(ptr).tolist(), index.t().tolist(), strict=True)]
    mean = values.mean(0)
    numbers = torch.cat([mean, values.std(0)], dim=1) if len(values) > 1 else mean
    best = [[index] for index in mean.argmax(1).tolist()] if task.kind == "multiclass" else [[]] * len(mean)
    # The shortest decimals that read back as the same floating-point numbers.
    table.writerows([*k, *b, *map(str, row)] for k, b, row in zip(keys, best, numbers.numpy(), strict=True))
    return len(mean)


def explain(
    run: common.Run,
    graph: Annotated[int, typer.Option(help="Number of the graph in its split, from 0.")] = 0,
    node: Annotated[int, typer.Option(help="Number of the node u in the graph, from 0.")] = 0,
    split: common.Split = "test",
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
    data_root: common.Root = Path("data"),
    pack: common.Pack = None,
    device: common.Device = "auto",
    sha256: common.Sha256 = None,
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
    from gssc.explain.write import make_subject, write_explanation
    from gssc.pretrained import open_model
    from gssc.train.display import plain_console
    from gssc.train.open_data import open_for

    check_choice("--split", split, ("train", "val", "test"))
    for option, number in (("--graph", graph), ("--node", node)):
        if number < 0:
            fail(option, "a number from 0", number)
    if layer != "all" and not layer.isdecimal():
        fail("--layer", "a number from 0, or all", repr(layer))
    if nodes != "all" and not (nodes.isdecimal() and int(nodes) > 0):
        fail("--nodes", "a positive number, or all", repr(nodes))
    place = common.pick_device(device)
    runs = [open_model(run, device=place, sha256=sha256)]
    runs += [open_model(source, device=place) for source in (against,) if source is not None]
    names = [loaded.recipe.data.dataset for loaded in runs]
    if names[-1] != names[0]:
        fail("--against", f"a run on {names[0]}", f"one on {names[-1]} ({against})")
    for key in ("name", "node_features", "edge_features", "standardize"):
        if runs[-1].about.get(key) != runs[0].about.get(key):
            fail("--against", f"a run on the data of {run}", f"one on data with another {key} ({against})")
    dataset = open_for(runs[0].recipe, data_root, pack, beside=runs[0].folder)
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


def publish(
    runs: Annotated[Path, typer.Argument(help="OUT of `gssc train` with one or more seeds, or one OUT/seed-N.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to make; its name is the name of the model.")],
    notes: Annotated[
        Path | None, typer.Option(help="YAML of `recipe: {data: …, licence: …}` for the card of the model.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a published model.")] = False,
) -> None:
    """Make a small folder of a trained model, for others to load, predict with and evaluate.

    Of several seeds, the one with the best validation score is taken; test scores do not count. The folder holds the
    weights, the recipe, what the data look like, the scores of this and of all seeds, a card (README.md) and a manifest
    with the sha256 of every file. It works wherever a run folder does, and from any web server:

        gssc publish runs/zinc-12k -o pretrained/zinc-12k --notes results/notes.yaml
        gssc evaluate pretrained/zinc-12k
        gssc predict https://example.org/models/zinc-12k molecules.smi
    """
    from gssc.pretrained import publish as publishing
    from gssc.tasks import score_text
    from gssc.train.display import plain_console

    done = publishing.publish(runs, out, notes, replace=replace)
    metric, validation, test = (done.summary[key] for key in ("metric", "validation", "test"))
    scores = f"validation {metric} {score_text(validation)}, test {score_text(test)}"
    plain_console().print(f"seed {done.seed}: {scores}\n{done.size / 1e6:.2f} MB written to {done.folder}")
    plain_console().print(f"for users to pin: --sha256 {done.digest}")
