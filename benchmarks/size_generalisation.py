"""Train on small graphs, test on graphs up to sixteen times as large: GSSC against what could stand in its place.

    python -m benchmarks.size_generalisation --device cuda --seeds 3 --workers 6 --out out/sizes.csv
    python -m benchmarks.size_generalisation --out out/sizes.csv --draw docs/figures/size-generalisation.svg

Random points on a torus, each joined to its four nearest, so that nothing but the size changes: 16 to 32 nodes in
training, 1, 2, 4, 8 and 16 times as many in the tests. Four layers, the same GIN beside different global
parts: our convolution, graph spectral convolution (a learned function of each eigenvalue, no self term), softmax
attention with random-walk encodings of nodes (as GraphGPS has it), or none, with those encodings and without; as wide
as needed for the same number of parameters within a few per cent. Ours and the spectral one see all eigenpairs and no
encodings. Predictions are those of the last weights of a schedule that is the same for all; nothing is selected.

Labels are exact, per node, and mean the same in graphs of any size:

- *cycles*: the number of 4-cycles through the node.
- *distance*: how many edges lead to the nearest of the marked nodes, one in sixteen.
- *diffusion*: of signs s at all nodes, exp(-8 L) s with the normalised Laplacian, by a matrix exponential in float64;
  what a spectral filter can do exactly.

The error is the mean absolute error over all test nodes of a size, divided by the deviation of the training labels.
"ours, 32 pairs" is the same trained model with the first 32 eigenpairs of every test graph, as many as the training
graphs can have. Rows are written as runs finish; runs that the file has are not done again.
"""

import argparse
import csv
import io
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import UTC, datetime
from functools import lru_cache, partial
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_dense_adj, to_undirected

from gssc import GSSC, LaplacianSpectrum, RandomWalkSE, model_inputs, prepare
from gssc.environment import commit, hardware
from gssc.files import write_atomic
from gssc.spectra.operators import Operator

SMALLEST, LARGEST, NEAREST = 16, 32, 4
FACTORS = (1, 2, 4, 8, 16)
TRAIN_GRAPHS, TEST_GRAPHS = 1024, 320  # of the smallest size; of larger ones as many fewer, at least 16
LAYERS, WIDTH, BATCH, WALKS, TIME, RATE = 4, 48, 64, 8, 8.0, 3e-3
MARKED = 1 / 16
SHUFFLES = 8  # orders of the training graphs that are collated beforehand
FIELDS = ("task", "model", "seed", "size", "error", "parameters", "steps", "ms_per_step", "device", "commit", "date")
MODELS: dict[str, dict[str, Any]] = {
    "ours": {"glob": "gssc"},
    "spectral": {"glob": "gsc"},
    "attention, walks": {"glob": "attention", "rwse": WALKS},
    "local only": {"glob": "none"},
    "local only, walks": {"glob": "none", "rwse": WALKS},
}
FEWER = "ours, 32 pairs"
Rows = list[dict[str, object]]


def cycles(adjacency: Tensor, x: Tensor) -> Tensor:
    """4-cycles through every node: (A⁴ - their degenerate walks)_uu / 2."""
    square, degree = adjacency @ adjacency, adjacency.sum(1)
    return (square.square().sum(1) + degree - degree.square() - adjacency @ degree) / 2


def distance(adjacency: Tensor, x: Tensor) -> Tensor:
    """Edges to the nearest marked node; what none can be reached from is as far as the farthest other node."""
    hops = dijkstra(adjacency.numpy(), indices=np.flatnonzero(x[:, 0].numpy()), unweighted=True, min_only=True)
    return torch.from_numpy(np.where(np.isinf(hops), hops[np.isfinite(hops)].max(), hops))


def diffusion(adjacency: Tensor, x: Tensor) -> Tensor:
    """exp(-t L) x for the normalised Laplacian."""
    scale = adjacency.sum(1).clamp(min=1).rsqrt()
    laplacian = torch.diag((adjacency.sum(1) > 0).double()) - scale[:, None] * adjacency * scale
    return (torch.matrix_exp(-TIME * laplacian) @ x)[:, 0]


class Task(NamedTuple):
    """Labels, the operator whose eigenpairs models see, and how features are drawn for n nodes."""

    label: Callable[[Tensor, Tensor], Tensor]
    operator: Operator
    features: Callable[[np.random.Generator, int], np.ndarray]


def _marks(random: np.random.Generator, n: int) -> np.ndarray:
    marks = random.random(n) < MARKED
    marks[random.integers(n)] |= not marks.any()
    return marks


TASKS = {
    "cycles": Task(cycles, "adjacency", lambda random, n: np.ones(n)),
    "distance": Task(distance, "sym", _marks),
    "diffusion": Task(diffusion, "sym", lambda random, n: random.choice([-1.0, 1.0], n)),
}


def graphs(task: str, count: int, factor: int, seed: int) -> list[Data]:
    """Random graphs of a task with features x [n, 1] and labels y [n], their walks and all their eigenpairs."""
    random = np.random.default_rng([seed, factor])
    found = []
    for _ in range(count):
        n = factor * int(random.integers(SMALLEST, LARGEST + 1))
        points = random.random((n, 2))
        nearest = cKDTree(points, boxsize=1.0).query(points, NEAREST + 1)[1][:, 1:]  # the first is the point itself
        edges = to_undirected(torch.from_numpy(np.stack([np.arange(n).repeat(NEAREST), nearest.ravel()])))
        x = torch.from_numpy(TASKS[task].features(random, n)).double().unsqueeze(1)
        y = TASKS[task].label(to_dense_adj(edges, max_num_nodes=n)[0].double(), x)
        found.append(Data(x=x.float(), edge_index=edges, y=y.float(), num_nodes=n))
    spectrum = LaplacianSpectrum(k=factor * LARGEST, operator=TASKS[task].operator)
    return prepare(found, spectrum, RandomWalkSE(WALKS), progress=False)


@lru_cache(maxsize=1)
def data_of(task: str, largest: int) -> tuple[list[Data], dict[int, list[Data]]]:
    """Training graphs, and test graphs by factor."""
    tests = {f: graphs(task, max(TEST_GRAPHS // f, 16), f, seed=1) for f in FACTORS if f <= largest}
    return graphs(task, TRAIN_GRAPHS, 1, seed=0), tests


def parameters(model: nn.Module) -> int:
    """How many numbers a model learns."""
    return sum(p.numel() for p in model.parameters())


def make_model(name: str, width: int = 0) -> GSSC:
    """A model by name; rivals are as wide as comes nearest to our number of parameters, unless ``width`` is said."""
    settings: dict[str, Any] = {"rwse_channels": 8, "local": "gin", "level": "node", "phi_channels": 32}
    return GSSC(1, width or width_of(name), LAYERS, node_features=1, **settings, **MODELS[name])


@lru_cache
def width_of(name: str) -> int:
    """Channels of a model; attention has four heads."""
    if name == "ours":
        return WIDTH
    wanted = parameters(make_model("ours"))
    widths = range(WIDTH, WIDTH + 32, 4)
    return min(widths, key=lambda width: abs(parameters(make_model(name, width)) - wanted))


def training_batches(data: list[Data], device: torch.device, seed: int) -> Iterator[Batch]:
    """Shuffled batches without end, of a few orders that are collated beforehand."""
    generator = torch.Generator().manual_seed(seed)
    orders = [torch.randperm(len(data), generator=generator).tolist() for _ in range(SHUFFLES)]
    parts = [order[start : start + BATCH] for order in orders for start in range(0, len(data), BATCH)]
    batches = [Batch.from_data_list([data[i] for i in part]).to(device) for part in parts]
    while True:
        yield from batches


def train(model: GSSC, data: list[Data], device: torch.device, seed: int, steps: int) -> float:
    """The same schedule for every model; milliseconds per step."""
    scale = torch.cat([graph.y for graph in data]).std()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=max(0.1, 2 / steps))
    batches = training_batches(data, device, seed)
    start = time.perf_counter()
    for batch in islice(batches, steps):
        optimizer.zero_grad()
        loss = (model(**model_inputs(batch))[:, 0] - batch.y / scale).abs().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    loss.item()  # waits for the device
    return 1e3 * (time.perf_counter() - start) / steps


@torch.no_grad()
def error(model: GSSC, data: list[Data], scale: float, device: torch.device, pairs: int | None = None) -> float:
    """Mean absolute error over deviation; with only the first ``pairs`` eigenpairs where they are given."""
    total = 0.0
    for graph in data:
        inputs = model_inputs(Batch.from_data_list([graph]).to(device))
        for name in ("eigvals", "eigvecs", "eigmask") if pairs else ():
            inputs[name] = inputs[name][:, :pairs].contiguous()
        total += float((model(**inputs)[:, 0] * scale - graph.y.to(device)).abs().sum())
    return total / scale / sum(graph.num_nodes for graph in data)


def run(task: str, name: str, seed: int, steps: int, device: str, largest: int) -> Rows:
    """Train one model and test it at every size: rows of the results file."""
    torch.set_num_threads(1)
    where = torch.device(device)
    data, tests = data_of(task, largest)
    torch.manual_seed(seed)
    model = make_model(name).to(where)
    milliseconds = train(model, data, where, seed, steps)
    model.eval()
    scale = float(torch.cat([graph.y for graph in data]).std())
    about: dict[str, object] = {"task": task, "seed": seed, "parameters": parameters(model), "steps": steps}
    about |= {"ms_per_step": f"{milliseconds:.1f}", "device": hardware(device), "commit": commit()}
    about["date"] = datetime.now(UTC).date().isoformat()
    variants = {name: None, FEWER: LARGEST} if name == "ours" else {name: None}
    return [
        {**about, "model": variant, "size": factor, "error": f"{error(model, graphs, scale, where, pairs):.5f}"}
        for variant, pairs in variants.items()
        for factor, graphs in tests.items()
    ]


def results(job: Callable[..., Rows], jobs: Sequence[tuple[Any, ...]], workers: int) -> Iterator[Rows]:
    """Of every job, as they come: several at a time, each in a process of its own, or here where that is one."""
    if workers == 1:
        yield from (job(*which) for which in jobs)
        return
    spawn = multiprocessing.get_context("spawn")  # a process that has used a GPU cannot be forked
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        for done in as_completed([pool.submit(job, *which) for which in jobs]):
            yield done.result()


def read(path: Path) -> list[dict[str, str]]:
    """Rows of the results file; none where there is none."""
    return list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.exists() else []


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """All rows, at once or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, text.getvalue().encode())


def summary(rows: Sequence[dict[str, str]]) -> dict[tuple[str, str], dict[int, tuple[float, float]]]:
    """By task and model: at each size mean and deviation of the errors over seeds."""
    errors: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in rows:
        errors.setdefault((row["task"], row["model"]), {}).setdefault(int(row["size"]), []).append(float(row["error"]))
    return {
        key: {size: (statistics.fmean(e), statistics.pstdev(e)) for size, e in sorted(by_size.items())}
        for key, by_size in errors.items()
    }


def table(rows: Sequence[dict[str, str]]) -> str:
    """Mean ± deviation over seeds, one line per task and model, in Markdown."""
    found = summary(rows)
    sizes = sorted({size for by_size in found.values() for size in by_size})
    lines = [
        "| task | model | " + " | ".join(f"{size} ×" for size in sizes) + " |",
        "|---|---" + "|---" * len(sizes) + "|",
    ]
    for (task, model), by_size in sorted(found.items()):
        cells = (f"{by_size[s][0]:.3f} ± {by_size[s][1]:.3f}" if s in by_size else "–" for s in sizes)
        lines.append(f"| {task} | {model} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """Error against the size of test graphs, a panel per task, a line per model, bars of one deviation over seeds."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    found = summary(rows)
    tasks = [task for task in TASKS if any(key[0] == task for key in found)]
    figure = Figure(figsize=(4.4 * len(tasks), 3.6), facecolor="white", layout="constrained")
    for axis, task in zip(figure.subplots(1, len(tasks), squeeze=False)[0], tasks, strict=True):
        for number, model in enumerate([*MODELS, FEWER]):
            if by_size := found.get((task, model)):
                means, deviations = zip(*by_size.values(), strict=True)
                color = "C0" if model.startswith("ours") else f"C{number}"
                style = {"linestyle": "--" if model == FEWER else "-", "color": color, "marker": "o"}
                axis.errorbar([*by_size], means, deviations, label=model, markersize=3.5, linewidth=1.2, **style)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(FACTORS, [f"{factor} ×" for factor in FACTORS])
        axis.set_title(task, fontsize=9)
        axis.set_xlabel("size of test graphs, of that in training")
        axis.grid(visible=True, which="major", linewidth=0.4, alpha=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_ylabel("mean absolute error / deviation")
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=8, frameon=False
    )
    picture = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "gssc", "svg.fonttype": "path"}):  # the same bytes every time
        figure.savefig(picture, format="svg", metadata={"Date": None, "Creator": None})
    write_atomic(path, picture.getvalue())


def main(words: list[str] | None = None) -> None:
    """Run what is missing, write rows as they come, print the table; or draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument(
        "--workers", type=int, default=1, help="runs at a time, of several each in a process of its own"
    )
    parser.add_argument("--tasks", nargs="+", default=[*TASKS], choices=[*TASKS])
    parser.add_argument("--models", nargs="+", default=[*MODELS], choices=[*MODELS])
    parser.add_argument("--largest", type=int, default=FACTORS[-1], help="leave out larger test graphs")
    parser.add_argument("--out", type=Path, default=Path("out/size-generalisation.csv"))
    parser.add_argument("--draw", type=Path, help="an SVG file: nothing is run, what --out has is drawn")
    options = parser.parse_args(words)
    rows: list[dict[str, Any]] = [*read(options.out)]
    if options.draw:
        draw(rows, options.draw)
        return
    have = {(row["task"], row["model"], row["seed"], row["steps"]) for row in rows}
    wanted = product(options.tasks, range(options.seeds), options.models)
    missing = [(t, m, s) for t, s, m in wanted if (t, m, str(s), str(options.steps)) not in have]
    job = partial(run, steps=options.steps, device=options.device, largest=options.largest)
    start = time.perf_counter()
    for done in results(job, missing, options.workers):
        rows += done
        write(options.out, rows)
        first, errors = done[0], (f"{row['size']}x {row['error']}" for row in done if row["model"] != FEWER)
        print(f"{first['task']}, {first['model']}, seed {first['seed']}: {' '.join(errors)}", end=" ")
        print(f"({first['ms_per_step']} ms per step, {time.perf_counter() - start:.0f} s since the start)", flush=True)
    print(table(rows))


if __name__ == "__main__":
    main()
