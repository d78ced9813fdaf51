"""Global parts of other papers, in the place of `GSSConv`: same data, same local part, one word changed.

Each is written from its paper. All are called as ``glob(x, phi, vectors, batch, context=context)``, use no spectra,
and mix nodes of one graph only.
"""

from typing import Any

from torch import nn

from gssc.nn.rivals.exphormer import Exphormer
from gssc.nn.rivals.grit import Grit
from gssc.nn.rivals.mamba import GraphMamba
from gssc.nn.rivals.performer import Performer
from gssc.nn.rivals.polynormer import PolynormerAttention
from gssc.nn.rivals.sgformer import SimpleAttention

RIVALS: dict[str, Any] = {
    "performer": Performer,
    "exphormer": Exphormer,
    "grit": Grit,
    "mamba": GraphMamba,
    "sgformer": SimpleAttention,
    "polynormer": PolynormerAttention,
}
# What these hand from layer to layer through the context: pairs of nodes, virtual nodes.
CARRYING = ("grit", "exphormer")


def make_rival(name: str, channels: int, heads: int, number: int, layers: int, rwse: int) -> nn.Module:
    """The global part of layer ``number`` of so many, by name; GRIT's pairs know as many steps as nodes do."""
    settings: dict[str, Any] = {} if name in ("mamba", "sgformer") else {"heads": heads}
    settings |= {"first": number == 0} if name in CARRYING else {}
    settings |= {"last": number == layers - 1, "steps": rwse + 1 if rwse else 16} if name == "grit" else {}
    return RIVALS[name](channels, **settings)


__all__ = ["Exphormer", "GraphMamba", "Grit", "Performer", "PolynormerAttention", "SimpleAttention"]
