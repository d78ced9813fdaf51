"""``gssc evaluate``."""

from pathlib import Path
from typing import Any

from gssc.checks import check_choice
from gssc.cli.common import open_for, pick_device
from gssc.cli.options import CacheOption, DeviceOption, PackOption, RootOption, RunsArgument, SplitOption, plain_console
from gssc.pretrained.find import open_seeds
from gssc.tasks import score_text
from gssc.train.build import build_store
from gssc.train.evaluate import default_dtype, exact_products, raw_outputs, score


def evaluate(
    run: RunsArgument,
    data_root: RootOption = Path("data"),
    split: SplitOption = "test",
    pack: PackOption = None,
    device: DeviceOption = "auto",
    cache: CacheOption = None,
) -> None:
    """Score the selected weights of a run or of a pretrained model again, beside what was recorded.

    For OUT of several seeds, each of them, and then all together: the mean of their predictions, scored as one.

    The same batches give the same bits on the same machine; other batch sizes and devices agree to rounding. Products
    are those of float32 also where the recipe trains in tf32, as when test scores were recorded.
    """
    check_choice("--split", split, ("train", "val", "test"))
    place = pick_device(device)
    console = plain_console()
    models = open_seeds(run, console.print, device=place)
    recipe, task = models[0].recipe, models[0].task
    outputs = []
    dataset = open_for(recipe, data_root, pack)
    with default_dtype(recipe.train.precision), exact_products():
        store = build_store(dataset.splits[split], recipe, task.level, place, cache or True)
        for model in models:
            outputs.append(raw_outputs(model.model, store, recipe.train.batch_size, recipe.train.precision))
            loss, value = score(outputs[-1], store, task)
            name = f"{recipe.name}, {model.folder.name}" if len(models) > 1 else recipe.name
            beside = _beside(value, model.summary, split)
            console.print(
                f"{name}: {split} {task.metric} {score_text(value)}{beside}, "
                f"loss {loss:.6f}, {store.num_graphs:,} graphs"
            )
        if len(models) > 1:
            loss, value = score(task.mean(outputs), store, task)
            console.print(
                f"{recipe.name}, the mean of {len(models)} predictions: {split} {task.metric} {score_text(value)}, "
                f"loss {loss:.6f}"
            )


def _beside(value: float, summary: dict[str, Any] | None, split: str) -> str:
    """What was recorded of this part, to print behind a score."""
    recorded = None if summary is None else summary.get({"val": "validation", "test": "test"}.get(split, ""))
    if recorded is None:
        return ""
    same = "the same bits" if value == recorded else f"{abs(value - recorded):.1e} from it"
    return f" (recorded: {score_text(recorded)}, {same})"
