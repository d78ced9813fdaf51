import itertools

import torch

from gssc.train.step import mix, mix_each, seed_step, shuffled


def test_an_order_is_a_permutation_that_follows_from_seed_and_epoch():
    orders = {}
    for seed, epoch in itertools.product(range(3), range(1, 4)):
        order = shuffled(100, seed, epoch)
        assert sorted(order.tolist()) == list(range(100))
        torch.rand(5)
        assert torch.equal(shuffled(100, seed, epoch), order)
        orders[seed, epoch] = tuple(order.tolist())
    assert len(set(orders.values())) == 9


def test_seeds_of_nearby_positions_differ():
    positions = list(itertools.product(range(8), repeat=4))
    seeds = {mix(*position) for position in positions}
    assert len(seeds) == len(positions)
    assert all(0 <= seed < 2**63 for seed in seeds)
    # Also where fewer numbers are mixed, and in another order.
    assert mix(1, 2) != mix(2, 1)
    assert mix(0) != mix(0, 0)


def test_a_step_draws_the_same_numbers_wherever_the_generator_stood():
    seed_step(3, 2, 5)
    first = torch.rand(4)
    torch.rand(100)
    seed_step(3, 2, 5)
    assert torch.equal(torch.rand(4), first)
    for position in ((3, 2, 6), (3, 3, 5), (4, 2, 5), (3, 2, 5, 1)):
        seed_step(*position)
        assert not torch.equal(torch.rand(4), first)


def test_the_order_of_graphs_does_not_disturb_the_global_generator():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    shuffled(10, 1, 1)
    assert torch.equal(torch.rand(3), expected)


def test_many_seeds_at_once_are_the_single_ones():
    for numbers in ((0,), (3, 1, 2000), (2**40, 7)):
        assert mix_each(50, *numbers).tolist() == [mix(*numbers, i) for i in range(50)]
