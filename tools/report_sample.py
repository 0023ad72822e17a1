"""Evidence that shows what a report can draw: every status, a sweep of payloads, timelines, routes, messages, hosts.

    python tools/report_sample.py DIR [--records 5000]

Nothing in it was run: it is for looking at reports, for their tests and for benchmarks/report_open.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parproof.evidence.record import Outcome, build
from parproof.evidence.store import EvidenceStore
from parproof.ledger.rows import Row

NATIVE = {"name": "torch_native", "address": "parproof.subjects.torch_native:SUBJECT"}
REFERENCE = {"name": "reference", "address": "parproof.subjects.reference:SUBJECT"}
TESTS = "tests/mechanisms"


def seen(world_size: int, *, host_kind: str = "real", calls: int = 1) -> dict[str, Any]:
    """A run of gloo ranks: all on one host, or told that every two have one."""
    ranks = [
        {
            "rank": r,
            "local_rank": r,
            "pid": 4000 + r,
            "host": f"host{r // 2 if host_kind == 'emulated' else 0}",
            "hostname": platform.node(),  # the environment file is this machine's too
            "device": "cpu",
        }
        for r in range(world_size)
    ]
    return {
        "launcher": "local",
        "backend": "gloo",
        "world_size": world_size,
        "ranks": ranks,
        "host_kind": host_kind,
        "num_reports": world_size,
        "calls_seen": calls * world_size,
        "ledger": True,
        "ledger_complete": True,
    }


def all_reduce(world_size: int, num_bytes: int) -> Row:
    """One call of float32."""
    members = tuple(range(world_size))
    return Row(
        0, "all_reduce", "single", "0", members, "float32", ((num_bytes // 4,),), num_bytes, num_bytes, "sum"
    )


def messages(rank: int) -> list[Row]:
    """Two ranks that exchange unequal messages, phase by phase."""
    to, other = 1 - rank, (0, 1)
    shapes = ((16,),)
    return [
        Row(0, "send", "single", "0", other, "float64", shapes, 128 * (1 + 2 * rank), 0, peer=to, phase="f"),
        Row(1, "recv", "single", "0", other, "float64", shapes, 0, 128 * (3 - 2 * rank), peer=to, phase="f"),
    ]


def sweep(subject: dict[str, str], op: str, at_s: tuple[float, ...]) -> Outcome:
    """Times of four payloads; they follow a model or they do not."""
    sizes = (256, 16_384, 131_072, 1_048_576)
    spread = (1.0, 1.04, 0.97, 1.1, 1.02, 0.99)
    times = [
        {
            "name": f"{op} {size} bytes",
            "warmup": 2,
            "samples_s": [[t * s for s in spread], [0.9 * t] * len(spread)],
        }
        for size, t in zip(sizes, at_s, strict=True)
    ]
    return Outcome(
        f"{TESTS}/test_nccl_collective.py::test_c8_times[{subject['name']}-cpu-{op}]",
        "ok",
        0.2,
        experiment="PAR-NCCL-COLLECTIVE",
        claims=("C8",),
        lane="cpu",
        subject=subject,
        workload_id="collective_times",
        workload={"op": op},
        measurements={"payloads": [{"size_bytes": size} for size in sizes]},
        runs=[(seen(2), [[all_reduce(2, 256)]] * 2)],
        times=times,
    )


def timeline(schedule: str, events: list[Any] | None) -> Outcome:
    """A pipeline of two ranks and two micro-batches, with the times of its events or without."""
    measured = {"peak_live_activations_per_rank": [2, 2]} if events is None else {"events": events}
    return Outcome(
        f"{TESTS}/test_pipeline_schedule.py::test_c6[{schedule}{'' if events is None else '-timed'}]",
        "ok",
        0.05,
        experiment="PAR-PIPELINE-SCHEDULE",
        claims=("C6",),
        lane="cpu",
        subject=REFERENCE,
        workload_id="pipeline_chain",
        workload={"schedule": schedule, "world": 2, "micro_batches": 2},
        measurements=measured,
        runs=[(seen(2, calls=2), [messages(0), messages(1)])],
    )


def timed_events() -> list[list[tuple[str, str, int, int, float]]]:
    """Fill-drain of two ranks by a clock that starts anywhere."""
    spans = [
        [("F", 0, 0), ("F", 1, 1), ("B", 0, 4), ("B", 1, 5)],
        [("F", 0, 1), ("F", 1, 2), ("B", 0, 3), ("B", 1, 4)],
    ]
    return [
        [
            (kind, edge, rank, micro, 1000.0 + 0.01 * (slot + later))
            for kind, micro, slot in of_rank
            for edge, later in (("start", 0.0), ("end", 0.9))
        ]
        for rank, of_rank in enumerate(spans)
    ]


def routed() -> Outcome:
    """An account of routes: eleven bytes each, twelve routes, ten kept."""
    account = {"sent": [[2, 3], [1, 4]], "loads": [5, 7], "logical_bytes": 132, "network_bytes": 44}
    return Outcome(
        f"{TESTS}/test_expert_dispatch.py::test_c4[reference-cpu]",
        "ok",
        0.05,
        experiment="PAR-EXPERT-DISPATCH",
        claims=("C4",),
        lane="cpu",
        subject=REFERENCE,
        workload_id="expert_integers",
        measurements={"skewed": account},
        runs=[(seen(4, host_kind="emulated"), [[all_reduce(4, 64)]] * 4)],
    )


def outcomes() -> list[Outcome]:
    """One of each kind."""
    about: dict[str, Any] = {"experiment": "PAR-NCCL-COLLECTIVE", "lane": "cpu", "workload_id": "integers"}
    run = (seen(2), [[all_reduce(2, 256)]] * 2)
    line = {"op": "all_reduce", "calls": 1, "in_bytes": 512, "out_bytes": 256, "group_size": 2, "phase": ""}
    predicted = {"rank": 0, "within": [], "lines": [line | {"members": [], "dtype": ""}]}
    name = f"{TESTS}/test_nccl_collective.py::"
    known = {"type": "AssertionError", "message": "rank 1 of 2: 3 of 6 elements differ", "phase": "call"}
    wrong = known | {"message": "rank 0 of 2: all_reduce: 512 bytes in\nexpected 256", "rank": 0}
    died = {"type": "WorkerDied", "message": "its worker ended with signal 9", "phase": "setup", "rank": None}
    need = {"requirement": "2 CUDA GPUs", "found": "0", "how": "run it on a machine with 2 or more GPUs"}
    return [
        Outcome(
            f"{name}test_c1[native]", "ok", 0.02, claims=("C1", "C7"), subject=NATIVE, runs=[run], **about
        ),
        Outcome(
            f"{name}test_c7[native]",
            "failed",
            0.02,
            claims=("C7",),
            subject=NATIVE,
            runs=[run],
            predicted=predicted,
            failure=wrong,
            **about,
        ),
        Outcome(
            f"{name}test_c1[native-strided]",
            "failed",
            0.02,
            claims=("C1",),
            subject=NATIVE,
            runs=[run],
            failure=known | {"rank": 1},
            expected_nonconformance="pytorch#192920",
            **about,
        ),
        Outcome(
            f"{name}test_c1[native-bool]",
            "blocked",
            0.0,
            claims=("C1",),
            subject=NATIVE,
            ran=False,
            failure=died,
            **about,
        ),
        Outcome(
            f"{name}test_c1[cuda]",
            "skipped",
            0.0,
            claims=("C1",),
            skip={"reason": "lane cuda2 requires 2 CUDA GPUs"} | need,
            **(about | {"lane": "cuda2"}),
        ),
        sweep(REFERENCE, "all_reduce", (1.0e-4, 1.2e-4, 2.3e-4, 1.1e-3)),
        sweep(NATIVE, "all_reduce", (1.1e-4, 9.0e-4, 1.05e-4, 1.2e-3)),
        timeline("one_f_one_b", None),
        timeline("fill_drain", timed_events()),
        routed(),
        Outcome("tests/selfcheck/test_cost.py::test_ring", "ok", 0.001),
    ]


HOSTILE = " ".join(
    (
        "</script><script>window.pwned=1</script>",
        '"><img src=x onerror="window.pwned=1">',
        "<svg onload=window.pwned=1>",
        "javascript:window.pwned=1",
        "{{ 7*7 }} {% raw %} ${window.pwned=1}",
        "\u202emoc.live\u2066 \u200b\ufeff",
        "\x1b[2J\x00\x07\r\n\u2028\u2029",
        "]]><!-- --><!--",
        "|`*_[x](http://evil.example)@someone #1 <b>",
    )
)


def hostile() -> list[Outcome]:
    """Records whose every word wants to run, to steer, or to fill the page."""
    text, large = HOSTILE, 1_000_000
    skip = dict.fromkeys(("reason", "requirement", "found", "how"), text)
    failure = {"type": text, "message": text + "y" * large, "phase": "call", "rank": 1}
    return [
        Outcome(
            f"tests/{text}.py::test[{text}{n}]",
            status,
            0.1,
            experiment=text,
            claims=("C1",),
            lane="cpu",
            parameters={f"name{k}": text for k in range(10_000)} if n == 0 else {},
            subject={"name": text, "address": text},
            workload_id=text,
            workload={"__proto__": text, "constructor": {"\0": 1}, "list": [text] * 2000},
            measurements={text.encode("ascii", "replace").decode(): 2**60, "huge": "x" * large},
            failure=failure if status == "failed" else None,
            skip=skip if status == "skipped" else None,
            expected_nonconformance=text if n == 2 else None,
        )
        for n, status in enumerate(("ok", "failed", "failed", "skipped"))
    ]


def many(number: int) -> Iterator[Outcome]:
    """The same again and again, under names and with times of their own."""
    for place, outcome in zip(range(number), itertools.cycle(outcomes()), strict=False):
        factor = 1 + place * 1e-9
        times = [t | {"samples_s": [[s * factor for s in r] for r in t["samples_s"]]} for t in outcome.times]
        yield dataclasses.replace(outcome, nodeid=f"{outcome.nodeid}[{place}]", times=times)


def write(path: Path, given: list[Outcome], label: str = "sample") -> None:
    """A sealed evidence directory of these outcomes."""
    store = EvidenceStore(path, root=path.parent, command=["pytest", "-m", "cpu"], label=label)
    store.open()
    for outcome in given:
        store.add(build(outcome))
    failed = any(o.status in ("failed", "blocked") and not o.expected_nonconformance for o in given)
    names = [str(outcome.nodeid) for outcome in given]
    store.seal(
        collected=names, collection_errors=[], num_deselected=0, exit_status=int(failed), complete=True
    )


def main() -> None:
    """Write it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--records", type=int)
    options = parser.parse_args()
    write(options.directory, outcomes() if options.records is None else list(many(options.records)))


if __name__ == "__main__":
    main()
