#!/usr/bin/env python3
"""Loads a model folder that the worker wrote and computes its loss on samples of a text, as the next step would.

    python3 load.py MODEL TEXT FIRST COUNT

MODEL holds config.json and model.safetensors of a byte model; TEXT is the file it was trained on, in sequential order.
Prints the mean loss over the samples FIRST to FIRST + COUNT - 1, to be held against `loss` of the trace line of a run
that is one step longer. Fails when transformers finds a tensor too many or too few.
"""

import sys

import torch
from transformers import GPT2LMHeadModel


def main(model_folder, text_file, first, count):
    model, report = GPT2LMHeadModel.from_pretrained(model_folder, output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[what]:
            sys.exit(f"{what}: {report[what]}")
    with open(text_file, "rb") as file:
        tokens = torch.tensor(list(file.read()))
    context = model.config.n_positions
    windows = [tokens[i * context : i * context + context + 1] for i in range(int(first), int(first) + int(count))]
    batch = torch.stack(windows)
    with torch.no_grad():
        logits = model.eval()(batch[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))
    print(f"{loss.item():.8f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
