"""Seals for fixtures/evidence: a good one of the good evidence, and for every rule about seals one that breaks it.

The keys are those of RFC 8032, 7.1: everybody knows them, so a seal by them proves nothing, and they sign alike each time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from parproof.evidence import canonical
from parproof.evidence.audit import audit
from parproof.evidence.seal import dsse
from parproof.evidence.seal.public_keys import keyid_of
from parproof.evidence.seal.statement import serialized, statement

TRUSTED = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"
STRANGER = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"


def key(seed: str) -> Ed25519PrivateKey:
    """From the 32 bytes that the RFC calls the secret key."""
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed))


def told(directory: Path) -> dict[str, Any]:
    """The statement that evidence supports."""
    manifest = json.loads((directory / "manifest.json").read_text())
    return statement(canonical.file_digest(directory / "manifest.json"), manifest, audit(directory).tally)


def signed(value: dict[str, Any], seed: str = TRUSTED) -> dict[str, Any]:
    """In an envelope."""
    payload, signer = serialized(value), key(seed)
    signature = signer.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))
    return dsse.wrapped(payload, [(keyid_of(signer.public_key()), signature)])


def passed_all(value: dict[str, Any]) -> dict[str, Any]:
    """The known defect and the skipped test are said to have passed."""
    about = value["predicate"]
    every = sorted(about["passedTests"] + about["warnedTests"] + about["parproof_skippedTests"])
    about |= {"result": "PASSED", "passedTests": every, "warnedTests": [], "parproof_skippedTests": []}
    return value


def edited_after(value: dict[str, Any]) -> dict[str, Any]:
    """Signed, then the payload is replaced."""
    return signed(value) | {"payload": signed(passed_all(value))["payload"]}


def write_all(target: Path) -> None:
    """seals/: keys, a good seal, and one for each rule but that there has to be one."""
    folder = target / "seals"
    folder.mkdir()
    line = key(TRUSTED).public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    (folder / "allowed_signers").write_text(f"# the keys of RFC 8032\nauditor@example.org {line}\n")
    good, other = target / "good", target / "shards" / "first"
    seals: dict[str, Callable[[], dict[str, Any]]] = {
        "good": lambda: signed(told(good)),
        "seal-form": lambda: told(good),
        "seal-key": lambda: signed(told(good), STRANGER),
        "seal-result": lambda: signed(passed_all(told(good))),
        "seal-signature": lambda: edited_after(told(good)),
        "seal-subject": lambda: signed(told(other)),
    }
    for name, make in seals.items():
        (folder / f"{name}.json").write_bytes(serialized(make()) + b"\n")
