"""The model and the loop of PyG's `examples/graph_gps.py` on generated molecules, with GSSCBlock in GPSConv's place.

    python examples/drop_in.py

Three lines differ from what stands in PyG's own: the transform, the layer, and the import that brings both. Each says
behind `was:` what it was; `tests/examples/test_drop_in.py` puts that back, and runs it too.
"""

import argparse

import torch
import torch_geometric.transforms as T
from torch.nn import BatchNorm1d, Embedding, Linear, ModuleList, ReLU, Sequential
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.nn import GINEConv, GPSConv, global_add_pool  # noqa: F401 (as in PyG, where GPSConv is used)

from gssc import DataLoader, GSSCBlock, LaplacianSpectrum  # was: from torch_geometric.loader import DataLoader

walks = T.AddRandomWalkPE(walk_length=20, attr_name="pe")
transform = T.Compose([walks, LaplacianSpectrum()])  # was: transform = walks


class Molecules(InMemoryDataset):
    """Chains of atoms, some of them closed into rings; y is the number of rings per ten atoms."""

    def __init__(self, count: int, seed: int, pre_transform: T.BaseTransform) -> None:
        super().__init__(None, pre_transform=pre_transform)
        generator = torch.Generator().manual_seed(seed)
        self.data, self.slices = self.collate([pre_transform(self.molecule(generator)) for _ in range(count)])

    @staticmethod
    def molecule(generator: torch.Generator) -> Data:
        atoms = int(torch.randint(10, 30, (1,), generator=generator))
        rings = torch.arange(0, atoms - 5, 6)
        rings = rings[torch.rand(len(rings), generator=generator) < 0.5]
        chain = torch.stack([torch.arange(atoms - 1), torch.arange(1, atoms)])
        ends = torch.cat([chain, rings + torch.tensor([[0], [5]])], 1)
        edge_attr = torch.randint(4, (ends.shape[1],), generator=generator)
        return Data(
            x=torch.randint(28, (atoms, 1), generator=generator),
            edge_index=torch.cat([ends, ends.flip(0)], 1),
            edge_attr=torch.cat([edge_attr, edge_attr]),
            y=torch.tensor([10.0 * len(rings) / atoms]),
        )


class GPS(torch.nn.Module):
    """As in PyG, but for one line."""

    def __init__(self, channels: int, pe_dim: int, num_layers: int) -> None:
        super().__init__()
        self.node_emb = Embedding(28, channels - pe_dim)
        self.pe_lin = Linear(20, pe_dim)
        self.pe_norm = BatchNorm1d(20)
        self.edge_emb = Embedding(4, channels)
        self.convs = ModuleList()
        for _ in range(num_layers):
            nn = Sequential(Linear(channels, channels), ReLU(), Linear(channels, channels))
            conv = GSSCBlock(channels, GINEConv(nn))  # was: conv = GPSConv(channels, GINEConv(nn), heads=4)
            self.convs.append(conv)
        self.mlp = Sequential(
            Linear(channels, channels // 2),
            ReLU(),
            Linear(channels // 2, channels // 4),
            ReLU(),
            Linear(channels // 4, 1),
        )

    def forward(self, x, pe, edge_index, edge_attr, batch):
        x_pe = self.pe_norm(pe)
        x = torch.cat((self.node_emb(x.squeeze(-1)), self.pe_lin(x_pe)), 1)
        edge_attr = self.edge_emb(edge_attr)
        for conv in self.convs:
            x = conv(x, edge_index, batch, edge_attr=edge_attr)
        x = global_add_pool(x, batch)
        return self.mlp(x)


def main(arguments: list[str] | None = None) -> list[float]:
    """The validation error after every epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecules", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--layers", type=int, default=4)
    options = parser.parse_args(arguments)
    torch.manual_seed(0)
    train_dataset = Molecules(options.molecules, 0, pre_transform=transform)
    val_dataset = Molecules(options.molecules // 4, 1, pre_transform=transform)
    train_loader = DataLoader(train_dataset, batch_size=32, shuffle=True)
    val_loader = DataLoader(val_dataset, batch_size=64)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = GPS(channels=64, pe_dim=8, num_layers=options.layers).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, weight_decay=1e-5)
    scheduler = ReduceLROnPlateau(optimizer, mode="min", factor=0.5, patience=20, min_lr=0.00001)

    def train() -> float:
        model.train()
        total_loss = 0.0
        for data in train_loader:
            data = data.to(device)
            optimizer.zero_grad()
            out = model(data.x, data.pe, data.edge_index, data.edge_attr, data.batch)
            loss = (out.squeeze() - data.y).abs().mean()
            loss.backward()
            total_loss += loss.item() * data.num_graphs
            optimizer.step()
        return total_loss / len(train_loader.dataset)

    @torch.no_grad()
    def test(loader: DataLoader) -> float:
        model.eval()
        total_error = 0.0
        for data in loader:
            data = data.to(device)
            out = model(data.x, data.pe, data.edge_index, data.edge_attr, data.batch)
            total_error += (out.squeeze() - data.y).abs().sum().item()
        return total_error / len(loader.dataset)

    errors = []
    for epoch in range(1, options.epochs + 1):
        loss = train()
        errors.append(test(val_loader))
        scheduler.step(errors[-1])
        print(f"Epoch: {epoch:02d}, Loss: {loss:.4f}, Val: {errors[-1]:.4f}")
    return errors


if __name__ == "__main__":
    main()
