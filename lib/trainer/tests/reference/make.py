#!/usr/bin/env python3
"""Asks PyTorch and transformers for the numbers that tests/reference.rs holds the trainer against.

    python3 make.py > numbers.json        (torch 2.13.0, transformers 5.24.0, on the CPU)

Inputs follow from a formula that both sides compute exactly, so only answers are stored.
"""

import json
import math
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_num_threads(1)


def ramp(count, salt, scale):
    """Value i is ((i * 7919 + salt * 104729) mod 2001 - 1000) / 1000 * scale, in binary32 at the end."""
    numbers = [((i * 7919 + salt * 104729) % 2001 - 1000) / 1000 * scale for i in range(count)]
    return torch.tensor(numbers, dtype=torch.float32)


def optimiser(make, steps=6):
    """Parameters after each step: a 3x4 matrix `a` and a vector `b` of 5, with gradients from the ramp."""
    matrix = torch.nn.Parameter(ramp(12, 1, 1.0).view(3, 4))
    vector = torch.nn.Parameter(ramp(5, 2, 1.0))
    chosen = make([matrix], [vector])
    answers = []
    for step in range(steps):
        matrix.grad = ramp(12, 10 + step, 0.5).view(3, 4)
        vector.grad = ramp(5, 20 + step, 0.5)
        chosen.step()
        answers.append({"a": matrix.detach().flatten().tolist(), "b": vector.detach().tolist()})
    return answers


def grouped():
    """AdamW with the matrix at half the rate and a decay of its own, and the averages of both after each step."""
    holder = torch.nn.Module()
    holder.a = torch.nn.Parameter(ramp(12, 1, 1.0).view(3, 4))
    holder.b = torch.nn.Parameter(ramp(5, 2, 1.0))
    chosen = torch.optim.AdamW(
        [{"params": [holder.a], "lr": 0.05, "weight_decay": 0.3}, {"params": [holder.b], "weight_decay": 0.0}],
        lr=0.1, betas=(0.9, 0.95), eps=1e-8,
    )
    averaged = torch.optim.swa_utils.AveragedModel(
        holder, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8)
    )
    answers = {"values": [], "averages": []}
    for step in range(6):
        holder.a.grad = ramp(12, 10 + step, 0.5).view(3, 4)
        holder.b.grad = ramp(5, 20 + step, 0.5)
        chosen.step()
        averaged.update_parameters(holder)
        for key, of in [("values", holder), ("averages", averaged.module)]:
            answers[key].append({"a": of.a.detach().flatten().tolist(), "b": of.b.detach().tolist()})
    return answers


def groups(matrices, vectors, decay):
    return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]


class Lion(torch.optim.Optimizer):
    """Program 1 of Chen et al., "Symbolic Discovery of Optimization Algorithms", written from the paper's formulas."""

    def __init__(self, params, lr, betas):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            first, second = group["betas"]
            for weights in group["params"]:
                momentum = self.state[weights].setdefault("momentum", torch.zeros_like(weights))
                direction = torch.sign(first * momentum + (1 - first) * weights.grad)
                weights -= group["lr"] * (direction + group["weight_decay"] * weights)
                momentum.copy_(second * momentum + (1 - second) * weights.grad)


def rates(make, steps):
    """Learning rates of the first `steps` updates with a peak of 0.5."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    chosen = torch.optim.SGD([parameter], lr=0.5)
    schedule = make(chosen)
    answers = []
    for _ in range(steps):
        answers.append(chosen.param_groups[0]["lr"])
        chosen.step()
        schedule.step()
    return answers


def risen(chosen, rise, after):
    """A linear rise over `rise` steps from 1/`rise` of the peak, then `after`."""
    lr = torch.optim.lr_scheduler
    first = lr.LinearLR(chosen, start_factor=1 / rise, end_factor=1.0, total_iters=rise - 1)
    return lr.SequentialLR(chosen, [first, after], milestones=[rise - 1])


def factor(chosen, of):
    """`of` gives the factor on the peak, where its argument counts from 0."""
    return torch.optim.lr_scheduler.LambdaLR(chosen, of)


def stable(curve):
    """After a rise over 4 of 12 steps: the peak, and the last 5 steps down to 0.1 of it."""
    return lambda update: 1 - 0.9 * curve(max(0, update + 1 - (12 - 5)) / 5) if update >= 4 else (update + 1) / 4


def clipped_values():
    """Gradients after clip_grad_value_ to 1.5."""
    parameters = [torch.nn.Parameter(torch.zeros(12)), torch.nn.Parameter(torch.zeros(5))]
    parameters[0].grad, parameters[1].grad = ramp(12, 3, 4.0), ramp(5, 4, 4.0)
    torch.nn.utils.clip_grad_value_(parameters, 1.5)
    return {"a": parameters[0].grad.tolist(), "b": parameters[1].grad.tolist()}


def clipping():
    """Gradients after clip_grad_norm_ to 1, and the norm before."""
    parameters = [torch.nn.Parameter(torch.zeros(12)), torch.nn.Parameter(torch.zeros(5))]
    parameters[0].grad, parameters[1].grad = ramp(12, 3, 4.0), ramp(5, 4, 4.0)
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    return {"norm": norm.item(), "a": parameters[0].grad.tolist(), "b": parameters[1].grad.tolist()}


def gpt():
    """Logits, loss and gradients of a small model: two samples of six tokens."""
    config = GPT2Config(
        vocab_size=11, n_positions=6, n_embd=8, n_layer=2, n_head=2, n_inner=20, activation_function="gelu_new",
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=1e-5, initializer_range=0.02,
        attn_implementation="eager", bos_token_id=None, eos_token_id=None,
    )
    model = GPT2LMHeadModel(config)
    names = sorted(name for name, _ in model.named_parameters())
    with torch.no_grad():
        for salt, name in enumerate(names):
            parameter = model.get_parameter(name)
            values = ramp(parameter.numel(), 100 + salt, 0.5).view(parameter.shape)
            parameter.copy_(values + 1 if ".ln_" in name and name.endswith("weight") else values)
    tokens = torch.tensor([[(i * 5 + 3) % 11 for i in range(7)], [(i * 7 + 1) % 11 for i in range(7)]])
    logits = model(tokens[:, :-1]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 11), tokens[:, 1:].reshape(-1))
    loss.backward()
    gradients = {name: model.get_parameter(name).grad.flatten().tolist() for name in names}
    model.zero_grad()
    logits = model(tokens[:, :-1]).logits.reshape(-1, 11)
    smoothed = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].reshape(-1), label_smoothing=0.1)
    smoothed = smoothed + 0.01 * torch.logsumexp(logits, -1).square().mean()
    smoothed.backward()
    of_smoothed = {name: model.get_parameter(name).grad.flatten().tolist() for name in names}
    return {
        "names": names, "logits": logits.flatten().tolist(), "loss": loss.item(), "gradients": gradients,
        "smoothed_loss": smoothed.item(), "smoothed_gradients": of_smoothed,
    }


def main():
    optim, lr = torch.optim, torch.optim.lr_scheduler
    adamw = {"lr": 0.1, "betas": (0.9, 0.95), "eps": 1e-8}
    numbers = {
        "optimisers": {
            "adamw": optimiser(lambda a, b: optim.AdamW(groups(a, b, 0.1), **adamw)),
            "adam": optimiser(lambda a, b: optim.Adam(groups(a, b, 0.1), **adamw)),
            "lion": optimiser(lambda a, b: Lion(groups(a, b, 0.1), lr=0.1, betas=(0.9, 0.95))),
            "adafactor": optimiser(
                lambda a, b: optim.Adafactor(groups(a, b, 0.1), lr=0.1, beta2_decay=-0.7, eps=(1e-4, 0.002), d=1.0)
            ),
            "sgd": optimiser(lambda a, b: optim.SGD(groups(a, b, 0.1), lr=0.1)),
            "momentum": optimiser(lambda a, b: optim.SGD(groups(a, b, 0.1), lr=0.1, momentum=0.9)),
            "nesterov": optimiser(lambda a, b: optim.SGD(groups(a, b, 0.1), lr=0.1, momentum=0.9, nesterov=True)),
        },
        "schedules": {
            "constant": rates(lambda o: risen(o, 4, lr.ConstantLR(o, factor=1.0)), 10),
            "linear": rates(lambda o: risen(o, 4, lr.LinearLR(o, 1.0, 0.2, total_iters=6)), 10),
            "cosine": rates(lambda o: risen(o, 4, lr.CosineAnnealingLR(o, T_max=6, eta_min=0.05)), 10),
            "step": rates(lambda o: risen(o, 4, lr.StepLR(o, step_size=3, gamma=0.3)), 12),
            "inverse-square-root": rates(
                lambda o: risen(o, 4, factor(o, lambda update: math.sqrt(6 / (6 + update)))), 12
            ),
            "inverse-square-root-as-vaswani": rates(
                lambda o: factor(o, lambda update: 2 * min((update + 1) ** -0.5, (update + 1) * 4**-1.5)), 12
            ),
            "warmup-stable-decay-linear": rates(lambda o: factor(o, stable(lambda q: q)), 12),
            "warmup-stable-decay-one-minus-root": rates(lambda o: factor(o, stable(math.sqrt)), 12),
        },
        "grouped": grouped(),
        "clipping": clipping(),
        "clipped_values": clipped_values(),
        "gpt": gpt(),
    }
    json.dump(numbers, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
