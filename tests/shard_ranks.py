"""What one of several processes does in tests of shards: every case by itself, results into a file."""

import contextlib
import io
import multiprocessing
import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch_geometric.nn import GATConv, SAGEConv

from benchmarks.scale import counted
from gssc import GSSC, LaplacianSpectrum, RandomFeatures
from gssc.cli import app
from gssc.shards import Shard, cut_graph, make_ready
from gssc.shards.spectrum import component_of, random_features, solve_sharded, walk_probabilities
from gssc.train.processes import leave
from gssc.train.run_state import RunState

RANKS, STEPS = 4, 5
SPECTRA = ({"k": 8}, {"k": 6, "operator": "combinatorial", "zero_modes": "drop"})
CASES = {
    "gatedgcn": {"local": "gatedgcn", "degree_scaling": True, "degree": "undirected", "diagonal_channels": 2},
    "layer norm": {"local": "gatedgcn", "norm": "layer", "recompute": 1, "kernel": "shared", "out_proj": True},
    "gine": {"local": "gine", "rwse": 3, "rwse_channels": 2, "jumping_knowledge": True, "recompute": 2},
    "gcn": {"local": "gcn", "smooth": "ends", "edge_features": None, "degree_scaling": True},
    "selective": {"local": "gine", "selective": True, "phi_channels": 8},
    "own": {"local": lambda c: SAGEConv(c, c), "kernel": "shared", "selective": True, "phi_channels": 8},
    "graph": {"local": lambda c: GATConv(c, c, edge_dim=c), "level": "graph", "pool": "mean"},
}

# Which cases a way to divide the nodes is tried with, by the number of processes.
PLANS = {
    "random": {4: list(CASES), 2: list(CASES)},
    "blocks": {2: ["gatedgcn"]},
    "metis": {4: ["gatedgcn", "gcn"], 2: ["gine"]},
    "empty": {4: ["gine"], 2: ["gatedgcn", "own"]},
}

AGAIN = (RANKS, "random", "gatedgcn")  # what is run twice: every bit must be the same

SMALL = [
    "spectrum.k=4", "spectrum.rwse=2", "model.rwse_channels=2", "model.layers=2", "model.channels=8",
    "model.phi_channels=4", "model.glob=gssc", "model.layer_scale=1", "model.norm=batch", "model.dropout_input=0",
    "model.dropout_local=0", "model.dropout_global=0", "model.dropout_ffn=0", "model.local=gatedgcn",
    "train.precision=float64", "train.epochs=4", "train.patience=0", "train.tensorboard=false",
]  # fmt: skip


def start(function, ranks: int, *arguments) -> None:
    """``function(rank, *arguments)`` in several processes, made of one that has imported all that takes long."""
    multiprocessing.set_forkserver_preload(["gssc.shards", "gssc.train.run", "torch_geometric.nn"])
    # Processes that are forked from one that looked for a GPU cannot ask for it again.
    method = "spawn" if torch.cuda.is_available() else "forkserver"
    torch.multiprocessing.start_processes(function, arguments, nprocs=ranks, start_method=method)


def join(rank: int, ranks: int, store: str) -> None:
    dist.init_process_group("gloo", f"file://{store}", timeout=timedelta(seconds=60), world_size=ranks, rank=rank)


def make_model(case: str) -> GSSC:
    torch.manual_seed(3)
    return GSSC(2, 8, 2, **{"node_features": 3, "edge_features": 2, "level": "node"} | CASES[case])


def make_ready_model(case: str, group: dist.ProcessGroup | None) -> GSSC:
    model = make_model(case)
    make_ready(model, group)
    return model


def losses(model: nn.Module, inputs: dict, weights: torch.Tensor, share: float = 1.0) -> torch.Tensor:
    """Σ ⟨outputs, weights⟩ + outputs², of nodes, or of the graph the share of one process."""
    out = model(**inputs)
    weights = weights if out.shape[0] == weights.shape[0] else share * weights.new_ones(1, 2)
    return (
        out * weights + 0.1 * share * out.square() if out.shape[0] == 1 else out * weights + 0.1 * out.square()
    ).sum()


def train(model: nn.Module, inputs: dict, weights: torch.Tensor, group=None, share: float = 1.0) -> dict:
    """The output, all gradients, and weights and buffers after five steps."""
    model.train()
    results = {"output": model(**inputs).detach()}
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.01, eps=1e-5
    )  # biases before a norm have no gradient but rounding
    for step in range(STEPS):
        optimizer.zero_grad()
        losses(model, inputs, weights, share).backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        if share != 1.0:
            flat = torch.cat([gradient.view(-1) for gradient in gradients.values()])
            dist.all_reduce(flat, group=group)
            totals = flat.split([gradient.numel() for gradient in gradients.values()])
            for gradient, total in zip(gradients.values(), totals, strict=True):
                gradient.copy_(total.view_as(gradient))
        if step == 0:
            results |= {f"gradient of {name}": gradient.clone() for name, gradient in gradients.items()}
        optimizer.step()
    model.eval()
    results["evaluated"] = model(**inputs).detach()
    return results | {name: value.clone() for name, value in model.state_dict().items()}


def parts_of(case: dict, ranks: int) -> list[dict]:
    """The tensors of all shards."""
    nodes = {name: case[name] for name in ("x", "eigvecs", "rwse", "weights")}
    return list(cut_graph(case["edge_index"], case["part"] % ranks, ranks, nodes, {"edge_attr": case["edge_attr"]}))


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    join(rank, RANKS, f"{folder}/store")
    two = dist.new_group([0, 1])
    graphs = torch.load(f"{folder}/cases.pt")
    results = {}
    for ranks, group in ((RANKS, None), (2, two)):
        for name, graph in graphs.items() if rank < ranks else ():
            tensors = parts_of(graph, ranks)[rank]
            whole = {"eigvals": graph["eigvals"], "eigmask": graph["eigmask"]}
            shard = Shard(tensors | whole, graph["x"].shape[0], group=group)
            for case in PLANS[name].get(ranks, []):
                options, model = CASES[case], make_ready_model(case, group)
                inputs = shard.inputs if "rwse" in options else shard.inputs | {"rwse": None}
                inputs = inputs | ({"edge_attr": None} if options.get("edge_features", 2) is None else {})
                found = train(model, inputs, tensors["weights"], group, 1.0 / ranks)
                results[ranks, name, case] = found | {"nodes": tensors["nodes"]}
                if (ranks, name, case) == AGAIN:
                    again = train(make_ready_model(case, group), inputs, tensors["weights"], group, 1.0 / ranks)
                    results["again"] = all(torch.equal(again[key], value) for key, value in found.items())
    if rank < 2:  # what one step of two processes sends
        graph = graphs["blocks"]
        tensors = parts_of(graph, 2)[rank] | {"eigvals": graph["eigvals"], "eigmask": graph["eigmask"]}
        shard, model = Shard(tensors, graph["x"].shape[0], group=two), GSSC(2, 8, 3, node_features=3, level="node")
        make_ready(model, two)
        with counted() as sent:
            model(**shard.inputs | {"edge_attr": None, "rwse": None}).sum().backward()
        results["sent"] = dict(sent) | {"rows": shard.halo.size + shard.halo.send.numel()}
    torch.save(results, f"{folder}/rank-{rank}.pt")
    leave()


def train_rank(rank: int, ranks: int, port: str, folder: str, out: str, dies: bool) -> None:
    """One process of torchrun; the last may die when an epoch ends."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    if dies and rank == ranks - 1:
        finish_epoch = RunState.finish_epoch

        def die(run: RunState, *arguments: object) -> None:
            finish_epoch(run, *arguments)
            if run.position.epoch == 3:
                os._exit(0)

        RunState.finish_epoch = die
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            app(["train", "--shards", f"{folder}/{ranks}", *SMALL, "--out", f"{folder}/{out}", "--device", "cpu",
                 "--rank-timeout", "6s" if dies else "60s"],
                standalone_mode=False)  # fmt: skip
        except ValueError as error:
            said.write(str(error))
    Path(folder, f"{out}-{rank}.txt").write_text(said.getvalue())


def spectra(rank: int, ranks: int, folder: str) -> None:
    """Spectra, random features and walks of graphs by every process, on its own nodes."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    join(rank, ranks, f"{folder}/spectra")
    found = {}
    for name, graph in torch.load(f"{folder}/graphs.pt").items():
        tensors = list(cut_graph(graph["edge_index"], graph["part"], ranks, {}, {}))[rank]
        shard = Shard(tensors, len(graph["part"]))
        results = {"component": component_of(shard)[0], "walks": walk_probabilities(shard, 4, columns=128)}
        for settings in SPECTRA:
            spectrum = solve_sharded(shard, LaplacianSpectrum(**settings))
            results[str(settings)] = torch.from_numpy(spectrum.vectors)
            results[f"values {settings}"] = torch.from_numpy(spectrum.values)
            results[f"certificate {settings}"] = vars(spectrum.certificate)
        features = RandomFeatures(k=400, operator="sym", seed=1)
        found[name] = results | {"features": random_features(shard, features), "nodes": tensors["nodes"]}
    arrow = torch.tensor([[0, 1], [1, 2]])  # of which node 0 never hears
    tensors = list(cut_graph(arrow, torch.tensor([0, 1, 0]), ranks, {}, {}))[rank]
    try:
        solve_sharded(Shard(tensors, 3), LaplacianSpectrum(k=1))
    except ValueError as error:
        found["said"] = str(error)
    torch.save(found, f"{folder}/spectra-{rank}.pt")
    leave()
