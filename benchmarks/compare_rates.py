"""How often a gate over 50 timings finds a slowdown of a fifth, and how often it alarms without one.

    PYTHONPATH=src python benchmarks/compare_rates.py [ROUNDS]

Simulated calls: log-normal, 5 % spread, one in ten held up to 1.3 to 3 times its length. Threshold 5 %, alpha 5 %.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

from parproof.evidence.compare import bounds
from parproof.evidence.compare.times import _verdict

NUM_TIMINGS, THRESHOLD, ALPHA = 50, 0.05, 0.05
CASES = [
    (1, 10, 0.0),
    (1, 20, 0.0),
    (1, 30, 0.0),
    (1, 20, 0.02),
    (1, 20, 0.05),
    (3, 20, 0.02),
    (5, 20, 0.02),
    (5, 20, 0.05),
]


def calls(chance: random.Random, num_repeats: int, scale: float) -> list[float]:
    """One run of one operation."""
    held = [chance.uniform(1.3, 3) if chance.random() < 0.1 else 1.0 for _ in range(num_repeats)]
    return [scale * one * chance.lognormvariate(0, 0.05) for one in held]


def gate(chance: random.Random, num_runs: int, num_repeats: int, between: float) -> Iterator[str]:
    """Verdicts; the first timing is the slow one."""
    sides = [
        [
            [calls(chance, num_repeats, scale * chance.lognormvariate(0, between)) for _ in range(num_runs)]
            for scale in (1.0, 1.2 if place == 0 else 1.0)
        ]
        for place in range(NUM_TIMINGS)
    ]
    each = bounds.alpha_of_each([bounds.attainable(*side) for side in sides], ALPHA)
    factors = [bounds.factor(*side) for side in sides]
    spread = bounds.scatter(factors) if num_runs == 1 else None
    for side, factor in zip(sides, factors, strict=True):
        reach = bounds.bounds(*side, each)
        if reach is not None:
            reach = bounds.widened(reach, factor, spread, each)
        yield _verdict(factor, reach, THRESHOLD)[0]


def main() -> None:
    """One row a case."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    for num_runs, num_repeats, between in CASES:
        chance = random.Random(17)
        found = [list(gate(chance, num_runs, num_repeats, between)) for _ in range(rounds)]
        hit = sum(verdicts[0] == "slower" for verdicts in found) / rounds
        false = sum("slower" in verdicts[1:] for verdicts in found) / rounds
        print(f"| {num_runs} | {num_repeats} | {between:.0%} | {hit:.0%} | {false:.1%} |", flush=True)


if __name__ == "__main__":
    main()
