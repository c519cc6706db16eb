#!/usr/bin/env python3
"""Prints a document for the Python of this host: python3 documents.py candidate|spec DATASET-ID

The path of the interpreter and of its standard library differ from host to host, so no file can name them. xt-compile
pins their bytes.
"""

import hashlib
import json
import os
import sys
import sysconfig
from pathlib import Path


def program(script):
    """How a script is run, with the standard library and nothing else."""
    roots = sorted({os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
    digest = hashlib.sha256(Path(__file__).with_name(script).read_bytes()).hexdigest()
    return {
        "kind": "command",
        "executable": os.path.realpath(sys.executable),
        "arguments": ["-S", "-B", "${XT_FILES}/" + script],
        "environment": {"PYTHONHASHSEED": "0"},
        "roots": [{"path": root, "execute": False} for root in roots],
        "files": {script: "sha256:" + digest},
        "threads": 1,
    }


kind, dataset = sys.argv[1:]
candidate = {
    "schema": "xt.candidate/1",
    "name": "means",
    "trainer": program("train.py"),
    "parameters": {},
    "data": {"dataset": dataset, "split": None},
    "steps": None,
    "regime": "exact",
}
spec = {
    "schema": "xt.evaluation-spec/1",
    "name": "held-out",
    "evaluator": {
        "kind": "command",
        "name": "nearest-mean",
        "version": "1",
        "determinism": "seeded",
        "metrics": ["accuracy"],
        "samples": 180,
        "confidence": 0.95,
        "program": program("measure.py"),
        "settings": {"resamples": 500},
    },
    "parameters": "trained",
    "data": {"dataset": dataset, "split": "train"},
    "slices": "member",
    "leakage": {"minimum_bytes": 8, "shared": "refuse"},
    "seed": 11,
}
json.dump({"candidate": candidate, "spec": spec}[kind], sys.stdout)
