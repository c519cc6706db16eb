"""What the scripts that make reference answers share: their packages, and the random numbers of xt."""

import hashlib
import os
import subprocess
import sys
import tempfile


def run_with(packages, script):
    """Runs `script --make` in a Python of its own that has these packages."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = os.path.join(folder, "bin", "python")
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
        subprocess.run([python, os.path.abspath(script), "--make"], check=True)


def philox(counter, key):
    """Philox 4x32-10, written from the paper."""
    mask = 0xFFFFFFFF
    c, k = list(counter), list(key)
    for _ in range(10):
        one, two = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(two >> 32) ^ c[1] ^ k[0], two & mask, (one >> 32) ^ c[3] ^ k[1], one & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def words(seed, purpose, time=0):
    """The endless stream of 64-bit words that `xt_core::random::Stream` gives."""
    digest = hashlib.sha256(b"xt.random/1\0" + seed.to_bytes(8, "little") + purpose.encode()).digest()
    key = [int.from_bytes(digest[at : at + 4], "little") for at in (0, 4)]
    index = 0
    while True:
        block = philox([index & 0xFFFFFFFF, index >> 32, time & 0xFFFFFFFF, time >> 32], key)
        yield block[0] | block[1] << 32
        index += 1
