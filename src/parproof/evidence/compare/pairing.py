"""Which record of the candidate answers which of the baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parproof.errors import UsageError
from parproof.evidence import canonical
from parproof.evidence.compare.runs import Facts, Run, fields_of
from parproof.evidence.compare.varies import Varies
from parproof.evidence.compare.words import shown


@dataclass(frozen=True)
class Pair:
    """One test on both sides: a record, or None, for each run."""

    name: str
    baseline: tuple[Facts | None, ...]
    candidate: tuple[Facts | None, ...]

    @property
    def facts(self) -> Facts:
        """Any of them: what does not differ may be read here."""
        return next(facts for facts in (*self.candidate, *self.baseline) if facts)


def pair_up(
    baseline: Sequence[Run],
    candidate: Sequence[Run],
    varies: Varies | None,
    experiments: frozenset[str] | None,
) -> list[Pair]:
    """By node id; where a factor of the records varies, by all of it but that factor.

    Errors   UsageError when nothing is left to compare, or a record could answer several
    """
    first = [_keyed(run, varies, varies.first if varies else None, experiments) for run in baseline]
    second = [_keyed(run, varies, varies.second if varies else None, experiments) for run in candidate]
    names = {name: None for side in (*first, *second) for name in side}
    pairs = [
        Pair(name, tuple(run.get(name) for run in first), tuple(run.get(name) for run in second))
        for name in names
    ]
    if not any(any(pair.baseline) and any(pair.candidate) for pair in pairs):
        raise UsageError(
            "no test is on both sides",
            expected="runs of the same tests"
            + (f", of {', '.join(map(shown, sorted(experiments)))}" if experiments else ""),
            where="compare",
            next_step="parproof status --evidence DIR lists what a run holds",
        )
    return pairs


def _keyed(
    run: Run, varies: Varies | None, value: str | None, experiments: frozenset[str] | None
) -> Mapping[str, Facts]:
    chosen = [
        facts for facts in run.records.values() if experiments is None or facts.experiment in experiments
    ]
    if varies is None or not varies.of_records:
        return {facts.nodeid: facts for facts in chosen}
    chosen = [
        facts
        for facts in chosen
        if (found := _values(facts, varies.factor)) and (value is None or value in found)
    ]
    keys = [_key(facts, varies.factor) for facts in chosen]
    twice = [key for key, number in Counter(keys).items() if number > 1]
    if twice:
        held = sorted({_values(f, varies.factor)[0] for f in chosen})
        raise UsageError(
            f"{len(twice)} tests are there for several values of {varies.factor}: {shown(', '.join(held))}",
            expected="one value on a side",
            where=str(run.directory),
            next_step="choose with --from VALUE and --to VALUE",
        )
    return dict(zip(keys, chosen, strict=True))


def _values(facts: Facts, factor: str) -> tuple[str, ...]:
    """How the factor's value may be called; nothing when the record has none."""
    if factor == "subject":
        return facts.subject or ()
    fields = fields_of(facts.identity)
    found = fields.get("strategy" if factor == "strategy" else factor)
    return (str(found),) if found is not None else ()


def _key(facts: Facts, factor: str) -> str:
    """The node id with a star for the value of the factor; if the id does not name it, test and other parameters."""
    test, _, bracket = facts.nodeid.partition("[")
    inner = f"-{bracket.removesuffix(']')}-"
    for value in _values(facts, factor):
        if f"-{value}-" in inner:
            return f"{test}[{inner.replace(f'-{value}-', '-*-', 1)[1:-1]}]"
    dropped = {"subject": "parameters.subject", "strategy": "parameters.strategy"}.get(factor, factor)
    fields = fields_of(facts.identity).items()
    rest = {name: value for name, value in fields if name.startswith("parameters.") and name != dropped}
    return f"{test} {canonical.dumps(rest)}"
