import pytest
from small_run import small_recipe

from gssc.protocols import EvaluationProtocol, due, followed


def names(*overrides):
    return [protocol.name for protocol in followed(small_recipe(*overrides).train)]


def test_the_protocol_of_the_recipe_comes_first_and_none_comes_twice():
    assert names() == ["running"]
    assert names("train.ema=0.9", "train.batch_stats=reestimated") == ["ema=0.9+reestimated"]
    assert names("train.also=reestimated, running,reestimated") == ["running", "reestimated"]
    also = "train.also=running reestimated ema ema=0.99 ema=0.990+reestimated ema+running"
    assert names("train.ema=0.9", also) == ["ema=0.9", "running", "reestimated", "ema=0.99", "ema=0.99+reestimated"]
    assert EvaluationProtocol(0.999, True).name == "ema=0.999+reestimated"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runing", r"^train.also: expected running, reestimated, .* got 'runing'$"),
        ("ema", r"^train.also: expected ema=DECAY where train.ema is 0, got 'ema'$"),
        ("ema=1.5", r"^train.also: expected a decay between 0 and 1, got 'ema=1.5'$"),
        ("ema=0", "a decay between 0 and 1"),
        ("ema=x", r"got 'ema=x'$"),
        ("reestimated+ema=0.9", "separated by commas"),
        ("running+reestimated", "separated by commas"),
        ("ema=0.9+", "separated by commas"),
    ],
)
def test_what_cannot_be_read_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        small_recipe(f"train.also={text}")


def test_each_is_due_in_its_own_time_and_all_at_the_end():
    config = small_recipe("train.epochs=7", "train.eval_every=2", "train.also_every=3", "train.also=reestimated").train
    own, further = followed(config)
    expected = [[], [own], [further], [own], [], [own, further], [own, further]]
    assert [due(config, epoch) for epoch in range(1, 8)] == expected
