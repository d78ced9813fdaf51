"""What the graphs of each named dataset hold and what is to be predicted from them."""

from dataclasses import dataclass

from gssc.datasets.flat import DEGREE_PROFILE
from gssc.nn.encoders import Features
from gssc.tasks import Task

# Vocabulary sizes of OGB's atom and bond features.
OGB_ATOM = (119, 5, 12, 12, 10, 6, 6, 2, 2)
OGB_BOND = (5, 6, 2)
CLASSES_BY_COLUMNS = {  # of nodes of one graph
    "roman-empire": (18, 300), "amazon-ratings": (5, 300), "ogbn-arxiv": (40, 128), "ogbn-products": (47, 100),
    "city-paris": (10, 37), "city-shanghai": (10, 37), "city-la": (10, 37), "city-london": (10, 37),
}  # fmt: skip
YES_OR_NO = {"tolokers": 10, "minesweeper": 7, "questions": 301}  # columns
ZINC_ATOM, ZINC_BOND = (28,), (4,)


@dataclass(frozen=True)
class Spec:
    """Task, features as the encoders of `GSSC` take them, and the attributes of ``Data`` that make up ``x``.

    ``standardize`` names what is standardised by mean and deviation of the training part.
    """

    task: Task
    node_features: Features = None
    edge_features: Features = None
    node: tuple[str, ...] = ("x",)
    standardize: tuple[str, ...] = ()


SPECS = {
    **{f"cycles-{length}": Spec(Task("node", "regression", 1, "mae/std")) for length in (3, 4, 5, 6)},
    "zinc-12k": Spec(Task("graph", "regression", 1, "mae"), ZINC_ATOM, ZINC_BOND),
    "zinc-full": Spec(Task("graph", "regression", 1, "mae"), ZINC_ATOM, ZINC_BOND),
    "molhiv": Spec(Task("graph", "binary", 1, "auroc"), OGB_ATOM, OGB_BOND),
    "peptides-func": Spec(Task("graph", "binary", 10, "ap"), OGB_ATOM, OGB_BOND),
    "peptides-struct": Spec(Task("graph", "regression", 11, "mae"), OGB_ATOM, OGB_BOND),
    "mnist": Spec(Task("graph", "multiclass", 10, "accuracy"), 3, 1, ("x", "pos")),
    "cifar10": Spec(Task("graph", "multiclass", 10, "accuracy"), 5, 1, ("x", "pos")),
    "pattern": Spec(Task("node", "multiclass", 2, "balanced-accuracy", weighted=True), 3),
    "cluster": Spec(Task("node", "multiclass", 6, "balanced-accuracy", weighted=True), 7),
    "voc-sp": Spec(Task("node", "multiclass", 21, "macro-f1", weighted=True), 14, 2, standardize=("x", "edge_attr")),
    # Graphs without features: each node gets the degrees around it. Nodes without edges are no nodes: PyG makes them of
    # numbers that the files do not use, published statistics and models have none.
    "malnet-tiny": Spec(Task("graph", "multiclass", 5, "accuracy"), 5, node=(DEGREE_PROFILE,), standardize=("x",)),
    **{name: Spec(Task("node", "multiclass", n, "accuracy"), d) for name, (n, d) in CLASSES_BY_COLUMNS.items()},
    **{name: Spec(Task("node", "binary", 1, "auroc"), columns) for name, columns in YES_OR_NO.items()},
}
ONE_GRAPH = (*CLASSES_BY_COLUMNS, *YES_OR_NO)  # large ones, whose masks mark the nodes of every part
