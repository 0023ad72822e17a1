"""A comparison as a document of its own: it binds the manifests of every run by digest, and no record is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from parproof import registry
from parproof.errors import UsageError
from parproof.evidence.compare import correctness, gate, traffic
from parproof.evidence.compare import times as timing
from parproof.evidence.compare.decision import GOALS, Case, decide
from parproof.evidence.compare.environments import shard_ids
from parproof.evidence.compare.factors import check
from parproof.evidence.compare.pairing import Pair, pair_up
from parproof.evidence.compare.runs import Run, Told, read
from parproof.evidence.compare.varies import Varies
from parproof.evidence.compare.words import shown
from parproof.evidence.level import may_claim_performance

SCHEMA = "parproof-comparison/v1"
COVERS_REPEATS = "the repeats of these two runs, as if each were drawn independently"
COVERS_SCATTER = (
    f"{COVERS_REPEATS}, and the scatter between operations as an estimate of how much runs differ"
)
NOT_RUNS = "how much runs differ by themselves (machine, neighbours, clock): give several runs a side"
NOT_SHIFT = "what moved all operations of a run alike (machine, neighbours, clock): give several runs a side"
COVERS_RUNS = "the spread between the runs of a side, and with it that of their repeats"
NOT_MACHINE = "what all runs of a side had in common: the same hour, the same neighbours, the same machine"


@dataclass(frozen=True)
class Options:
    """What is asked for.

    threshold    relative change of a time that matters to you
    alpha        chance that a comparison of identical code calls any timing slower
    goal         faster: a gain is needed; no-slower: equal times are good
    """

    varies: Varies | None = None
    experiments: frozenset[str] | None = None
    threshold: float = 0.05
    alpha: float = 0.05
    goal: str = "faster"
    fail_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 10 or not 0 < self.alpha <= 0.5 or self.goal not in GOALS:
            raise UsageError(
                f"threshold {self.threshold}, alpha {self.alpha}, goal {shown(self.goal)}",
                expected=f"0 ≤ threshold ≤ 10, 0 < alpha ≤ 0.5, a goal of {' or '.join(GOALS)}",
                where="compare",
            )
        for name in sorted(self.experiments or ()):
            if registry.load().experiment(name) is None:
                known = ", ".join(experiment.id for experiment in registry.load().experiments)
                raise UsageError(
                    f"experiment {shown(name)}", expected=f"one of {known}", where="--experiment"
                )


def compare(
    baseline: Sequence[Path],
    candidate: Sequence[Path],
    options: Options | None = None,
    progress: Told = lambda done, total: None,
) -> dict[str, Any]:
    """The comparison document. The same evidence and options give the same document.

    Errors   Unusable without evidence; UsageError when an audit has findings or a run is given twice;
             Incomparable when more differs than was declared
    Cost     an audit of each directory, and about 1 ms a timing
    """
    asked = options or Options()
    kept: dict[str, str] = {}
    known: dict[Path, Run] = {}
    for directory in (*baseline, *candidate):
        if directory not in known:
            known[directory] = read(directory, kept, progress)
    first, second = ([known[directory] for directory in side] for side in (baseline, candidate))
    _check_distinct(first, second, asked.varies)
    pairs = pair_up(first, second, asked.varies, asked.experiments)
    equality = check(first, second, pairs, asked.varies)
    alike = asked.varies is None or not asked.varies.changes_everything
    times = timing.compare(pairs, asked.threshold, asked.alpha, mostly_alike=alike)
    num_ledgers, sent = traffic.changes(pairs)
    changes = list(correctness.changes(pairs))
    case = Case(first, second, pairs, equality, changes, sent, times, asked.threshold, asked.goal)
    return _document(case, asked, num_ledgers)


def _check_distinct(baseline: Sequence[Run], candidate: Sequence[Run], varies: Varies | None) -> None:
    """A run given twice, itself or in merged evidence, would pass for two. One run on both sides is fine where its records are chosen apart."""
    chosen_apart = varies is not None and varies.first != varies.second
    for runs in (baseline, candidate) if chosen_apart else ((*baseline, *candidate),):
        seen: dict[str, Run] = {}
        for run in runs:
            for mark in (run.manifest["run_id"], run.digest, *shard_ids(run.manifest)):
                if mark in seen:
                    raise UsageError(
                        _shared(run, seen[mark], mark),
                        expected="runs that were each made",
                        where="compare",
                        next_step="a run says nothing about itself; within one, choose with --varies, --from, --to",
                    )
                seen[mark] = run


def _shared(run: Run, other: Run, mark: str) -> str:
    told = f"{run.directory} and {other.directory}"
    if mark in (*shard_ids(run.manifest), *shard_ids(other.manifest)):
        return f"{told} both hold run {mark[:12]}"
    return f"{told} are the same run ({mark[:12]})"


def _document(case: Case, asked: Options, num_ledgers: int) -> dict[str, Any]:
    found = gate.regressions(case.changes, case.traffic, case.times)
    several = max(len(case.baseline), len(case.candidate)) > 1
    covered = _covered(several, case.times.scatter is not None)
    both = [pair for pair in case.pairs if any(pair.baseline) and any(pair.candidate)]
    return {
        "schema": SCHEMA,
        "baseline": [_run(run) for run in case.baseline],
        "candidate": [_run(run) for run in case.candidate],
        "varies": asdict(asked.varies) if asked.varies else None,
        "experiments": sorted(asked.experiments) if asked.experiments else None,
        "settings": {name: getattr(asked, name) for name in ("threshold", "alpha", "goal")}
        | {"alpha_each": case.times.alpha_each},
        "equal": case.equality.equal,
        "varied": [_difference(*told) for told in sorted(set(case.equality.varied))],
        "not_compared": [_difference(*told) for told in case.equality.not_compared],
        "covers": covered[0],
        "does_not_cover": covered[1],
        "interleaved": _interleaved(case),
        "num_tests": {
            "both": len(both),
            "baseline_only": sum(not any(pair.candidate) for pair in case.pairs),
            "candidate_only": sum(not any(pair.baseline) for pair in case.pairs),
            "traffic": num_ledgers,
        },
        "changes": [
            _plain(asdict(c)) for c in sorted(case.changes, key=lambda c: (not c.regression, c.name))
        ],
        "traffic": [
            _plain(asdict(c)) | {"regression": c.regression}
            for c in sorted(case.traffic, key=traffic.badness)
        ],
        "times": [_plain(asdict(one)) for one in case.times.compared],
        "shift": case.times.shift,
        "scatter": case.times.scatter,
        "decision": asdict(decide(case)),
        "gate": {"fail_on": list(asked.fail_on), "found": found, "failed": gate.fails(asked.fail_on, found)},
        "not_shown": _not_shown(case, several),
    }


def _covered(several: bool, scattered: bool) -> tuple[str, str]:
    """What the bounds cover, and what they do not."""
    if several:
        return COVERS_RUNS, NOT_MACHINE
    return (COVERS_SCATTER, NOT_SHIFT) if scattered else (COVERS_REPEATS, NOT_RUNS)


def _interleaved(case: Case) -> bool:
    """Were the sides made in turn? If one came first as a whole, time itself is a second factor."""
    first, second = case.baseline, case.candidate
    return not any(
        max(run.manifest["ended"] for run in early) < min(run.manifest["started"] for run in late)
        for early, late in ((first, second), (second, first))
    )


def _run(run: Run) -> dict[str, Any]:
    told = {
        name: run.manifest[name] for name in ("digest", "run_id", "run_label", "started", "ended", "source")
    }
    return told | {"hostname": run.factors["machine.hostname"]}


def _difference(name: str, baseline: str, candidate: str) -> dict[str, str]:
    return {"name": name, "baseline": baseline, "candidate": candidate}


def _plain(value: Any) -> Any:
    """As JSON gives it back: tuples are lists."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _not_shown(case: Case, several: bool) -> list[str]:
    found = ["other workloads, machines and versions"]
    if not several:
        found.append("run-to-run variation: one run a side")
    if not may_claim_performance(case.level):
        found.append("performance of GPUs: no timing here is of a benchmark")
    if _scopes(case.pairs) != {"multi_host"}:
        found.append("cross-node behaviour")
    return found


def _scopes(pairs: Sequence[Pair]) -> set[str]:
    timed = (f for pair in pairs for f in (*pair.baseline, *pair.candidate) if f and f.times)
    return {facts.scope or "none" for facts in timed}
