#!/usr/bin/env python3
"""Cuts a table into files of 500 rows that follow each other, each with the line of names: prepare.py TABLE.csv FOLDER"""

import sys
from pathlib import Path

ROWS = 500


def main(table, folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names, *rows = Path(table).read_text().splitlines()
    rows = [row for row in rows if row]
    for number, start in enumerate(range(0, len(rows), ROWS)):
        (folder / f"part-{number:02}.csv").write_text("\n".join([names, *rows[start : start + ROWS], ""]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} TABLE.csv FOLDER")
    main(*sys.argv[1:])
