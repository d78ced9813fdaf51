import torch

from gssc.nn.plain_modules import plain_embeddings, plain_linears


def test_modules_that_must_be_called():
    linear, embedding = torch.nn.Linear(2, 2), torch.nn.Embedding(2, 2)
    assert plain_linears(linear, None)
    assert plain_embeddings(embedding)
    linear.register_forward_hook(lambda *_: None)
    embedding.register_forward_pre_hook(lambda *_: None)
    assert not plain_linears(linear)
    assert not plain_embeddings(embedding)
    assert not plain_linears(torch.nn.Identity())
    assert not plain_embeddings(torch.nn.Embedding(2, 2, max_norm=1.0))
