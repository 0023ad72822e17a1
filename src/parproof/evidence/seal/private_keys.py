"""Ed25519 keys to sign with: PEM (PKCS #8) or OpenSSH files, also behind a passphrase."""

from __future__ import annotations

import getpass
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from parproof.errors import UsageError
from parproof.evidence.seal.library import primitives

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_KEY_BYTES = 64 * 1024
PIPE_LIMIT_S = 10.0  # for somebody who types into a pipe
VARIABLE = "PARPROOF_SEAL_PASSPHRASE"
_OPENSSH = b"-----BEGIN OPENSSH PRIVATE KEY-----"


def read_private_key(path: Path, passphrase: Callable[[Path], bytes]) -> Ed25519PrivateKey:
    """The key in a file.

    passphrase   asked only where the file is encrypted
    Errors       UsageError, which never tells any of the file or of the passphrase; OSError
    """
    data = read_small(path)
    if b"PRIVATE KEY-----" not in data:
        raise UsageError(
            "no private key in PEM or OpenSSH form",
            where=str(path),
            next_step="make one: ssh-keygen -t ed25519, or openssl genpkey -algorithm ed25519",
        )
    kind = primitives("asymmetric.ed25519").Ed25519PrivateKey
    try:
        key = _loaded(data, None)
    except TypeError:  # the library's word for «a passphrase is needed»
        key = _with_passphrase(path, data, passphrase(path))
    except Exception as error:
        raise _unreadable(path, error) from error
    if not isinstance(key, kind):
        raise UsageError(f"a key of kind {type(key).__name__}", expected="Ed25519", where=str(path))
    return key  # type: ignore[no-any-return]


def _with_passphrase(path: Path, data: bytes, passphrase: bytes) -> object:
    try:
        return _loaded(data, passphrase)
    except Exception as error:
        raise _unreadable(path, error) from error


def _loaded(data: bytes, passphrase: bytes | None) -> object:
    serialization = primitives("serialization")
    is_openssh = _OPENSSH in data
    load = serialization.load_ssh_private_key if is_openssh else serialization.load_pem_private_key
    key: object = load(data, passphrase)
    return key


def _unreadable(path: Path, error: Exception) -> UsageError:
    if type(error).__name__ == "UnsupportedAlgorithm" and "bcrypt" in str(error):
        return UsageError(
            "an OpenSSH key behind a passphrase needs the bcrypt package",
            where=str(path),
            next_step="pip install 'parproof[sign]'",
        )
    return UsageError(
        f"the key cannot be read ({type(error).__name__})",
        expected="an unencrypted key, or the right passphrase",
        where=str(path),
    )


def passphrase_from(file: Path | None) -> Callable[[Path], bytes]:
    """Where a passphrase comes from: a file, the environment, or whoever sits at the terminal, without echo."""

    def asked(key: Path) -> bytes:
        if file is not None:
            return read_small(file).rstrip(b"\r\n")
        if VARIABLE in os.environ:
            return os.environ[VARIABLE].encode()
        if not sys.stdin.isatty():
            raise UsageError(
                "this key needs a passphrase, and nobody can be asked",
                where=str(key),
                next_step=f"give --passphrase-file FILE, or set {VARIABLE}",
            )
        return getpass.getpass(f"passphrase of {key}: ").encode()

    return asked


def read_small(path: Path) -> bytes:
    """The bytes of a key file, or of a pipe that somebody writes to; one that nobody writes to is empty.

    Errors   UsageError when it is too large to be one; OSError
    """
    data = b""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:
        while len(data) <= MAX_KEY_BYTES:
            ready, _, _ = select.select([file], [], [], PIPE_LIMIT_S)
            if not ready:
                raise UsageError(f"nothing came in {PIPE_LIMIT_S} s", expected="a key", where=str(path))
            block = file.read(MAX_KEY_BYTES + 1 - len(data))
            if not block:
                break
            data += block
    if len(data) > MAX_KEY_BYTES:
        raise UsageError(f"more than {MAX_KEY_BYTES} bytes", expected="a file of keys", where=str(path))
    return data
