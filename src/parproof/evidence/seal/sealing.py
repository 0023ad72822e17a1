"""`parproof seal`: from an evidence directory that passes its audit to a statement about it, signed or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parproof.evidence import canonical
from parproof.evidence.audit import Finding, audit
from parproof.evidence.audit.reading import read_json
from parproof.evidence.new_file import refuse_inside, refuse_taken, write_new
from parproof.evidence.seal import dsse
from parproof.evidence.seal.private_keys import read_private_key
from parproof.evidence.seal.public_keys import keyid_of
from parproof.evidence.seal.statement import serialized, statement
from parproof.evidence.store import MANIFEST

SEAL_SUFFIX, STATEMENT_SUFFIX = ".seal.json", ".intoto.json"


@dataclass(frozen=True)
class Sealed:
    """What was written and what it says; nothing where the evidence has findings."""

    path: Path
    result: str
    keyids: Sequence[str]
    findings: Sequence[Finding] = ()


def default_path(directory: Path, *, signed: bool = True) -> Path:
    """Beside the directory, not in it: the manifest binds what is inside."""
    whole = directory.resolve()
    return whole.with_name(whole.name + (SEAL_SUFFIX if signed else STATEMENT_SUFFIX))


def seal(
    directory: Path,
    output: Path | None,
    keys: Sequence[Path],
    passphrase: Callable[[Path], bytes],
    progress: Callable[[int, int], None],
) -> Sealed:
    """Audit, and when there is no finding write a DSSE envelope; without keys the bare statement.

    Errors   UsageError for keys and output; Unusable when there is nothing to seal
    Cost     an audit of the directory
    """
    target = output or default_path(directory, signed=bool(keys))
    refuse_inside(target, [directory], option="--output")
    refuse_taken(target, option="--output")
    signers = [read_private_key(path, passphrase) for path in keys]
    result = audit(directory, progress=progress)
    if result.findings:
        return Sealed(target, "refused", (), result.findings)
    manifest = read_json(directory, MANIFEST)
    told = statement(canonical.file_digest(directory / MANIFEST), manifest, result.tally)
    payload = serialized(told)
    signed = dsse.pae(dsse.PAYLOAD_TYPE, payload)
    signatures = [(keyid_of(key.public_key()), key.sign(signed)) for key in signers]
    data = serialized(dsse.wrapped(payload, signatures)) if signatures else payload
    write_new(target, data + b"\n", option="--output")
    return Sealed(target, told["predicate"]["result"], [keyid for keyid, _ in signatures])
