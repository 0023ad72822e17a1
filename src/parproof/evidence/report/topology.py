"""Where ranks were seen to be: host → rank → device, one map for each placement that occurs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parproof.evidence.record import largest_run

MAX_MAPS, MAX_RANKS = 12, 64
Seat = tuple[int, str, str, str]  # rank, host by the pool's count, host name, device


@dataclass
class Placement:
    """Equal placements of several records; process numbers are left out, they differ from run to run."""

    backend: str
    launcher: str
    host_kind: str
    seats: tuple[Seat, ...]
    links: int | None
    count: int = 0
    sequences: list[int] = field(default_factory=list)

    def hosts(self) -> list[tuple[str, str, list[Seat]]]:
        """(host by count, host name, its seats)."""
        found: dict[tuple[str, str], list[Seat]] = {}
        for seat in self.seats[:MAX_RANKS]:
            found.setdefault((seat[1], seat[2]), []).append(seat)
        return [(*host, seats) for host, seats in sorted(found.items())]

    @property
    def num_left_out(self) -> int:
        """Ranks that are not drawn."""
        return max(0, len(self.seats) - MAX_RANKS)


class Topology:
    """Collects placements."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Placement] = {}
        self.accelerators: set[str] = set()
        self._num_dropped = self._num_cut = 0

    def add(self, record: dict[str, Any]) -> None:
        """The largest run of a record, as the record's topology has it."""
        run = largest_run(record["observation"])
        if record["topology"]["accelerator"] and len(self.accelerators) < MAX_MAPS:
            self.accelerators.add(record["topology"]["accelerator"])
        if run is None:
            return
        links = record["topology"]["links"]
        found = _placement(run, None if links is None else len(links))
        key = found.backend, found.launcher, found.host_kind, found.seats, found.links
        if key not in self._found:
            if len(self._found) == 8 * MAX_MAPS:
                self._num_dropped += 1
                return
            self._found[key] = found
        self._found[key].count += 1
        if len(self._found[key].sequences) < 1:
            self._found[key].sequences.append(record["sequence"])

    @property
    def num_left_out(self) -> int:
        """What there was too much of; complete after `maps`."""
        return self._num_dropped + self._num_cut

    def maps(self) -> list[Placement]:
        """The largest first."""
        found = sorted(self._found.values(), key=lambda p: (-len(p.seats), -p.count))
        self._num_cut = max(0, len(found) - MAX_MAPS)
        return found[:MAX_MAPS]


def _placement(run: Mapping[str, Any], links: int | None) -> Placement:
    seats = tuple((r["rank"], r["host"], r["hostname"], r["device"]) for r in run["ranks"])
    return Placement(run["backend"], run["launcher"], run["host_kind"], seats, links)
