from tools.rows import command_today


def test_commands_that_differ_by_seed_become_one():
    each = "; ".join(f"gssc train zinc-12k train.epochs=60 --seeds {seed}" for seed in (1, 0, 2))
    assert command_today(each, ()) == "gssc train zinc-12k train.epochs=60 --seeds 0-2"
    assert command_today("gssc train a --seeds 0; gssc train a --seeds 2", ()) == "gssc train a --seeds 0,2"
    assert command_today("gssc train a --seeds 0-2 --jobs 3", ()) == "gssc train a --jobs 3 --seeds 0-2"
    assert command_today("gssc train a; gssc train b --seeds 1", ()) == "gssc train a; gssc train b --seeds 1"


def test_what_the_recipe_said_then_is_named():
    overrides = ("model.kernel=shared", "train.also=x, y")
    assert command_today("gssc train a", overrides) == "gssc train a model.kernel=shared 'train.also=x, y'"
    assert command_today("gssc train a model.kernel=shared", overrides[:1]) == "gssc train a model.kernel=shared"
    assert command_today("", overrides) == ""
