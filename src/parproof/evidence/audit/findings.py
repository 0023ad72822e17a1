"""What an audit says, and the list of rules it can say it by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from parproof.evidence.attempts import Tally

T = TypeVar("T")
MAX_TEXT = 1000


@dataclass(frozen=True)
class Finding:
    """One rule that does not hold.

    record     sequence number and node id, a file name, or «run» for the whole
    claimed    what the evidence says; supported: what follows from what it holds
    """

    rule: str
    record: str
    claimed: str
    supported: str

    def __post_init__(self) -> None:
        for name in ("record", "claimed", "supported"):
            text: str = getattr(self, name)
            if len(text) > MAX_TEXT:
                # Findings are kept; what they quote may be as long as a line of the evidence.
                object.__setattr__(self, name, text[:MAX_TEXT] + " …")

    def __str__(self) -> str:
        return printable(f"{self.rule} {self.record}: claimed {self.claimed}; supported {self.supported}")


def printable(text: str) -> str:
    """Words that somebody else wrote, so that they neither steer a terminal nor fill it."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= MAX_TEXT else shown[:MAX_TEXT] + " …"


class Unusable(Exception):
    """There is nothing that could be audited: no directory, no manifest, not JSON."""


Pair = tuple[str, str]
RecordRule = Callable[[dict[str, Any]], Iterator[Pair]]


class RunRule(Protocol):
    """A rule about all records together: sees each, speaks at the end."""

    rule: str

    def see(self, record: dict[str, Any]) -> None:
        """One record that keeps the schema."""

    def finish(self, tally: Tally) -> Iterator[tuple[str, str, str]]:
        """(record or «run», claimed, supported) for what does not hold.

        tally   how each test ended, over the records that were seen
        """


_RECORD_RULES: dict[str, tuple[str, RecordRule]] = {}
_SENTENCES: dict[str, str] = {}


def record_rule(rule_id: str, sentence: str) -> Callable[[RecordRule], RecordRule]:
    """Register a rule about one record; the function yields (claimed, supported)."""

    def register(function: RecordRule) -> RecordRule:
        _RECORD_RULES[rule_id] = (sentence, function)
        return declare(rule_id, sentence, function)

    return register


def declare(rule_id: str, sentence: str, thing: T) -> T:
    """Note a rule's sentence."""
    assert rule_id not in _SENTENCES, rule_id
    _SENTENCES[rule_id] = sentence
    return thing


def record_rules() -> dict[str, RecordRule]:
    """Rules about one record, by id."""
    return {rule_id: rule for rule_id, (_, rule) in _RECORD_RULES.items()}


def rules() -> dict[str, str]:
    """Every rule's id and sentence."""
    return dict(sorted(_SENTENCES.items()))
