"""Keys to verify with: PEM, OpenSSH public-key lines, authorized_keys and allowed_signers files, several in one file.

Source   sshd(8), AUTHORIZED_KEYS FILE FORMAT; ssh-keygen(1), ALLOWED SIGNERS
"""

from __future__ import annotations

import base64
import datetime
import fnmatch
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parproof.errors import UsageError
from parproof.evidence.seal.library import primitives
from parproof.evidence.seal.private_keys import read_small

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

NAMESPACE = "parproof"
"""A line with namespaces="…" trusts its key for these only; seals are of this one."""
_KEY_TYPE = re.compile(r"(ssh-|ecdsa-sha2-|sk-(ssh|ecdsa)-)[A-Za-z0-9@.-]+")
_ED25519 = "ssh-ed25519"
_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
# A blank outside of quotes ends a field; a quote inside of quotes is written with a backslash.
_FIELD = re.compile(r'(?:[^\s"]|"(?:[^"\\]|\\.)*")+')
_OPTION = re.compile(r'([A-Za-z-]+)(?:="((?:[^"\\]|\\.)*)")?(?:,|$)')
_TIME = re.compile(r"(\d{8})(\d{4}(?:\d{2})?)?(Z?)")


@dataclass(frozen=True)
class TrustedKey:
    """An Ed25519 key somebody trusts.

    keyid     fingerprint as `ssh-keygen -l` shows it
    whose     principals or comment of its line, "" where there are none
    refusal   why a good signature of this key does not count, None where it does
    """

    key: Ed25519PublicKey
    keyid: str
    whose: str = ""
    refusal: str | None = None

    def verifies(self, signature: bytes, signed: bytes) -> bool:
        """Is it this key's signature over these bytes?"""
        from cryptography.exceptions import InvalidSignature

        try:
            self.key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True

    def __str__(self) -> str:
        return f"{self.whose} {self.keyid}".strip()


def keyid_of(key: Ed25519PublicKey) -> str:
    """SHA256:… over the key as OpenSSH writes it, without padding."""
    serialization = primitives("serialization")
    encoding = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    blob = base64.b64decode(key.public_bytes(*encoding).split()[1])
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def read_public_keys(path: Path) -> list[TrustedKey]:
    """Every Ed25519 key of the file; keys of other kinds are passed over.

    Errors   UsageError when there is none, or a line that cannot be read; OSError
    """
    data = read_small(path)
    if b"PRIVATE KEY-----" in data:
        raise UsageError(
            "this is a private key",
            expected="its public part",
            where=str(path),
            next_step="ssh-keygen -y -f FILE (OpenSSH), or openssl pkey -in FILE -pubout (PEM)",
        )
    found = list(_from_pem(data, path) if b"-----BEGIN " in data else _from_lines(data, path))
    if not found:
        raise UsageError("no Ed25519 key", expected="one or more", where=str(path))
    return found


def _from_pem(data: bytes, path: Path) -> Iterator[TrustedKey]:
    serialization = primitives("serialization")
    for block in _PEM.finditer(data):
        try:
            key = serialization.load_pem_public_key(block.group())
        except Exception as error:
            raise UsageError(
                f"a PEM block that holds no public key: {error}"[:200], where=str(path)
            ) from error
        if _is_ed25519(key):
            yield TrustedKey(key, keyid_of(key))


def _from_lines(data: bytes, path: Path) -> Iterator[TrustedKey]:
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UsageError(f"not UTF-8: {error}", expected="lines of keys", where=str(path)) from error
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield from _from_line(line, f"{path}, line {number}")


def _from_line(line: str, where: str) -> Iterator[TrustedKey]:
    """[principals] [options] type key [comment]; the type tells where the rest is."""
    fields = _FIELD.findall(line)
    if '"' in _FIELD.sub("", line):
        raise UsageError("a quote without its other half", expected='name="value"', where=where)
    at = next((n for n, field in enumerate(fields[:3]) if _KEY_TYPE.fullmatch(field)), None)
    if at is None or len(fields) < at + 2:
        raise UsageError("no key", expected="[principals] [options] ssh-ed25519 KEY", where=where)
    options = _options(fields[at - 1]) if at else None
    principals = fields[0] if at == 2 or (at == 1 and options is None) else ""
    if options is None and (at == 2 or any(sign in principals for sign in '="')):
        raise UsageError(
            f"options {fields[at - 1][:80]}", expected='name or name="value", by commas', where=where
        )
    if fields[at] != _ED25519:
        return
    serialization = primitives("serialization")
    try:
        key = serialization.load_ssh_public_key(f"{_ED25519} {fields[at + 1]}".encode())
    except Exception as error:
        raise UsageError(f"not a key: {error}"[:200], where=where) from error
    if _is_ed25519(key):
        whose = principals or " ".join(fields[at + 2 :])
        yield TrustedKey(key, keyid_of(key), whose, _refusal(options or {}, where))


_KNOWN_OPTIONS = re.compile(
    r"cert-authority|namespaces|valid-after|valid-before|restrict|no-[a-z0-9-]+|[a-z0-9-]+-forwarding|pty|user-rc"
    r"|command|environment|expiry-time|from|permitlisten|permitopen|principals|tunnel|verify-required|no-touch-required",
    re.IGNORECASE,
)


def _options(field: str) -> dict[str, str] | None:
    """name → value; None for a field that is no list of options, so it names principals."""
    found, at = {}, 0
    while at < len(field):
        option = _OPTION.match(field, at)
        if option is None or not _KNOWN_OPTIONS.fullmatch(option.group(1)):
            return None
        found[option.group(1).lower()] = option.group(2) or ""
        at = option.end()
    return found


def _refusal(options: dict[str, str], where: str) -> str | None:
    """A key that is trusted for something else, or at another time."""
    if "cert-authority" in options:
        return "it certifies other keys and signs nothing itself"
    patterns = options.get("namespaces")
    if patterns is not None and not _matches(patterns):
        return f"it is trusted for {patterns} only"
    now = datetime.datetime.now(datetime.UTC)
    after = options.get("valid-after")
    if after is not None and now < _time(after, where):
        return f"it is trusted from {after} on"
    for name in ("valid-before", "expiry-time"):
        if name in options and now >= _time(options[name], where):
            return f"it was trusted until {options[name]}"
    return None


def _matches(patterns: str) -> bool:
    """A list of OpenSSH patterns; one with «!» before it takes back what others give."""
    given = [p for p in patterns.split(",") if not p.startswith("!")]
    taken = [p[1:] for p in patterns.split(",") if p.startswith("!")]
    return any(fnmatch.fnmatchcase(NAMESPACE, p) for p in given) and not any(
        fnmatch.fnmatchcase(NAMESPACE, p) for p in taken
    )


def _time(text: str, where: str) -> datetime.datetime:
    """YYYYMMDD or YYYYMMDDHHMM[SS], in UTC with a Z behind it, else in local time."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        raise UsageError(f"time {text[:40]}", expected="YYYYMMDD[HHMM[SS]][Z]", where=where)
    clock = (parts.group(2) or "0000").ljust(6, "0")
    try:
        found = datetime.datetime.strptime(parts.group(1) + clock, "%Y%m%d%H%M%S")
        return found.replace(tzinfo=datetime.UTC) if parts.group(3) else found.astimezone()
    except (ValueError, OverflowError, OSError) as error:
        raise UsageError(f"time {text[:40]}: {error}", where=where) from error


def _is_ed25519(key: Any) -> bool:
    return isinstance(key, primitives("asymmetric.ed25519").Ed25519PublicKey)
