"""Fit the models of language models' kernels to public tables and say how well they predict a card left out.

    python benchmarks/fit_kernels.py FOLDER [--only NAME,NAME] [--quick]

FOLDER holds ``gemm.csv.gz``, ``layers.csv``, ``models.csv``, ``attention.csv.gz``, ``moe.csv``,
``allreduce.csv`` and ``vidur_llm_layer_ops.csv``; they are not part of this repository. Each family is fitted
on all chips but one and judged on that one's cards, by size; beside it stands the data sheet's roofline. Then
come the constants fitted on all cards, to be copied to where ``Family.home`` says, and the factors of the 90 %
intervals: what holds 91 % of the errors on cards left out, each card counting the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kernel_families import Family, families
from kernel_tables import Array, Calls
from scipy.optimize import minimize

from analyzer.prediction.gpu.constants import SIZES_S

SIZES = ("up to 20 us", "to 200 us", "over 200 us")
# The middle of the 85 to 97 % that each card is wanted to have inside its intervals.
INSIDE = 0.91
# Errors count up to this in a fit: the bulk decides, not what cannot be explained.
MOST = 0.7
STAY = 0.003


def of_size(seconds: Array) -> list[Array]:
    """Which calls are of each class of size."""
    size = np.searchsorted(SIZES_S, seconds)
    return [size == number for number in range(len(SIZES))]


def kinds(family: Family, calls: Calls, error: Array) -> list[tuple[str, Array]]:
    """Classes that have an interval of their own: by predicted size, what is rare apart."""
    rare = family.rare(calls) if family.rare else np.zeros(error.size, dtype=bool)
    sizes = of_size(calls.seconds * np.exp(error))
    found = [(size, chosen & ~rare) for size, chosen in zip(SIZES, sizes, strict=True)]
    return found + [(f"rare, {size}", chosen & rare) for size, chosen in zip(SIZES, sizes, strict=True)]


def fit(family: Family, calls: Sequence[Calls], rounds: int, most: int, evaluations: int) -> dict[str, float]:
    """Constants that make the mean absolute logarithm of the error least; cards and sizes count the same."""
    names = [item[0] for item in family.parameters]
    if not names:
        return {}
    start, low, high = (np.log([item[place] for item in family.parameters]) for place in (1, 2, 3))
    generator = np.random.default_rng(0)
    thinned = [one.some(generator.permutation(one.seconds.size)[:most]) for one in calls]

    def loss(point: Array) -> float:
        inside = np.clip(point, low, high)
        values = dict(zip(names, np.exp(inside).tolist(), strict=True))
        each, weights = [], []
        for one in thinned:
            error = np.minimum(np.abs(np.log(family.predict(one, values) / one.seconds)), MOST)
            for chosen in of_size(one.seconds):
                if chosen.sum() > 5:
                    each.append(error[chosen].mean())
                    weights.append(one.weight)
        # What no card determines stays where it was.
        drift = STAY * ((inside - start) ** 2).sum()
        return float(np.average(each, weights=weights) + np.abs(point - inside).sum() + drift)

    begin = start
    for turn in range(rounds):  # to one side, then to the other: a single search may end in a hollow
        simplex = np.vstack([begin, *(begin + 0.25 * (-1) ** turn * step for step in np.eye(len(begin)))])
        options: Any = {"initial_simplex": simplex, "maxfev": evaluations, "adaptive": True}
        begin = minimize(loss, begin, method="Nelder-Mead", options=options).x
    return dict(zip(names, np.exp(np.clip(begin, low, high)).tolist(), strict=True))


def left_out(family: Family, quick: bool) -> None:
    """Errors on the cards of each chip, with constants that were fitted without it."""
    rounds, most, evaluations = (1, 200, 150) if quick else (2, 500, 600)
    for chip in dict.fromkeys(one.chip for one in family.calls):
        others = [one for one in family.calls if one.chip != chip]
        # A family known of one chip alone has nothing to learn from.
        values = fit(family, others or family.calls, rounds, most, evaluations)
        for one in family.calls:
            if one.chip == chip:
                family.errors.append((one, np.log(family.predict(one, values) / one.seconds)))


def factor(errors: Sequence[Array]) -> float:
    """What holds ``INSIDE`` of the errors, either way, each card counting the same."""
    found = [error for error in errors if error.size > 5]
    if not found:
        return float("nan")
    sizes = np.concatenate([np.abs(error) for error in found])
    weights = np.concatenate([np.full(error.size, 1.0 / error.size) for error in found])
    order = np.argsort(sizes)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(np.exp(sizes[order][np.searchsorted(reached, INSIDE)]))


def told(family: Family) -> None:
    """A line for each card, then one for each size over all cards with the factor of its interval.

    *inside* has a factor learnt from the other chips' errors, *told* the program's own interval around what was
    predicted without the card.
    """
    print(f"\n### {family.name}\n")
    print("| card left out | n | " + " | ".join(SIZES) + " | all | bias | within 2x | inside | told | naive |")
    print("|---|---|" + "---|" * (len(SIZES) + 6))
    for one, error in family.errors:
        others = [item for item in family.errors if item[0].chip != one.chip] or family.errors
        cells = [
            f"{np.median(np.abs(error[chosen])):.0%}" if chosen.sum() > 5 else "-"
            for chosen in of_size(one.seconds)
        ]
        inside, in_told = (np.zeros(error.size, dtype=bool) for _ in range(2))
        for number, (_, chosen) in enumerate(kinds(family, one, error)):
            wide = factor([other[kinds(family, calls, other)[number][1]] for calls, other in others])
            inside[chosen] = np.abs(error[chosen]) <= np.log(wide)
            below, above = family.widths[number % len(family.widths)]
            in_told[chosen] = (error[chosen] <= np.log(below)) & (error[chosen] >= -np.log(above))
        naive = np.median(np.abs(np.log(family.naive(one) / one.seconds)))
        print(
            f"| {one.name} | {error.size} | " + " | ".join(cells) + f" | {np.median(np.abs(error)):.0%}"
            f" | {np.exp(np.median(error)):.2f} | {np.mean(np.abs(error) < np.log(2)):.0%}"
            f" | {inside.mean():.0%} | {in_told.mean():.0%} | {naive:.0%} |"
        )
    print()
    for number, size in enumerate(SIZES):
        whole = np.concatenate([error[of_size(one.seconds)[number]] for one, error in family.errors])
        if whole.size:
            print(f"measured {size}: {whole.size}, median {np.median(np.abs(whole)):.1%}")
    for number in range(2 * len(SIZES)):
        classes = [kinds(family, one, error)[number] for one, error in family.errors]
        found = [error[chosen] for (_, chosen), (_, error) in zip(classes, family.errors, strict=True)]
        if sum(each.size for each in found):
            print(f"predicted {classes[0][0]}: {sum(each.size for each in found)}, factor {factor(found):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="names of families, comma-separated")
    parser.add_argument("--quick", action="store_true", help="fewer calls and evaluations")
    given = parser.parse_args()
    wanted = given.only.split(",")
    for family in families(given.folder):
        if not any(name in family.name for name in wanted):
            continue
        left_out(family, given.quick)
        told(family)
        values = fit(family, family.calls, *((1, 200, 150) if given.quick else (3, 500, 700)))
        print(f"{family.home}: " + ", ".join(f"{name} {value:.4g}" for name, value in values.items()))


if __name__ == "__main__":
    main()
