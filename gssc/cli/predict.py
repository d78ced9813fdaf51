"""``gssc predict``."""

import csv
import io
import os
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from gssc.checks import fail
from gssc.cli.common import pick_device
from gssc.cli.options import DeviceOption, RunsArgument, SkipInvalidOption, plain_console
from gssc.datasets.inputs import Inputs, open_inputs
from gssc.files import write_atomic
from gssc.pretrained.find import open_seeds
from gssc.tasks import Task
from gssc.train.evaluate import default_dtype


def predict(
    run: RunsArgument,
    graphs: Annotated[Path, typer.Argument(help="Graphs: a .pt file of PyG data, or molecules as .csv or .smi.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .csv file to write.")] = Path("predictions.csv"),
    smiles_column: Annotated[str, typer.Option(help="Column of a .csv file that holds SMILES.")] = "smiles",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Graphs per batch; the default is the run's.")] = None,
    device: DeviceOption = "auto",
    skip_invalid: SkipInvalidOption = False,
) -> None:
    """Predict for new graphs with a trained model: of a run, or a pretrained one.

    Writes one row per graph, or per node: values in the units of the data, probabilities of the classes and the most
    probable one, or the probability of each label. Molecules keep their SMILES and, in a .smi file, the name behind it
    on the same line. The same batches give the same bits as the run's own evaluation. For OUT of several seeds it is
    the mean of what they predict.

        gssc predict runs/rings/seed-0 new.pt
        gssc predict runs/rings new.pt
        gssc predict peptides-func peptides.smi -o out.csv
    """
    _check_out(out, graphs)
    console = plain_console()
    models = open_seeds(run, console.print, device=pick_device(device))
    loaded = models[0]
    with default_dtype(loaded.recipe.train.precision):
        inputs = open_inputs(graphs, loaded.about, smiles_column, skip_invalid=skip_invalid)
        values = torch.stack([model.predict_flat(inputs.graphs, batch_size) for model in models]).mean(dim=0)
    write_predictions(out, values, loaded.task, inputs)
    if skip_invalid:
        left_out = f"{inputs.skipped:,} molecule{'s' * (inputs.skipped != 1)}"
        console.print(f"{left_out} left out that cannot be used")
    whose = f", the mean of {len(models)} seeds" if len(models) > 1 else ""
    console.print(f"{values.shape[0]:,} predictions written to {out}{whose}")


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


def write_predictions(path: Path, values: Tensor, task: Task, inputs: Inputs) -> None:
    """Write one row per graph, or per node with the number of its graph; numbers keep all their digits.

    Args:
        path: The .csv file.
        values: What `Task.predict` gives, [rows, outputs].
        task: Names the columns.
        inputs: The graphs, with their numbers in the file and its texts about them.
    """
    keys = ["graph", *inputs.labels]
    numbers: list[list[int | str]] = [list(row) for row in zip(inputs.rows, *inputs.labels.values(), strict=True)]
    if task.level == "node":
        keys = [*keys, "node"]
        counts = inputs.graphs.ptr.diff().tolist()
        numbers = [[*row, u] for row, count in zip(numbers, counts, strict=True) for u in range(count)]
    # The shortest decimals that read back as the same floating-point numbers.
    rows = [[str(number) for number in row] for row in values.numpy()]
    if task.kind == "multiclass":
        names = ["class", *(f"probability_{i}" for i in range(task.outputs))]
        rows = [[str(best), *row] for best, row in zip(values.argmax(1).tolist(), rows, strict=True)]
    else:
        word = "prediction" if task.kind == "regression" else "probability"
        names = [word] if task.outputs == 1 else [f"{word}_{i}" for i in range(task.outputs)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, *names])
    writer.writerows([*number, *row] for number, row in zip(numbers, rows, strict=True))
    write_atomic(path, text.getvalue())
