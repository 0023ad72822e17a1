"""The registry: experiments, claims, profiles and consumption edges, read from registry.toml. No torch here."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from parproof.errors import UsageError

TIERS = ("value", "ledger", "failure", "timing", "decision")


@dataclass(frozen=True)
class Claim:
    """One testable statement of an experiment. `required`: an evidence set without it is not complete."""

    id: str
    tier: str
    statement: str
    required: bool = True


@dataclass(frozen=True)
class Experiment:
    """One mechanism, project or the decision page, by its semantic id."""

    id: str
    kind: str
    title: str
    title_zh: str
    aliases: tuple[tuple[str, str], ...]
    contrast: str
    metrics: tuple[str, ...]
    profiles: tuple[str, ...]
    not_shown: str
    claims: tuple[Claim, ...]

    def claim(self, claim_id: str) -> Claim | None:
        """The claim of this id, or None."""
        return next((claim for claim in self.claims if claim.id == claim_id), None)


@dataclass(frozen=True)
class Profile:
    """A named environment and the kind of evidence it can form."""

    id: str
    title: str
    title_zh: str
    lanes: tuple[str, ...]
    requirements: str
    shows: str
    shows_not: str


@dataclass(frozen=True)
class Edge:
    """`consumer` may use records of `producer`, in this role and no other."""

    consumer: str
    producer: str
    role: str


@dataclass(frozen=True)
class Registry:
    """All of it; look-ups by semantic id."""

    experiments: tuple[Experiment, ...]
    profiles: tuple[Profile, ...]
    edges: tuple[Edge, ...]

    def experiment(self, semantic_id: str) -> Experiment | None:
        """The experiment of this id, or None. A page number is not an id; see by_alias."""
        return next((e for e in self.experiments if e.id == semantic_id), None)

    def by_alias(self, page: str, revision: str) -> Experiment | None:
        """The experiment a page number meant in a revision of the source pages."""
        for experiment in self.experiments:
            if (page, revision) in experiment.aliases or (page, "all") in experiment.aliases:
                return experiment
        return None

    def profile(self, profile_id: str) -> Profile:
        """The profile of this id. Errors: UsageError that lists the known ones."""
        for profile in self.profiles:
            if profile.id == profile_id:
                return profile
        known = ", ".join(profile.id for profile in self.profiles)
        raise UsageError(f"unknown profile {profile_id!r}", expected=f"one of {known}", where="registry")


@functools.cache
def load() -> Registry:
    """The registry this package carries."""
    return parse(tomllib.loads(resources.files("parproof").joinpath("registry.toml").read_text("utf-8")))


def parse(raw: dict[str, Any]) -> Registry:
    """Check ids and references and build the registry; shapes are the schema's business.

    Errors   UsageError for a duplicate id, an alias of two experiments, an edge to or from nothing
    """
    experiments = tuple(_experiment(entry) for entry in raw["experiment"])
    profiles = tuple(Profile(**{**p, "lanes": tuple(p["lanes"])}) for p in raw["profile"])
    edges = tuple(Edge(**entry) for entry in raw["edge"])
    _no_duplicates([e.id for e in experiments], "experiment id")
    _no_duplicates([p.id for p in profiles], "profile id")
    _no_duplicates([alias for e in experiments for alias in e.aliases], "alias")
    _no_duplicates([(e.consumer, e.producer, e.role) for e in edges], "edge")
    known = {e.id for e in experiments}
    for experiment in experiments:
        _no_duplicates([claim.id for claim in experiment.claims], f"claim of {experiment.id}")
        _known(set(experiment.profiles), {p.id for p in profiles}, f"profile of {experiment.id}")
    _known({e.consumer for e in edges} | {e.producer for e in edges}, known, "end of an edge")
    return Registry(experiments, profiles, edges)


def _experiment(entry: dict[str, Any]) -> Experiment:
    fields = {key: value for key, value in entry.items() if key != "claim"}
    fields["aliases"] = tuple((alias["page"], alias["revision"]) for alias in entry["aliases"])
    fields["metrics"], fields["profiles"] = tuple(entry["metrics"]), tuple(entry["profiles"])
    return Experiment(claims=tuple(Claim(**claim) for claim in entry["claim"]), **fields)


def _no_duplicates(values: list[Any], what: str) -> None:
    twice = {value for value in values if values.count(value) > 1}
    if twice:
        raise UsageError(f"{what} {sorted(twice)} given twice", expected="unique ids", where="registry.toml")


def _known(used: set[str], known: set[str], what: str) -> None:
    if used - known:
        raise UsageError(f"{what} {sorted(used - known)} is not registered", where="registry.toml")
