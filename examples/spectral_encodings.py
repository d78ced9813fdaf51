"""SignNet and SPE, encodings of other papers that read the same spectra, as columns of a model's node features.

    python examples/spectral_encodings.py --encoding spe

Both are trained with the model behind them. SignNet does not depend on the signs of eigenvectors, SPE neither on signs
nor on the basis of an eigenspace; `tests/examples/test_spectral_encodings.py` compares both with their formulas. The
task is to tell how many triangles each node of a random graph is in.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import to_dense_batch

import gssc
from gssc.datasets.cycles import cycle_counting
from gssc.nn import GraphContext, graph_context
from gssc.ops.gine import neighbor_sum


class Columns(nn.Module):
    """Two layers of GIN on every column of rows [N, L, in] by itself: [N, L, out]."""

    def __init__(self, inside: int, channels: int) -> None:
        super().__init__()
        widths = ((inside, channels), (channels, channels))
        self.mlps = nn.ModuleList(nn.Sequential(nn.Linear(*w), nn.ReLU(), nn.Linear(w[1], w[1])) for w in widths)

    def forward(self, rows: Tensor, context: GraphContext) -> Tensor:
        for mlp in self.mlps:
            around = neighbor_sum(rows.flatten(1).contiguous(), context.edge_index, context.plan)
            rows = mlp(rows + around.view_as(rows))
        return rows


class SignNet(nn.Module):
    r"""MLP of [φ(p_k) + φ(-p_k)] over the eigenvectors p_k, φ a GNN.

    https://arxiv.org/abs/2202.13013

    Args:
        frequencies: K of the spectrum.
        channels: Of the encoding.
        hidden: Channels of φ.
    """

    def __init__(self, frequencies: int, channels: int, hidden: int = 8) -> None:
        super().__init__()
        self.phi = Columns(2, hidden)
        self.rho = nn.Sequential(nn.Linear(frequencies * hidden, channels), nn.ReLU(), nn.Linear(channels, channels))

    def forward(self, data: Data, context: GraphContext) -> Tensor:
        values, mask = context.spread(data.eigvals), context.spread(data.eigmask)
        both = [self.phi(torch.stack([s * data.eigvecs, values], dim=2), context) for s in (1, -1)]
        return self.rho(((both[0] + both[1]) * mask.unsqueeze(2)).flatten(1))


class SPE(nn.Module):
    r"""ρ(P diag(φ(λ)_1) Pᵀ, …, P diag(φ(λ)_m) Pᵀ): φ a function of sets, ρ a GNN on each column, summed over columns.

    https://arxiv.org/abs/2310.02579; stores [N, n, m] for graphs of up to n nodes.

    Args:
        channels: Of the encoding.
        matrices: m.
    """

    def __init__(self, channels: int, matrices: int = 8) -> None:
        super().__init__()
        self.phi = gssc.DeepSetPhi(matrices)
        self.rho = Columns(matrices, channels)

    def forward(self, data: Data, context: GraphContext) -> Tensor:
        vectors, there = to_dense_batch(data.eigvecs, data.batch)  # [G, n, K], [G, n]
        phi = context.spread(self.phi(data.eigvals, data.eigmask))
        matrices = torch.einsum("vk,vkm,vwk->vwm", data.eigvecs, phi, context.spread(vectors))
        return (self.rho(matrices, context) * context.spread(there).unsqueeze(2)).sum(1)


class Encoded(nn.Module):
    """A GSSC whose node features are an encoding, beside those that nodes have."""

    def __init__(self, encoding: nn.Module | None, columns: int, **settings) -> None:
        super().__init__()
        self.encoding = encoding
        self.model = gssc.GSSC(1, node_features=1 + (columns if encoding else 0), level="node", **settings)

    def forward(self, data: Data) -> Tensor:
        inputs = gssc.model_inputs(data)
        x = torch.ones(data.num_nodes, 1)
        if self.encoding is not None:
            context = graph_context(data.num_nodes, data.num_graphs, data.batch, data.edge_index)
            x = torch.cat([x, self.encoding(data, context)], dim=1)
        return self.model(**inputs | {"x": x})


def make(name: str, frequencies: int, channels: int = 16) -> Encoded:
    """The model with one of the encodings, or with none."""
    encodings = {"none": lambda: None, "signnet": lambda: SignNet(frequencies, channels), "spe": lambda: SPE(channels)}
    return Encoded(encodings[name](), channels, channels=32, layers=2, local="gine", glob="none")


def main(arguments: list[str] | None = None) -> list[float]:
    """Train; the loss of every tenth step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoding", choices=("none", "signnet", "spe"), default="spe")
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    frequencies = 12
    graphs = cycle_counting(options.graphs, 0)
    ready = gssc.prepare(graphs, gssc.LaplacianSpectrum(k=frequencies), progress=False)
    batch = Batch.from_data_list(list(ready))
    target = batch.y.float().view(batch.num_nodes, -1)[:, :1]
    target = (target - target.mean()) / target.std()
    model = make(options.encoding, frequencies)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(options.steps):
        loss = F.l1_loss(model(batch), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 or step == options.steps - 1:
            losses.append(float(loss.detach()))
            print(f"step {step:4}  error / deviation {losses[-1]:.3f}")
    return losses


if __name__ == "__main__":
    main()
