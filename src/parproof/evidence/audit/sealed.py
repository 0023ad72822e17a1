"""Rules about a seal: it is there, by whom it should be, over this evidence, and says what the evidence supports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parproof.evidence import canonical
from parproof.evidence.attempts import Tally
from parproof.evidence.audit.findings import Finding, Unusable, declare
from parproof.evidence.audit.reading import BadJson, parse, read_json
from parproof.evidence.schemas import violations
from parproof.evidence.seal import dsse
from parproof.evidence.seal.statement import predicate, subjects
from parproof.evidence.store import MANIFEST

if TYPE_CHECKING:
    from parproof.evidence.seal.public_keys import TrustedKey

THERE = declare("seal-there", "Where a seal is asked for, there is one.", "seal-there")
FORM = declare(
    "seal-form", "A seal is a DSSE envelope around an in-toto statement of test results.", "seal-form"
)
KEY = declare("seal-key", "A seal is signed by a key that is trusted for it now.", "seal-key")
SIGNATURE = declare(
    "seal-signature",
    "The signature of a trusted key is over the very bytes that the seal carries.",
    "seal-signature",
)
SUBJECT = declare(
    "seal-subject",
    "A seal names the manifest and every file of this directory by sha256, and no other.",
    "seal-subject",
)
RESULT = declare(
    "seal-result",
    "Result, tests and configuration of a seal are those of the records and the manifest.",
    "seal-result",
)
SEAL_RULES = (THERE, FORM, KEY, SIGNATURE, SUBJECT, RESULT)


@dataclass(frozen=True)
class Asked:
    """The seal to verify, and the keys that are trusted."""

    path: Path
    keys: Sequence[TrustedKey]


def check_seal(
    asked: Asked, directory: Path, manifest: dict[str, Any], tally: Tally, signers: list[str]
) -> Iterator[Finding]:
    """Believe nothing in the envelope before a signature is good.

    signers   filled with the trusted keys that signed
    """
    name = asked.path.name
    if not asked.path.is_symlink() and not asked.path.exists():
        yield Finding(THERE, name, "a seal", "no such file")
        return
    try:
        envelope = dsse.opened(read_json(asked.path.parent, name))
    except (Unusable, dsse.BadEnvelope) as error:
        yield Finding(FORM, name, "a DSSE envelope", str(error))
        return
    good = [
        key
        for key in asked.keys
        if any(key.verifies(signature, envelope.signed) for _, signature in envelope.signatures)
    ]
    accepted = [key for key in good if key.refusal is None]
    signers += [str(key) for key in accepted]
    if not accepted:
        yield _not_accepted(name, envelope, asked.keys, good)
        return
    try:
        told = parse(envelope.payload)
    except BadJson as error:
        yield Finding(FORM, name, "an in-toto statement", str(error))
        return
    broken = [
        Finding(FORM, name, "a statement of test results", text) for text in violations("statement", told)
    ]
    yield from broken or _compare(name, told, directory, manifest, tally)


def _not_accepted(
    name: str, envelope: dsse.Envelope, keys: Sequence[TrustedKey], good: Sequence[TrustedKey]
) -> Finding:
    for key in good:
        return Finding(KEY, name, f"signed by {key}", f"{key.refusal}")
    named = [keyid for keyid, _ in envelope.signatures]
    for key in keys:
        if key.keyid in named:
            return Finding(SIGNATURE, name, f"signed by {key}", "no signature of this key over these bytes")
    claimed = ", ".join(keyid or "somebody" for keyid in named)
    return Finding(KEY, name, f"signed by {claimed}", f"none of {len(keys)} trusted keys")


def _compare(
    name: str, told: dict[str, Any], directory: Path, manifest: dict[str, Any], tally: Tally
) -> Iterator[Finding]:
    """The statement that the evidence supports, against the one that was signed."""
    expected = subjects(canonical.file_digest(directory / MANIFEST), manifest)
    sealed = [(entry["name"], entry["digest"]["sha256"]) for entry in told["subject"]]
    if sorted(sealed) != sorted(expected.items()):
        differing = sorted({subject for subject, _ in set(sealed) ^ set(expected.items())})
        shown = ", ".join(differing[:3]) or "a name that occurs twice"
        yield Finding(SUBJECT, name, f"a seal of this evidence, {len(sealed)} files", f"differs in {shown}")
        return
    for field, value in predicate(manifest, tally).items():
        claimed = told["predicate"].get(field)
        if _plain(claimed) != _plain(value):
            yield Finding(RESULT, name, f"{field} {_short(claimed, value)}", _short(value, claimed))


def _plain(value: Any) -> Any:
    """Names of tests are a set: their order says nothing."""
    is_names = isinstance(value, list) and all(isinstance(entry, str) for entry in value)
    return sorted(value) if is_names else value


def _short(value: Any, other: Any) -> str:
    """Of two lists what only this one has."""
    if isinstance(value, list) and isinstance(other, list):
        there = {canonical.dumps(entry) for entry in other}
        only = [entry for entry in value if canonical.dumps(entry) not in there]
        return f"{len(value)} entries" + (f", only here: {only[0]}"[:150] if only else "")
    return canonical.dumps(value)[:150]
