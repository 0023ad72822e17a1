"""Published vectors: what others sign we accept, and what they must reject we reject."""

import pytest
from cryptography.hazmat.primitives import serialization as s
from cryptography.hazmat.primitives.asymmetric import ed25519

from parproof.evidence.seal import dsse
from parproof.evidence.seal.private_keys import read_private_key
from parproof.evidence.seal.public_keys import TrustedKey, keyid_of

pytestmark = pytest.mark.selfcheck

# RFC 8032, 7.1: TEST 1 and TEST 2 as (secret key, public key, message, signature).
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
]
# secure-systems-lab/dsse, testvectors/vectors.json: single-signature, url-safe-base64, payload-type-swapped,
# non-ascii-payload-type and empty-payload, all by the key of TEST 1.
STATEMENT = "eyJfdHlwZSI6Imh0dHBzOi8vaW4tdG90by5pby9TdGF0ZW1lbnQvdjEifQ=="
BY_KEY_A = "2WAfaHm5jluo0w+0rk8uVkluELJYWjSmU9x7EUzx+AyteDGJ4/nqyJXfmAUVFIAoQafWm7AxBZNw5M9ixNHiCA=="
IN_TOTO = "application/vnd.in-toto+json"
ENVELOPES = {
    "single": (STATEMENT, IN_TOTO, BY_KEY_A, True),
    "url_safe": (
        "-_-_Pj8=",
        IN_TOTO,
        "P-_KHICeR7tI6S_YyejJTRtrXhcQyQ2LYPaL8h90KjC9qN8HU_svOQ6TuDOT1HIrsGW886DbWNWcCmX5twLrAw==",
        True,
    ),
    "type_swapped": (STATEMENT, "application/vnd.example.other+json", BY_KEY_A, False),
    "non_ascii_type": (
        STATEMENT,
        "application/vnd.exämple+json",
        "xmSk/ug66ysT7ayhkCIjhAq42zgZXSsEWuzUaNL7w2eGAdF/NU6/fRXPtmfN+5DNSAs5/i2lUnHjbbjPsu0tAw==",
        True,
    ),
    "empty": (
        "",
        IN_TOTO,
        "gSggCAaTLTYyRH6FIDBem6meyIynsYy8RTHVzwx9tnTb7Bg/1jMWnuVgI/gffqmbsC2VX5/jHfkkDqsj7CDbDg==",
        True,
    ),
}


def trusted(public):
    """A key to verify with."""
    key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
    return TrustedKey(key, keyid_of(key))


def test_the_encoding_before_signing_is_that_of_the_protocol():
    """Its own example; lengths are of bytes, not of letters."""
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert dsse.pae("http://example.com/HelloWorld", b"hello world") == expected
    assert dsse.pae("é", b"") == b"DSSEv1 2 \xc3\xa9 0 "


@pytest.mark.parametrize(("secret", "public", "message", "signature"), RFC_8032, ids=["test1", "test2"])
def test_a_key_read_from_a_file_signs_as_the_rfc_says(secret, public, message, signature, tmp_path):
    """Ed25519 is deterministic, so the bytes are known."""
    key = ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    form = s.Encoding.PEM, s.PrivateFormat.OpenSSH, s.NoEncryption()
    (tmp_path / "key").write_bytes(key.private_bytes(*form))
    read = read_private_key(tmp_path / "key", lambda path: b"")
    assert read.sign(bytes.fromhex(message)).hex() == signature
    assert trusted(public).verifies(bytes.fromhex(signature), bytes.fromhex(message))
    assert not trusted(public).verifies(bytes.fromhex(signature), bytes.fromhex(message) + b"x")


@pytest.mark.parametrize("name", ENVELOPES)
def test_envelopes_of_others_are_judged_as_published(name):
    """The payload type is under the signature; both alphabets of base64 are read."""
    payload, kind, signature, accepted = ENVELOPES[name]
    envelope = dsse.decoded({"payload": payload, "payloadType": kind, "signatures": [{"sig": signature}]})
    (found,) = (signed for _, signed in envelope.signatures)
    assert trusted(RFC_8032[0][1]).verifies(found, envelope.signed) == accepted
    assert not trusted(RFC_8032[1][1]).verifies(found, envelope.signed)


@pytest.mark.parametrize("length", [0, 63, 65])
def test_a_signature_of_another_length_is_not_good_and_no_error(length):
    """It came from a file that anybody may have written."""
    assert not trusted(RFC_8032[0][1]).verifies(b"x" * length, b"")
