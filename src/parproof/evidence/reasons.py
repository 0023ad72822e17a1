"""Why a field of a record is null: what was not collected is never absent, and never without a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parproof.evidence import wire_model

PUBLIC_GROUPS = ("identity", "topology", "communication", "time", "load", "conclusion")

_ALWAYS = {
    "topology.links": "the links between ranks were not probed",
    "communication.sync_frequency": "not derived by this suite",
    "time.compute_s": "not separated from communication in this test",
    "time.communication_s": "not separated from compute in this test",
    "time.exposed_s": "no interval trace was read in this test",
    "load.per_rank": "no load figure belongs to this test",
    "load.max_over_mean": "no load figure belongs to this test",
    "load.overflow": "no capacity belongs to this test",
    "load.idle_ratio": "no idle time was measured",
    "conclusion.fallback": "no fallback took place",
}


def why_null(record: Mapping[str, Any]) -> dict[str, str]:
    """«group.name» → reason, for each null in the public groups."""
    skipped = record["conclusion"]["status"] == "skipped"
    no_ranks = "skipped before any rank was started" if skipped else "no ranks were started"
    reasons = {
        "identity.semantic_id": "the test names no registered experiment",
        "identity.page": "no registered experiment, so no page",
        "identity.strategy": "the test compares no strategies",
        "identity.lane": "the test names no lane",
        "identity.subject": "the test takes no subject",
        "identity.workload_id": "the test names no workload",
        "communication.predicted": "the test predicts no traffic",
        "communication.wire_model": wire_model.why_not(record["communication"]["backend"]),
        "communication.wire_bytes": "bytes on the wire were not counted in this test",
        "communication.ledger_complete": "completeness was not established",
        "time.started": "the process that ran the test died",
        "time.ended": "the process that ran the test died",
        "time.measured": "no timing belongs to this test",
        "conclusion.failure": "no failure",
        "conclusion.skip": "not skipped",
        "conclusion.expected_nonconformance": "no listed defect applies",
        "conclusion.evidence_level": "nothing was run",
        "topology.scope": "nothing was run",
        "topology.accelerator": "no accelerator took part",
    } | _ALWAYS
    if any(rank["device"] != "cpu" for rank in record["topology"]["ranks"] or ()):
        reasons["topology.accelerator"] = "its name was not collected"
    found = {}
    for group in PUBLIC_GROUPS:
        for name, value in record[group].items():
            if value is None:
                found[f"{group}.{name}"] = reasons.get(f"{group}.{name}", no_ranks)
    return found
