#!/usr/bin/env python3
"""Turns scikit-learn's digits into images and labels in the form of the MNIST files: prepare.py DIGITS.csv.gz FOLDER

Each row of the table is 64 pixels from 0 to 16 and a label. The rows lie in the order in which they were collected, writer
after writer, so a hundred rows that follow each other make one pair of files: they stay together when splits are dealt out.
"""

import csv
import gzip
import struct
import sys
from pathlib import Path

ROWS = 100


def idx(dimensions, values):
    return bytes([0, 0, 8, len(dimensions)]) + struct.pack(f">{len(dimensions)}I", *dimensions) + bytes(values)


def main(table, folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(table, "rt", newline="") as file:
        rows = [[int(float(cell)) for cell in row] for row in csv.reader(file)]
    for number, start in enumerate(range(0, len(rows), ROWS)):
        part = rows[start : start + ROWS]
        pixels = [pixel for row in part for pixel in row[:64]]
        (folder / f"part-{number:02}-images-idx3-ubyte").write_bytes(idx([len(part), 8, 8], pixels))
        (folder / f"part-{number:02}-labels-idx1-ubyte").write_bytes(idx([len(part)], [row[64] for row in part]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} DIGITS.csv.gz FOLDER")
    main(*sys.argv[1:])
