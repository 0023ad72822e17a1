"""Traffic matrices: bytes from rank to rank, where a record lets them be known, and where it does not, said so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_CHARTS, MAX_RANKS = 24, 16
SHADES = 5


@dataclass
class Heat:
    """bytes[source][target]; `kind` says how they follow from the record: «routes» or «ledger»."""

    kind: str
    experiment: str
    workload: str
    name: str
    num_bytes: list[list[int]]
    sequences: list[int] = field(default_factory=list)

    @property
    def largest(self) -> int:
        """Of all places."""
        return max(max(row) for row in self.num_bytes)

    def shade(self, value: int) -> int:
        """0 for nothing, then 1 to SHADES in equal steps up to the largest."""
        return -(-value * SHADES // self.largest) if value > 0 else 0

    @property
    def num_crossing(self) -> int:
        """Bytes between different ranks."""
        return sum(b for s, row in enumerate(self.num_bytes) for t, b in enumerate(row) if s != t)

    @property
    def num_staying(self) -> int:
        """Bytes from a rank to itself."""
        return sum(row[rank] for rank, row in enumerate(self.num_bytes))


class Heats:
    """Collects matrices; equal ones of one experiment are drawn once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str, str], Heat] = {}
        self._num_dropped = self._num_cut = 0
        self.num_without_peers = 0

    def add(self, record: dict[str, Any]) -> None:
        """Look at a record that ran and told of routes, or of messages between two ranks."""
        identity = record["identity"]
        for name, matrix in _routes(record["measurements"]):
            self._keep(record, Heat("routes", "", "", name or str(identity["workload_id"] or ""), matrix))
        ledger = record["communication"]["ledger"] or ()
        if not any(line["op"] == "send" for line in ledger):
            return
        pair = _between_two(record)
        if pair is None:
            self.num_without_peers += 1
        else:
            self._keep(record, Heat("ledger", "", "", str(identity["workload_id"] or ""), pair))

    def _keep(self, record: dict[str, Any], heat: Heat) -> None:
        heat.experiment = record["identity"]["semantic_id"] or ""
        key = heat.kind, heat.experiment, heat.name if heat.kind == "routes" else "", str(heat.num_bytes)
        if key not in self._found:
            if len(self._found) == 4 * MAX_CHARTS:
                self._num_dropped += 1
                return
            self._found[key] = heat
        self._found[key].sequences.append(record["sequence"])

    @property
    def num_left_out(self) -> int:
        """What there was too much of; complete after `charts`."""
        return self._num_dropped + self._num_cut

    def charts(self) -> list[Heat]:
        """Routes before ledgers, more ranks before fewer, more bytes before fewer."""
        found = sorted(
            self._found.values(),
            key=lambda heat: (heat.kind != "routes", -len(heat.num_bytes), -heat.num_crossing, heat.name),
        )
        self._num_cut = max(0, len(found) - MAX_CHARTS)
        return found[:MAX_CHARTS]


def _routes(measurements: Mapping[str, Any]) -> list[tuple[str, list[list[int]]]]:
    """Accounts of routes: at the top of the measurements, or one under each name."""
    accounts = [("", measurements)] + [(n, a) for n, a in measurements.items() if isinstance(a, Mapping)]
    found = []
    for name, account in accounts[: 4 * MAX_CHARTS]:
        matrix = _bytes_of(account)
        if matrix is not None:
            found.append((name, matrix))
    return found


def _bytes_of(account: Mapping[str, Any]) -> list[list[int]] | None:
    """Rows sent from rank to rank times the bytes of one row: logical bytes over all routes, which are the loads."""
    sent, loads, logical = (account.get(name) for name in ("sent", "loads", "logical_bytes"))
    if not (_is_square(sent) and _are_counts(loads) and isinstance(logical, int) and sum(loads)):  # type: ignore[arg-type]
        return None
    row_bytes, rest = divmod(logical, sum(loads))  # type: ignore[arg-type]
    if rest or not any(map(any, sent)):  # type: ignore[arg-type]
        return None
    return [[rows * row_bytes for rows in of_rank] for of_rank in sent]  # type: ignore[union-attr]


def _is_square(value: Any) -> bool:
    return (
        isinstance(value, list)
        and 2 <= len(value) <= MAX_RANKS
        and all(_are_counts(row) and len(row) == len(value) for row in value)
    )


def _are_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(n) is int and 0 <= n < 10**12 for n in value)


def _between_two(record: dict[str, Any]) -> list[list[int]] | None:
    """With two ranks a message has one place to go. With more, the ledger's lines do not tell to whom."""
    lines = [line for line in record["communication"]["ledger"] if line["op"] == "send"]
    world = record["topology"]["world_size"]
    if world != 2 or any(line["group_size"] != 2 or set(line["ranks"]) - {0, 1} for line in lines):
        return None
    found = [[0, 0], [0, 0]]
    for line in lines:
        for rank in line["ranks"]:
            found[rank][1 - rank] += line["in_bytes"]
    return found if any(map(any, found)) else None
