#!/usr/bin/env python3
"""Asks transformers for the names, logits, losses and gradients that tests/llama.rs holds the family llama against.

    python3 llama.py > llama.json        (torch 2.13.0, transformers 5.24.0, on the CPU)

Weights and tokens follow from the formula of make.py, which both sides compute exactly, so only answers are stored.
"""

import json
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from make import ramp

torch.set_num_threads(1)

# Heads, heads of keys and values, whether the output layer is tied, rotary base.
KINDS = {"grouped": (4, 2, False, 10000.0), "single": (2, 1, True, 500.0), "each": (2, 2, False, 10000.0)}


def answers(heads, shared, tied, base):
    """Two samples of six tokens through a model with weights of the ramp, around 1 where they scale a normalisation."""
    config = LlamaConfig(
        vocab_size=11, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=heads,
        num_key_value_heads=shared, max_position_embeddings=6, rms_norm_eps=1e-5, tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": base}, attn_implementation="eager", hidden_act="silu",
        bos_token_id=None, eos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    names = sorted(name for name, _ in model.named_parameters())
    with torch.no_grad():
        for salt, name in enumerate(names):
            parameter = model.get_parameter(name)
            values = ramp(parameter.numel(), 100 + salt, 0.5).view(parameter.shape)
            parameter.copy_(values + 1 if "norm" in name else values)
    tokens = torch.tensor([[(i * 5 + 3) % 11 for i in range(7)], [(i * 7 + 1) % 11 for i in range(7)]])
    logits = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 11), tokens[:, 1:].reshape(-1))
    loss.backward()
    gradients = {name: model.get_parameter(name).grad.flatten().tolist() for name in names}
    return {"names": names, "logits": logits.flatten().tolist(), "loss": loss.item(), "gradients": gradients}


def main():
    json.dump({name: answers(*kind) for name, kind in KINDS.items()}, sys.stdout, indent=0, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
