"""Count cycles: GSSC against a GIN of the same size, on generated graphs, in about two minutes.

Every node is to be told how many 3-, 4-, 5- and 6-cycles run through it, from the bare graph. Message passing cannot
see cycles at all (Chen et al., 2020); the self term of the graph state space convolution can.

    python examples/count_cycles.py --out out/demo
"""

import argparse
import copy
import platform
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN

import gssc
from gssc import GSSC, LaplacianSpectrum, model_inputs
from gssc.datasets import cycle_counting
from gssc.datasets.cycles import CYCLE_LENGTHS

TRAIN, VALIDATION, TEST = 1000, 250, 750
# Test errors of this script with its defaults, measured once (torch 2.13.0, x86-64 CPU, one thread, seed 0).
EXPECTED = {"GSSC": (0.013, 0.015, 0.032, 0.046), "GIN": (0.328, 0.248, 0.190, 0.139)}


class GINBaseline(nn.Module):
    """PyG's GIN on a constant node feature, as wide as needed to have at least as many parameters as the rival."""

    def __init__(self, layers: int, parameters: int) -> None:
        super().__init__()
        width = 8
        while count_parameters(self._make(width, layers)) < parameters:
            width += 1
        self.gin = self._make(width, layers)

    @staticmethod
    def _make(width: int, layers: int) -> GIN:
        return GIN(1, width, layers, out_channels=len(CYCLE_LENGTHS), norm="batch_norm", jk="cat")

    def forward(self, data: Data) -> Tensor:
        return self.gin(torch.ones(data.num_nodes, 1), data.edge_index)


class GSSCCounter(nn.Module):
    """GSSC as a function of a PyG batch."""

    def __init__(self) -> None:
        super().__init__()
        self.model = GSSC(len(CYCLE_LENGTHS), channels=32, layers=4, local="gin", level="node")

    def forward(self, data: Data) -> Tensor:
        return self.model(**model_inputs(data))


def count_parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@torch.no_grad()
def predict(model: nn.Module, data: Batch) -> Tensor:
    return model.eval()(data)


def train(name: str, model: nn.Module, splits: list[list[Data]], scale: Tensor, epochs: int) -> Tensor:
    """Train, select the epoch by validation error, and return the predictions for the test graphs."""
    validation, test = Batch.from_data_list(splits[1]), Batch.from_data_list(splits[2])
    loader = DataLoader(splits[0], batch_size=64, shuffle=True, drop_last=True)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3e-3, total_steps=epochs * len(loader), pct_start=0.1)
    best, best_state = float("inf"), copy.deepcopy(model.state_dict())
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs, validation error {task.fields[error]:.3f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        task = progress.add_task(f"{name:5}", total=epochs, error=float("nan"))
        for _ in range(epochs):
            model.train()
            for batch in loader:
                optimiser.zero_grad()
                (model(batch) - batch.y / scale).abs().mean().backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
                schedule.step()
            error = float((predict(model, validation) - validation.y / scale).abs().mean())
            if error < best:
                best, best_state = error, copy.deepcopy(model.state_dict())
            progress.update(task, advance=1, error=best)
    model.load_state_dict(best_state)
    return predict(model, test)


def plot(path: Path, truth: Tensor, predictions: dict[str, Tensor]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(predictions), len(CYCLE_LENGTHS), figsize=(13, 6.5), constrained_layout=True)
    for row, (name, predicted) in zip(axes, predictions.items(), strict=True):
        for column, axis in enumerate(row):
            true, found = truth[:, column], predicted[:, column]
            axis.plot([0, true.max()], [0, true.max()], color="0.7", linewidth=1, zorder=0)
            axis.scatter(
                true, found, s=3, alpha=0.3, color="tab:blue" if name == "GSSC" else "tab:orange", linewidths=0
            )
            axis.set_title(f"{name}: {CYCLE_LENGTHS[column]}-cycles")
            axis.set_xlabel("true count")
            axis.set_ylabel("predicted count")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def write_report(
    path: Path, errors: dict[str, list[float]], sizes: dict[str, int], seconds: float, epochs: int
) -> None:
    lines = [
        "# Counting cycles: GSSC against GIN",
        "",
        f"Test error per node (mean absolute error / standard deviation of the target), {TEST} held-out graphs, "
        f"{TRAIN} for training, {epochs} epochs, epoch selected on {VALIDATION} validation graphs, seed 0.",
        "",
        "| model | parameters | " + " | ".join(f"{length}-cycles" for length in CYCLE_LENGTHS) + " |",
        "|---|---" + "|---" * len(CYCLE_LENGTHS) + "|",
    ]
    for name, values in errors.items():
        lines.append(f"| {name} | {sizes[name]:,} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
        lines.append(f"| {name}, to expect | | " + " | ".join(f"{value:.3f}" for value in EXPECTED[name]) + " |")
    lines += [
        "",
        "![predicted against true counts](predicted-against-true.png)",
        "",
        f"{seconds:.0f} s on {platform.machine()}, one thread; gssc {gssc.__version__}, "
        f"torch {torch.__version__}, Python {platform.python_version()}.",
        "",
    ]
    path.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="folder for the plot and the report")
    parser.add_argument("--epochs", type=int, default=100, help="epochs of each model")
    arguments = parser.parse_args()
    console, start = Console(), time.perf_counter()
    # The tensors are tiny: more threads gain nothing, and with one the result does not depend on the number of cores.
    torch.set_num_threads(1)

    console.print(f"Generating {TRAIN + VALIDATION + TEST} random graphs, counting cycles, computing spectra …")
    transform = LaplacianSpectrum(k=30, operator="adjacency")
    data = [transform(graph) for graph in cycle_counting(TRAIN + VALIDATION + TEST, seed=0)]
    splits = [data[:TRAIN], data[TRAIN : TRAIN + VALIDATION], data[TRAIN + VALIDATION :]]
    scale = torch.cat([graph.y for graph in splits[0]]).std(0, correction=0)
    truth = torch.cat([graph.y for graph in splits[2]])

    torch.manual_seed(0)
    rival = GSSCCounter()
    models = {"GSSC": rival, "GIN": GINBaseline(layers=4, parameters=count_parameters(rival))}
    predictions = {name: train(name, model, splits, scale, arguments.epochs) * scale for name, model in models.items()}
    errors = {name: ((found - truth).abs().mean(0) / scale).tolist() for name, found in predictions.items()}
    sizes = {name: count_parameters(model) for name, model in models.items()}

    table = Table(title=f"test error (MAE / std of the target), {TEST} held-out graphs")
    for heading in ("model", "parameters", *(f"{length}-cycles" for length in CYCLE_LENGTHS)):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for name, values in errors.items():
        table.add_row(name, f"{sizes[name]:,}", *(f"{value:.3f}" for value in values))
        table.add_row(f"[dim]{name}, to expect", "", *(f"[dim]{value:.3f}" for value in EXPECTED[name]))
    console.print(table)

    arguments.out.mkdir(parents=True, exist_ok=True)
    plot(arguments.out / "predicted-against-true.png", truth, predictions)
    seconds = time.perf_counter() - start
    write_report(arguments.out / "report.md", errors, sizes, seconds, arguments.epochs)
    console.print(
        f"{seconds:.0f} s. Report: {arguments.out / 'report.md'}, plot: {arguments.out}/predicted-against-true.png"
    )


if __name__ == "__main__":
    main()
