#!/usr/bin/env python3
"""Writes the data: python3 prepare.py FOLDER

Points of three kinds around three centres, drawn by a fixed seed: FOLDER/train/points.csv to learn from, and two files in
FOLDER/held-out that no line of it is in.
"""

import random
import sys
from pathlib import Path

CENTRES = {"low": (0.0, 0.0), "high": (2.0, 2.0), "far": (3.0, -1.0)}


def write(path, count, spread, draws):
    kinds = sorted(CENTRES)
    lines = ["x,y,kind"]
    for number in range(count):
        kind = kinds[number % len(kinds)]
        x, y = (draws.gauss(middle, spread) for middle in CENTRES[kind])
        lines.append(f"{x:.6f},{y:.6f},{kind}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


folder, draws = Path(sys.argv[1]), random.Random(7)
write(folder / "train" / "points.csv", 300, 0.8, draws)
write(folder / "held-out" / "easy.csv", 90, 0.6, draws)
write(folder / "held-out" / "hard.csv", 90, 1.1, draws)
