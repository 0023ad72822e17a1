"""Time lines and hotspots that the overlap experiment reads. No torch here: a test module reads it at collection."""

from __future__ import annotations

from parproof.subjects.overlap_protocol import Communication, Hotspot, Interval

BOUNDARIES = {
    "page": ("all_to_all", 20.0, 65536, 0.60, 0.0),
    "imbalance_at": ("all_reduce", 20.0, 1024, 0.50, 0.20),
    "imbalance_above": ("all_reduce", 20.0, 1024, 0.10, 0.2000001),
    "overlap_at": ("all_reduce", 20.0, 1024, 0.30, 0.0),
    "overlap_below": ("all_to_all", 20.0, 1024, 0.2999999, 0.0),
    "nothing_exposed": ("all_to_all", 0.0, 1024, 0.0, 0.0),
    "no_payload": ("all_to_all", 9.0, 0, 0.9, 0.0),
    "exposed_at": ("broadcast", 5.0, 1024, 0.9, 0.0),
    "exposed_above": ("broadcast", 5.0000001, 1024, 0.9, 0.0),
}


def page_hotspots(overlap_ratio: float = 0.60, rank_imbalance: float = 0.0) -> list[Hotspot]:
    """The source page's fixture; of what it leaves open (the others' ratios) nothing that would be acted on."""
    return [
        Hotspot("all_reduce", 8.0, 1024, 0.50, 0.0),
        Hotspot("all_reduce", 6.0, 2048, 0.50, 0.0),
        Hotspot("all_to_all", 20.0, 65536, overlap_ratio, rank_imbalance),
        Hotspot("broadcast", 5.0, 512, 0.50, 0.0),
    ]


def page_time_line() -> tuple[list[Communication], list[Interval]]:
    """The source page's calls and pieces of work, in ms."""
    kib = 1024
    calls = [
        Communication("all_reduce", 1.0, 2.5, 64 * kib),
        Communication("broadcast", 2.6, 3.0, 16 * kib),
        Communication("reduce_scatter", 3.5, 4.3, 32 * kib),
        Communication("all_reduce", 4.5, 5.5, 96 * kib),
    ]
    return calls, [(0.0, 2.0), (3.0, 5.0)]


# Files that are no trace of a run.
NO_TRACES = {
    "nothing": "",
    "a_list": "[]",
    "no_events": "{}",
    "empty": '{"traceEvents": []}',
    "cut_off": '{"traceEvents": [{"ph": "X", "ts": 1',
}
