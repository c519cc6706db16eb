#!/usr/bin/env python3
"""Writes cases.json: what SciPy and NumPy answer about made-up branches, for tests/calibration.rs to agree with.

Run it with no arguments from anywhere. It makes a virtual environment in a temporary folder and installs the versions
named below into it, so nothing else is needed. The cases are drawn with fixed seeds: a second run writes the same file.
Generator and resampling are written here from their description, not from the code that is tested.
"""

import hashlib
import json
import os
import random
import sys

PACKAGES = ["numpy==2.4.6", "scipy==1.15.3"]
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "common"))
from references import run_with, words  # noqa: E402 (it lies beside the tests, not on the path)
MEASURES = ["rank-agreement", "top-agreement", "regret", "disagreement", "coverage", "error-95", "error-99",
            "error-worst", "failures", "rank-stability"]


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def made_up(draw, trajectories, states, arms, horizons, noise, gaps):
    """States with effects whose error grows with the horizon, some of them tied, missing or failed."""
    all_states = []
    for trajectory in range(trajectories):
        for state in range(states):
            made = []
            for arm in range(arms):
                effect = round(draw.gauss(0, 0.1), 2)
                exact = [round(effect * (1 + 0.1 * place), 4) for place in range(len(horizons))]
                worlds, failed = [], []
                for world in range(3):
                    if gaps and world == 1 and draw.random() < 0.3:
                        worlds.append(None)
                        failed.append(None)
                        continue
                    values = [round(value + draw.gauss(0, noise * (1 + place)), 3) for place, value in enumerate(exact)]
                    broken = gaps and draw.random() < 0.1
                    worlds.append([None if broken else value for value in values])
                    failed.append(broken)
                made.append({"name": f"arm {arm}", "exact": exact, "worlds": worlds, "failed": failed})
            name = f"{trajectory} {state}"
            all_states.append({"root": f"root {trajectory}", "snapshot": f"snapshot {name}", "horizons": horizons, "arms": made})
    return all_states


def figures(chosen, case):
    """All measures of a list of (state, arms)."""
    import numpy as np
    from scipy import stats

    def tau(one, other):
        if len(set(one)) < 2 or len(set(other)) < 2:
            return None
        return float(stats.kendalltau(one, other, variant="b").statistic)

    cases, stability, failed = [], [], []
    for state, arms in chosen:
        failed += [False] * 3 + [flag for arm in arms for flag in arm["failed"] if flag is not None]
        for place, horizon in enumerate(state["horizons"]):
            value = lambda arm, world: arm["worlds"][world] and arm["worlds"][world][place]
            for world in range(3):
                pairs = [(arm["exact"][place], value(arm, world)) for arm in arms if value(arm, world) is not None]
                if pairs:
                    cases.append((horizon, np.array(pairs)))
                for other in range(world + 1, 3):
                    both = [(value(arm, world), value(arm, other)) for arm in arms]
                    both = [(0.0, 0.0)] + [pair for pair in both if None not in pair]
                    stability.append(tau(*zip(*both)))
    with_no_op = [np.vstack([[0.0, 0.0], pairs]) for _, pairs in cases]
    mean = lambda values: float(np.mean(values)) if len(values) else None
    known = lambda values: [value for value in values if value is not None]
    regrets = [float(pairs[np.argmin(pairs[:, 1]), 0] - pairs[:, 0].min()) for pairs in with_no_op]
    pairs = np.vstack([pairs for _, pairs in cases]) if cases else np.zeros((0, 2))
    errors = np.abs(pairs[:, 1] - pairs[:, 0])
    accepted = pairs < -case["threshold"]
    covered, spreads = [], {}
    for horizon in sorted({horizon for horizon, _ in cases}):
        off = np.concatenate([pairs[:, 1] - pairs[:, 0] for at, pairs in cases if at == horizon])
        spreads[horizon] = float(np.sqrt(np.mean(off**2)))
        for place in range(len(off)) if len(off) > 1 else ():
            sigma = np.sqrt(np.mean(np.delete(off, place) ** 2))
            covered.append(abs(off[place]) <= case["kappa"] * sigma)
    rank = lambda share: float(np.quantile(errors, share, method="inverted_cdf")) if len(errors) else None
    found = [
        mean(known([tau(pairs[:, 0], pairs[:, 1]) for pairs in with_no_op])),
        mean([regret <= 0 for regret in regrets]),
        mean(regrets),
        mean(accepted[:, 0] != accepted[:, 1]),
        mean(covered),
        rank(0.95),
        rank(0.99),
        float(errors.max()) if len(errors) else None,
        mean(failed),
        mean(known(stability)),
    ]
    return dict(zip(MEASURES, found)), spreads


def resample(states, draws):
    """Trajectories, in each of them states, in each of them branches; every list in the order of its digests or names."""
    place = lambda count: [next(draws) * count >> 64 for _ in range(count)]
    by_root = {}
    for state in sorted(states, key=lambda state: sha(state["snapshot"])):
        by_root.setdefault(sha(state["root"]), []).append(state)
    trajectories = [by_root[root] for root in sorted(by_root)]
    chosen = []
    for trajectory in place(len(trajectories)):
        inside = trajectories[trajectory]
        for state in place(len(inside)):
            arms = inside[state]["arms"]
            chosen.append((inside[state], [arms[arm] for arm in place(len(arms))]))
    return chosen


def make():
    import numpy as np

    draw = random.Random(11)
    cases = []
    for shape in [(1, 1, 5, [1, 3, 5], 0.02, False), (1, 2, 4, [10, 50], 0.08, True), (3, 2, 6, [2, 9], 0.05, True),
                  (4, 1, 3, [7], 0.3, False)]:
        case = {"seed": len(cases) + 1, "count": 200, "kappa": 2.0, "threshold": 0.03, "states": made_up(draw, *shape)}
        whole = [(state, state["arms"]) for state in case["states"]]
        values, spreads = figures(whole, case)
        drawn = [figures(resample(case["states"], words(case["seed"], "calibration", turn)), case)[0]
                 for turn in range(case["count"])]
        case["expect"] = {}
        for measure in MEASURES:
            found = sorted(one[measure] for one in drawn if one[measure] is not None)
            low, high = (float(np.quantile(found, share, method="inverted_cdf")) for share in (0.025, 0.975))
            case["expect"][measure] = {"value": values[measure], "low": low, "high": high}
        case["spreads"] = [{"horizon": horizon, "sigma": sigma} for horizon, sigma in sorted(spreads.items())]
        cases.append(case)
    with open(os.path.join(HERE, "cases.json"), "w") as file:
        json.dump({"made_with": PACKAGES, "cases": cases}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    make() if sys.argv[1:] == ["--make"] else run_with(PACKAGES, __file__)
