"""DSSE envelopes: what is signed is the payload with its type and both lengths, so nothing has to be canonical.

Source   https://github.com/secure-systems-lab/dsse: protocol.md, envelope.md (version 1)
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parproof.evidence.schemas import violations

PAYLOAD_TYPE = "application/vnd.in-toto+json"
PAYLOAD_TYPES = (PAYLOAD_TYPE, "application/vnd.in-toto.test-result+json")
_STANDARD = str.maketrans("-_", "+/")


class BadEnvelope(ValueError):
    """Not an envelope; the message says why."""


@dataclass(frozen=True)
class Envelope:
    """A payload as bytes, its type, and (key id or "", signature) of each signature; nothing is verified yet.

    The key id is a hint of whoever wrote the envelope, and never a reason to believe it.
    """

    payload_type: str
    payload: bytes
    signatures: Sequence[tuple[str, bytes]]

    @property
    def signed(self) -> bytes:
        """The bytes that a signature has to be over."""
        return pae(self.payload_type, self.payload)


def pae(payload_type: str, payload: bytes) -> bytes:
    """Pre-authentication encoding: «DSSEv1», then type and payload, each behind its length in bytes."""
    kind = payload_type.encode()
    return b" ".join((b"DSSEv1", str(len(kind)).encode(), kind, str(len(payload)).encode(), payload))


def wrapped(payload: bytes, signatures: Sequence[tuple[str, bytes]]) -> dict[str, Any]:
    """The JSON envelope around a statement."""
    return {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [
            {"keyid": keyid, "sig": base64.b64encode(signature).decode()} for keyid, signature in signatures
        ],
    }


def opened(value: Any) -> Envelope:
    """Decode an envelope. Errors: BadEnvelope."""
    for text in violations("envelope", value):
        raise BadEnvelope(text)
    if value["payloadType"] not in PAYLOAD_TYPES:
        raise BadEnvelope(f"payload type {value['payloadType'][:80]}")
    return decoded(value)


def decoded(value: Mapping[str, Any]) -> Envelope:
    """An envelope of any payload type that keeps the schema."""
    return Envelope(
        value["payloadType"],
        _bytes(value["payload"]),
        [(entry.get("keyid") or "", _bytes(entry["sig"])) for entry in value["signatures"]],
    )


def _bytes(text: str) -> bytes:
    """Either alphabet of base64, as the protocol demands of whoever reads."""
    try:
        return base64.b64decode(text.translate(_STANDARD), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadEnvelope(f"not base64: {error}") from error
