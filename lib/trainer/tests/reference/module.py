#!/usr/bin/env python3
"""Writes module.pt, a small module of TorchScript with everything that a run must remember, and module.json, its tensors.

    python3 module.py

Its buffers change in place (those of the normalisation and the count) and by assignment (the mean), and it draws, by dropout
and by itself, when it is trained.
"""

import json
import os

import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 8)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.2)
        self.last = nn.Linear(8, 3)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        hidden = self.dropout(torch.relu(self.norm(self.first(rows))))
        if self.training:
            hidden = hidden + 0.01 * torch.randn_like(hidden)
            self.count += 1
        outputs = self.last(hidden)
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * outputs.detach().mean(0)
        return outputs - 0.1 * self.mean


def tensors(module):
    """What a candidate declares of a module."""
    named = lambda pairs: [{"name": name, "shape": list(tensor.shape)} for name, tensor in pairs]
    return {"parameters": named(module.named_parameters()), "buffers": named(module.named_buffers())}


def main():
    torch.manual_seed(1)
    module = torch.jit.script(Small())
    torch.jit.save(module, os.path.join(HERE, "module.pt"))
    with open(os.path.join(HERE, "module.json"), "w", encoding="ascii") as out:
        json.dump(tensors(module), out)
        out.write("\n")


if __name__ == "__main__":
    main()
