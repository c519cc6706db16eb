#!/usr/bin/env python3
"""Asks transformers for the names, logits, losses and gradients that tests/encoder.rs holds the family encoder against.

    python3 encoder.py > encoder.json    (torch 2.13.0, transformers 5.24.0, on the CPU)

Weights and tokens follow from the formula of make.py, which both sides compute exactly, so only answers are stored. The
second text is shorter than the first: where it was filled up, nothing may look.
"""

import json
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification

from make import ramp

torch.set_num_threads(1)

LENGTHS = [6, 4]
DUE = [2, 0]


def answers(heads):
    """Two texts through a model with weights of the ramp, around 1 where they scale a normalisation."""
    config = BertConfig(
        vocab_size=11, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=heads,
        max_position_embeddings=8, type_vocab_size=2, layer_norm_eps=1e-12, num_labels=3, pad_token_id=None,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager", hidden_act="gelu",
    )
    model = BertForSequenceClassification(config)
    names = sorted(name for name, _ in model.named_parameters())
    with torch.no_grad():
        for salt, name in enumerate(names):
            parameter = model.get_parameter(name)
            values = ramp(parameter.numel(), 100 + salt, 0.5).view(parameter.shape)
            parameter.copy_(values + 1 if name.endswith("LayerNorm.weight") else values)
    there = torch.tensor([[int(place < length) for place in range(max(LENGTHS))] for length in LENGTHS])
    rows = [[(i * 5 + 3) % 11 for i in range(6)], [(i * 7 + 1) % 11 for i in range(6)]]
    tokens = torch.tensor(rows) * there
    logits = model(input_ids=tokens, attention_mask=there).logits
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(DUE))
    loss.backward()
    gradients = {name: model.get_parameter(name).grad.flatten().tolist() for name in names}
    return {"names": names, "logits": logits.flatten().tolist(), "loss": loss.item(), "gradients": gradients}


def main():
    json.dump({str(heads): answers(heads) for heads in (1, 4)}, sys.stdout, indent=0, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
