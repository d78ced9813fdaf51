"""How far the models hear that `benchmarks.equal_size` has trained: influence against distance, a picture and a table.

    python -m benchmarks.influence runs/pasadena --out docs/figures/large-influence.svg

Of every model the run of seed 0 with the better validation score. Influence ‖∂h_u/∂x_v‖ is exact, averaged over some
nodes u, and told in parts of that of a node on itself; the table has R of PyG's ``total_influence`` beside the scores.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

import gssc
from benchmarks.equal_size import MODELS, folder_name
from gssc.checks import check_choice, fail
from gssc.explain import hops_to
from gssc.explain.draw import influence_figure, rendered
from gssc.explain.jacobian import by_distance, influences, mean_distance
from gssc.explain.write import Subject, make_subject, sample
from gssc.train.loaded import LoadedRun
from gssc.train.open_data import open_for

TOLD = (1, 4, 5, 16, 64)  # distances of the table


def chosen_run(model: str, runs: Path) -> LoadedRun:
    """The run of seed 0 that validation prefers."""
    found = [gssc.open_model(path.parent) for path in runs.glob(f"{folder_name(model, '*', 0)}/seed-0/summary.json")]
    if not found:
        fail("runs", f"a finished run of {model} with seed 0 (python -m benchmarks.equal_size)", runs)
    best = max if found[0].task.higher_is_better else min
    return best(found, key=lambda run: run.summary["validation"] if run.summary else 0.0)


def subject_of(run: LoadedRun) -> Subject:
    """The model, and the graph of its run as it takes it."""
    dataset = open_for(run.recipe, Path(), beside=None if run.folder is None else run.folder.parent)
    return make_subject(run, dataset, "test", 0, torch.device("cpu"))


def main(
    runs: Annotated[Path, typer.Argument(help="Folder of runs of benchmarks.equal_size.")],
    out: Annotated[Path, typer.Option(help="The picture, .svg.")] = Path("docs/figures/large-influence.svg"),
    models: Annotated[str, typer.Option(help="Which, separated by commas.")] = "GSSC,GCN,GraphSAGE,SGFormer",
    nodes: Annotated[int, typer.Option(min=1, help="Nodes u to average over.")] = 6,
) -> None:
    """Draw influence against distance, and print it as Markdown."""
    reaches, hops = [], np.zeros((0, 0))
    print(f"| model | R, edges | test | {' | '.join(f'at {distance}' for distance in TOLD)} |")
    print("|---" * (3 + len(TOLD)) + "|")
    for model in models.split(","):
        check_choice("--models", model, MODELS)
        subject = subject_of(chosen_run(model, runs))
        chosen = sample(subject.nodes, nodes, 0)
        hops = hops if hops.size else hops_to(subject.data, chosen)
        norms, sums = (part.double().cpu().numpy() for part in influences(subject.run.model, subject.data, chosen))
        reach = by_distance(model, norms / norms[range(len(chosen)), chosen][:, None], hops)
        reaches.append(reach)
        means = dict(zip(reach.distance.tolist(), reach.mean.tolist(), strict=True))
        score = f"{100 * (subject.run.summary or {})['test']:.1f}"
        told = " | ".join(f"{means[distance]:.1e}" if distance in means else "" for distance in TOLD)
        print(f"| {model} | {mean_distance(sums, hops):.2f} | {score} | {told} |", flush=True)
    figure = influence_figure(reaches, f"{runs.name}: who influences a node", f"mean over {nodes} nodes u")
    figure.axes[0].set_ylabel("influence, in parts of that of a node on itself")
    out.write_bytes(rendered(figure, out.stem)[f"{out.stem}.svg"])


if __name__ == "__main__":
    typer.run(main)
