from dataclasses import replace

import pytest
import torch

from gssc.datasets.smiles import read_molecules

pytest.importorskip("rdkit")
SMILES = [
    *("CC(=O)Oc1ccccc1C(=O)O", "C[NH+]1CCN(c2ccc([N+](=O)[O-])cc2)CC1", "CCCCCC", "OCC(O)CO", "C1CCCCCCC1"),
    *("Clc1ccc(Br)cc1", "CS(=O)(=O)N", "c1ccc2[nH]ccc2c1"),
]


def test_the_right_types_give_the_targets_and_wrong_ones_do_not():
    from rdkit import Chem

    from benchmarks.zinc_atoms import judge, penalised_logp

    y = torch.tensor([[penalised_logp(Chem.MolFromSmiles(text))] for text in SMILES])
    graphs = replace(read_molecules(SMILES, SMILES, encoding="zinc").graphs, y=y)
    right = judge(graphs)
    assert (right.valid, right.agreeing) == (len(SMILES), 1.0)
    assert right.correlation == pytest.approx(1.0)
    exchanged = torch.where(graphs.x == 1, 2, torch.where(graphs.x == 2, 1, graphs.x))  # O for N and N for O
    wrong = judge(replace(graphs, x=exchanged))
    assert wrong.agreeing < 0.5


def test_a_molecule_from_its_graph_and_back():
    from rdkit import Chem

    from benchmarks.zinc_atoms import graph_molecule

    for smiles in (
        "CC(=O)Oc1ccccc1C(=O)O",
        "C[NH+]1CCN(c2ccc([N+](=O)[O-])cc2)CC1",
        "O=[PH](O)c1c[nH]cn1",
        "N#CC(O)CS",
    ):
        again = graph_molecule(read_molecules([smiles], ["it"], encoding="zinc").graphs, 0)
        assert Chem.CanonSmiles(Chem.MolToSmiles(again)) == Chem.CanonSmiles(smiles)
