"""Molecules: what their atoms are called, and how much each of them adds to a prediction."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

from gssc.checks import fail
from gssc.datasets.specs import OGB_ATOM
from gssc.datasets.zinc_atoms import ATOMS
from gssc.explain.jacobian import ROWS
from gssc.explain.kernel import bare_graph, check_graph
from gssc.model import GSSC, model_inputs
from gssc.nn.norm import in_eval_mode
from gssc.train.display import tracked

# By atomic number, from 1; the last stands for whatever OGB's encoding does not name.
ELEMENTS = """
H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr Nb Mo Tc
Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi
Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og *
"""


def atom_symbols(about: Mapping[str, Any], x: Tensor | None) -> list[str] | None:
    """The elements of atoms by their features, in the encoding of OGB or of ZINC; None where they are no atoms."""
    features = about["node_features"]
    if x is not None and isinstance(features, list | tuple) and tuple(features) == OGB_ATOM:
        names = ELEMENTS.split()
    elif x is not None and about["name"] in ("zinc-12k", "zinc-full"):
        names = [atom.partition(" ")[0] for atom in ATOMS]
    else:
        return None
    return [names[number] for number in x[:, 0].tolist()]


def attributions(model: GSSC, data: Data, progress: bool = False) -> Tensor:
    """What each output loses when what the encoders make of a node becomes the mean over all of its graph, [T, N].

    Exact, in raw outputs (logits of labels and classes). Bonds and spectrum stay as they are.

    Args:
        model: A trained model of graphs; its mode and weights stay as they are.
        data: One graph with all that the model reads of it.
        progress: Show a progress bar, in a terminal.
    """
    if getattr(model, "level", None) != "graph":
        fail("model", "one that predicts for graphs", type(model).__name__)
    count = check_graph(model, data)
    graph, changed = bare_graph(data.to_dict(), count), []

    def without(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        copies = args[0].unflatten(0, (-1, count)).clone()
        copies[torch.arange(len(nodes)), nodes] = copies[0].mean(0)
        return (copies.flatten(0, 1), *args[1:])

    with in_eval_mode(model), torch.no_grad():
        whole = model(**model_inputs(graph))
        with model.layers[0].register_forward_pre_hook(without):
            for nodes in tracked(torch.arange(count).split(max(1, ROWS // max(1, count))), "atoms", progress):
                changed += [model(**model_inputs(Batch.from_data_list([graph] * len(nodes))))]
    return (whole - torch.cat(changed)).T
