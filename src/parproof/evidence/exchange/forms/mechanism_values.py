"""Do the figures of a mechanism runner hold together? Each check reads one row of metrics and the workload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parproof.evidence.exchange.assessment import Assessment, close_to, number, numbers, word

Row = dict[str, Any]
Check = Callable[[Assessment, Row, Row, "int | None", str], None]


def training(told: Assessment, row: Row, workload: Row, size: int | None, where: str) -> None:
    """Tokens a second of a step: the tokens of all ranks, or of the micro-batches, over the slowest rank's step."""
    micro, length = number(workload.get("micro_batch")), number(workload.get("seq_len"))
    if "micro_batches" in workload:
        factor = number(workload.get("micro_batches"))
    else:
        accumulation = number(workload.get("gradient_accumulation"))
        factor = None if accumulation is None or size is None else accumulation * size
    if micro is not None and length is not None and factor is not None:
        _rate(told, row, "tokens_per_s_proxy", micro * length * factor, "max_step_time_ms", where)


def tensor(told: Assessment, row: Row, workload: Row, size: int | None, where: str) -> None:
    """Rows of the batch over the slowest rank's step."""
    batch = number(workload.get("batch_size"))
    if batch is not None:
        _rate(told, row, "tokens_per_s_proxy", batch, "max_rank_step_ms", where)


def dispatch(told: Assessment, row: Row, workload: Row, size: int | None, where: str) -> None:
    """Tokens are conserved, and skew follows from the loads."""
    loads, tokens = numbers(row.get("received_tokens_per_rank")), number(workload.get("tokens_per_rank"))
    if loads is None:
        return
    if tokens is not None and size is not None and sum(loads) != tokens * size:
        told.found(
            "value-derived",
            f"{where}.received_tokens_per_rank",
            sum(loads),
            f"{tokens * size:g} tokens were sent",
        )
    skew, mean = number(row.get("load_skew_ratio")), sum(loads) / len(loads)
    if skew is not None and mean > 0 and not close_to(skew, (max(loads) - min(loads)) / mean, absolute=1e-4):
        told.found(
            "value-derived", f"{where}.load_skew_ratio", skew, f"{(max(loads) - min(loads)) / mean:.5g}"
        )
    if mean > 0:
        told.give("load", max_over_mean=max(loads) / mean)


def collectives(told: Assessment, row: Row, workload: Row, size: int | None, where: str) -> None:
    """Payload over time is in gigabytes a second, whatever the field's name says."""
    payload, elapsed = number(row.get("payload_bytes_per_rank")), number(row.get("max_rank_elapsed_ms"))
    given = number(row.get("effective_payload_gbps"))
    if payload is None or elapsed is None or given is None:
        return
    if elapsed <= 0:
        told.found("not-positive", f"{where}.max_rank_elapsed_ms", elapsed, "a time above 0")
        return
    gigabytes = payload / (elapsed / 1e3) / 1e9
    if close_to(given, gigabytes, absolute=1e-4):
        claimed, supported = f"{given} gbps", f"{given} GB/s, which are {8 * given:.5g} Gbit/s"
        told.found("unit-gbps", f"{where}.effective_payload_gbps", claimed, supported)
    elif not close_to(given, 8 * gigabytes, absolute=1e-4):
        told.found("rate-consistent", f"{where}.effective_payload_gbps", given, f"{gigabytes:.5g} GB/s")


def overlap(told: Assessment, row: Row, workload: Row, size: int | None, where: str) -> None:
    """Saving and speed-up follow from the two times."""
    serial, overlapped = number(row.get("serial_max_rank_ms")), number(row.get("overlap_max_rank_ms"))
    if serial is None or overlapped is None or overlapped <= 0:
        return
    for name, derived in (("saved_ms", serial - overlapped), ("speedup", serial / overlapped)):
        given = number(row.get(name))
        if given is not None and not close_to(given, derived, absolute=1e-3):
            told.found("value-derived", f"{where}.{name}", given, f"{derived:.5g}")


def context(told: Assessment, row: Row, workload: Row, size: int | None, where: str) -> None:
    """What is exposed follows from the two times; what is exchanged from the number of ranks."""
    compute, total = (
        number(row.get("compute_only_max_rank_ms")),
        number(row.get("exchange_compute_max_rank_ms")),
    )
    exposed = number(row.get("exposed_exchange_ms_proxy"))
    if compute is not None and total is not None and exposed is not None:
        if not close_to(exposed, max(total - compute, 0.0), absolute=1e-3):
            told.found(
                "value-derived",
                f"{where}.exposed_exchange_ms_proxy",
                exposed,
                f"{max(total - compute, 0):.5g}",
            )
        told.give("time", exposed_s=exposed / 1e3, compute_s=compute / 1e3)
    local, sent = number(row.get("local_kv_bytes_per_rank")), number(row.get("kv_exchange_bytes_per_rank"))
    if local is not None and sent is not None and size is not None and sent != local * (size - 1):
        told.found(
            "value-derived",
            f"{where}.kv_exchange_bytes_per_rank",
            sent,
            f"{local * (size - 1):g} in {size} ranks",
        )


def replicas(told: Assessment, row: Row, workload: Row, size: int | None, where: str) -> None:
    """Rates over the makespan: the number of requests has to be whole."""
    makespan, rate = (
        number(row.get("max_rank_makespan_ms")),
        number(row.get("throughput_requests_per_s_proxy")),
    )
    if makespan is None or rate is None:
        return
    requests = rate * makespan / 1e3
    if not close_to(requests, round(requests), relative=1e-3, absolute=1e-3):
        told.found(
            "rate-consistent", f"{where}.throughput_requests_per_s_proxy", rate, f"{requests:.4g} requests"
        )


def moe(told: Assessment, row: Row, workload: Row, size: int | None, where: str) -> None:
    """A balanced all-to-all keeps one part in n at home; and equal loads are a result, not a constant."""
    tokens, mode = number(workload.get("tokens_per_rank")), word(workload.get("route_mode"))
    if tokens is not None:
        _rate(told, row, "tokens_per_s_proxy", tokens, "max_step_time_ms", where)
    ratio = number(row.get("cross_rank_token_ratio"))
    if mode == "cross_rank_balanced" and ratio is not None and size:
        derived = (size - 1) / size
        if not close_to(ratio, derived):
            told.found(
                "constant-ratio", f"{where}.cross_rank_token_ratio", ratio, f"{derived:.4g} for {size} ranks"
            )
    if number(row.get("load_imbalance_ratio")) == 1.0 and "received_tokens_per_rank" not in row:
        told.found(
            "constant-ratio", f"{where}.load_imbalance_ratio", 1.0, "a value that follows from counted tokens"
        )


def smoke(told: Assessment, row: Row, workload: Row, size: int | None, where: str) -> None:
    """One call without warm-up: nothing to derive."""


def _rate(told: Assessment, row: Row, name: str, count: float, time_ms: str, where: str) -> None:
    given, elapsed = number(row.get(name)), number(row.get(time_ms))
    if given is None or elapsed is None:
        return
    if elapsed <= 0:
        told.found("not-positive", f"{where}.{time_ms}", elapsed, "a time above 0")
    elif not close_to(given, count / elapsed * 1e3):
        told.found(
            "rate-consistent",
            f"{where}.{name}",
            given,
            f"{count:g} in {elapsed:g} ms: {count / elapsed * 1e3:.5g}",
        )
