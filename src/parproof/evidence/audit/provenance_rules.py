"""Rules about where records come from: this source, this environment, this run, and each of them once."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

from parproof import registry
from parproof.evidence import canonical, level
from parproof.evidence.attempts import Tally
from parproof.evidence.audit.findings import declare
from parproof.evidence.audit.overclaim_rules import SEVERAL_HOSTS
from parproof.evidence.audit.run_rules import Told
from parproof.evidence.store import ENVIRONMENT

_SLACK_S = 0.05


def _name(record: dict[str, Any]) -> str:
    return f"record {record['sequence']} ({record['identity']['nodeid']})"


class SourceBound:
    """A record of another commit says so, whoever chained it again."""

    rule = declare(
        "source-bound",
        "Every record was made from the source tree that the manifest names.",
        "source-bound",
    )

    def __init__(self, manifest: dict[str, Any]) -> None:
        self._of = manifest["source"]["fingerprint"]
        self._others: list[tuple[str, str, str]] = []

    def see(self, record: dict[str, Any]) -> None:
        """Compare fingerprints."""
        found = record["provenance"]["source"]
        if found != self._of:
            self._others.append((_name(record), f"source {self._of[:12]}", f"source {found[:12]}"))

    def finish(self, tally: Tally) -> Told:
        """Each of them."""
        yield from self._others


class EnvironmentBound:
    """A record of another machine says so twice: by the digest of its environment, and by where its ranks were."""

    rule = declare(
        "environment-bound",
        "Every record was made in the environment that lies beside it, its ranks on that machine.",
        "environment-bound",
    )

    def __init__(self, manifest: dict[str, Any], environment: dict[str, Any]) -> None:
        self._of = manifest["files"].get(ENVIRONMENT, {}).get("sha256", "")
        self._machine = environment["machine"]["hostname"]
        self._others: list[tuple[str, str, str]] = []

    def see(self, record: dict[str, Any]) -> None:
        """Compare digests, and hosts where the launcher starts ranks on its own machine only."""
        found = record["provenance"]["environment"]
        if found != self._of:
            told = f"environment {self._of[:12]}", f"environment {found[:12]}"
            self._others.append((_name(record), *told))
        observation = record["observation"] or {"runs": (), "failed_runs": ()}
        for run in (*observation["runs"], *observation["failed_runs"]):
            hosts = {rank["hostname"] for rank in run["ranks"]}
            own = run["launcher"] == "local" and run["host_kind"] == "real"
            if own and not hosts <= {self._machine}:
                seen = ", ".join(sorted(hosts))[:200]
                told = f"local ranks on {self._machine}", f"ranks on {seen}, real hosts by their own account"
                self._others.append((_name(record), *told))
                return

    def finish(self, tally: Tally) -> Told:
        """Each of them."""
        yield from self._others


class ClockForward:
    """Times of a run, of its records in the order they were written, and of the tests of one worker."""

    rule = declare(
        "clock-forward",
        "Time goes forward: in a run, from record to record, and from test to test in each worker.",
        "clock-forward",
    )

    def __init__(self, manifest: dict[str, Any]) -> None:
        self._started, self._ended = manifest["started"], manifest["ended"]
        self._written = self._started
        self._free_from: dict[str, str] = {}
        self._found: list[tuple[str, str, str]] = []
        for name, text in (("started", self._started), ("ended", self._ended)):
            if _seconds(text) is None:
                self._found.append(("run", f"{name} {text}", "no such time"))
        if self._ended < self._started:
            self._found.append(("run", f"started {self._started}", f"ended {self._ended}"))

    def see(self, record: dict[str, Any]) -> None:
        """All are UTC in one form, so that text compares as time does."""
        self._found += [(_name(record), claimed, seen) for claimed, seen in self._of(record)]

    def _of(self, record: dict[str, Any]) -> Iterator[tuple[str, str]]:
        time, written = record["time"], record["provenance"]["written"]
        if written < self._written:
            yield f"written {written}", f"not before {self._written}"
        if written > self._ended:
            yield f"written {written}", f"the run ended {self._ended}"
        self._written = max(written, self._written)
        started, ended = time["started"], time["ended"]
        if started is None or ended is None:
            return
        worker = record["provenance"]["worker"]
        free_from = self._free_from.get(worker, self._started)
        if started < free_from:
            yield f"started {started}", f"worker {worker} was not free before {free_from}"
        if not started <= ended <= written:
            yield f"started {started}, ended {ended}", f"written {written}"
        if len(self._free_from) < 10_000 or worker in self._free_from:
            self._free_from[worker] = max(ended, free_from)
        first_s, last_s = _seconds(started), _seconds(ended)
        if first_s is None or last_s is None:
            yield f"started {started}, ended {ended}", "no such time"
        elif time["test_s"] > (last_s - first_s) * 1.01 + _SLACK_S:
            yield f"a test of {time['test_s']} s", f"{last_s - first_s:.6f} s from its start to its end"

    def finish(self, tally: Tally) -> Told:
        """Each of them."""
        yield from self._found


def _seconds(text: str) -> float | None:
    try:
        return datetime.datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


class CountedOnce:
    """Two records of one test under two names: the same moment, or the same raw samples of the same processes."""

    rule = declare(
        "counted-once",
        "No test is counted twice under two names: no two records share their moment or their raw samples.",
        "counted-once",
    )

    def __init__(self, manifest: dict[str, Any]) -> None:
        self._moments: dict[str, int] = {}
        self._samples: dict[str, int] = {}
        self._twice: list[tuple[str, str, str]] = []

    def see(self, record: dict[str, Any]) -> None:
        """Note what no other record can have."""
        time, number = record["time"], record["sequence"]
        if time["started"] is not None:
            moment = f"{time['started']} {time['test_s']}"
            if moment in self._moments:
                self._tell(record, "a test of its own", f"the moment of record {self._moments[moment]}")
                return
            self._moments[moment] = number
        if time["measured"] and record["topology"]["ranks"]:
            ranks = record["topology"]["ranks"]
            places = canonical.digest(sorted([rank["hostname"], rank["pid"]] for rank in ranks))
            for entry in time["measured"]:
                key = canonical.digest([places, entry["samples_s"]])
                if self._samples.setdefault(key, number) != number:
                    told = f"the samples of record {self._samples[key]}"
                    self._tell(record, f"timing {entry['name']} of its own", told)

    def _tell(self, record: dict[str, Any], claimed: str, seen: str) -> None:
        self._twice.append((_name(record), claimed, seen))

    def finish(self, tally: Tally) -> Told:
        """Each of them."""
        yield from self._twice


class Label:
    """What a run is called is quoted with it."""

    rule = "words-supported"

    def __init__(self, manifest: dict[str, Any]) -> None:
        self._label = manifest["run_label"]
        self._scopes: set[str | None] = set()

    def see(self, record: dict[str, Any]) -> None:
        """Collect scopes."""
        self._scopes.add(record["topology"]["scope"])

    def finish(self, tally: Tally) -> Told:
        """Several nodes by name, and one host by every record."""
        if SEVERAL_HOSTS.search(self._label.lower()) and "multi_host" not in self._scopes:
            seen = ", ".join(sorted(scope for scope in self._scopes if scope)) or "no scope"
            yield "run", f"label «{self._label}»", seen


class OwnResult:
    """A project re-fixes model, input and stack and measures again; the decision page measures nothing."""

    rule = declare(
        "project-own-result",
        "A project's result is its own: a named model, a fixed workload, no samples or traces of a mechanism.",
        "project-own-result",
    )

    def __init__(self, manifest: dict[str, Any]) -> None:
        self._of_mechanisms: dict[str, str] = {}
        self._of_projects: list[tuple[str, str]] = []
        self._found: list[tuple[str, str, str]] = []

    def see(self, record: dict[str, Any]) -> None:
        """Judge a project's record, and note what it measured or what a mechanism did."""
        experiment = registry.load().experiment(record["identity"]["semantic_id"] or "")
        if experiment is None or record["conclusion"]["status"] != "ok":
            return
        name, observation = _name(record), record["observation"] or {"model": None, "traces": ()}
        reached = record["conclusion"]["evidence_level"]
        if experiment.kind == "decision" and level.may_claim_performance(reached):
            self._found.append((name, f"{reached} of {experiment.id}", "a page that measures nothing"))
        if experiment.kind == "project" and None in (observation["model"], record["identity"]["workload_id"]):
            self._found.append((name, f"a result of {experiment.id}", "no model or no workload of its own"))
        for entry in record["time"]["measured"] or ():
            self._note(experiment.kind, name, canonical.digest(entry["samples_s"]))
        for digest in observation["traces"]:
            self._note(experiment.kind, name, digest)

    def _note(self, kind: str, name: str, digest: str) -> None:
        if kind == "project":
            self._of_projects.append((name, digest))
        else:
            self._of_mechanisms.setdefault(digest, name)

    def finish(self, tally: Tally) -> Told:
        """Also what a project shares with a mechanism."""
        yield from self._found
        for name, digest in self._of_projects:
            if digest in self._of_mechanisms:
                yield name, "samples or a trace of its own", f"those of {self._of_mechanisms[digest]}"


PROVENANCE_RULES = (SourceBound, ClockForward, CountedOnce, Label, OwnResult)
