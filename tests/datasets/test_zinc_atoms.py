import pytest
import torch

from gssc.datasets.inputs import open_inputs
from gssc.datasets.smiles import read_molecules
from gssc.datasets.specs import SPECS, ZINC_ATOM
from gssc.datasets.zinc_atoms import ATOMS

pytest.importorskip("rdkit")


def names(smiles: str) -> list[str]:
    return [ATOMS[number] for number in read_molecules([smiles], ["it"], encoding="zinc").graphs.x[:, 0].tolist()]


def test_one_name_for_each_number_of_the_vocabulary():
    assert len(set(ATOMS)) == ZINC_ATOM[0]


@pytest.mark.parametrize(
    ("smiles", "expected"),
    [
        ("CCO", ["C", "C", "O"]),
        ("c1cc[nH]c1", ["C", "C", "C", "N", "C"]),  # no brackets in Kekulé form
        ("C[NH2+]C", ["C", "N H2 +", "C"]),
        ("[O-][N+](=O)C", ["O -", "N +", "O", "C"]),
        ("C[C@H](O)F", ["C", "C H1", "O", "F"]),
        ("CC(O)F", ["C", "C H1", "O", "F"]),  # a stereocentre, marked or not
        ("CC(C)F", ["C", "C", "C", "F"]),
        ("CP(C)C", ["C", "P", "C", "C"]),
        ("C[PH](=O)C", ["C", "P H1", "O", "C"]),
        ("O=[PH2]C", ["O", "P H2", "C"]),
        ("[CH2-]C", ["C H2 -", "C"]),
        ("C[SH+]C", ["C", "S H1 +", "C"]),
    ],
)
def test_names(smiles, expected):
    assert names(smiles) == expected


def test_bonds_are_kekulised_and_stand_in_both_directions():
    molecules = read_molecules(["c1ccccc1C#N"], ["it"], encoding="zinc").graphs
    orders = sorted(molecules.edge_attr[::2, 0].tolist())
    assert orders == [1, 1, 1, 1, 2, 2, 2, 3]
    assert torch.equal(molecules.edge_index[:, ::2], molecules.edge_index[:, 1::2].flip(0))


def test_what_zinc_does_not_have_is_named_or_left_out():
    with pytest.raises(ValueError, match=r"\Aline 2: expected atoms of the 28 types that ZINC has, got 'B' \(.*\)\Z"):
        read_molecules(["C", "CB(C)C"], ["line 1", "line 2"], encoding="zinc")
    with pytest.raises(ValueError, match="single, double and triple bonds, got dative"):
        read_molecules(["CN(C)(C)->P"], ["it"], encoding="zinc")
    assert read_molecules(["C", "CB(C)C", "N"], ["a", "b", "c"], encoding="zinc", skip_invalid=True).rows == [0, 2]


def test_only_models_of_zinc_read_smiles_this_way():
    about = {"name": "zinc-12k", "task": vars(SPECS["zinc-12k"].task), "node_features": [28], "edge_features": [4]}
    inputs = open_inputs(["CCO", "CN"], about | {"standardize": {}})
    assert inputs.graphs.x[:, 0].tolist() == [0, 0, 1, 0, 2]
    with pytest.raises(ValueError, match="trained on mine, not on molecules"):
        open_inputs(["CCO"], about | {"name": "mine", "standardize": {}})
    with pytest.raises(ValueError, match="graphs: expected one or more, got none"):
        open_inputs([], about | {"standardize": {}})
