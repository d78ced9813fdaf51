"""``gssc evaluate``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gssc.cli.options import CacheOption, DeviceOption, PackOption, RootOption, RunArgument


def evaluate(
    run: RunArgument,
    data_root: RootOption = Path("data"),
    split: Annotated[str, typer.Option(help="Which graphs: train, val or test.")] = "test",
    pack: PackOption = None,
    device: DeviceOption = "auto",
    cache: CacheOption = None,
) -> None:
    """Score the selected weights of a run or of a pretrained model again, beside what was recorded.

    The same batches give the same bits on the same machine; other batch sizes and devices agree to rounding. Products
    are those of float32 also where the recipe trains in tf32, as when test scores were recorded.
    """
    from gssc.checks import check_choice
    from gssc.cli.opening import open_for, pick_device
    from gssc.pretrained import open_model
    from gssc.tasks import score_text
    from gssc.train.build import build_store
    from gssc.train.evaluate import default_dtype, exact_products
    from gssc.train.evaluate import evaluate as score

    check_choice("--split", split, ("train", "val", "test"))
    place = pick_device(device)
    loaded = open_model(run, device=place)
    recipe, task = loaded.recipe, loaded.task
    console = Console(highlight=False, soft_wrap=True)
    with default_dtype(recipe.train.precision), exact_products():
        dataset = open_for(recipe, data_root, pack, Console(quiet=True))
        store = build_store(dataset.splits[split], recipe, task.level, place, cache or True)
        loss, value = score(loaded.model, store, task, recipe.train.batch_size, recipe.train.precision)
    recorded = None
    if loaded.summary is not None:
        recorded = loaded.summary.get({"val": "validation", "test": "test"}.get(split, ""))
    beside = ""
    if recorded is not None:
        same = "the same bits" if value == recorded else f"{abs(value - recorded):.1e} from it"
        beside = f" (recorded: {score_text(recorded)}, {same})"
    console.print(
        f"{recipe.name}: {split} {task.metric} {score_text(value)}{beside}, "
        f"loss {loss:.6f}, {store.num_graphs:,} graphs"
    )
