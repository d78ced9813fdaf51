import itertools

import pytest
import torch
from graphs import random_graph

from gssc import DeepSetPhi, LaplacianSpectrum
from gssc.nn import (
    EigenvectorEncoder,
    FeatureEncoder,
    RandomWalkEncoder,
    SpectralDiagonalEncoder,
    encoders,
    graph_context,
)
from gssc.testing import assert_basis_invariant, assert_close
from gssc.train.store import mostly_zeros


def test_categories_are_a_sum_of_embeddings():
    encode = FeatureEncoder([3, 5], 4)
    x = torch.tensor([[0, 4], [2, 1]])
    expected = encode.embeddings[0].weight[[0, 2]] + encode.embeddings[1].weight[[4, 1]]
    assert_close(encode(x, 2), expected)
    assert FeatureEncoder([3], 4)(torch.tensor([0, 2]), 2).shape == (2, 4)


def test_first_values_of_embeddings():
    torch.manual_seed(0)
    sizes = [2, 300]
    for size, normal, xavier in zip(
        sizes,
        FeatureEncoder(sizes, 64).embeddings,
        FeatureEncoder(sizes, 64, embedding_init="xavier").embeddings,
        strict=True,
    ):
        bound = (6 / (size + 64)) ** 0.5
        assert 0.85 < normal.weight.std() < 1.15
        assert 0.9 * bound < xavier.weight.abs().max() <= bound
    with pytest.raises(ValueError, match="embedding_init: expected one of 'normal', 'xavier', got 'zero'"):
        FeatureEncoder(sizes, 64, embedding_init="zero")


def test_embeddings_as_one_product(float64, monkeypatch):
    encode = FeatureEncoder([3, 5, 2], 4)
    tables = [embedding.weight for embedding in encode.embeddings]
    x = torch.stack([torch.randint(size, (11,)) for size in (3, 5, 2)], dim=1)
    actual = encode(x, 11)
    monkeypatch.setattr(encoders, "MAX_ENTRIES", 0)
    expected = encode(x, 11)
    assert_close(actual, expected)
    (weights,) = torch.randn(1, 11, 4)
    for found, wanted in zip(
        torch.autograd.grad((actual * weights).sum(), tables),
        torch.autograd.grad((expected * weights).sum(), tables),
        strict=True,
    ):
        assert_close(found, wanted)
    assert encode(x[:0], 0).shape == (0, 4)


@pytest.mark.parametrize("options", [{}, {"max_norm": 1.0}, {"padding_idx": 0}, {"sparse": True}])
def test_embeddings_that_must_be_called_are(options):
    encode, calls = FeatureEncoder([3], 4), []
    encode.embeddings[0] = torch.nn.Embedding(3, 4, **options)
    encode.embeddings[0].register_forward_hook(lambda *_: calls.append(1))
    if options:
        encode.embeddings[0]._forward_hooks.clear()
        forward = encode.embeddings[0].forward
        encode.embeddings[0].forward = lambda x: calls.append(1) or forward(x)
    encode(torch.tensor([[0], [2]]), 2)
    assert calls == [1]


def test_numbers_go_through_a_linear_and_nothing_becomes_a_constant():
    encode = FeatureEncoder(2, 4)
    x = torch.randn(3, 2)
    assert_close(encode(x, 3), encode.linear(x))
    constant = FeatureEncoder(None, 4)(None, 3)
    assert constant.shape == (3, 4)
    assert torch.equal(constant[0], constant[2])


@pytest.mark.parametrize(
    ("features", "x", "message"),
    [
        (2, None, "x: expected a tensor of features, got None"),
        (2, torch.ones(3, 3), r"x: expected shape \[3, 2\], got \[3, 3\]"),
        (1, torch.ones(3, 1, dtype=torch.long), "x: expected floating-point features"),
        ([4], torch.ones(3, 1), "x: expected integer categories"),
        ([4, 4], torch.ones(3, 1, dtype=torch.long), r"x: expected shape \[3, 2\], got \[3, 1\]"),
        ([], None, "x features: expected one or more vocabulary sizes"),
        (0, None, "x features: expected a positive integer, got 0"),
        (4.0, None, "x features: expected a number of features, a sequence of vocabulary sizes or None, got 4.0"),
        ([4, 2], torch.tensor([[1, 1], [0, 2], [3, 0]]), r"x, column 1: expected categories in 0\.\.1, got 0\.\.2"),
        ([4], torch.tensor([[1], [-1], [3]]), r"x, column 0: expected categories in 0\.\.3, got -1\.\.3"),
    ],
)
def test_bad_input(features, x, message):
    with pytest.raises(ValueError, match=message):
        FeatureEncoder(features, 4)(x, 3)


def test_random_walks():
    assert RandomWalkEncoder(5, 3)(torch.rand(7, 5)).shape == (7, 3)


def test_spectral_diagonal_is_invariant_to_the_basis(float64):
    phi, encode = DeepSetPhi(6), SpectralDiagonalEncoder(6, 4).eval()
    data = LaplacianSpectrum(k=9)(random_graph(9))
    assert_basis_invariant(lambda d: encode(phi(d.eigvals, d.eigmask), d.eigvecs, graph_context(d.num_nodes)), data)


def test_mostly_zeros_are_the_same_features(float64):
    torch.manual_seed(0)
    x, encoder = torch.rand(30, 80) * (torch.rand(30, 80) < 0.1), FeatureEncoder(80, 5, dropout=0.5)
    sparse = mostly_zeros(x)
    assert sparse.layout == torch.sparse_csr
    assert torch.equal(sparse.to_dense(), x)
    assert mostly_zeros(x + 1).layout == mostly_zeros(x[:, :20]).layout == torch.strided

    def results(x):
        out = encoder(x, 30)
        out.square().sum().backward()
        gradient, encoder.linear.weight.grad = encoder.linear.weight.grad, None
        return out, gradient

    for training in (False, True):
        encoder.train(training)
        encoder.dropout = 0.0 if training else 0.5
        for found, expected in zip(results(sparse), results(x), strict=True):
            assert_close(found, expected)
    encoder.dropout, ones = 0.5, mostly_zeros(torch.eye(80))
    encoder.linear.weight.data.fill_(1.0)
    encoder.linear.bias.data.zero_()
    out = encoder(ones, 80)[:, 0]
    assert set(out.tolist()) == {0.0, 2.0}
    assert 20 < int((out > 0).sum()) < 60


def test_eigenvectors_with_their_eigenvalues_and_random_signs_in_training(float64):
    encode, batch = EigenvectorEncoder(4), torch.tensor([0, 0, 0, 1, 1])
    eigvals, eigmask = torch.rand(2, 3), torch.tensor([[True, True, True], [True, False, False]])
    vectors = torch.randn(5, 3)
    context = graph_context(5, 2, batch)

    def expected(u, signs):
        pairs = [
            torch.stack([signs[k] * vectors[u, k], eigvals[batch[u], k]]) for k in range(3) if eigmask[batch[u], k]
        ]
        return sum(encode.outer(encode.inner(pair).relu()).relu() for pair in pairs)

    found = encode.eval()(eigvals, vectors, eigmask, context)
    assert_close(found, torch.stack([expected(u, (1, 1, 1)) for u in range(5)]))
    assert_close(found[:3], encode(eigvals[:1], vectors[:3], eigmask[:1], graph_context(3)))
    torch.manual_seed(0)
    seen = [set(), set()]
    for _ in range(64):
        trained = encode.train()(eigvals, vectors, eigmask, context)
        for graph, nodes in enumerate((range(3), range(3, 5))):
            fits = [
                signs for signs in itertools.product((1, -1), repeat=3)
                if all(torch.allclose(trained[u], expected(u, signs)) for u in nodes)
            ]  # fmt: skip
            assert fits  # one sign per frequency for all nodes of a graph
            seen[graph].add(fits[0])
    assert [len(one) for one in seen] == [8, 2]
