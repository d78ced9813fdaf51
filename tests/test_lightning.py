"""Lightning drives a model of blocks, and the whole model, where it is installed: nothing in either is in its way."""

import pytest
import torch
from graphs import cycle, path
from torch import nn
from torch_geometric.nn import GINEConv, global_add_pool

from gssc import GSSC, DataLoader, GSSCBlock, LaplacianSpectrum, model_inputs

lightning = pytest.importorskip("lightning")
pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning has advice on workers, logging and much else
C = 8


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(GSSCBlock(C, GINEConv(nn.Linear(C, C))) for _ in range(2))
        self.head = nn.Linear(C, 1)

    def forward(self, data):
        x, batch = data.x, data.batch
        for layer in self.layers:
            x = layer(x, data.edge_index, batch, edge_attr=data.edge_attr)
        return self.head(global_add_pool(x, batch))


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = GSSC(1, C, 2, node_features=C, edge_features=C, pool="sum")

    def forward(self, data):
        return self.model(**model_inputs(data))


class Learner(lightning.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model, self.losses = model, []

    def training_step(self, data, number):
        loss = nn.functional.l1_loss(self.model(data).view(-1), data.y)
        self.losses.append(float(loss))
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


@pytest.mark.parametrize("model", [Blocks, Whole])
def test_it_trains(model, tmp_path):
    graphs = []
    for n in range(3, 19):
        graph = LaplacianSpectrum(k=4)(cycle(n) if n % 2 else path(n))
        graph.x, graph.edge_attr = torch.ones(n, C), torch.ones(graph.num_edges, C)
        graph.y = torch.tensor([float(n % 2)])
        graphs.append(graph)
    learner = Learner(model())
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(max_epochs=40, accelerator="cpu", default_root_dir=tmp_path, **quiet)
    trainer.fit(learner, DataLoader(graphs, batch_size=8, shuffle=True))
    assert sum(learner.losses[-4:]) < 0.7 * sum(learner.losses[:4])
