"""What one foreign document says, and what it can support.

No word in a file raises its level. A format has a ceiling, and what is missing, contradictory or wrong lowers it:

theoretical      nothing was measured, or the numbers do not hold together
cpu_simulation   figures, but no accelerator is named
gpu_smoke        figures on named accelerators: a path that is said to have run. The highest that words can reach
above            only from evidence that passes its audit, and from which the same document follows
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from parproof.evidence.exchange import contract
from parproof.evidence.exchange.contract import LEVELS, MAY_BE_NULL, PUBLIC_FIELDS, shown
from parproof.evidence.exchange.reasons import FINDINGS, LIMITS, SPOILS, Reason

CEILING = "gpu_smoke"
MAX_REASONS = 200
_NOT_GIVEN = object()


@dataclass
class Assessment:
    """Filled in by the reader of a format.

    format       id of the format; recognised_by: what gave it away
    claims       what the file says of itself: evidence_level, decision, role, project, as written
    groups       group → field → value: the six groups of public result fields, null where the file is silent
    values       rows of plain numbers with units in their names
    measured     whether anything was measured; accelerator: whether one is named
    failed       whether the file says that its run failed
    attested     the level of sealed evidence from which the document follows
    """

    format: str
    recognised_by: str
    claims: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {
            group: dict.fromkeys(names, _NOT_GIVEN) for group, names in PUBLIC_FIELDS.items()
        }
    )
    values: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Reason] = field(default_factory=list)
    limits: list[Reason] = field(default_factory=list)
    measured: bool = False
    accelerator: bool = False
    ceiling: str = CEILING
    failed: bool = False
    attested: str | None = None

    def found(self, reason: str, where: str, claimed: object, supported: object) -> None:
        """Note a finding; a file that breaks one rule a thousand times is told so a few times."""
        assert reason in FINDINGS, reason
        if len(self.findings) < MAX_REASONS:
            self.findings.append(Reason(reason, where, shown(claimed), str(supported)))

    def limited(
        self, reason: str, where: str, claimed: object = "a result", supported: str | None = None
    ) -> None:
        """Note a limit."""
        assert reason in LIMITS, reason
        if len(self.limits) < MAX_REASONS and not any(
            (r.id, r.where) == (reason, where) for r in self.limits
        ):
            self.limits.append(Reason(reason, where, shown(claimed), supported or LIMITS[reason]))

    def give(self, group: str, **values: Any) -> None:
        """Public fields that the file gives."""
        for name, value in values.items():
            assert name in self.groups[group], name
            self.groups[group][name] = value

    def missing(self) -> dict[str, str]:
        """Public fields that are null here, and why."""
        found = {}
        for group, names in self.groups.items():
            for name, value in names.items():
                place = f"{group}.{name}"
                if value is _NOT_GIVEN or (value is None and place not in MAY_BE_NULL):
                    found[place] = "the file does not tell"
        return found

    def plain_groups(self) -> dict[str, dict[str, Any]]:
        """The groups with null where nothing was given."""
        return {
            group: {name: None if value is _NOT_GIVEN else value for name, value in names.items()}
            for group, names in self.groups.items()
        }

    def at_most(self) -> tuple[str, str]:
        """(level, why not the next)."""
        if self.attested is not None:
            return self.attested, "the document follows from evidence that passes its audit"
        spoilt = sorted({reason.id for reason in self.findings} & SPOILS)
        if not self.measured:
            return "theoretical", "nothing was measured"
        if self.failed:
            return "theoretical", "the run failed"
        if spoilt:
            return "theoretical", f"its numbers cannot be used: {', '.join(spoilt)}"
        if not self.accelerator:
            return lower("cpu_simulation", self.ceiling), "no accelerator is named"
        return lower(CEILING, self.ceiling), LIMITS["no-sealed-observation"]

    def close(self) -> None:
        """Compare the level that is claimed with what is supported; call last."""
        level, why = self.at_most()
        claimed = self.claims.get("evidence_level")
        if claimed in LEVELS and LEVELS.index(claimed) > LEVELS.index(level):
            self.found("level-above-support", "evidence_level", claimed, f"at most {level}: {why}")
        if self.attested is None:
            self.limited("no-sealed-observation", "(file)")
        if not self.accelerator and self.measured and self.attested is None:
            self.limited("accelerator-not-named", "hardware")


def lower(one: str, other: str) -> str:
    """The lower of two levels."""
    return min(one, other, key=LEVELS.index)


# Nothing that is measured is smaller or larger; and products of a few such numbers stay finite.
SMALLEST, LARGEST = 1e-30, 1e30


class NotFinite(str):
    """NaN or Infinity, which a writer took for JSON. No number, so no check takes it for one."""


def number(value: Any) -> float | None:
    """A number that can be a measurement, or None for everything else; truth values are no numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if value == 0 or SMALLEST <= abs(value) <= LARGEST else None


def numbers(value: Any) -> list[float] | None:
    """A non-empty list of finite numbers, or None."""
    if not isinstance(value, list) or not value:
        return None
    found = [number(item) for item in value]
    return [item for item in found if item is not None] if None not in found else None


MAX_NAME, MAX_FIGURES = 60, 50_000


def figures(value: Any, path: str) -> list[tuple[str, float]]:
    """(place, number) of the numbers; names are searched for patterns, so that there is an end to them."""
    found = ((place[-4 * MAX_NAME :], number(leaf)) for place, leaf in leaves(value, path))
    return list(islice(((place, figure) for place, figure in found if figure is not None), MAX_FIGURES))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(place, value) of everything that is no mapping and no list, in order."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from leaves(item, f"{path}.{str(name)[:MAX_NAME]}" if path else str(name)[:MAX_NAME])
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from leaves(item, f"{path}[{place}]")
    else:
        yield path, value


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def word(value: Any) -> str | None:
    """The value if it is a word, else None."""
    return value if isinstance(value, str) and not isinstance(value, NotFinite) and value else None


MAX_WORD = 300


def safe(value: Any) -> Any:
    """The value as it may be written: half a character pair is spelled out, long words are cut."""
    if isinstance(value, str):
        return value[:MAX_WORD].encode("utf-8", "backslashreplace").decode()
    if isinstance(value, Mapping):
        return {str(safe(str(name))): safe(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [safe(item) for item in value]
    return value


def close_to(one: float, other: float, relative: float = 2e-3, absolute: float = 0.0) -> bool:
    """Equal but for rounding in the file."""
    return math.isclose(one, other, rel_tol=relative, abs_tol=absolute)


def check_finite(told: Assessment, value: Any, where: str, allowed: tuple[str, ...] = ()) -> None:
    """NaN and Infinity are no measurements; where they mean «no limit» they still are no JSON."""
    for place, leaf in leaves(value, where):
        if isinstance(leaf, NotFinite):
            if place in allowed:
                told.limited("not-strict-json", place, leaf)
            else:
                told.found("not-finite", place, leaf, "a finite number")
        elif isinstance(leaf, (int, float)) and not isinstance(leaf, bool) and number(leaf) is None:
            told.found("not-finite", place, leaf, f"0, or a size between {SMALLEST:g} and {LARGEST:g}")


def check_contract(told: Assessment, document: Mapping[str, Any]) -> None:
    """What the published validator refuses, by reason."""
    for reason, where, observed, wanted in contract.errors(document):
        told.found(reason, where, observed, wanted)
