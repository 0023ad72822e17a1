"""The wire column: what the backend's model makes of the calls in the ledger, kept apart from the logical payload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parproof.checks.wire import predicted_wire
from parproof.errors import Unsupported
from parproof.ledger.rows import Row

MODELS = {"gloo": "gloo over TCP, message by message, headers included (docs/costs.md)"}


def sent_bytes(backend: str, ledgers: Sequence[Sequence[Row]]) -> dict[str, Any] | None:
    """Bytes that leave each rank by the model; None where there is none, or where a call has none."""
    if backend not in MODELS:
        return None
    try:
        by_rank = [
            predicted_wire(rows, rank, backend=backend).sent_bytes for rank, rows in enumerate(ledgers)
        ]
    except (Unsupported, ValueError):
        return None
    return {"model": MODELS[backend], "sent_bytes": by_rank}


def why_not(backend: str | None) -> str:
    """Why there is no figure."""
    if backend is None:
        return "no ranks were started"
    if backend not in MODELS:
        return f"no model of what {backend} puts on the wire: protocol and channels are chosen at run time"
    return "no run ended well, or a call in the ledger has no model"
