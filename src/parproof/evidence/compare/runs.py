"""One run as a comparison sees it: an evidence directory that passed its audit, reduced to what is compared.

A test counts once a run, by the worst of its attempts.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parproof.cost.statistics import per_call_maximum
from parproof.errors import UsageError
from parproof.evidence import canonical
from parproof.evidence.attempts import Ending
from parproof.evidence.audit import Unusable, require_sound
from parproof.evidence.audit.reading import parse, read_json, read_lines
from parproof.evidence.compare.environments import factors_of, places
from parproof.evidence.level import LEVELS
from parproof.evidence.store import MANIFEST, RECORDS

Told = Callable[[int, int], None]
# Shorter than light takes over a chip's edge, longer than a working life: no measurement of a call.
SHORTEST_S, LONGEST_S = 1e-12, 1e9


@dataclass(frozen=True)
class Timing:
    """calls_s: the slowest rank of each repeat, in the order in which they were made."""

    name: str
    warmup: int
    calls_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Facts:
    """What is compared of one record. Long values are canonical text, kept once for all records that share them.

    identity, workload   «field: value» in canonical form; workload None when the test named none
    placement            who the ranks were and where; None when nothing ran
    ledger               (op, dtype, group size, phase, control) → rank → calls, bytes in, bytes out; None: nobody watched
    figures              load and exposed time, by public name
    several              the attempts that these facts sum up; none when there was one
    """

    nodeid: str
    experiment: str | None
    claims: tuple[str, ...]
    tiers: tuple[str, ...]
    subject: tuple[str, str] | None
    parameters: str
    status: str
    expected: str | None
    level: str | None
    scope: str | None
    identity: str
    workload: str | None
    placement: str | None
    ledger: str | None
    ledger_complete: bool | None
    times: tuple[Timing, ...]
    figures: str
    reason: str
    several: tuple[Facts, ...] = ()

    @property
    def attempts(self) -> tuple[Facts, ...]:
        """Every attempt of the test in this run, in order."""
        return self.several or (self,)


@dataclass(frozen=True)
class Run:
    """An audited directory. factors: dotted name → value of everything about machine, packages and source."""

    directory: Path
    manifest: Mapping[str, Any]
    factors: Mapping[str, Any]
    records: Mapping[str, Facts]

    @property
    def digest(self) -> str:
        """The manifest's: binds every file of the directory."""
        return str(self.manifest["digest"])

    def told(self, name: str) -> str:
        """A factor's value for people: a tree by its commit."""
        if name != "source":
            return str(self.factors.get(name))
        source = self.manifest["source"]
        commit = (source["commit"] or "no commit")[:12]
        return f"{commit}{' with changes' if source['dirty'] else ''} (tree {source['fingerprint'][:12]})"


def read(directory: Path, kept: dict[str, str], progress: Told = lambda done, total: None) -> Run:
    """Audit a directory and read it.

    kept     texts that records share, for all runs of a comparison together
    Errors   Unusable when there is no evidence, or it changed while it was read; UsageError when its audit has findings,
             or it was merged from unequal machines
    """
    require_sound(directory, progress)
    manifest = read_json(directory, MANIFEST)
    factors = factors_of(directory, manifest)
    attempts: dict[str, list[Facts]] = {}
    for facts in _facts(directory, manifest, kept):
        attempts.setdefault(facts.nodeid, []).append(facts)
    return Run(directory, manifest, factors, {name: _together(each) for name, each in attempts.items()})


def _facts(directory: Path, manifest: Mapping[str, Any], kept: dict[str, str]) -> Iterator[Facts]:
    """The bytes that are read are those that the manifest binds: somebody may write between audit and reading."""
    seen = hashlib.sha256()
    changed = Unusable(f"{directory} changed while it was read")
    for _, line in read_lines(directory / RECORDS):
        seen.update(line or b"")
        try:
            facts = _reduced(parse(line or b""), kept)
        except (ValueError, KeyError, TypeError) as error:
            raise changed from error
        yield facts
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    described = places(manifest)
    bound = {name: manifest["files"][name]["sha256"] for name in (RECORDS, *described)}
    found = {RECORDS: seen.hexdigest()} | {
        name: canonical.file_digest(directory / name) for name in described
    }
    if canonical.digest(rest) != manifest["digest"] or found != bound:
        raise changed


def _reduced(record: dict[str, Any], kept: dict[str, str]) -> Facts:
    identity, end, told = record["identity"], record["conclusion"], record["communication"]

    def once(value: Any) -> str:
        text = canonical.dumps(value)
        return kept.setdefault(text, text)

    subject = identity["subject"]
    observation = record["observation"]
    fixed = {name: identity[name] for name in ("semantic_id", "claims", "lane", "strategy", "subject")}
    fixed |= {f"parameters.{name}": value for name, value in identity["parameters"].items()}
    workload = {f"workload.{name}": value for name, value in identity["workload"].items()}
    return Facts(
        nodeid=identity["nodeid"],
        experiment=identity["semantic_id"],
        claims=tuple(identity["claims"]),
        tiers=tuple(identity["tiers"]),
        subject=(subject["name"], subject["address"]) if subject else None,
        parameters=once(identity["parameters"]),
        status=end["status"],
        expected=end["expected_nonconformance"],
        level=end["evidence_level"],
        scope=record["topology"]["scope"],
        identity=once(fixed),
        workload=once({"workload_id": identity["workload_id"]} | workload)
        if identity["workload_id"] is not None
        else None,
        placement=once(_placement(record)) if observation is not None else None,
        ledger=once(_ledger(told["ledger"] or [])) if told["ledger"] or told["ledger_complete"] else None,
        ledger_complete=told["ledger_complete"],
        times=tuple(_timings(record)),
        figures=once(_figures(record)),
        reason=str((end["failure"] or {}).get("message") or (end["skip"] or {}).get("reason") or "")[:300],
    )


def _placement(record: dict[str, Any]) -> dict[str, Any]:
    """Without process numbers, which differ in every run, and host names: equal machines may be compared."""
    topology, told = record["topology"], record["communication"]
    ranks = [[r["rank"], r["local_rank"], r["host"], r["device"]] for r in topology["ranks"] or ()]
    return {
        "world_size": topology["world_size"],
        "ranks": ranks,
        "scope": topology["scope"],
        "accelerator": topology["accelerator"],
        "links": topology["links"],
        "backend": told["backend"],
        "launcher": told["launcher"],
        "model": record["observation"]["model"],
    }


def _ledger(lines: list[dict[str, Any]]) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = {}
    for line in lines:
        kind = canonical.dumps([line[n] for n in ("op", "dtype", "group_size", "phase", "control")])
        for rank in line["ranks"]:
            amounts = found.setdefault(kind, {}).setdefault(str(rank), [0, 0, 0])
            for place, name in enumerate(("calls", "in_bytes", "out_bytes")):
                amounts[place] += line[name]
    return found


def _timings(record: dict[str, Any]) -> Iterator[Timing]:
    """Two of one name in one record are told apart by a number. Times that cannot be are none: no calls."""
    seen: dict[str, int] = {}
    for entry in record["time"]["measured"] or ():
        seen[entry["name"]] = seen.get(entry["name"], 0) + 1
        name = entry["name"] if seen[entry["name"]] == 1 else f"{entry['name']} #{seen[entry['name']]}"
        try:
            calls = tuple(per_call_maximum(entry["samples_s"]))
        except UsageError:
            calls = ()
        possible = all(SHORTEST_S <= call <= LONGEST_S for call in calls)
        yield Timing(name, entry["warmup"], calls if possible else ())


def _figures(record: dict[str, Any]) -> dict[str, float]:
    """Figures of which less is better; each has one value a run."""
    told = {f"load.{name}": record["load"][name] for name in ("max_over_mean", "overflow", "idle_ratio")}
    told["time.exposed_s"] = record["time"]["exposed_s"]
    return {name: value for name, value in told.items() if isinstance(value, (int, float))}


def _together(attempts: Sequence[Facts]) -> Facts:
    """One test of one run: the worst outcome and the lowest level, so that a retry hides nothing.

    Attempts are repeats of one run: their calls follow each other, and of figures the largest counts.
    """
    if len(attempts) == 1:
        return attempts[0]
    worst = min(attempts, key=_severity)
    figures: dict[str, float] = {}
    for one in attempts:
        for name, value in fields_of(one.figures).items():
            figures[name] = max(value, figures.get(name, value))
    return replace(
        worst,
        level=min((one.level for one in attempts), key=level_place),
        times=tuple(_joined(attempts)),
        figures=canonical.dumps(figures),
        several=tuple(attempts),
    )


def _severity(facts: Facts) -> tuple[bool, int]:
    """Small is bad. An unexpected end comes before a known defect, whichever their status."""
    end = Ending(facts.status, facts.level or "none", facts.expected)
    return not end.unexpected, end.severity[0]


def _joined(attempts: Sequence[Facts]) -> Iterator[Timing]:
    """The calls of one timing in all attempts; none where one attempt has none that can be read."""
    by_name: dict[str, list[Timing]] = {}
    for one in attempts:
        for timing in one.times:
            by_name.setdefault(timing.name, []).append(timing)
    for name, each in by_name.items():
        whole = len(each) == len(attempts) and all(timing.calls_s for timing in each)
        calls = tuple(call for timing in each for call in timing.calls_s) if whole else ()
        yield Timing(name, each[0].warmup, calls)


def every_attempt(side: Sequence[Facts | None]) -> list[Facts]:
    """Of one test in all runs of a side."""
    return [attempt for facts in side if facts for attempt in facts.attempts]


def level_place(level: str | None) -> int:
    """Place of a level, the lowest first; none at all is below."""
    return LEVELS.index(level) if level else -1


def fields_of(text: str | None) -> Mapping[str, Any]:
    """The fields of a canonical text; none for None."""
    found: Mapping[str, Any] = json.loads(text) if text else {}
    return found
