"""How much of the package one step goes through: files, functions and calls, on a CPU.

    python -m benchmarks.step_calls [--list]

For the model of the zinc-12k recipe and 32 generated molecules: a forward and backward pass of the model in a loop of
one's own, and a step of ``gssc train``. The second time each is run, when nothing is imported or cached any more.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import gssc
from benchmarks.graphs import zinc_like
from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe
from gssc.train import build_model
from gssc.train.build import build_store
from gssc.train.processes import Processes
from gssc.train.step import Position, Trainer
from gssc.train.stopping import Stopping

PACKAGE = str(Path(gssc.__file__).parent)


def calls_of(run: Callable[[], object]) -> Counter[tuple[str, str]]:
    """How often functions of the package are called, by file and name."""
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            calls[code.co_filename.removeprefix(PACKAGE).lstrip("/\\"), code.co_qualname] += 1

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return calls


def passes() -> dict[str, Callable[[], object]]:
    """What is looked at, by name."""
    recipe, spec = find_recipe("zinc-12k"), SPECS["zinc-12k"]
    about = {"task": vars(spec.task), "node_features": spec.node_features, "edge_features": spec.edge_features}
    torch.manual_seed(0)
    store = build_store(zinc_like(32, 0), recipe, spec.task.level, torch.device("cpu"), cache=False)
    model = build_model(recipe, about)
    trainer = Trainer(model, store, spec.task, recipe, 0, Processes())
    batch = store.batch(torch.arange(32))
    stopping = Stopping(recipe.train, None, Processes(), trainer.clock, 1)
    return {
        "forward and backward of the model": lambda: model(**batch.inputs).sum().backward(),
        "one step of gssc train": lambda: trainer.run_epoch(Position(1, 0, []), stopping.between_steps()),
    }


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="every function, with its file and number of calls")
    options = parser.parse_args()
    for name, run in passes().items():
        run()
        calls = calls_of(run)
        files = {file for file, _ in calls}
        print(f"{name}: {len(files)} files, {len(calls)} functions, {sum(calls.values()):,} calls")
        for (file, function), number in sorted(calls.items()) if options.list else ():
            print(f"  {number:5d}  {file}  {function}")


if __name__ == "__main__":
    main()
