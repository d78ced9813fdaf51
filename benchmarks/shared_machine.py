"""What neighbours on the machine cost training: the throughput beside busy loops against that without them.

    python -m benchmarks.shared_machine --seconds 20 --turns 3

Molecule-like graphs are trained with the defaults for own data, in a process of its own for every measurement, so many
seconds long: as training chooses its threads by itself, and with numbers of threads that are held. Free and busy turns
alternate, since others may use the machine as well: what they take, they take from both. There are as many busy loops
as cores, unless --neighbours says otherwise. Throughput counts from the first step, so that the time until training has
noticed its neighbours is part of it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from rich import box
from rich.console import Console
from rich.table import Table
from torch_geometric.data import Data

from gssc.datasets import open_own
from gssc.recipes import own_recipe
from gssc.train import RunSettings, train
from gssc.train.run_folder import position_of

GRAPHS, NODES, KINDS = 1_000, 23, 20
BUSY = "print(flush=True)\nwhile True: pass"


def molecules() -> list[Data]:
    """Random trees with a few rings, of categorical nodes and edges; the target counts a kind of node."""
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for _ in range(GRAPHS):
        later = torch.arange(1, NODES)
        parents = (later - torch.randint(1, 4, later.shape, generator=generator)).clamp(min=0)
        rings = torch.randint(NODES, (2, 2), generator=generator)
        edges = torch.cat([torch.stack([parents, later]), rings], dim=1)
        x = torch.randint(KINDS, (NODES, 1), generator=generator)
        edge_attr = torch.randint(4, (2 * edges.shape[1], 1), generator=generator)
        edge_index = torch.cat([edges, edges.flip(0)], dim=1)
        graphs.append(Data(x, edge_index, edge_attr, y=(x == 3).sum().float().view(1, 1)))
    return graphs


def measured(file: Path, threads: int | None, seconds: float) -> float:
    """Training graphs per second, in this process; 0 threads means those of the default."""
    if threads:
        torch.set_num_threads(threads)
    recipe = own_recipe(file, None).override(["train.epochs=100000"])
    dataset = open_own(file)
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        where = RunSettings(
            torch.device("cpu"), file.parent / "cache", deadline=begin + seconds, quiet=True, threads=threads or None
        )
        train(recipe, dataset, 0, Path(folder) / "run", where)
        epochs, steps = position_of(Path(folder) / "run")
        graphs = len(dataset.splits["train"]) * epochs + recipe.train.batch_size * steps
        return graphs / (time.monotonic() - begin)


@contextmanager
def busy(neighbours: int) -> Iterator[None]:
    """So many busy loops beside what runs inside."""
    command = [sys.executable, "-c", BUSY]
    loops = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(neighbours)]
    try:
        for loop in loops:
            assert loop.stdout is not None
            loop.stdout.readline()  # it runs
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.communicate()


def worker(file: Path, threads: int, seconds: float) -> float:
    """`measured` in a process of its own."""
    words = ["--worker", str(file), "--hold", str(threads), "--seconds", str(seconds)]
    command = [sys.executable, "-m", "benchmarks.shared_machine", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    """See the module's docstring."""
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of every measurement")
    parser.add_argument("--turns", type=int, default=3, help="measurements of each kind")
    parser.add_argument("--neighbours", type=int, default=cores, help="busy loops")
    parser.add_argument("--hold", type=int, nargs="*", default=[1, cores], help="numbers of threads to hold as well")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker is not None:
        print(measured(asked.worker, asked.hold[0], asked.seconds))
        return
    kinds = {"default": 0} | {f"--threads {number}": number for number in asked.hold}
    rates: dict[tuple[str, bool], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "molecules.pt"
        torch.save(molecules(), file)
        worker(file, 1, 1.0)  # fills the cache of spectra
        for _ in range(asked.turns):
            for kind, threads in kinds.items():
                for neighbours in (0, asked.neighbours):
                    with busy(neighbours):
                        rates.setdefault((kind, neighbours > 0), []).append(worker(file, threads, asked.seconds))
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    title = f"graphs/s, median of {asked.turns} turns of {asked.seconds:g} s, {cores} cores; load averages {load}"
    table = Table("threads", "free", f"{asked.neighbours} busy neighbours", "ratio", box=box.SIMPLE, title=title)
    for kind in kinds:
        free, shared = (statistics.median(rates[kind, is_shared]) for is_shared in (False, True))
        table.add_row(kind, f"{free:.0f}", f"{shared:.0f}", f"{shared / free:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
