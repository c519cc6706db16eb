#!/usr/bin/env python3
"""Asks PyTorch for the outputs, losses and gradients that tests/families.rs holds mlp, cnn and the losses against.

    python3 families.py > families.json        (torch 2.13.0, on the CPU)

Weights and inputs follow from the formula of make.py, which both sides compute exactly, so only answers are stored.
"""

import json
import sys

import torch
from torch import nn

from make import ramp

torch.set_num_threads(1)


class Network(nn.Module):
    """Convolutions with the activation and pooling behind each, then linear layers with the activation in between."""

    def __init__(self, convolutions, sizes, activation):
        super().__init__()
        self.pools = [pool for *_, pool in convolutions]
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, channels, kernel, stride, padding)
            for before, channels, kernel, stride, padding, _ in convolutions
        )
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))
        self.activation = activation

    def forward(self, stream):
        for convolution, pool in zip(self.convolutions, self.pools):
            stream = self.activation(convolution(stream))
            if pool > 1:
                stream = nn.functional.max_pool2d(stream, pool)
        stream = stream.flatten(1)
        for index, layer in enumerate(self.layers):
            stream = layer(stream)
            if index + 1 < len(self.layers):
                stream = self.activation(stream)
        return stream


ACTIVATIONS = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "gelu": lambda value: nn.functional.gelu(value, approximate="tanh"),
}



def smoothed(out, due):
    """Label smoothing, and the mean square of the logarithm of the denominator."""
    return nn.functional.cross_entropy(out, due, label_smoothing=0.1) + 0.01 * out.logsumexp(-1).square().mean()


# Loss, and what is due of five samples.
LOSSES = {
    "cross-entropy": (nn.functional.cross_entropy, torch.tensor([0, 2, 1, 1, 2])),
    "smoothed": (smoothed, torch.tensor([0, 2, 1, 1, 2])),
    "binary-cross-entropy": (nn.functional.binary_cross_entropy_with_logits, torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0])),
    "mean-squared-error": (nn.functional.mse_loss, ramp(5, 7, 2.0)),
    "huber": (lambda out, due: nn.functional.huber_loss(out, due, delta=0.5), ramp(5, 7, 2.0)),
}


def answers(network, seen, loss):
    """The network with weights of the ramp, parameter by parameter in the order of their names."""
    named = sorted(network.named_parameters())
    for salt, (_, parameter) in enumerate(named):
        parameter.data = ramp(parameter.numel(), 100 + salt, 0.5).view(parameter.shape)
    outputs = network(seen)
    function, due = LOSSES[loss]
    value = function(outputs if due.dtype == torch.int64 else outputs.flatten(), due)
    value.backward()
    return {
        "outputs": outputs.detach().flatten().tolist(),
        "loss": value.item(),
        "gradients": {name: parameter.grad.flatten().tolist() for name, parameter in named},
    }


def main():
    found = {}
    for loss in LOSSES:
        outputs = 3 if loss in ("cross-entropy", "smoothed") else 1
        for name, activation in ACTIVATIONS.items():
            mlp = Network([], [4, 6, 5, outputs], activation)
            found[f"mlp/{loss}/{name}"] = answers(mlp, ramp(20, 50, 1.0).view(5, 4), loss)
            cnn = Network([(2, 3, 3, 1, 1, 2), (3, 4, 2, 2, 0, 1)], [4 * 2 * 1, 5, outputs], activation)
            found[f"cnn/{loss}/{name}"] = answers(cnn, ramp(5 * 2 * 8 * 5, 60, 1.0).view(5, 2, 8, 5), loss)
    json.dump(found, sys.stdout, indent=0, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
