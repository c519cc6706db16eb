"""Trains a small network on handwritten digits with Python's standard library alone.

It knows nothing of xt but the variables that xt-trainer(7) lists: where its data and parameters lie, its seed, and the
descriptor for telemetry. Run by hand, it needs the same variables.
"""

import csv
import gzip
import json
import math
import os
import random
from operator import mul
from pathlib import Path


def read(path):
    """Images as 64 numbers from 0 to 1, each with its digit."""
    with gzip.open(path, "rt", newline="") as text:
        rows = [[float(cell) for cell in row] for row in csv.reader(text)]
    return [([cell / 16.0 for cell in row[:-1]], int(row[-1])) for row in rows]


class Network:
    """64 inputs, one layer of tanh units, 10 outputs through softmax. The last weight of each row is a bias."""

    def __init__(self, hidden, draws):
        self.first = [[draws.gauss(0.0, 0.1) for _ in range(65)] for _ in range(hidden)]
        self.second = [[draws.gauss(0.0, 0.1) for _ in range(hidden + 1)] for _ in range(10)]

    def forward(self, image):
        seen = image + [1.0]
        inner = [math.tanh(sum(map(mul, row, seen))) for row in self.first] + [1.0]
        scores = [sum(map(mul, row, inner)) for row in self.second]
        top = max(scores)
        powers = [math.exp(score - top) for score in scores]
        total = sum(powers)
        return seen, inner, [power / total for power in powers]

    def learn(self, image, digit, rate):
        """One step of gradient descent on one image; gives its loss, the negative log-probability in nats."""
        seen, inner, chances = self.forward(image)
        errors = [chance - (index == digit) for index, chance in enumerate(chances)]
        back = [sum(map(mul, errors, column)) for column in zip(*self.second)]
        for row, error in zip(self.second, errors):
            row[:] = [weight - rate * error * value for weight, value in zip(row, inner)]
        for row, error, value in zip(self.first, back, inner):
            slope = rate * error * (1.0 - value * value)
            row[:] = [weight - slope * pixel for weight, pixel in zip(row, seen)]
        return -math.log(max(chances[digit], 1e-300))

    def accuracy(self, images):
        right = sum(max(range(10), key=self.forward(image)[2].__getitem__) == digit for image, digit in images)
        return right / len(images)

    def save(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.json").write_text(json.dumps({"first": self.first, "second": self.second}) + "\n")


def main():
    parameters = json.loads(Path(os.environ["XT_PARAMETERS"]).read_text())
    images = read(Path(os.environ["XT_DATA"]) / "digits.csv.gz")
    held_out, seen = images[:: parameters["hold_out_every"]], images
    seen = [image for index, image in enumerate(images) if index % parameters["hold_out_every"]]
    draws = random.Random(int(os.environ["XT_SEED"]))
    network = Network(parameters["hidden"], draws)
    with os.fdopen(int(os.environ["XT_TELEMETRY"]), "w") as telemetry:
        for epoch in range(1, parameters["epochs"] + 1):
            draws.shuffle(seen)
            loss = sum(network.learn(image, digit, parameters["rate"]) for image, digit in seen) / len(seen)
            line = {"step": epoch, "loss": loss, "accuracy": network.accuracy(held_out)}
            print(json.dumps(line), file=telemetry, flush=True)
            network.save(Path(os.environ["XT_SNAPSHOTS"]) / str(epoch))
    network.save(Path(os.environ["XT_OUTPUTS"]))
    print(f"{len(seen)} images seen, {len(held_out)} held out, accuracy {line['accuracy']:.4f}")


main()
