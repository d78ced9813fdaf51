"""What a run has come to: test scores of the weights that validation has selected, by every protocol it followed."""

import math
from typing import Any

from gssc.protocols import EvaluationProtocol
from gssc.train.checkpoint import Progress
from gssc.train.evaluate import evaluate, exact_products
from gssc.train.loop import Trainer
from gssc.train.store import GraphStore


def load_selected(trainer: Trainer, progress: Progress) -> None:
    """Put the weights that the run has selected into the model that is evaluated."""
    if progress.best.weights:
        trainer.evaluated.load_state_dict(progress.best.weights)


def final_score(trainer: Trainer, test: GraphStore) -> float | None:
    """Of the model that is evaluated, as it is; in float32 also where it was trained in tf32."""
    config = trainer.recipe.train
    with exact_products():
        _, score = evaluate(trainer.evaluated, test, trainer.task, config.batch_size, config.precision)
    return plain(score)


def in_order_of_scoring(trainer: Trainer) -> list[EvaluationProtocol]:
    """Where a run follows several protocols: the further ones, then the recipe's own; else none."""
    own, *further = trainer.protocols
    return [*further, own] if further else []


def score_protocol(
    trainer: Trainer, progress: Progress, protocol: EvaluationProtocol, last: float, test: GraphStore
) -> dict[str, Any]:
    """Scores of the weights that a protocol has selected, and of the last ones.

    Comes right after `Trainer.evaluate` by this protocol, which gave ``last``, and leaves the selected weights in the
    model that is evaluated.
    """
    best = progress.best_by(protocol, trainer.protocols[0])
    val, score = plain(last), final_score(trainer, test)
    last_scores = {"last_val": val, "last_test": score}
    if not best.weights:  # ended before this protocol was looked at: the last weights are all that it has
        return {"val": val, "test": score, "epoch": progress.epoch, **last_scores}
    trainer.evaluated.load_state_dict(best.weights)
    return {"val": plain(best.score), "test": final_score(trainer, test), "epoch": best.epoch, **last_scores}


def plain(number: float | None) -> float | None:
    """A number for JSON, which knows no NaN."""
    return number if number is not None and math.isfinite(number) else None
