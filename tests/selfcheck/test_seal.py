"""A seal says what the evidence supports, no more; and the audit says whose it is, or what is wrong with it."""

import base64
import json
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parproof.cli import main
from parproof.errors import UsageError
from parproof.evidence.audit import audit
from parproof.evidence.audit.sealed import SEAL_RULES, Asked
from parproof.evidence.new_file import write_new
from parproof.evidence.seal import dsse
from parproof.evidence.seal.public_keys import read_public_keys

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "evidence"
GOOD, SEALS = FIXTURES / "good", FIXTURES / "seals"
KEYS = SEALS / "allowed_signers"
DEFECT = "tests/mechanisms/test_nccl_collective.py::test_c1[native-strided]"
SKIPPED = "tests/mechanisms/test_nccl_collective.py::test_c1[cuda]"
FLAKY = "tests/mechanisms/test_nccl_collective.py::test_c1[native]"


@pytest.fixture
def tools(monkeypatch):
    """The modules that make and spoil the fixtures."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import make_evidence_fixtures
    import seal_fixtures

    return make_evidence_fixtures, seal_fixtures


@pytest.fixture
def signing_key(tmp_path, tools):
    """The private key whose public part is in allowed_signers."""
    from cryptography.hazmat.primitives import serialization as s

    path = tmp_path / "key.pem"
    key = tools[1].key(tools[1].TRUSTED)
    path.write_bytes(key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()))
    return path


@pytest.fixture
def evidence(tmp_path):
    """A copy of the good evidence."""
    return Path(shutil.copytree(GOOD, tmp_path / "evidence"))


def findings(seal, directory=GOOD):
    """Rules that an audit with this seal finds broken."""
    return [f.rule for f in audit(directory, seal=Asked(seal, read_public_keys(KEYS))).findings]


def predicate(path):
    """Of a seal, or of a bare statement."""
    told = json.loads(path.read_text())
    return json.loads(base64.b64decode(told["payload"]) if "payload" in told else path.read_text())[
        "predicate"
    ]


def test_a_good_seal_has_no_finding_and_a_signer():
    """By name and fingerprint, as the file of keys has them."""
    result = audit(GOOD, seal=Asked(SEALS / "good.json", read_public_keys(KEYS)))
    assert result.findings == []
    assert result.signers == ["auditor@example.org SHA256:bbXpuKG6zhzdmnxq256TlqzFBzRl2f6OOg722cYNbU8"]


@pytest.mark.parametrize("rule", SEAL_RULES)
def test_each_rule_finds_the_seal_that_breaks_it_and_no_other(rule):
    """For seal-there there is no file."""
    assert {*findings(SEALS / f"{rule}.json")} == {rule}


def test_no_seal_stands_for_a_rule_that_is_gone():
    """One file a rule, a good one, and the keys."""
    names = {path.name for path in SEALS.iterdir()}
    assert names == {f"{rule}.json" for rule in SEAL_RULES[1:]} | {"good.json", "allowed_signers"}


def test_sealing_and_verifying_need_no_further_word(evidence, signing_key, capsys):
    """DIR.seal.json beside DIR, found again by its name."""
    assert main(["seal", str(evidence), "--key", str(signing_key)]) == 0
    assert main(["audit", str(evidence), "--verify", str(KEYS)]) == 0
    assert "seal signed by auditor@example.org SHA256:" in capsys.readouterr().out
    assert evidence.with_name("evidence.seal.json").read_bytes() == (SEALS / "good.json").read_bytes()
    assert sorted(p.name for p in evidence.parent.iterdir()) == ["evidence", "evidence.seal.json", "key.pem"]


def test_skipped_tests_and_known_defects_are_not_among_the_passed():
    """A defect with a report warns; a skip is in none of the three lists that others read."""
    told = predicate(SEALS / "good.json")
    assert (told["result"], told["warnedTests"]) == ("WARNED", [DEFECT])
    assert told["parproof_knownNonconformances"] == {DEFECT: "pytorch#192920"}
    assert told["parproof_skippedTests"] == [SKIPPED]
    assert not {SKIPPED, DEFECT} & {*told["passedTests"], *told["failedTests"]}
    assert len(told["passedTests"]) == 4


def test_a_test_that_a_retry_made_green_is_sealed_as_failed(signing_key, tmp_path):
    """Merged evidence is sealed as any other; each test is told once."""
    path = tmp_path / "seal.json"
    assert main(["seal", str(FIXTURES / "merged"), "--key", str(signing_key), "--output", str(path)]) == 0
    told = predicate(path)
    assert (told["result"], told["failedTests"], told["parproof_flakyTests"]) == ("FAILED", [FLAKY], [FLAKY])
    assert FLAKY not in told["passedTests"]
    assert findings(path, FIXTURES / "merged") == []


@pytest.mark.parametrize(
    ("kept", "result"),
    [([0, 1], "PASSED"), ([0, 1, 4], "PASSED"), ([3], "WARNED"), ([3, 5], "WARNED"), ([], "WARNED")],
)
def test_the_result_is_passed_only_where_something_passed_and_nothing_warns(kept, result, tools, tmp_path):
    """Places in the good evidence; an empty run has shown nothing."""
    directory = tools[0].Directory()
    directory.records = [directory.records[place] for place in kept]
    directory.manifest["collected"] = [record["identity"]["nodeid"] for record in directory.records]
    directory.write(tmp_path / "evidence")
    assert main(["seal", str(tmp_path / "evidence")]) == 0
    assert predicate(tmp_path / "evidence.intoto.json")["result"] == result


def test_evidence_with_findings_is_not_sealed(signing_key, capsys, tmp_path):
    """Not even with a word of warning: there is nothing to put one's name to."""
    path = tmp_path / "seal.json"
    bad = FIXTURES / "bad" / "level-computed"
    assert main(["seal", str(bad), "--key", str(signing_key), "--output", str(path)]) == 1
    assert "level-computed record 0" in capsys.readouterr().out
    assert not path.exists()


def test_a_bare_statement_is_no_seal(evidence):
    """Without a key it is an export; nobody stands for it."""
    assert main(["seal", str(evidence)]) == 0
    assert findings(evidence.with_name("evidence.intoto.json"), evidence) == ["seal-form"]


@pytest.mark.parametrize("name", ["taken", "evidence/seal.json", "no/such/folder"])
def test_nothing_is_overwritten_and_nothing_written_into_the_evidence(name, evidence, signing_key, capsys):
    """Exit status 2, one line, and all files are what they were."""
    (evidence.parent / "taken").write_text("mine")
    target = evidence.parent / name
    assert main(["seal", str(evidence), "--key", str(signing_key), "--output", str(target)]) == 2
    assert "parproof seal: " in capsys.readouterr().err
    assert (evidence.parent / "taken").read_text() == "mine"
    assert sorted(p.name for p in evidence.parent.iterdir()) == ["evidence", "key.pem", "taken"]
    assert audit(evidence).findings == []


def test_a_name_that_is_taken_costs_no_audit_and_no_passphrase(evidence, signing_key, monkeypatch):
    """It is refused first."""
    evidence.with_name("evidence.seal.json").write_text("mine")
    monkeypatch.setattr("parproof.evidence.seal.sealing.audit", None)
    monkeypatch.setattr("parproof.evidence.seal.sealing.read_private_key", None)
    assert main(["seal", str(evidence), "--key", str(signing_key)]) == 2


def test_a_file_that_comes_while_sealing_is_not_replaced(tmp_path, monkeypatch):
    """Whoever was quicker keeps the name, and nothing else is left."""
    monkeypatch.setattr("os.fsync", lambda descriptor: (tmp_path / "seal").write_text("theirs"))
    with pytest.raises(UsageError, match="exists"):
        write_new(tmp_path / "seal", b"ours", option="--output")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("seal", "theirs")]


def altered(**changes):
    """The good envelope with other fields."""
    return json.dumps(json.loads((SEALS / "good.json").read_text()) | changes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        "[" * 5000,
        altered(payload="%%%"),
        altered(payload="aGVsbG8"),
        altered(payload=7),
        altered(signatures=[]),
        altered(signatures=[{"sig": "%"}]),
        altered(payloadType="text/plain"),
    ],
)
def test_an_envelope_that_is_none_is_a_finding_and_never_a_traceback(text, tmp_path):
    """Of the form, since nothing in it could be verified."""
    (tmp_path / "seal.json").write_text(text)
    assert findings(tmp_path / "seal.json") == ["seal-form"]


@pytest.mark.parametrize("payload", [b"", b"hello", b"[]", b'{"_type": "https://in-toto.io/Statement/v1"}'])
def test_a_signed_payload_that_is_no_statement_is_a_finding(payload, tools, tmp_path):
    """The signature is good, what it is over is not."""
    key = tools[1].key(tools[1].TRUSTED)
    signature = key.sign(dsse.pae(dsse.PAYLOAD_TYPE, payload))
    (tmp_path / "seal.json").write_text(json.dumps(dsse.wrapped(payload, [("", signature)])))
    assert set(findings(tmp_path / "seal.json")) == {"seal-form"}


def test_a_link_is_not_followed(tmp_path):
    """Whoever made it may point it elsewhere while it is read."""
    os.symlink(SEALS / "good.json", tmp_path / "seal.json")
    assert findings(tmp_path / "seal.json") == ["seal-form"]


@settings(max_examples=60, deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), other=st.sampled_from("AZaz09"))
def test_whatever_letter_of_the_payload_is_changed_is_found(place, other, tmp_path_factory):
    """Before anything in it is read."""
    value = json.loads((SEALS / "good.json").read_text())
    letters = list(value["payload"].rstrip("="))
    at = int(place * (len(letters) - 1))  # the last letter holds bits that belong to no byte
    letters[at] = other if letters[at] != other else "b"
    path = tmp_path_factory.mktemp("s") / "seal.json"
    path.write_text(json.dumps(value | {"payload": "".join(letters) + "=" * (-len(letters) % 4)}))
    assert findings(path) == ["seal-signature"]


def test_one_good_signature_among_others_is_enough(tools, tmp_path):
    """As the protocol has it; a key id is only a hint, and a wrong one changes nothing."""
    value = json.loads((SEALS / "good.json").read_text())
    stranger = json.loads((SEALS / "seal-key.json").read_text())["signatures"]
    value["signatures"] = [*stranger, {"keyid": "wrong", "sig": value["signatures"][0]["sig"]}]
    (tmp_path / "seal.json").write_text(json.dumps(value))
    assert findings(tmp_path / "seal.json") == []


def test_a_seal_without_keys_to_verify_it_is_an_error(capsys):
    """Reading it would look like believing it."""
    assert main(["audit", str(GOOD), "--seal", str(SEALS / "good.json")]) == 2
    assert "--verify KEYS" in capsys.readouterr().err
