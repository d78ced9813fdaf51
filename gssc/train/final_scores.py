"""What a run has come to: test scores of the weights that validation has selected, by every protocol it followed."""

import math
from typing import Any

from gssc.train.checkpoint import Progress
from gssc.train.evaluate import evaluate
from gssc.train.loop import Trainer
from gssc.train.store import GraphStore


def load_selected(trainer: Trainer, progress: Progress) -> None:
    """Put the weights that the run has selected into the model that is evaluated."""
    if progress.best.weights:
        trainer.evaluated.load_state_dict(progress.best.weights)


def final_score(trainer: Trainer, test: GraphStore) -> float | None:
    """Of the model that is evaluated, as it is."""
    config = trainer.recipe.train
    _, score = evaluate(trainer.evaluated, test, trainer.task, config.batch_size, config.precision)
    return plain(score)


def scores_by_protocol(
    trainer: Trainer, progress: Progress, validation: GraphStore, test: GraphStore
) -> dict[str, dict[str, Any]]:
    """Scores of the weights that each protocol has selected, and of the last ones; nothing where there is one alone.

    The recipe's own comes last, and leaves its weights in the model that is evaluated.
    """
    own, *further = trainer.protocols
    found: dict[str, dict[str, Any]] = {}
    for protocol in (*further, own) if further else ():
        best = progress.best_by(protocol, own)
        _, last = trainer.evaluate(validation, protocol)
        scores = {"last_val": plain(last), "last_test": final_score(trainer, test)}
        if best.weights:
            trainer.evaluated.load_state_dict(best.weights)
        selected = {"val": plain(best.score), "test": final_score(trainer, test)}
        found[protocol.name] = {**selected, "epoch": best.epoch or trainer.recipe.train.epochs, **scores}
    return found


def evaluations_left(trainer: Trainer) -> int:
    """How many evaluations all of this needs at most, predictions included."""
    protocols = len(trainer.protocols)
    return 2 + (3 * protocols if protocols > 1 else 0)


def plain(number: float | None) -> float | None:
    """A number for JSON, which knows no NaN."""
    return number if number is not None and math.isfinite(number) else None
