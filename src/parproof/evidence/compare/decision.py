"""accept, tune, reject or pending: what may be decided from a comparison, why, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parproof.evidence.compare import correctness, traffic
from parproof.evidence.compare.correctness import worst
from parproof.evidence.compare.factors import Equality
from parproof.evidence.compare.pairing import Pair
from parproof.evidence.compare.runs import Run, fields_of, level_place
from parproof.evidence.compare.times import Comparison, Times
from parproof.evidence.level import may_claim_performance

GOALS = ("faster", "no-slower")
# «Repeated and stable»: one run shows nothing of how much runs differ.
MIN_RUNS = 2

_KEEP = "keep this evidence and go on with the baseline; mend the candidate, then run and compare again"


@dataclass(frozen=True)
class Decision:
    """decision: accept, tune, reject or pending. level: the lowest one among the timings it rests on."""

    decision: str
    reason: str
    next_action: str
    level: str | None


@dataclass(frozen=True)
class Case:
    """All that a decision is made from."""

    baseline: Sequence[Run]
    candidate: Sequence[Run]
    pairs: Sequence[Pair]
    equality: Equality
    changes: Sequence[correctness.Change]
    traffic: Sequence[traffic.Change]
    times: Times
    threshold: float
    goal: str

    @property
    def level(self) -> str | None:
        """The lowest level among timings on both sides."""
        found = [one.level for one in self.times.compared if one.verdict not in ("new", "missing")]
        return min(found, key=level_place, default=None)


def decide(case: Case) -> Decision:
    """The first that applies: correctness, what keeps it pending, then the times."""
    for rule in (_correctness, _not_shown, _not_comparable_enough, _of_times):
        for decision, reason, next_action in rule(case):
            return Decision(decision, reason, next_action, case.level)
    raise AssertionError("the last rule always answers")


Told = Iterator[tuple[str, str, str]]


def _correctness(case: Case) -> Told:
    wrong = [pair for pair in case.pairs if worst(pair.candidate) in ("failed", "blocked")]
    new = [c for c in case.changes if c.regression and c.kind == "correctness"]
    known = [c for c in new if c.candidate.startswith("expected failure")]
    if wrong:
        yield (
            "reject",
            f"correctness: {_first(len(wrong), wrong[0].name)} did not pass in the candidate",
            _KEEP,
        )
    if known:
        yield "reject", f"correctness: a new known defect in {_first(len(known), known[0].name)}", _KEEP
    if new:
        reason = f"correctness: {new[0].candidate} in the candidate: {_first(len(new), new[0].name)}"
        yield "pending", reason, "run the tests that the baseline passed, and compare again"


def _first(number: int, name: str) -> str:
    return name if number == 1 else f"{number} tests (first {name})"


def _not_shown(case: Case) -> Told:
    """What these records cannot decide, whatever their times say."""
    if case.level is None or not case.times.compared:
        reason = "no timing is on both sides: nothing about performance was compared"
        yield "pending", reason, "measure the same workload on both sides, with warm-up and repeats"
    if not may_claim_performance(case.level):
        reason = f"level {case.level}: its times say nothing about the performance of GPUs"
        yield (
            "pending",
            reason,
            "measure both sides on two or more GPUs, with a fixed workload and a named model",
        )
    if unknown := sorted(_unknown_hardware(case)):
        reason = f"unknown is not equal: {', '.join(unknown)} was not collected"
        yield "pending", reason, "collect it on both sides: without it equal hardware is not shown"
    if not case.equality.varied:
        reason = "nothing differs between the sides: this shows their noise, and no candidate"
        yield "pending", reason, "change one factor, name it with --varies, and measure again"
    if len(several := _run_factors(case)) > 1:
        reason = f"{' and '.join(several[:2])} both differ: neither is known to have done it"
        yield "pending", reason, "change exactly one of them, and measure again"
    if unproven := sorted(_without_values(case)):
        reason = f"correctness: no value claim of {unproven[0]} passed on both sides"
        yield "pending", reason, "run the value claims of the experiment on both sides with the timings"
    if any(run.manifest["source"]["dirty"] for run in case.candidate):
        reason = "the candidate's sources have changes that no commit holds: it cannot be frozen"
        yield "pending", reason, "commit, and measure again"


def _unknown_hardware(case: Case) -> Iterator[str]:
    for name in ("machine.cpu_model", "machine.num_cpus", "machine.memory_bytes"):
        if case.candidate[0].factors.get(name) is None:
            yield name
    timed = {one.test for one in case.times.compared}
    if any(
        fields_of(facts.placement).get("accelerator") is None
        for pair in case.pairs
        if pair.name in timed
        for facts in (*pair.baseline, *pair.candidate)
        if facts and facts.placement
    ):
        yield "topology.accelerator"


def _run_factors(case: Case) -> list[str]:
    """Factors of the runs that differ; a group such as `packages` may hold several."""
    groups = ("packages.", "python.", "variables.")
    return sorted({name for name, _, _ in case.equality.varied if name.startswith(groups)})


def _without_values(case: Case) -> Iterator[str]:
    """Experiments, by subject, with a timing but no value claim that passed on both sides."""
    shown = {
        _about(pair)
        for pair in case.pairs
        if "value" in pair.facts.tiers and worst(pair.baseline) == worst(pair.candidate) == "ok"
    }
    timed = {one.test for one in case.times.compared}
    for pair in case.pairs:
        if pair.name in timed and _about(pair) not in shown:
            experiment, subject = _about(pair)
            yield f"{experiment or 'no experiment'}, subject {subject or 'none'},"


def _about(pair: Pair) -> tuple[str | None, str | None]:
    facts = pair.facts
    return facts.experiment, facts.subject[0] if facts.subject else None


def _not_comparable_enough(case: Case) -> Told:
    """Too little was measured."""
    runs = min(len(case.baseline), len(case.candidate))
    if runs < MIN_RUNS:
        reason = f"{runs} run on a side: how much runs differ by themselves was not measured"
        yield "pending", reason, f"measure at least {MIN_RUNS} runs a side, better 5, and give them all"
    open_ones = case.times.of("missing") + case.times.undecided
    if open_ones:
        first = open_ones[0]
        reason = f"{len(open_ones)} of {len(case.times.compared)} timings are open, first {first.test} {first.name}: {first.reason}"
        yield "pending", reason, "measure more repeats and more runs of these, all else equal"


def _of_times(case: Case) -> Told:
    slower, faster = case.times.of("slower"), case.times.of("faster")
    unstable = list(_unstable(case))
    again = "change exactly one factor of the candidate and measure again"
    if slower and faster:
        yield (
            "tune",
            f"{_counted(faster)} faster and {len(slower)} slower, first {_name(slower[0])}",
            again,
        )
    if slower:
        reason = f"{_counted(slower)} slower and none is faster, first {_name(slower[0])}: {slower[0].reason}"
        yield "reject", reason, _KEEP
    if not faster and case.goal == "faster":
        reason = f"no gain: no timing is shown to be faster by more than {case.threshold:.3g}"
        yield "reject", reason, "go on with the baseline; if equal times are the goal, say --goal no-slower"
    if unstable:
        yield "tune", f"the times are good, but {unstable[0]}", again
    reason = f"{_counted(faster)} faster, no other is slower; correctness passed; level {case.level}"
    yield "accept", reason, "freeze configuration and evidence, and gate with --fail-on regress from here on"


def _counted(timings: Sequence[Comparison]) -> str:
    return f"{len(timings) or 'no'} {'timing is' if len(timings) < 2 else 'timings are'}"


def _name(one: Comparison) -> str:
    return f"{one.test} {one.name}"


def _unstable(case: Case) -> Iterator[str]:
    """Gain seen, but tail, load, traffic or steadiness not."""
    for one in case.times.compared:
        if one.tail:
            yield f"the tail (P95) of {_name(one)} is worse"
        if one.drift:
            yield f"{_name(one)} drifts: {', '.join(one.drift)}"
    for change in case.traffic:
        if change.regression:
            yield f"{change.name} sends otherwise ({change.change}): {traffic.label(change.kind)}"
    for pair in case.pairs:
        yield from _worse_figures(pair, case.threshold)


def _worse_figures(pair: Pair, threshold: float) -> Iterator[str]:
    """Load and exposed time: one value a run, so the worst of each side is compared, and no bound is known."""
    first, second = ([fields_of(f.figures) for f in side if f] for side in (pair.baseline, pair.candidate))
    for name in sorted({name for figures in (*first, *second) for name in figures}):
        one, other = (max((f[name] for f in side if name in f), default=None) for side in (first, second))
        if one is not None and other is not None and other > one * (1 + threshold):
            yield f"{name} of {pair.name} grew from {one:.3g} to {other:.3g}"
