"""What has to be equal, and the one factor that may differ: a refusal names the field, both values, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from parproof.errors import UsageError
from parproof.evidence import canonical
from parproof.evidence.compare.environments import MAX_SHOWN, NOT_COMPARED, same
from parproof.evidence.compare.pairing import Pair
from parproof.evidence.compare.runs import Facts, Run, every_attempt, fields_of
from parproof.evidence.compare.varies import Varies
from parproof.evidence.compare.words import shown


@dataclass
class Difference:
    """One field that differs; records: how many, and the first of them."""

    name: str
    baseline: str
    candidate: str
    num_records: int = 0
    record: str = ""

    def __str__(self) -> str:
        text = f"{shown(self.name)}: baseline {shown(self.baseline)}, candidate {shown(self.candidate)}"
        if self.num_records:
            text += f" (in {self.num_records} records, first {shown(self.record)})"
        return text


class Incomparable(UsageError):
    """The two sides differ in more than what was declared; `differences` says in what."""

    def __init__(self, differences: Sequence[Difference], next_step: str) -> None:
        self.differences = list(differences)
        super().__init__(
            f"{len(differences)} field{'s' * (len(differences) > 1)} differ",
            expected="equal workload, hardware and versions but for one declared factor",
            next_step=next_step,
        )

    def __str__(self) -> str:
        """One line a field."""
        lines = [f"  {difference}" for difference in self.differences[:MAX_SHOWN]]
        if len(self.differences) > MAX_SHOWN:
            lines.append(f"  and {len(self.differences) - MAX_SHOWN} more")
        head = f"not comparable: {self.observed}; expected {self.expected}"
        return "\n".join([head, *lines, f"  next: {self.next_step}"])


@dataclass
class Equality:
    """What was found equal, what was declared and differs, and what was not compared."""

    equal: dict[str, Any] = field(default_factory=dict)
    varied: list[tuple[str, str, str]] = field(default_factory=list)
    not_compared: list[tuple[str, str, str]] = field(default_factory=list)


def check(
    baseline: Sequence[Run], candidate: Sequence[Run], pairs: Sequence[Pair], varies: Varies | None
) -> Equality:
    """Errors: Incomparable, with every field that differs and may not."""
    found = Equality()
    differences = [
        *_of_runs(baseline, candidate, varies, found),
        *_of_records(pairs, varies, found),
    ]
    if differences:
        raise Incomparable(differences, _next_step(differences, varies))
    return found


def _of_runs(
    baseline: Sequence[Run], candidate: Sequence[Run], varies: Varies | None, found: Equality
) -> Iterator[Difference]:
    """Within a side everything is equal; between the sides the declared factor may differ."""
    first, second = baseline[0], candidate[0]
    for side, runs in (("baseline", baseline), ("candidate", candidate)):
        for run in runs[1:]:
            for name in sorted({*runs[0].factors, *run.factors}):
                if not same(name, runs[0].factors.get(name), run.factors.get(name)):
                    yield Difference(f"{name} (among runs of the {side})", runs[0].told(name), run.told(name))
    for name in sorted({*first.factors, *second.factors}):
        told = first.told(name), second.told(name)
        if name in NOT_COMPARED:
            found.not_compared.append((name, *told))
        elif same(name, first.factors.get(name), second.factors.get(name)):
            found.equal[name] = first.factors.get(name)
        elif varies and varies.allows(name):
            found.varied.append((name, *told))
        else:
            yield Difference(name, *told)


def _of_records(pairs: Sequence[Pair], varies: Varies | None, found: Equality) -> Iterator[Difference]:
    by_field: dict[str, Difference] = {}
    varied: dict[tuple[str, str, str], None] = {}
    for pair in pairs:
        first, second = every_attempt(pair.baseline), every_attempt(pair.candidate)
        for place, facts in enumerate((*first, *second)):
            if not first or facts is first[0]:
                continue
            within = place < len(first)
            for name, one, other in _unequal(first[0], facts):
                if varies and varies.allows(name) and not within:
                    if name != "parameters.subject" or varies.factor != "subject":
                        varied[name, one, other] = None
                    continue
                known = by_field.setdefault(name, Difference(name, one, other, 0, pair.name))
                known.num_records += 1
    found.varied += list(varied)
    yield from by_field.values()


def _unequal(one: Facts, other: Facts) -> Iterator[tuple[str, str, str]]:
    """(field, value, other value). A test that did not get far enough to name its workload is judged by its status."""
    yield from _fields(one.identity, other.identity)
    both_ran = one.status == other.status == "ok"
    if both_ran or (one.workload is not None and other.workload is not None):
        yield from _fields(one.workload or '{"workload_id":null}', other.workload or '{"workload_id":null}')
    if both_ran and one.placement is not None and other.placement is not None:
        yield from _fields(one.placement, other.placement)
    warmups = {timing.name: timing.warmup for timing in one.times}
    for timing in other.times:
        if warmups.get(timing.name, timing.warmup) != timing.warmup:
            yield f"warm-up of {timing.name}", str(warmups[timing.name]), str(timing.warmup)


def _fields(one: str, other: str) -> Iterator[tuple[str, str, str]]:
    """Equal texts are one object or compare at once; only unequal ones are opened."""
    if one == other:
        return
    left, right = fields_of(one), fields_of(other)
    for name in sorted({*left, *right}):
        if left.get(name) != right.get(name):
            yield name, _text(left.get(name)), _text(right.get(name))


def _text(value: Any) -> str:
    if isinstance(value, dict) and set(value) == {"name", "address"}:
        return f"{value['name']} ({value['address']})"
    return value if isinstance(value, str) else canonical.dumps(value)


def _next_step(differences: Sequence[Difference], varies: Varies | None) -> str:
    names = [difference.name for difference in differences]
    if varies is None and len(names) == 1 and _may_vary(names[0]):
        name = shown(names[0])
        return f"if {name} is what you compare, say --varies {name}; else measure both with the same"
    if any(_may_vary(name) for name in names):
        return "change exactly one factor, name it with --varies, and measure again with all else equal"
    return "measure the baseline again with this workload on this machine: another one is another baseline"


def _may_vary(name: str) -> bool:
    try:
        Varies(name)
    except UsageError:
        return False
    return True
