#!/usr/bin/env python3
"""Prints the candidate for the Python of this host: python3 candidate.py DATASET-ID [EPOCHS]

The path of the interpreter and of its standard library differ from host to host, so no file can name them. xt-compile
pins their bytes.
"""

import hashlib
import json
import os
import sys
import sysconfig
from pathlib import Path

script = Path(__file__).with_name("train.py").read_bytes()
roots = sorted({os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")})
candidate = {
    "schema": "xt.candidate/1",
    "name": "digits",
    "trainer": {
        "kind": "command",
        "executable": os.path.realpath(sys.executable),
        # No site packages, no bytecode written. Nothing of the user's environment is there anyway.
        "arguments": ["-S", "-B", "${XT_FILES}/train.py"],
        "environment": {"PYTHONHASHSEED": "0"},
        "roots": [{"path": root, "execute": False} for root in roots],
        "files": {"train.py": "sha256:" + hashlib.sha256(script).hexdigest()},
        "threads": 1,
    },
    "parameters": {
        "hidden": 16,
        "rate": 0.05,
        "epochs": int(sys.argv[2]) if len(sys.argv) > 2 else 8,
        "hold_out_every": 5,
    },
    "data": {"dataset": sys.argv[1], "split": None},
    "steps": None,
    "regime": "exact",
}
json.dump(candidate, sys.stdout)
