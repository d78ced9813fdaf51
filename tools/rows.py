"""What pages say of a recorded setting: the command that runs it again, its time, its remarks."""

import shlex
from collections.abc import Mapping, Sequence

from gssc.readers import is_number
from gssc.report.provenance import duration
from gssc.report.variants import Recorded

# Remarks on the data of recipes, see gssc.pretrained.publish.
Notes = Mapping[str, Mapping[str, str]]


def command(one: Recorded) -> str:
    """What runs it again with the recipe as it is now."""
    return command_today(one.said("command"), one.overrides)


def time_text(one: Recorded) -> str:
    """The time per seed, and how many ran at once."""
    seconds, at_once = one.about.get("seconds_per_seed"), one.about.get("seeds_at_once", 1)
    if not is_number(seconds):
        return ""
    return duration(seconds) + (f" ({at_once} seeds at once)" if at_once > 1 else "")


def is_rival(one: Recorded) -> bool:
    """Whether it is another model, trained beside GSSC."""
    return one.runs[0].section("model").get("glob", "gssc") != "gssc"


def short_note(notes: Notes, recipe: str) -> str:
    """What a reader must know of a recipe's data, where there is little room."""
    about = notes.get(recipe, {})
    return about.get("short") or about.get("data", "")


def command_today(text: str, overrides: Sequence[str]) -> str:
    """Commands as the shipped recipe needs them, which may have changed since: with ``overrides`` that they lack.

    Commands that differ by ``--seeds`` alone become one.
    """
    seeds_by_rest: dict[str, list[str]] = {}
    for command in filter(None, text.split("; ")):
        words, seeds = command.split(), "0"
        for i, word in enumerate(words):
            if word == "--seeds" and i + 1 < len(words):
                seeds = words[i + 1]
                del words[i : i + 2]
                break
        named = {word.partition("=")[0] for word in words}
        words += [shlex.quote(override) for override in overrides if override.partition("=")[0] not in named]
        seeds_by_rest.setdefault(" ".join(words), []).append(seeds)
    return "; ".join(rest + _seeds_option(seeds) for rest, seeds in seeds_by_rest.items())


def _seeds_option(seeds: Sequence[str]) -> str:
    numbers = sorted(int(one) for one in seeds if one.isdecimal())
    if len(numbers) == len(seeds) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f" --seeds {numbers[0]}-{numbers[-1]}"
    return "" if list(seeds) == ["0"] else f" --seeds {','.join(seeds)}"
