"""Measures how often the frozen means tell the kind of a point, over everything and over each file.

It knows of xt what xt-trainer(7) lists: XT_MODEL holds the files of the bundle, XT_DATA the held-out files, XT_PARAMETERS
the settings of the spec, XT_SEED its seed; what it leaves as evaluation/metrics.json becomes the evaluation.
"""

import csv
import json
import os
import random
from pathlib import Path
from statistics import mean, stdev

settings = json.loads(Path(os.environ["XT_PARAMETERS"]).read_text())
means = json.loads(Path(os.environ["XT_MODEL"], "outputs", "means.json").read_text())
draws = random.Random(int(os.environ["XT_SEED"]))


def right(row):
    """1.0 when the nearest mean is the one of the point's kind."""
    x, y = float(row["x"]), float(row["y"])
    nearest = min(means, key=lambda kind: (x - means[kind][0]) ** 2 + (y - means[kind][1]) ** 2)
    return float(nearest == row["kind"])


def interval(values):
    """The 95 % percentile interval of the bootstrap (Efron, "Bootstrap Methods", Annals of Statistics 1979)."""
    count = settings["resamples"]
    averages = sorted(mean(draws.choices(values, k=len(values))) for _ in range(count))
    return [averages[int(0.025 * count)], averages[int(0.975 * count) - 1]]


def measure(values, part):
    return {
        "name": "accuracy",
        "slice": part,
        "value": mean(values),
        "sample_count": len(values),
        "standard_error": stdev(values) / len(values) ** 0.5,
        "interval": interval(values),
    }


answers = {}
for path in sorted(Path(os.environ["XT_DATA"]).iterdir()):
    with path.open(newline="") as text:
        answers[path.name] = [right(row) for row in csv.DictReader(text)]
everything = [answer for part in answers.values() for answer in part]
metrics = [measure(everything, None)] + [measure(values, name) for name, values in answers.items()]
Path("evaluation").mkdir()
Path("evaluation", "metrics.json").write_text(
    json.dumps(
        {
            "schema": "xt.metrics/1",
            "evaluator": {"name": "nearest-mean", "version": "1", "determinism": "seeded"},
            "metrics": metrics,
        }
    )
)
