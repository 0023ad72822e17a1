"""Lines that SGLang's `bench_serving` appends to its JSONL file: one run a line."""

from __future__ import annotations

from typing import Any

from parproof.evidence.exchange import assessment, quantities
from parproof.evidence.exchange.assessment import Assessment, close_to, mapping, number, word
from parproof.evidence.exchange.forms import serving

FORMAT = "SGLang serving benchmark"
_HAS = {"duration", "completed", "total_input_tokens", "request_throughput"}
_OWN = {"input_throughput", "sharegpt_output_len", "random_input_len", "total_output_tokens_retokenized"}
_WHOLE = "e2e_latency"


def recognise(document: Any) -> Assessment | None:
    """By the counts, and the arguments that only SGLang repeats."""
    if not isinstance(document, dict) or not _HAS.issubset(document) or len(_OWN & set(document)) < 2:
        return None
    told = Assessment(FORMAT, ", ".join(sorted(_OWN & set(document))))
    server = mapping(document.get("server_info"))
    run = {name: value for name, value in document.items() if name != "server_info"}
    assessment.check_finite(told, run, "", allowed=("request_rate",))
    failed = _failed(run)
    serving.counts(told, run, failed)
    for name, parts in (
        ("request_throughput", ("completed",)),
        ("input_throughput", ("total_input_tokens",)),
        ("output_throughput", ("total_output_tokens",)),
        ("total_throughput", ("total_input_tokens", "total_output_tokens")),
    ):
        serving.rate(told, run, name, *parts)
    serving.percentiles(told, run)
    serving.first_before_last(told, run, _WHOLE)
    serving.details(told, run, failed)
    _check_concurrency(told, run)
    serving.groups(told, run, word(run.get("backend")), _WHOLE)
    quantities.check(told, run)
    quantities.check_named(told, server, "server_info", "tp_size", "pp_size", "dp_size")
    serving.common_limits(told)
    _server(told, server)
    told.close()
    return told


def _failed(run: dict[str, Any]) -> float | None:
    """Told only by the list of errors, where details were kept: an empty one is a request that was answered."""
    errors = run.get("errors")
    return float(sum(1 for error in errors if error)) if isinstance(errors, list) else None


def _check_concurrency(told: Assessment, run: dict[str, Any]) -> None:
    """Requests under way are rate times latency (Little), and not more than were allowed."""
    given, duration = number(run.get("concurrency")), number(run.get("duration"))
    latency, completed = number(run.get(f"mean_{_WHOLE}_ms")), number(run.get("completed"))
    if given is None:
        return
    if None not in (duration, latency, completed) and duration:
        derived = (latency or 0.0) / 1e3 * (completed or 0.0) / duration
        if not close_to(given, derived, absolute=1e-3):
            told.found(
                "value-derived", "concurrency", given, f"{derived:.5g}: latency times completed over duration"
            )
    allowed = number(run.get("max_concurrency"))
    if allowed is not None and given > allowed and not close_to(given, allowed, relative=1e-6):
        told.found("value-derived", "concurrency", given, f"at most {allowed:g}, the highest allowed")


def _server(told: Assessment, server: dict[str, Any]) -> None:
    """What the server said of itself, where it was asked: arguments, version, seldom a device."""
    told.claims["model"] = server.get("model_path") or server.get("served_model_name")
    device = word(server.get("device"))
    degrees = [number(server.get(name)) for name in ("tp_size", "pp_size", "dp_size")]
    known = [int(degree) for degree in degrees if degree is not None and degree >= 1]
    if known:
        size = 1
        for degree in known:
            size *= degree
        told.give("hardware", world_size=size)
    if device is not None and device != "cpu":
        told.accelerator = True
        told.give("hardware", accelerator=device[:80])
    told.limited("hardware-not-recorded", "server_info", device or "nothing")
    if word(server.get("version")) is None or word(server.get("revision")) is None:
        told.limited("version-not-recorded", "server_info", server.get("version"))
