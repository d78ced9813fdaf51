"""``gssc predict``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gssc.cli.options import DeviceOption, RunArgument


def predict(
    run: RunArgument,
    graphs: Annotated[Path, typer.Argument(help="Graphs: a .pt file of PyG data, or molecules as .csv or .smi.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .csv file to write.")] = Path("predictions.csv"),
    smiles_column: Annotated[str, typer.Option(help="Column of a .csv file that holds SMILES.")] = "smiles",
    batch_size: Annotated[int | None, typer.Option(min=1, help="Graphs per batch; the default is the run's.")] = None,
    device: DeviceOption = "auto",
) -> None:
    """Predict for new graphs with the selected weights of a run.

    Writes one row per graph, or per node: values in the units of the data, probabilities of the classes and the most
    probable one, or the probability of each label. The same batches give the same bits as the run's own evaluation.
    """
    from gssc.cli.opening import pick_device
    from gssc.datasets import read_inputs
    from gssc.train.build import build_store
    from gssc.train.evaluate import default_dtype
    from gssc.train.evaluate import predict as predicted
    from gssc.train.loaded import load_run
    from gssc.train.predictions import write_predictions

    place = pick_device(device)
    loaded = load_run(run, place)
    recipe = loaded.recipe
    with default_dtype(recipe.train.precision):
        flat = read_inputs(graphs, loaded.about, smiles_column=smiles_column)
        store = build_store(flat, recipe, loaded.task.level, place, None)
        size = batch_size or recipe.train.batch_size
        values, _ = predicted(loaded.model, store, loaded.task, size, recipe.train.precision)
    write_predictions(out, values, loaded.task, flat.ptr)
    Console(highlight=False, soft_wrap=True).print(f"{values.shape[0]:,} predictions written to {out}")
