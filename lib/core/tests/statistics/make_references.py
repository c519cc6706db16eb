#!/usr/bin/env python3
"""Writes cases.json: what SciPy and statsmodels answer, for tests/statistics.rs to agree with.

Run it with no arguments from anywhere. It makes a virtual environment in a temporary folder and installs the versions
named below into it, so nothing else is needed. The cases are drawn with fixed seeds: a second run writes the same file.
"""

import json
import os
import random
import sys

PACKAGES = ["numpy==2.4.6", "scipy==1.15.3", "statsmodels==0.15.0"]
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "common"))
from references import run_with, words  # noqa: E402 (it lies beside the tests, not on the path)


def make():
    import itertools

    import numpy as np
    from scipy import integrate, optimize, stats
    from scipy.special import gammaln
    from statsmodels.stats.multitest import multipletests
    from statsmodels.stats.power import TTestPower
    from statsmodels.stats.weightstats import ttost_paired

    draw = random.Random(7)
    cases = {"made_with": PACKAGES}

    cases["t"] = [
        {"t": t, "freedom": v, "two_sided": 2 * stats.t.sf(abs(t), v), "upper": stats.t.sf(t, v)}
        for v in [1, 2, 3, 4, 5, 7.5, 9, 19, 30.25, 99, 1000, 123456]
        for t in [-40.0, -2.0, -0.3, 1e-9, 0.01, 0.5, 1.0, 1.96, 3.5, 12.0, 400.0]
    ]
    cases["quantile"] = [
        {"tail": p, "freedom": v, "t": stats.t.isf(p / 2, v)}
        for v in [1, 2, 3, 5, 9, 12.34, 40, 1000]
        for p in [1e-8, 0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 0.9]
    ]
    cases["noncentral"] = [
        {"t": t, "freedom": v, "delta": d, "lower": stats.nct.cdf(t, v, d)}
        for v in [1, 2, 5, 9, 31, 200]
        for d in [-3.0, 0.0, 0.5, 2.0, 6.0]
        for t in [-2.0, 0.0, 0.7, 2.2, 7.0]
        # SciPy gives up on a few of them; they prove nothing.
        if 1e-6 < stats.nct.cdf(t, v, d) < 1 - 1e-9
    ]

    def border(start, step, side):
        """Where `side` changes its sign, looked for from `start` on; SciPy answers NaN too far out."""
        while side(start) * side(start + step) > 0:
            start += step
        return optimize.brentq(side, *sorted([start, start + step]), xtol=1e-14, rtol=1e-14)

    def noncentrality(t, v, level):
        low = border(t, -0.25, lambda delta: stats.nct.sf(t, v, delta) - level / 2)
        high = border(t, 0.25, lambda delta: stats.nct.cdf(t, v, delta) - level / 2)
        return [low, high]

    def flips(d):
        signs = np.array(list(itertools.product([1, -1], repeat=len(d))))
        return signs @ d

    def bootstrap(d, seed, count, level):
        stream = words(seed, "bootstrap")
        n = len(d)
        means = [sum(d[next(stream) * n >> 64] for _ in range(n)) / n for _ in range(count)]
        return list(np.quantile(means, [level / 2, 1 - level / 2]))

    lists = [[round(draw.gauss(shift, 1.0), 3) for _ in range(n)] for n in (3, 4, 5, 6, 8, 10, 14) for shift in (0, 1, -2)]
    # Accuracies on 100 examples: many ties, a zero among the differences.
    lists += [[0.01, 0.01, -0.01, 0.02, 0.0, 0.03, 0.01], [0.83 - 0.81, 0.63 - 0.61, 0.7 - 0.72, 0.5 - 0.48]]
    cases["paired"] = []
    for d in lists:
        level, margin = draw.choice([0.05, 0.1, 0.01]), draw.choice([0.02, 0.5, 1.5])
        n, mean, deviation = len(d), float(np.mean(d)), float(np.std(d, ddof=1))
        test = stats.ttest_1samp(d, 0.0)
        interval = test.confidence_interval(1 - level)
        v = n - 1
        factor = float(np.exp(gammaln(v / 2) - gammaln((v - 1) / 2)) / np.sqrt(v / 2)) if v > 1 else None
        ends = noncentrality(float(test.statistic), v, level)
        higher, lower = sum(x > 0 for x in d), sum(x < 0 for x in d)
        exact = stats.permutation_test(
            (d,), lambda x: np.mean(x), permutation_type="samples", vectorized=False, n_resamples=np.inf
        )
        one_sided = lambda x: stats.permutation_test(
            (x,), lambda y: np.mean(y), permutation_type="samples", vectorized=False, n_resamples=np.inf, alternative="greater"
        ).pvalue
        cases["paired"].append({
            "values": d,
            "level": level,
            "margin": margin,
            "mean": mean,
            "deviation": deviation,
            "t": float(test.statistic),
            "p": float(test.pvalue),
            "interval": [float(interval.low), float(interval.high)],
            "g": factor * mean / deviation if factor else None,
            "g_interval": [factor * e / np.sqrt(n) for e in ends] if factor else None,
            "sign": float(stats.binomtest(higher, higher + lower).pvalue),
            "sign_flip": float(exact.pvalue),
            "tost": float(ttost_paired(np.array(d), np.zeros(n), -margin, margin)[0]),
            "flip_tost": float(max(one_sided(np.array(d) + margin), one_sided(margin - np.array(d)))),
            "bootstrap": [float(e) for e in bootstrap(d, 11, 400, level)],
        })

    many = [round(draw.gauss(0.4, 1.0), 2) for _ in range(19)]
    sums = flips(np.array(many))
    cases["nineteen"] = {"values": many, "sign_flip": float(np.mean(np.abs(sums) >= abs(sum(many)) - 1e-9))}

    cases["crossed"] = []
    for n, m in [(3, 20), (6, 50), (10, 7)]:
        table = np.array([[draw.gauss(0.5, 0.3) + 0.4 * e for e in range(m)] for _ in range(n)]) + 0.0
        seeds, examples = table.mean(axis=1), table.mean(axis=0)
        f1 = seeds.mean() ** 2 / (seeds.var(ddof=1) / n)
        f2 = examples.mean() ** 2 / (examples.var(ddof=1) / m)
        t = float(np.sqrt(f1 * f2 / (f1 + f2)))
        freedom = float((f1 + f2) ** 2 / (f1**2 / (m - 1) + f2**2 / (n - 1)))
        cases["crossed"].append({
            "seeds": [float(x) for x in seeds],
            "examples": [float(x) for x in examples],
            "t": t,
            "freedom": freedom,
            "p": float(2 * stats.t.sf(t, freedom)),
        })

    cases["holm"] = []
    for n in (1, 2, 3, 7):
        p = [round(draw.random() ** 3, 4) for _ in range(n)]
        cases["holm"].append({"p": p, "adjusted": [float(x) for x in multipletests(p, method="holm")[1]]})

    cases["power"] = [
        {"effect": e, "pairs": n, "level": a, "power": float(TTestPower().power(e, n, a))}
        for e in (0.1, 0.5, 0.8, 1.5)
        for n in (3, 6, 20, 150)
        for a in (0.05, 0.01)
        # SciPy has no answer for large effects.
        if not np.isnan(TTestPower().power(e, n, a))
    ]

    def equivalence_power(effect, margin, n, level):
        v = n - 1
        border = stats.t.isf(level, v)
        low, high = (-margin - effect) * np.sqrt(n), (margin - effect) * np.sqrt(n)
        last = (high - low) / (2 * border)
        density = stats.chi(v, scale=1 / np.sqrt(v)).pdf
        inner = lambda s: (stats.norm.cdf(high - border * s) - stats.norm.cdf(low + border * s)) * density(s)
        points = [p for p in (0.3, 0.7, 1.0, 1.3) if p < last]
        return integrate.quad(inner, 0, min(last, 12), points=points, epsabs=1e-13, epsrel=1e-12, limit=400)[0]

    cases["equivalence_power"] = [
        {"effect": e, "margin": m, "pairs": n, "level": a, "power": float(equivalence_power(e, m, n, a))}
        for e in (0.0, 0.3)
        for m in (0.5, 1.0)
        for n in (4, 10, 40, 120)
        for a in (0.05, 0.025)
    ]

    def solved(effect, level, power):
        least = next(n for n in range(1, 2000) if 2.0 ** (1 - n) <= level)
        return next(n for n in range(max(least, 2), 10**6) if TTestPower().power(effect, n, level) >= power)

    cases["needed"] = [
        {"effect": e, "level": a, "power": w, "pairs": solved(e, a, w)}
        for e in (0.2, 0.5, 1.0)
        for a in (0.05, 0.01)
        for w in (0.8, 0.95)
    ]
    with open(os.path.join(HERE, "cases.json"), "w") as file:
        json.dump(cases, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    make() if sys.argv[1:] == ["--make"] else run_with(PACKAGES, __file__)
