"""What each part of the model is worth: variants of one recipe that differ in one thing, under one budget.

Variants are taken together by what they change in the shipped recipe. Settings of training (``train.…`` and the
warm-up) are the budget: only runs with the same budget are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gssc.readers import is_number
from gssc.report.tables import spread_text
from gssc.report.variants import Recorded
from tools.markdown import heading, line
from tools.rows import command

# What a part of the page is about: its name, title, and the settings that vary in it.
SECTIONS = (
    ("global", "Global part", ("model.glob",)),
    ("local", "Local part", ("model.local",)),
    ("kernel", "Kernel per channel or shared", ("model.kernel",)),
    (
        "operator",
        "Operator and zero modes",
        ("spectrum.operator", "spectrum.zero_modes", "spectrum.truncation", "spectrum.which"),
    ),
    ("phi", "Encoding of eigenvalues φ", ("model.phi",)),
    ("selection", "Selection", ("model.selective",)),
    ("frequencies", "Number of frequencies d", ("spectrum.k",)),
    ("other", "Other settings", ()),
)
BUDGET = ("train.", "optim.warmup_epochs=")
# How the same result is computed, or judged in addition. On a CPU tf32 is float32.
INDIFFERENT = (
    *(f"train.{key}=" for key in ("kernels", "capture", "compile", "pad", "also", "also_every")),
    "train.precision=tf32",
)


@dataclass(frozen=True)
class Setting:
    """One variant in a comparison: what it sets, as values by key; empty for the recipe as shipped."""

    recorded: Recorded
    changes: tuple[str, ...]

    def value(self, key: str) -> Any:
        """Of a setting such as ``"spectrum.k"``."""
        section, name = key.split(".")
        return self.recorded.runs[0].section(section).get(name)

    def beyond(self, common: Sequence[str]) -> tuple[str, ...]:
        """What it changes beyond what all settings of a comparison change."""
        return tuple(change for change in self.changes if change not in common)


@dataclass(frozen=True)
class Comparison:
    """Settings of one recipe with one budget.

    Args:
        recipe: Its name.
        keys: What varies.
        budget: What of training is changed.
        settings: The one that the others build on first, if it was run: as a rule the recipe as shipped.
        common: What all of them change in the recipe as shipped.
    """

    recipe: str
    keys: tuple[str, ...]
    budget: str
    settings: tuple[Setting, ...]
    common: tuple[str, ...] = ()

    @property
    def base(self) -> Setting | None:
        """The setting that all others build on."""
        return None if self.settings[0].beyond(self.common) else self.settings[0]

    def label(self, setting: Setting) -> str:
        """The values of what varies, and whatever else differs from the others."""
        said = [f"{key.partition('.')[2]} = {str(setting.value(key)).lower()}" for key in self.keys]
        others = [change for change in setting.beyond(self.common) if change.partition("=")[0] not in self.keys]
        text = ", ".join([*said, *others])
        if setting.changes:
            return text or "nothing else"
        return f"{text} (as shipped)" if text else "as shipped"


def comparisons(recorded: Sequence[Recorded]) -> dict[str, list[Comparison]]:
    """By part of the page, what can be compared: two or more settings with one budget."""
    by_budget: dict[tuple[str, str], list[Setting]] = {}
    for one in recorded:
        overrides = [text for text in one.overrides if not text.startswith(INDIFFERENT)]
        changes = tuple(text for text in overrides if not text.startswith(BUDGET))
        if one.ablation or not changes:
            budget = ", ".join(text for text in overrides if text.startswith(BUDGET))
            by_budget.setdefault((one.recipe, budget), []).append(Setting(one, changes))
    by_section: dict[str, list[Comparison]] = {}
    for (recipe, budget), settings in sorted(by_budget.items()):
        shared = _shared(settings)
        for name, _, keys in SECTIONS:
            mine = [one for one in settings if one.beyond(shared) and _section(one.beyond(shared)) == name]
            base = _base(settings, mine)
            varied = keys if len(keys) < 2 else tuple(key for key in keys if _varies(key, [*base, *mine]))
            if mine and len(base) + len(mine) > 1:
                common = base[0].changes if base else _shared(mine)
                ordered = sorted(mine, key=lambda setting: _order(setting, varied))
                by_section.setdefault(name, []).append(Comparison(recipe, varied, budget, (*base, *ordered), common))
    return {name: by_section[name] for name, _, _ in SECTIONS if name in by_section}


def comparison_table(one: Comparison, note: str = "") -> str:
    """Mean ± deviation over seeds on validation and test, and the difference to what the others build on.

    Args:
        one: What is compared.
        note: What a reader must know of the data.
    """
    first = one.settings[0].recorded
    published = first.published_gssc()
    base = first.printed("test") if one.base else None
    lines = [heading(f"{one.recipe}, {first.metric_text}", "validation", "test", "difference", "seeds", "parameters")]
    for setting in one.settings:
        variant = setting.recorded
        test, parameters = variant.printed("test"), variant.spread("parameters")
        stopped = variant.schedule if variant.schedule != first.schedule else ""
        cells = [
            one.label(setting) + (f" ({stopped})" if stopped else ""),
            *(spread_text(variant.printed(key), published) for key in ("validation", "test")),
        ]
        difference = ""
        if base is not None and test is not None and setting.beyond(one.common):
            digits = len(cells[2].split(" ")[0].partition(".")[2])
            difference = f"{test.mean - base.mean:+.{digits}f}".replace("-", "−")
        cells += [difference, str(test.n if test else 0), f"{parameters.mean:,.0f}" if parameters else ""]
        lines.append(line(*cells))
    epochs = first.runs[0].section("train").get("epochs")
    said = f"{epochs:,} epochs" if is_number(epochs) else ""
    origins = dict.fromkeys(
        f"{s.recorded.said('hardware')}, commit `{s.recorded.said('commit')}`, {s.recorded.said('date')}"
        for s in one.settings
    )
    text = f"Budget: {first.schedule or said}. " + "; ".join(origins) + "."
    if one.common:
        text = f"All with `{' '.join(one.common)}`. {text}"
    remarks = dict.fromkeys(s.recorded.said("remarks") for s in one.settings)
    text = " ".join([text, *([f"Data: {note}"] if note else []), *(remark for remark in remarks if remark)])
    return "\n".join(lines) + f"\n\n{text}"


def commands(one: Comparison) -> str:
    """The commands of a comparison, one line each."""
    lines = [command(setting.recorded) for setting in one.settings]
    return "```text\n" + "\n".join(filter(None, lines)) + "\n```"


def _shared(settings: Sequence[Setting]) -> tuple[str, ...]:
    """What all of them change."""
    return tuple(change for change in settings[0].changes if all(change in one.changes for one in settings))


def _base(settings: Sequence[Setting], mine: Sequence[Setting]) -> list[Setting]:
    """The one that has most in common with all of ``mine`` and changes nothing else, if there is any.

    The main result and an ablation's own run of the same are the same thing: one will do.
    """
    below = [one for one in settings if one not in mine and all(set(one.changes) <= set(m.changes) for m in mine)]
    return sorted(below, key=lambda one: (-len(one.changes), not one.recorded.ablation))[:1]


def _section(changes: Sequence[str]) -> str:
    changed = {change.partition("=")[0] for change in changes}
    return next(name for name, _, keys in SECTIONS if not keys or changed & set(keys))


def _varies(key: str, settings: Sequence[Setting]) -> bool:
    return len({str(setting.value(key)) for setting in settings}) > 1


def _order(setting: Setting, keys: Sequence[str]) -> tuple[Any, ...]:
    values = [setting.value(key) for key in keys]
    return tuple((0, value, "") if is_number(value) else (1, 0, str(value)) for value in values)
