"""Keys as people have them: PEM and OpenSSH, with and without passphrase, one or many in a file."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from parproof.cli import main
from parproof.errors import UsageError
from parproof.evidence.seal.private_keys import VARIABLE, passphrase_from, read_private_key
from parproof.evidence.seal.public_keys import keyid_of, read_public_keys

pytestmark = pytest.mark.selfcheck
GOOD = Path(__file__).parents[2] / "fixtures" / "evidence" / "good"
KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
RSA = rsa.generate_private_key(65537, 1024)  # short: made at collection, and only its kind is looked at
PKCS8, OPENSSH = s.PrivateFormat.PKCS8, s.PrivateFormat.OpenSSH


def private(key, form, passphrase=None):
    """The bytes of a private key file."""
    lock = s.BestAvailableEncryption(passphrase) if passphrase else s.NoEncryption()
    return key.private_bytes(s.Encoding.PEM, form, lock)


def line(key=KEY):
    """A public-key line without comment."""
    return key.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH).decode()


def pem(key=KEY):
    """A public key in PEM."""
    form = s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(*form).decode()


def nobody(path):
    """A passphrase is not to be asked for."""
    raise AssertionError(f"asked for the passphrase of {path}")


@pytest.mark.parametrize("form", [PKCS8, OPENSSH], ids=["pem", "openssh"])
def test_a_key_without_passphrase_is_read_and_nobody_asked(form, tmp_path):
    """It signs what its public part verifies."""
    (tmp_path / "key").write_bytes(private(KEY, form))
    key = read_private_key(tmp_path / "key", nobody)
    assert key.public_key() == KEY.public_key()


@pytest.mark.parametrize("form", [PKCS8, OPENSSH], ids=["pem", "openssh"])
@pytest.mark.parametrize("way", ["file", "variable", "terminal"])
def test_a_passphrase_comes_from_a_file_a_variable_or_a_terminal_without_echo(
    form, way, tmp_path, monkeypatch
):
    """In this order; the terminal is asked through getpass, which shows nothing."""
    (tmp_path / "key").write_bytes(private(KEY, form, b"p\xc3\xa4ss"))
    (tmp_path / "word").write_text("päss\n", encoding="utf-8")
    monkeypatch.delenv(VARIABLE, raising=False)
    if way == "variable":
        monkeypatch.setenv(VARIABLE, "päss")
    if way == "terminal":
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("getpass.getpass", lambda prompt: "päss")
    asked = passphrase_from(tmp_path / "word" if way == "file" else None)
    assert read_private_key(tmp_path / "key", asked).public_key() == KEY.public_key()


@pytest.mark.parametrize("form", [PKCS8, OPENSSH], ids=["pem", "openssh"])
@pytest.mark.parametrize("word", [b"wrong", b"", None], ids=["wrong", "empty", "nobody_to_ask"])
def test_without_the_right_passphrase_there_is_one_line_and_no_secret(
    form, word, tmp_path, monkeypatch, capsys
):
    """Exit status 2; neither the key nor the word is shown."""
    (tmp_path / "key").write_bytes(private(KEY, form, b"right"))
    monkeypatch.delenv(VARIABLE, raising=False)
    arguments = ["seal", str(GOOD), "--key", str(tmp_path / "key"), "--output", str(tmp_path / "out")]
    if word is not None:
        (tmp_path / "word").write_bytes(word + b"\n")
        arguments += ["--passphrase-file", str(tmp_path / "word")]
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("parproof seal: ")
    assert "wrong" not in shown.out + shown.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "data",
    [
        private(RSA, OPENSSH),
        private(ec.generate_private_key(ec.SECP256R1()), PKCS8),
        line().encode(),
        pem().encode(),
        b"",
        b"\x00\xff" * 10,
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
        private(KEY, PKCS8) + b"x" * 100_000,
    ],
    ids=["rsa", "ec", "public_line", "public_pem", "empty", "binary", "cut_pem", "cut_openssh", "large"],
)
def test_what_is_no_ed25519_private_key_is_refused_in_one_line(data, tmp_path):
    """Whatever it is."""
    (tmp_path / "key").write_bytes(data)
    with pytest.raises(UsageError, match="key"):
        read_private_key(tmp_path / "key", nobody)


@pytest.mark.parametrize(
    ("text", "whose"),
    [
        (pem(), [""]),
        (pem() + pem(OTHER), ["", ""]),
        (f"{line()}\n", [""]),
        (f"{line()} me at home\n{line(OTHER)} you\n", ["me at home", "you"]),
        (f"# both\n\nme@a,you@a {line()} note\n", ["me@a,you@a"]),
        (f'me@a namespaces="git,par*",valid-after="20200101" {line()}\n', ["me@a"]),
        (f'from="10.0.0.?, x",no-pty,command="say \\"hi\\"" {line()} laptop\n', ["laptop"]),
        (f"restrict {line()} laptop\r\n", ["laptop"]),
        (f"{line(RSA)} rsa\n{line()} ed\n", ["ed"]),
    ],
)
def test_public_keys_are_read_from_every_kind_of_file(text, whose, tmp_path):
    """PEM, public-key lines, allowed_signers and authorized_keys; keys of other kinds are passed over."""
    (tmp_path / "keys").write_bytes(text.encode())
    found = read_public_keys(tmp_path / "keys")
    assert [key.whose for key in found] == whose
    assert [key.refusal for key in found] == [None] * len(whose)
    assert found[-1].keyid in (keyid_of(KEY.public_key()), keyid_of(OTHER.public_key()))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("cert-authority", "certifies other keys"),
        ('namespaces="git,file"', "trusted for git,file only"),
        ('namespaces="*,!par*"', "trusted for *,!par* only"),
        ('valid-before="20200101"', "trusted until 20200101"),
        ('valid-before="202001011200Z"', "trusted until"),
        ('expiry-time="20200101120000"', "trusted until"),
        ('valid-after="99990101Z"', "trusted from 99990101Z on"),
    ],
)
def test_a_key_that_is_trusted_for_something_else_does_not_count(options, text, tmp_path, capsys):
    """Its signature is good, and is refused with the reason."""
    (tmp_path / "key").write_bytes(private(KEY, OPENSSH))
    (tmp_path / "keys").write_text(f"me@a {options} {line()}\n")
    seal = ["--key", str(tmp_path / "key"), "--output", str(tmp_path / "seal")]
    assert main(["seal", str(GOOD), *seal]) == 0
    assert (
        main(["audit", str(GOOD), "--verify", str(tmp_path / "keys"), "--seal", str(tmp_path / "seal")]) == 1
    )
    out = capsys.readouterr().out
    assert "seal-key seal: claimed signed by me@a SHA256:" in out
    assert text in out


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"# nothing\n",
        b"ssh-ed25519\n",
        b"ssh-ed25519 AAAA\n",
        b"a b c d e\n",
        f"me@a sometimes,never {line()}\n".encode(),
        f'me@a valid-before="soon" {line()}\n'.encode(),
        f'me@a valid-before="20209999" {line()}\n'.encode(),
        f'valid-before=" {line()}\n'.encode(),
        f"valid-before=20200101 {line()}\n".encode(),
        f'me@a cert-authority" {line()}\n'.encode(),
        f"{line(RSA)} only\n".encode(),
        private(KEY, OPENSSH),
        b"\xff\xfe\x00",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        b"x" * 100_000,
    ],
)
def test_a_file_without_a_key_that_can_be_used_is_unusable(data, tmp_path, capsys):
    """Exit status 2 and one line: a typing error must not leave a seal unverified."""
    (tmp_path / "keys").write_bytes(data)
    assert main(["audit", str(GOOD), "--verify", str(tmp_path / "keys")]) == 2
    assert str(tmp_path / "keys") in capsys.readouterr().err


@pytest.mark.skipif(
    shutil.which("ssh-keygen") is None, reason="requires ssh-keygen; found none; install OpenSSH"
)
@pytest.mark.parametrize("passphrase", ["", "secret"], ids=["open", "locked"])
def test_keys_of_ssh_keygen_are_read_and_named_as_it_names_them(passphrase, tmp_path):
    """So that a fingerprint in a finding can be looked up."""
    made = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "me", "-f", str(tmp_path / "key")]
    subprocess.run(made, check=True)
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-f", tmp_path / "key.pub"], capture_output=True, text=True, check=True
    )
    key = read_private_key(tmp_path / "key", lambda path: passphrase.encode())
    assert keyid_of(key.public_key()) == shown.stdout.split()[1]
    assert [str(known) for known in read_public_keys(tmp_path / "key.pub")] == [
        f"me {shown.stdout.split()[1]}"
    ]


def test_without_the_library_only_seals_are_missing(tmp_path):
    """And the error says how to get it. In a fresh interpreter, in which importing it is an error."""
    code = "import sys; sys.modules['cryptography'] = None; from parproof.cli import main; sys.exit(main(sys.argv[1:]))"
    (tmp_path / "key").write_bytes(private(KEY, OPENSSH))
    keys = str(GOOD.parent / "seals" / "allowed_signers")

    def parproof(*arguments):
        return subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
        )

    assert parproof("audit", str(GOOD)).returncode == 0
    seal = parproof("seal", str(GOOD), "--key", str(tmp_path / "key"), "--output", str(tmp_path / "seal"))
    verify = parproof("audit", str(GOOD), "--verify", keys)
    for done in (seal, verify):
        assert done.returncode == 2
        assert "pip install 'parproof[sign]'" in done.stderr, done.stderr


def test_an_audit_without_seal_does_not_load_the_library():
    """Checked in a fresh interpreter."""
    code = "import sys; from parproof.cli import main; main(['audit', sys.argv[1]]); sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, str(GOOD)], check=False).returncode == 0


def test_a_pipe_that_nobody_writes_to_keeps_nobody_waiting(tmp_path, monkeypatch):
    """An error says so."""
    monkeypatch.setattr("parproof.evidence.seal.private_keys.PIPE_LIMIT_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="nothing came in"):
        read_public_keys(tmp_path / "pipe")


def test_keys_may_come_through_a_pipe():
    """As a shell makes one of `<(command)`."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as file:
        file.write(KEY.public_key().public_bytes(s.Encoding.OpenSSH, s.PublicFormat.OpenSSH))
    (found,) = read_public_keys(Path(f"/dev/fd/{reading}"))
    os.close(reading)
    assert found.keyid == keyid_of(KEY.public_key())
