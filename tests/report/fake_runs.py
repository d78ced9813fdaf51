"""Run folders with plausible content, made from a seed: what `gssc train` writes, without training."""

import json
import statistics
from pathlib import Path

import numpy as np
import yaml
from safetensors.numpy import save_file

from gssc.datasets.specs import SPECS
from gssc.recipes import find_recipe
from gssc.report.published import published_gssc


def fake_run(out: Path, recipe: str, overrides=(), seeds=(0, 1, 2), worse=0.0, epochs=40, unfinished=()) -> Path:
    """An output folder; ``worse`` shifts scores from the published one, ``unfinished`` seeds have no summary."""
    settings = find_recipe(recipe).override(list(overrides))
    task = SPECS[settings.data.dataset].task
    row = published_gssc(settings.data.dataset)
    best = float(row.mean) / row.factor
    spread = float(row.std or 0.0001) / row.factor
    sign = -1.0 if task.higher_is_better else 1.0
    tests, validations = [], []
    for seed in seeds:
        random = np.random.default_rng([seed, len(overrides), epochs])
        folder = out / f"seed-{seed}"
        folder.mkdir(parents=True)
        test = float(best + sign * worse + spread * random.normal())
        validation = float(test + 0.3 * spread * random.normal())
        (folder / "config.yaml").write_text(yaml.safe_dump(settings.to_dict(), sort_keys=False))
        write_json(folder / "environment.json", environment(recipe, overrides))
        write_json(folder / "dataset.json", {"name": settings.data.dataset, "task": vars(task), "standardize": {}})
        history(folder / "metrics.jsonl", random, epochs if seed not in unfinished else epochs // 3, validation, task)
        if seed in unfinished:
            continue
        tests.append(test)
        validations.append(validation)
        prediction, target = predictions(task, random)
        save_file({"prediction": prediction, "target": target}, folder / "predictions.safetensors")
        write_json(
            folder / "summary.json",
            {"recipe": recipe, "seed": seed, "dataset": settings.data.dataset, "metric": task.metric}
            | {"higher_is_better": task.higher_is_better, "validation": validation, "test": test}
            | {"epoch_selected": epochs - 3, "epochs_run": epochs, "parameters": 436_645}
            | {"train_seconds": 754.2 + seed, "prepare_seconds": 2.5},
        )
    if tests:
        pooled = {"recipe": recipe, "metric": task.metric, "seeds": [seed for seed in seeds if seed not in unfinished]}
        for name, values in (("validation", validations), ("test", tests)):
            std = statistics.stdev(values) if len(values) > 1 else 0.0
            pooled[name] = {"mean": statistics.fmean(values), "std": std, "values": values}
        write_json(out / "summary.json", pooled)
    return out


def environment(recipe, overrides):
    return {
        "command": " ".join(["gssc train", recipe, *overrides]),
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "date": "2026-01-31T12:00:00+00:00",
        "hardware": {"device": "cpu", "cpu": "A processor of two cores"},
        "versions": {"gssc": "0.1.0", "torch": "2.13.0", "python": "3.11"},
    }


def history(path, random, epochs, last, task):
    lines = []
    for epoch in range(1, epochs + 1):
        decay = float(np.exp(-6 * epoch / epochs))
        towards = last * (1 - 0.5 * decay) if task.higher_is_better else last * (1 + 15 * decay)
        line = {"epoch": epoch, "lr": 1e-3, "train_loss": 0.05 + decay * (1 + 0.1 * float(random.normal()))}
        line |= {"val": towards * (1 + 0.02 * float(random.normal())), "val_loss": 0.1 + decay, "best_epoch": epoch}
        lines.append(json.dumps(line | {"seconds": 1.5, "graphs_per_second": 6000.0}))
    path.write_text("\n".join(lines) + "\n")


def predictions(task, random, rows=2000):
    if task.kind == "regression":
        target = random.normal(size=(rows, task.outputs)) * (1 + np.arange(task.outputs))
        return (target + 0.2 * random.normal(size=target.shape)).astype(np.float32), target.astype(np.float32)
    if task.kind == "multiclass":
        target = random.integers(0, task.outputs, rows)
        logits = random.normal(size=(rows, task.outputs)) + 3.0 * np.eye(task.outputs)[target]
        probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        return probabilities.astype(np.float32), target
    target = (random.random((rows, task.outputs)) < 0.15).astype(np.float32)
    scores = 1 / (1 + np.exp(-(random.normal(size=target.shape) + 2 * target - 1)))
    return scores.astype(np.float32), target


def write_json(path, value):
    path.write_text(json.dumps(value))
