#!/usr/bin/env python3
"""The same training as plain PyTorch: what a careful user would write, in eager mode, with no evidence at all.

    eager.py JOB.json     prints {"losses": […], "nanoseconds": […]}, a value a step

The job names a candidate, files with the tensors of the state after its first step, and the data. Batches are those of
the candidate with the order `sequential`.
"""

import json
import struct
import sys
import time

import numpy
import torch
from torch import nn
from torch.nn import functional as F


def tensors(path):
    """The tensors of a safetensors file, by name."""
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    header.pop("__metadata__", None)
    read = lambda entry: numpy.frombuffer(body[slice(*entry["data_offsets"])], dtype="<f4").reshape(entry["shape"])
    return {name: torch.from_numpy(read(entry).copy()) for name, entry in header.items()}


class Block(nn.Module):
    def __init__(self, width, inner, heads, epsilon):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width, epsilon), nn.LayerNorm(width, epsilon)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, inner), "c_proj": nn.Linear(inner, width)})

    def forward(self, stream):
        samples, time, width = stream.shape
        parts = self.attn["c_attn"](self.ln_1(stream)).split(width, dim=2)
        query, key, value = (part.view(samples, time, self.heads, -1).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        stream = stream + self.attn["c_proj"](seen.transpose(1, 2).reshape(samples, time, width))
        return stream + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(stream)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, model):
        super().__init__()
        width, epsilon = model["width"], model["layer_norm_epsilon"]
        self.wte, self.wpe = nn.Embedding(model["vocabulary"], width), nn.Embedding(model["context"], width)
        self.h = nn.ModuleList(
            Block(width, model["inner"], model["heads"], epsilon) for _ in range(model["layers"])
        )
        self.ln_f = nn.LayerNorm(width, epsilon)

    def forward(self, tokens):
        stream = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            stream = block(stream)
        return F.linear(self.ln_f(stream), self.wte.weight).flatten(0, 1)

    @staticmethod
    def ours(name, tensor):
        """Name and values as xt keeps them: linear layers as (in, out)."""
        return "transformer." + name, tensor.t() if ".attn." in name or ".mlp." in name else tensor


class Images(nn.Module):
    """Convolutions, if there are any, then fully connected layers."""

    def __init__(self, model):
        super().__init__()
        self.shape = [-1, model.get("channels", 1), model.get("height", 1), model.get("width", 1)]
        self.described = model.get("convolutions", [])
        channels = self.shape[1]
        self.convolutions = nn.ModuleList()
        for one in self.described:
            self.convolutions.append(nn.Conv2d(channels, one["channels"], one["kernel"], one["stride"], one["padding"]))
            channels = one["channels"]
        inputs = model.get("inputs")
        if inputs is None:
            with torch.no_grad():
                inputs = self.features(torch.zeros(1, *self.shape[1:])).shape[1]
        sizes = [inputs, *model["widths"], model["outputs"]]
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in zip(sizes, sizes[1:]))

    def features(self, stream):
        for one, layer in zip(self.described, self.convolutions):
            stream = F.relu(layer(stream))
            if one["pool"] > 1:
                stream = F.max_pool2d(stream, one["pool"])
        return stream.flatten(1)

    def forward(self, stream):
        if self.described:
            stream = self.features(stream.view(self.shape))
        for layer in self.layers[:-1]:
            stream = F.relu(layer(stream))
        return self.layers[-1](stream)

    @staticmethod
    def ours(name, tensor):
        return name, tensor


def batches(job):
    """Endless batches in order: inputs and targets."""
    count, model = job["candidate"]["batching"]["samples"], job["candidate"]["model"]
    if model["kind"] == "gpt":
        tokens = torch.frombuffer(bytearray(open(job["data"][0], "rb").read()), dtype=torch.uint8).long()
        context = model["context"]
        samples = (len(tokens) - 1) // context
        seen = tokens[: samples * context].view(samples, context)
        due = tokens[1 : samples * context + 1].view(samples, context)
    else:
        images, labels = (numpy.fromfile(path, dtype="u1") for path in job["data"])
        seen = torch.from_numpy(images[16:].astype("f4").reshape(len(labels) - 8, -1))
        due = torch.from_numpy(labels[8:].astype("i8"))
    while True:
        for start in range(0, len(seen) - count + 1, count):
            yield seen[start : start + count], due[start : start + count].flatten()


def optimizer(job, model):
    settings = job["candidate"]["optimizer"]
    matrices = [one for one in model.parameters() if one.dim() >= 2]
    others = [one for one in model.parameters() if one.dim() < 2]
    groups = [{"params": matrices, "weight_decay": settings["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(
        groups,
        lr=settings["learning_rate"],
        betas=(settings["beta1"], settings["beta2"]),
        eps=settings["epsilon"],
        fused=job["fused"] or None,
    )


def start(job, model, adam):
    """Puts the state after the first step into place."""
    values, moments = (tensors(path) for path in job["state"])
    for name, parameter in model.named_parameters():
        name = model.ours(name, parameter)[0]
        turned = lambda tensor: model.ours(name.removeprefix("transformer."), tensor)[1].contiguous()
        parameter.data.copy_(turned(values[name]))
        first, second = (turned(moments[kind + name]) for kind in ("first_moment/", "second_moment/"))
        adam.state[parameter] = {"step": torch.tensor(1.0), "exp_avg": first, "exp_avg_sq": second}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        job = json.load(file)
    torch.set_num_threads(job["candidate"]["execution"]["threads"])
    described = job["candidate"]["model"]
    model = Gpt(described) if described["kind"] == "gpt" else Images(described)
    adam = optimizer(job, model)
    start(job, model, adam)
    source = batches(job)
    next(source)  # of the first step
    losses, nanoseconds = [], []
    for _ in range(job["steps"]):
        begun = time.perf_counter_ns()
        seen, due = next(source)
        adam.zero_grad()
        loss = F.cross_entropy(model(seen), due)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), job["candidate"]["clipping"]["maximum"])
        adam.step()
        losses.append(loss.item())
        nanoseconds.append(time.perf_counter_ns() - begun)
    json.dump({"losses": losses, "nanoseconds": nanoseconds}, sys.stdout)


main()
