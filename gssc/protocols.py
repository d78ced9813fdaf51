"""What of a training run is evaluated and selected.

Weights as they are or averaged, BatchNorm statistics as they ran along or re-estimated over the training set. None of
it changes the steps of training, so one run can follow several protocols: each selects its own weights on validation
and has its own test score. Which of them is *the* result is decided by the recipe, before any score is seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gssc.checks import fail

if TYPE_CHECKING:
    from gssc.config import TrainConfig

FORMS = "running, reestimated, ema, ema=0.999, ema+reestimated or ema=0.999+reestimated, separated by commas"


@dataclass(frozen=True)
class EvaluationProtocol:
    """One way to evaluate.

    Args:
        ema: Decay of averaged weights; 0 for the weights as they are.
        reestimated: BatchNorm statistics of the whole training set instead of the running ones.
    """

    ema: float = 0.0
    reestimated: bool = False

    @property
    def name(self) -> str:
        """``running`` (the usual one), ``reestimated``, ``ema=DECAY`` or ``ema=DECAY+reestimated``."""
        parts = [f"ema={self.ema!r}"] * bool(self.ema) + ["reestimated"] * self.reestimated
        return "+".join(parts) or "running"


def followed(config: "TrainConfig") -> tuple[EvaluationProtocol, ...]:
    """The recipe's own protocol, then the further ones of ``also``, each once."""
    own = EvaluationProtocol(config.ema, config.batch_stats == "reestimated")
    return tuple(dict.fromkeys([own, *parse_protocols(config.also or "", config.ema)]))


def due(config: "TrainConfig", epoch: int) -> list[EvaluationProtocol]:
    """Those of `followed` that are evaluated after an epoch: every so often, and all of them at the end."""
    own, *further = followed(config)
    last = epoch == config.epochs
    return [own] * (last or epoch % config.eval_every == 0) + further * (last or epoch % config.also_every == 0)


def parse_protocols(text: str, decay: float) -> Sequence[EvaluationProtocol]:
    """Protocols by their names, separated by commas or spaces; ``ema`` alone has the decay ``train.ema``."""
    found = []
    for name in text.replace(",", " ").split():
        words = name.split("+")
        average, equals, number = words[0].partition("=")
        kept = 0.0
        if average == "ema":
            try:
                kept = float(number) if equals else decay
            except ValueError:
                fail("train.also", FORMS, repr(name))
            if not equals and not kept:
                fail("train.also", "ema=DECAY where train.ema is 0", repr(name))
            if not 0.0 < kept < 1.0:
                fail("train.also", "a decay between 0 and 1", repr(name))
            words.pop(0)
        if words not in ([], ["running"], ["reestimated"]) or (not words and average != "ema"):
            fail("train.also", FORMS, repr(name))
        found.append(EvaluationProtocol(kept, words == ["reestimated"]))
    return found
