"""``python -m tools.attack_files --files 10000 --seed 0``: damaged and hostile files of every kind that gssc reads.

Files of a small run, of a published model and of data are changed: bits flipped, ends cut, pieces spliced in, values
replaced by hostile ones under a correct checksum. Each is read as the commands read it, in a child process. What may
happen is success, or an error of one line of at most 300 characters. Counted are code that was executed, tracebacks,
more than 1 GiB of memory, and more than 15 seconds of processor time or 60 on the clock; the exit status is 1 where
there is any of them.
"""

import argparse
import contextlib
import copy
import gzip
import io
import json
import lzma
import math
import multiprocessing
import os
import pickle
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch_geometric.data import Data, InMemoryDataset

import gssc.cli
from gssc.checks import LONGEST
from gssc.config import load_recipe
from gssc.datasets import load_pack, open_csv, open_own, write_pack
from gssc.datasets.cycles import cycle_counting, load_cycles
from gssc.datasets.inputs import open_inputs
from gssc.datasets.smiles import read_lines, read_molecules
from gssc.files import load_tensors, save_tensors
from gssc.pretrained import open_model
from gssc.pretrained.publish import publish, read_notes
from gssc.recipes import find_recipe
from gssc.report.runs import read_runs
from gssc.report.tables import compare
from gssc.report.variants import group_variants
from gssc.train import RunSettings, train
from gssc.train.build import describe_weights
from gssc.train.sweep import Axis, _stored

MOST_BYTES, MOST_SECONDS = 1 << 30, 15.0
ROOM = 4 << 30  # of address space beside what PyTorch has: so that no file can harm the machine
SMALL = ("model.channels=16", "model.layers=1", "train.epochs=2", "train.batch_size=6", "train.tensorboard=false")
CANARY = "gssc-attack-executed"
CELLS = ("C" * 10**5, "(" * 5000, '"', "1e999", "\x00", "=1+1", "C1CC", "-", "٣")
FOUND = ("executed", "traceback", "above 1 GB", "longer than 15 s", "good files refused")
NUMBERS = (0, -1, 1, 10**9, 10**18, 10**400, 0.5, 1e308, float("inf"), float("nan"), True, None)
TEXTS = ("", "x" * 100_000, "../../x", "\x1b[2J\n", "\ud800", "!!python/object/apply:os.system", "nan", "𝟙", "1e999")
Read = Callable[[Path], Any]


class Trap:
    """What writes a file where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (os.path.join(tempfile.gettempdir(), CANARY), "w")


def prepare(root: Path) -> dict[str, tuple[str, Read]]:
    """Good files below ``root``; by name of the kind the path of each, and how it is read."""
    write_cycles(root / "data")
    recipe = find_recipe("cycles-3").override(SMALL)
    dataset = gssc.datasets.open_dataset("cycles-3", root / "data")
    settings = RunSettings(torch.device("cpu"), root / "cache", quiet=True)
    for out in ("run", "stopped"):
        train(recipe, dataset, 0, root / out / "seed-0", settings)
    for name in ("summary.json", "model.safetensors"):
        (root / "stopped/seed-0" / name).unlink()
    publish(root / "run", root / "model")
    (root / "xz").mkdir()
    for name in ("config.yaml", "dataset.json", "summary.json"):
        shutil.copy(root / "run/seed-0" / name, root / "xz")
    weights = (root / "run/seed-0/model.safetensors").read_bytes()
    (root / "xz/model.safetensors.xz").write_bytes(lzma.compress(weights))
    write_pack(dataset, root / "pack")
    graphs = [Data(x=torch.rand(n, 3), edge_index=ring(n), y=torch.rand(1, 2)) for n in range(3, 23)]
    torch.save(graphs, root / "graphs.pt")
    data, slices = InMemoryDataset.collate(graphs)
    torch.save((data.to_dict(), slices, Data), root / "saved.pt")
    (root / "recipe.yaml").write_text(yaml.safe_dump(recipe.to_dict()))
    (root / "notes.yaml").write_text("cycles-3:\n  data: Mind the graphs.\n  licence: Free.\n")
    spread = {"mean": 0.5, "std": 0.0, "values": [0.5]}
    trial = {"overrides": ["optim.lr=0.1"], "parameters_tried": {"optim.lr": 0.1}, "folder": "trial-000"}
    (root / "sweep.json").write_text(json.dumps([trial | {"validation": spread, "test": spread}]))
    (root / "table.csv").write_text("smiles,a,b\n" + "".join(f"{'C' * n}O,{n}.5,\n" for n in range(1, 15)))
    table = "epoch,val\n" + "".join(f"{epoch},0.{epoch}\n" for epoch in range(1, 9))
    (root / "recorded/seed-0").mkdir(parents=True)
    (root / "recorded/seed-0/metrics.csv.gz").write_bytes(gzip.compress(table.encode()))
    (root / "list.smi").write_text("".join(f"{'C' * n}O name {n}\n" for n in range(1, 15)))
    (root / "one.pt").write_bytes(pickled([graph_of(5)]))

    def predict(path: Path) -> Any:
        return command("predict", path.parent, root / "one.pt", "-o", path.parents[1] / "out.csv", "--device", "cpu")

    def resume(path: Path) -> Any:
        words = [*SMALL, "--resume", "--out", path.parents[path.parent.name == "checkpoints"].parent, "--device", "cpu"]
        return command("train", "cycles-3", *words, "--data-root", root / "data", "--cache", root / "cache", "--quiet")

    def report(path: Path) -> Any:
        runs = read_runs([path.parent])
        return [compare(variants) for variants in group_variants(runs.seeds).values()]

    about = json.loads((root / "run/seed-0/dataset.json").read_text())
    kinds: dict[str, tuple[str, Read]] = {
        "pack": ("pack", lambda path: load_pack(path).content()),
        "graphs": ("graphs.pt", lambda path: open_own(path).content()),
        "saved": ("saved.pt", lambda path: open_own(path).content()),
        "inputs": ("one.pt", lambda path: open_inputs(path, about)),
        "recipe": ("recipe.yaml", lambda path: describe_weights(load_recipe(path), about)),
        "notes": ("notes.yaml", read_notes),
        "sweep": ("sweep.json", lambda path: _stored(path.parent, [Axis("optim.lr", (0.0, 1.0), "range")], True)),
        "table": ("table.csv", lambda path: open_csv(path, smiles_column="smiles", target_columns=["a"])),
        "cycles": ("data/cycles/raw/count_cycle.npz", lambda path: load_cycles(3, path.parents[2])),
        "list": ("list.smi", lambda path: [read_molecules(t.smiles, t.where) for t in read_lines(path)]),
        "recorded": ("recorded/seed-0/metrics.csv.gz", report),
        "weights.xz": ("xz/model.safetensors.xz", predict),
    }
    for name in ("config.yaml", "dataset.json", "summary.json", "model.safetensors"):
        kinds[f"run/{name}"] = (f"run/seed-0/{name}", predict)
    for name in ("config.yaml", "dataset.json", "summary.json", "environment.json", "metrics.jsonl"):
        kinds[f"report/{name}"] = (f"run/seed-0/{name}", report)
    for name in ("config.yaml", "dataset.json", "metrics.jsonl", "checkpoints/last.safetensors"):
        kinds[f"stopped/{name}"] = (f"stopped/seed-0/{name}", resume)
    for name in ("manifest.json", "README.md", "seeds.json"):
        kinds[f"model/{name}"] = (f"model/{name}", lambda path: open_model(path.parent).card)
    return kinds


def command(*words: object) -> Any:
    """What ``gssc`` does with these words."""
    sys.argv = ["gssc", *map(str, words)]
    return APP()


APP = gssc.cli.app


def ring(n: int) -> torch.Tensor:
    """Edges of a ring of n nodes, both ways."""
    nodes = torch.arange(n)
    return torch.stack([torch.cat([nodes, nodes.roll(1)]), torch.cat([nodes.roll(1), nodes])])


def graph_of(n: int) -> Data:
    """A ring without features, as the small model takes it."""
    return Data(edge_index=ring(n), num_nodes=n)


def pickled(content: Any) -> bytes:
    """A file as PyTorch saves it."""
    torch.save(content, buffer := io.BytesIO())
    return buffer.getvalue()


def write_cycles(root: Path) -> None:
    """``count_cycle.npz`` with 20 graphs."""
    graphs = cycle_counting(20, 0)
    ends = [pairs[:, pairs[0] < pairs[1]] for pairs in (graph.edge_index.numpy() for graph in graphs)]
    path = root / "cycles" / "raw" / "count_cycle.npz"
    path.parent.mkdir(parents=True)
    np.savez(
        path,
        n_nodes=[graph.num_nodes for graph in graphs],
        n_edges=[pairs.shape[1] for pairs in ends],
        edge_u=np.concatenate([pairs[0] for pairs in ends]),
        edge_v=np.concatenate([pairs[1] for pairs in ends]),
        y=np.concatenate([graph.y.numpy() for graph in graphs]),
        train_idx=np.arange(12),
        val_idx=np.arange(12, 16),
        test_idx=np.arange(16, 20),
    )


def change(path: Path, others: list[Path], chance: random.Random) -> str:
    """Change a file in one of the ways; returns which."""
    raw = path.read_bytes()
    ways = ["flip", "cut", "splice", "hostile", "hostile", "hostile"]
    way = chance.choice(ways)
    if way == "flip":
        changed = bytearray(raw)
        for _ in range(chance.choice((1, 1, 1, 2, 8, 64))):
            changed[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
    elif way == "cut":
        path.write_bytes(raw[: chance.randrange(len(raw))])
    elif way == "splice":
        other = chance.choice([path, *others]).read_bytes()
        start, length = chance.randrange(len(other)), chance.choice((1, 16, 256, 4096, len(other)))
        at = chance.randrange(len(raw))
        path.write_bytes(raw[:at] + other[start : start + length] + raw[at + chance.choice((0, length)) :])
    else:
        hostile(path, raw, chance)
    return way


def hostile(path: Path, raw: bytes, chance: random.Random) -> None:
    """Replace a file by one that somebody made to do harm."""
    if chance.random() < 0.2 or path.suffix in (".md", ".smi"):
        harm = [
            b"",
            bytes(10**6),
            b"[" * 10**5,
            b'{"a":' * 10**5,
            pickle.dumps(Trap()),
            b"\xff\xfe" * 1000,
            b"9" * 10**5,
        ]
        levels = (f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10))
        harm.append(("a0: &a0 [x]\n" + "".join(levels)).encode())
        harm.append(f"!!python/object/apply:os.system ['touch {tempfile.gettempdir()}/{CANARY}']".encode())
        path.write_bytes(chance.choice(harm))
    elif path.suffix in (".json", ".jsonl"):
        lines = raw.decode().splitlines() if path.suffix == ".jsonl" else [raw.decode()]
        number = chance.randrange(len(lines))
        lines[number] = json.dumps(harmed(json.loads(lines[number]), chance))
        path.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    elif path.suffix == ".yaml":
        path.write_bytes(json.dumps(harmed(yaml.safe_load(raw), chance)).encode())  # JSON is YAML
    elif path.suffix == ".csv":
        cells = [chance.choice(CELLS) for _ in range(3)]
        heads = ",".join(["smiles", "a", *map(str, range(chance.choice((0, 10, 200_000))))])
        path.write_text(heads + "\n" + "\n".join(chance.choice([",".join(cells), "C", "C,1"]) for _ in range(30)))
    elif path.suffix == ".pt":
        path.write_bytes(hostile_graphs(chance))
    elif path.suffix == ".npz":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("n_nodes.npy", bytes(chance.choice((10, 10**8))))
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(chance.choice((bytes(10**8), b"epoch\nx\n", b"epoch\n" + b"9" * 10**5, b""))))
    elif path.suffix == ".xz":
        path.write_bytes(lzma.compress(chance.choice((bytes(10**8), raw, b""))))
    else:
        tensors, about = load_tensors(path)
        name = chance.choice(sorted(tensors))
        rows = tensors[name].reshape(-1)
        damage = [{name: other} for other in (torch.zeros(0), rows.double(), rows[:1], rows.reshape(1, -1))] + [{}]
        if chance.random() < 0.3:
            tensors = {key: tensor for key, tensor in tensors.items() if key != name} | chance.choice(damage)
        else:
            about = harmed(about, chance)
        save_tensors(path, tensors, about)


def harmed(values: Any, chance: random.Random) -> Any:
    """The same values with one of them, anywhere, deleted, renamed or replaced."""
    top = copy.deepcopy(values)
    places: list[tuple[Any, Any]] = []
    todo = [top]
    while todo:
        one = todo.pop()
        keys = list(one) if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        places += [(one, key) for key in keys]
        todo += [one[key] for key in keys]
    if not places:
        return top
    inside, key = chance.choice(places)
    deep: Any = 0
    for _ in range(chance.choice((5, 200))):
        deep = [deep] if chance.random() < 0.5 else {"a": deep}
    bad = [chance.choice(NUMBERS), chance.choice(TEXTS), deep, [], {}, [10**9] * 1000, [1] * 200_000]
    kind = chance.random()
    if kind < 0.15:
        del inside[key]
    elif kind < 0.25 and isinstance(inside, dict):
        inside[f"{key}x"] = inside.pop(key)
    elif kind < 0.4 and isinstance(inside[key], (int, float)) and abs(inside[key]) < 1e300:
        inside[key] = inside[key] * chance.choice((10, -1, 1000, 10**9)) + chance.choice((0, 1))
    else:
        inside[key] = chance.choice(bad)
    return top


def hostile_graphs(chance: random.Random) -> bytes:
    """Graphs that are not what they seem, or no graphs."""
    n = chance.choice((0, 1, 5))
    x = chance.choice(
        [torch.rand(n, 3), torch.ones(1).expand(10**9, 1), torch.rand(n), torch.full((n, 2), 10**9), "x", 3]
    )
    ends = chance.choice([ring(5), ring(5) - 7, ring(5) * 10**12, torch.rand(2, 4), torch.zeros(3, 3).long(), None])
    y = chance.choice([torch.rand(1), torch.tensor([10**15]), torch.full((1, 3), float("inf")), None, [1, 2], "y"])
    graph = Data(x=x, edge_index=ends, y=y)
    if chance.random() < 0.3:
        graph.num_nodes = chance.choice((10**9, -1, 2.5, "3"))
    if chance.random() < 0.3:
        graph.edge_weight = chance.choice(
            [torch.rand(10), -torch.ones(10), torch.full((10,), 1e300, dtype=torch.double), torch.ones(3)]
        )
    deep: Any = graph
    for _ in range(100):
        deep = [deep]
    slices = {
        name: torch.tensor(chance.choice([[0, 5], [0, 10**9], [5, 0], [-1, 3]])) for name in ("x", "edge_index", "y")
    }
    contents = [
        graph,
        [graph] * 3,
        [graph_of(5), graph],
        [graph] * 10**5,
        deep,
        Trap(),
        {"a": graph},
        (graph.to_dict(), slices),
    ]
    return pickled(chance.choice([*contents, (graph.to_dict(), slices, Data), (graph.to_dict(), slices, deep)]))


def attempt(read: Read, path: Path) -> str:
    """Read a file as the command line does; says in a word what came of it, with the traceback where there is one."""
    said, gssc.cli.app = io.StringIO(), lambda: read(path)  # type: ignore[assignment]
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gssc.cli.main()
    except SystemExit as end:
        line = said.getvalue().rstrip("\n")
        if end.code in (0, None):
            return "read"
        if "memory: expected enough" in line:
            return f"memory {line}"
        good = "error: " in line and max(map(len, line.split("\n"))) <= LONGEST + len("error: ")
        return "refused" if good and line.count("error: ") == 1 else f"traceback {line[:1000]}"
    except BaseException:
        return f"traceback {traceback.format_exc()}"
    finally:
        gssc.cli.app = APP
    return "read"


def serve(pipe: Connection, root: Path, kinds: dict[str, tuple[str, Read]], seed: int) -> None:
    """In a child process: take numbers of attacks, send what came of them."""
    torch.set_num_threads(1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
    files = [root / path for path, _ in kinds.values()]
    while (number := pipe.recv()) is not None:
        chance = random.Random(f"{seed} {number}")
        kind = chance.choice(sorted(kinds))
        relative, read = kinds[kind]
        with tempfile.TemporaryDirectory(dir=root.parent) as place:
            top = Path(relative).parts[0]
            copied = Path(place) / top
            if (root / top).is_dir():
                shutil.copytree(root / top, copied)
            else:
                shutil.copy(root / top, copied)
            path = Path(place) / relative
            way = change(path, files, chance)
            Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
            start = time.process_time()
            outcome = attempt(read, path)
            seconds = time.process_time() - start
        status = Path("/proc/self/status").read_text()
        peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024
        pipe.send((kind, way, outcome, seconds, peak))


class Child:
    """One of the processes that read files."""

    def __init__(self, *arguments: Any) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("fork")
        self.process = context.Process(target=serve, args=(theirs, *arguments), daemon=True)
        self.process.start()

    def ask(self, number: int) -> tuple[str, str, str, float, int]:
        """What came of an attack; a child that does not answer is killed."""
        self.pipe.send(number)
        start = time.monotonic()
        while not self.pipe.poll(0.05):
            if not self.process.is_alive() or time.monotonic() - start > 4 * MOST_SECONDS:
                died = not self.process.is_alive()
                self.process.kill()
                self.process.join()
                word = f"traceback died with status {self.process.exitcode}" if died else "slow it was killed"
                return "", "", f"{word}, attack {number}", time.monotonic() - start, 0
        answer: tuple[str, str, str, float, int] = self.pipe.recv()
        return answer


def attack(files: int, seed: int, seconds: float = math.inf, show: Callable[[str], None] = print) -> Counter[str]:
    """Counts of what came of so many attacks, or of those that time allows; findings are shown."""
    until = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    canary = Path(tempfile.gettempdir()) / CANARY
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "good"
        kinds = prepare(root)
        shutil.copytree(root, copied := Path(place) / "copy")
        for kind, (path, read) in kinds.items():  # the good files are read
            counts["good files refused"] += attempt(read, copied / path).partition(" ")[0] != "read"
            counts[f"kind {kind}"] = 0
        child = Child(root, kinds, seed)
        for number in range(files):
            if time.monotonic() > until:
                break
            counts["files"] += 1
            kind, way, outcome, seconds, peak = child.ask(number)
            word = outcome.partition(" ")[0]
            counts[word] += 1
            counts[f"kind {kind}"] += 1
            slow, large, executed = seconds > MOST_SECONDS, word == "memory" or peak > MOST_BYTES, canary.exists()
            counts["above 1 GB"] += large
            counts["longer than 15 s"] += slow
            counts["executed"] += executed
            if executed:
                canary.unlink()
            if word == "traceback" or slow or large or executed:
                show(f"attack {number} ({kind}, {way}): {outcome}, {seconds:.1f} s, {peak / 2**20:.0f} MiB\n")
            if not child.process.is_alive():
                child = Child(root, kinds, seed)
        child.pipe.send(None)
        child.process.join()
    return counts


def main(arguments: list[str] | None = None) -> int:
    """The command; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000, help="how many files are attacked")
    parser.add_argument("--seconds", type=float, default=math.inf, help="when to end in any case")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    options = parser.parse_args(arguments)
    start = time.monotonic()
    counts = attack(options.files, options.seed, options.seconds)
    kinds = sum(key.startswith("kind ") for key in counts)
    print(f"{counts['files']:,} files of {kinds} kinds, seed {options.seed}, {time.monotonic() - start:.0f} s")
    print(f"read {counts['read']:,}, refused in one line {counts['refused']:,}")
    print(", ".join(f"{name} {counts[name]}" for name in FOUND))
    return int(any(counts[name] for name in FOUND))


if __name__ == "__main__":
    sys.exit(main())
