"""The paper's cost study over every global part: preprocessing (Figure 3), and training and inference (Figure 4).

    python -m benchmarks cost
    python -m benchmarks.cost_study --device cpu --sizes 100 molecules --parts gssc mamba --only models --out x.csv

Four layers of width 96 with GatedGCN beside each global part, narrower or wider where that changes the number of
parameters by more than 10 %, and PyG's GPSConv for comparison; graphs as in `benchmarks.launched`. Launched: an
ordinary loop, forward and backward, all models in turns, so that ratios are of one run; ``baseline`` is softmax
attention, GraphGPS's. Replayed: the same step as a CUDA graph, where launched it takes less than 0.2 s. Preprocessing
is that of `benchmarks.spectra_large` on random graphs of the same density. A model that runs out of memory is said to;
the larger sizes of one that did are not tried. Rows are written size by size; what has rows of this commit and device
in ``--out`` is not measured again, so that the same command goes on where its time was up.
"""

import argparse
import gc
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import spectra_large
from benchmarks.harness import append
from benchmarks.launched import HEADS, LAYERS, SIZES, WIDTH, measure, prepare, steps, workload
from benchmarks.plots import of_study
from benchmarks.results import Measured, read_results
from gssc import GSSC, ExpanderGraph
from gssc.environment import commit, hardware
from gssc.model import GLOBALS
from gssc.replay import CaptureError, Replay
from tools.equal_width import equal_width

PARTS = (*(name for name in GLOBALS if name != "gsc"), "GPSConv")
BASELINE = "attention"
SLOW = 200.0  # milliseconds, from which on launches do not matter
METHODS = ("gssc", "torch.lobpcg", "eigh-full", "rrwp", "expander")

Step = Callable[[], Tensor]
Rows = list[dict[str, object]]


def inputs(size: str, device: torch.device) -> dict[str, Tensor]:
    """The batch of `benchmarks.launched` and an expander graph."""
    data = workload(size, device)
    counts = torch.bincount(data["batch"].cpu())
    return data | {"expander": ExpanderGraph().rows(counts).to(device)}


def model_of(part: str, edges: bool, width: int) -> GSSC:
    """The model with this global part."""
    settings: dict[str, Any] = {"node_features": WIDTH, "edge_features": WIDTH if edges else None, "heads": HEADS}
    return GSSC(1, width, LAYERS, glob=part, phi_channels=32, level="node", head="linear", **settings)


@cache
def width_of(part: str, edges: bool) -> int:
    """`WIDTH`, or one with about as many parameters as attention has there; no global part is no reason for another."""

    def count(width: int, part: str = part) -> int:
        with torch.device("meta"):
            return parameters(model_of(part, edges, width))

    wanted = count(WIDTH, BASELINE)
    close = part == "none" or abs(count(WIDTH) / wanted - 1) <= 0.1
    return WIDTH if close else equal_width(count, wanted, WIDTH)


def parameters(model: GSSC) -> int:
    """How many there are."""
    return sum(parameter.numel() for parameter in model.parameters())


def step_of(model: GSSC, data: dict[str, Tensor], training: bool, **more: int) -> Step:
    """Forward and backward, or inference."""
    model.train(training)

    def train() -> Tensor:
        for parameter in model.parameters():
            parameter.grad = None
        loss = model(**data, **more).square().mean()
        loss.backward()
        return loss

    def infer() -> Tensor:
        with torch.no_grad():
            return model(**data, **more)

    return train if training else infer


def clear(device: torch.device) -> None:
    """Give back what models that are gone have left."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def replayed(model: GSSC, data: dict[str, Tensor], training: bool, seconds: float) -> float | str:
    """Milliseconds of a replayed step, or why there is none."""
    device, replay = data["x"].device, None
    largest = int(torch.bincount(data["batch"]).max())
    try:
        replay = Replay(step_of(model, data, training, largest=largest), device, list(model.buffers()), careful=True)
        return measure({"": replay}, device, seconds)[""]
    except (CaptureError, torch.OutOfMemoryError) as error:
        if device.type == "cuda":  # a capture that failed leaves the generator in the middle of it
            fresh = torch.Generator(device)
            torch.cuda.default_generators[device.index or 0].graphsafe_set_state(fresh.graphsafe_get_state())
        return str(error) if isinstance(error, CaptureError) else "out of memory"
    finally:
        del replay
        model.zero_grad()  # which is in the memory of the graph
        clear(device)


def in_turns(functions: dict[str, Step], device: torch.device, seconds: float) -> dict[str, float]:
    """Median milliseconds; where memory does not suffice for all in turns, of one after another, and of some not."""
    try:
        return measure(dict(functions), device, seconds)
    except torch.OutOfMemoryError:
        clear(device)
    medians: dict[str, float] = {}
    for part, step in functions.items():
        try:
            medians |= measure({part: step}, device, seconds)
        except torch.OutOfMemoryError:
            clear(device)
    return medians


def study(size: str, parts: tuple[str, ...], training: bool, device: torch.device, seconds: float) -> Rows:
    """Rows of all parts at one size."""
    data = inputs(size, device)
    plain = {name: value for name, value in data.items() if name != "expander"}
    edges, ours = "edge_attr" in data, [part for part in parts if part != "GPSConv"]
    models = {part: model_of(part, edges, width_of(part, edges)).to(device) for part in ours}
    functions = {part: step_of(model, data, training) for part, model in models.items()}
    if "GPSConv" in parts:
        functions["GPSConv"] = steps("GPSConv", plain, training)
    peaks = {part: prepare(step, device, warmups=2) for part, step in functions.items()}
    fitting = {part: step for part, step in functions.items() if peaks[part] == peaks[part]}
    medians = in_turns(fitting, device, seconds)
    del functions, fitting
    clear(device)
    rows = []
    base = medians.get(BASELINE)
    for part in parts:
        notes = {}
        if part in models:
            notes["launched"] = f"width {width_of(part, edges)}, {parameters(models[part]):,} parameters"
        times: dict[str, float | str] = {"launched": medians.get(part, "out of memory")}
        if part in medians and part in models and device.type == "cuda" and medians[part] < SLOW:
            times["replayed"] = replayed(models[part], data, training, seconds)
        for how, found in times.items():
            row: dict[str, object] = {"benchmark": "cost-models", "variant": f"{part}, {how}"}
            row |= {"workload": f"{size}, {'training' if training else 'inference'}"}
            if isinstance(found, str):
                rows.append(row | {"note": found})
                continue
            row |= {"p50_ms": f"{found:.3f}", "note": notes.get(how, "")}
            row |= {"peak_mb": f"{peaks[part]:.0f}"} if how == "launched" and peaks[part] else {}
            rows.append(row | ({"baseline": BASELINE, "ratio": f"{found / base:.3g}"} if base else {}))
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and append."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=0.3, help="time of each measurement")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), help="numbers of nodes, and " + ", ".join(SIZES[:2]))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--only", choices=("models", "preprocessing"), help="one of the two; default: both")
    parser.add_argument("--budget", type=float, default=90.0, help="seconds for all of preprocessing")
    parser.add_argument("--minutes", type=float, default=5.5, help="after which nothing new is begun")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results.csv"), help="results file to append to")
    options = parser.parse_args(arguments)
    device, end, longest = torch.device(options.device), time.monotonic() + 60 * options.minutes, 0.0
    known = recorded(options.out, device)
    beyond: dict[bool, set[str]] = {True: set(), False: set()}  # what ran out of memory, by training
    for size in options.sizes if options.only != "preprocessing" else ():
        for training in (True, False):
            larger = beyond[training] if size.isdecimal() else set()
            rows = _known(known, size, training, options.parts)
            if not rows:
                begin = time.monotonic()
                if begin + longest > end:
                    print(f"time is up before {size} nodes; the same command goes on there", flush=True)
                    return
                parts = tuple(part for part in options.parts if part not in larger)
                rows = study(size, parts, training, device, options.seconds)
                rows += [_out_of_memory(size, part, training) for part in options.parts if part in larger]
                longest = max(longest, time.monotonic() - begin)
                for row in rows:
                    said = f"{row['variant']:<22} {row.get('p50_ms', ''):>10} ms  {row['note']}"
                    print(f"{row['workload']:>26}  {said}", flush=True)
                append(options.out, rows, device.type)
            for row in rows:
                if row["note"] == "out of memory" and size.isdecimal():
                    beyond[training].add(str(row["variant"]).partition(", launched")[0])
    if options.only != "models":
        # Sizes come in order, and the expander last of each.
        done = {row.workload for row in known if of_study(row) and row.variant == METHODS[-1] and row.p50 is not None}
        numbers = [size for size in options.sizes if size.isdecimal()][len(done) :]
        budget = min(options.budget, end - time.monotonic())
        if numbers and budget < 1:
            print("time is up before preprocessing; the same command goes on there", flush=True)
        elif numbers:
            words = ["--graphs", "paper", "--methods", *METHODS, "--sizes", *numbers, "--device", device.type]
            spectra_large.main([*words, "--limit", "10", "--budget", str(budget), "--out", str(options.out)])


def recorded(out: Path, device: torch.device) -> list[Measured]:
    """Rows of this commit and this device, of earlier commands; none where the code is of no commit."""
    here = commit()
    rows = read_results(out) if out.is_file() and here != "unknown" and not here.endswith("+") else []
    return [row for row in rows if (row.commit, row.device) == (here, hardware(device.type))]


def _known(known: list[Measured], size: str, training: bool, parts: list[str]) -> Rows:
    """Rows of a size that are there already, for all parts or for none."""
    workload = f"{size}, {'training' if training else 'inference'}"
    rows = [row for row in known if (row.benchmark, row.workload) == ("cost-models", workload)]
    complete = {f"{part}, launched" for part in parts} <= {row.variant for row in rows}
    return [{"variant": row.variant, "note": row.note} for row in rows] if complete else []


def _out_of_memory(size: str, part: str, training: bool) -> dict[str, object]:
    """The row of a part that ran out of memory at a smaller size."""
    kind = "training" if training else "inference"
    row: dict[str, object] = {"benchmark": "cost-models", "workload": f"{size}, {kind}", "variant": f"{part}, launched"}
    return row | {"note": "out of memory"}


if __name__ == "__main__":
    main()
