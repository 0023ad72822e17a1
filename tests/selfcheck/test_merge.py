"""Shards of one run become one evidence directory: nothing is lost, nothing gets better, and what differs is said."""

import json
import shutil
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.errors import UsageError
from parproof.evidence import canonical, shards
from parproof.evidence.audit import audit
from parproof.evidence.merge import merge

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "evidence"
FLAKY = "tests/mechanisms/test_nccl_collective.py::test_c1[native]"


@pytest.fixture
def reseal(monkeypatch):
    """Changes a directory and seals it again, as a liar would."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import merge_fixtures

    return merge_fixtures.reseal


@pytest.fixture
def copied(tmp_path):
    """The two shards of the fixtures, to be spoilt."""
    return [Path(shutil.copytree(FIXTURES / "shards" / name, tmp_path / name)) for name in ("first", "retry")]


def manifest(directory):
    """Of an evidence directory."""
    return json.loads((directory / "manifest.json").read_text())


def records(directory):
    """Of an evidence directory."""
    return [json.loads(line) for line in (directory / "records.jsonl").read_text().splitlines()]


def refused(directories, tmp_path):
    """Why a merge was refused; nothing is left of it."""
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UsageError) as caught:
        merge(directories, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before
    return str(caught.value)


def test_a_retry_that_passed_hides_no_failure(copied, tmp_path):
    """Both attempts are there, the worse one counts, and the test is named flaky."""
    assert main(["merge", *map(str, copied), "--output", str(tmp_path / "out")]) == 0
    attempts = [r for r in records(tmp_path / "out") if r["identity"]["nodeid"] == FLAKY]
    assert [(r.get("attempt", 1), r["conclusion"]["status"]) for r in attempts] == [(1, "failed"), (2, "ok")]
    told = manifest(tmp_path / "out")
    assert (told["exit_status"], told["flaky"]) == (1, [FLAKY])
    assert told["counts"] == {"ok": 3, "failed": 2, "blocked": 0, "skipped": 1}
    result = audit(tmp_path / "out")
    assert (result.findings, result.counts) == ([], {"ok": 3, "failed": 2, "skipped": 1})


def test_every_record_of_every_shard_can_be_put_back_byte_by_byte(copied, tmp_path):
    """Merged evidence holds all that the shards held."""
    merge(copied, tmp_path / "out")
    for directory in copied:
        there, previous, lines = manifest(directory), "0" * 64, []
        for record in records(tmp_path / "out"):
            if record["origin"]["run_id"] == there["run_id"]:
                lines.append(json.dumps(shards.restored(record, there, previous), sort_keys=True))
                previous = record["origin"]["digest"]
        ours = [json.dumps(record, sort_keys=True) for record in records(directory)]
        assert lines == ours
        kept = tmp_path / "out" / "shards" / there["run_id"]
        for name in ("manifest.json", "environment.json"):
            assert (kept / name).read_bytes() == (directory / name).read_bytes()


def test_the_order_in_which_shards_are_named_makes_no_difference(copied, tmp_path):
    """The same shards make the same evidence, digest and all."""
    merge(copied, tmp_path / "one")
    merge(copied[::-1], tmp_path / "two")
    assert manifest(tmp_path / "one") == manifest(tmp_path / "two")


def test_two_machines_make_no_multi_host_record(copied, tmp_path, reseal):
    """Each record keeps its own scope; the machines are told apart, and a scope typed in is found."""
    merge(copied, tmp_path / "out")
    assert {r["topology"]["scope"] for r in records(tmp_path / "out")} <= {
        "single_host",
        "single_process",
        None,
    }
    differences = " ".join(manifest(tmp_path / "out")["merged"]["differences"])
    assert "machine.hostname: node-a in aaaaaaaa; node-b in bbbbbbbb" in differences
    environment = json.loads((tmp_path / "out" / "environment.json").read_text())
    assert environment["machine"]["hostname"] == "node-a | node-b"
    reseal(tmp_path / "out", lambda p, found, m: found[1]["topology"].update(scope="multi_host"))
    assert {f.rule for f in audit(tmp_path / "out").findings} == {"scope-computed", "origins-kept"}


def same_twice(copied, reseal):
    """One directory under two names."""
    return [copied[0], copied[0]], "run aaaaaaaa given twice: the same evidence"


def changed_and_sealed_again(copied, reseal):
    """Two directories that say they are one run."""
    other = Path(shutil.copytree(copied[0], copied[0].with_name("other")))
    reseal(other, lambda p, found, m: m.update(num_deselected=7))
    return [copied[0], other], "two directories of one run, so one of them was changed"


def other_commit(copied, reseal):
    """Tests of other sources."""
    reseal(copied[1], lambda p, found, m: m["source"].update(commit="d" * 40))
    return copied, f"source commit: {'c0ffee00' * 5} in aaaaaaaa, {'d' * 40} in bbbbbbbb"


def other_tree(copied, reseal):
    """Equal commits, and something uncommitted in one."""
    reseal(copied[1], lambda p, found, m: m["source"].update(fingerprint="d" * 64))
    return copied, "source fingerprint"


def other_suite(copied, reseal):
    """Rules and registry may differ."""
    return replaced(copied, reseal, '"parproof":"0.1.0"', '"parproof":"0.2.0"'), "packages.parproof: 0.1.0"


def other_torch(copied, reseal):
    """Another thing was tested."""
    return replaced(copied, reseal, "2.13.0+cpu", "2.14.0+cpu"), "packages.torch: 2.13.0+cpu in aaaaaaaa"


def replaced(copied, reseal, old, new):
    """Another word in the environment of the second shard."""

    def change(path, found, told):
        file = path / "environment.json"
        file.write_text(file.read_text().replace(old, new))

    reseal(copied[1], change)
    return copied


def incomplete(copied, reseal):
    """It was interrupted, and says so."""
    reseal(copied[1], lambda p, found, m: m.update(complete=False, exit_status=2))
    return copied, "complete run: claimed evidence of a whole run; supported a run that ended early"


def level_typed_in(copied, reseal):
    """A shard that its own audit objects to."""
    reseal(copied[1], lambda p, found, m: found[0]["conclusion"].update(evidence_level="real_benchmark"))
    return copied, "this shard does not pass its audit (2 findings), first: level-computed"


def other_label(copied, reseal):
    """Which name should the whole have?"""

    def change(path, found, told):
        told["run_label"] = found[0]["identity"]["run_label"] = "retry"

    reseal(copied[1], change)
    return copied, "different labels: «fixture», «retry»"


def merged_before(copied, reseal):
    """Its records have an origin already."""
    return [copied[0], FIXTURES / "merged"], "this is merged evidence already"


def other_bytes(copied, reseal):
    """Lines of the same meaning and digest, which nobody could restore."""
    path = copied[1] / "records.jsonl"
    path.write_text(path.read_text().replace('{"communication"', '{ "communication"'))
    told = manifest(copied[1])
    entry = told["files"]["records.jsonl"]
    entry |= {"sha256": canonical.file_digest(path), "bytes": path.stat().st_size}
    del told["digest"]
    text = canonical.dumps(told | {"digest": canonical.digest(told)}) + "\n"
    (copied[1] / "manifest.json").write_text(text)
    return copied, "line 1 is not in canonical form"


def only_one(copied, reseal):
    """Nothing to merge."""
    return copied[:1], "expected two or more shards of one run"


@pytest.mark.parametrize(
    "spoil",
    [
        same_twice,
        changed_and_sealed_again,
        other_commit,
        other_tree,
        other_suite,
        other_torch,
        incomplete,
        level_typed_in,
        other_label,
        merged_before,
        other_bytes,
        only_one,
    ],
    ids=lambda spoil: spoil.__name__,
)
def test_what_is_not_of_one_run_is_refused_by_what_differs(spoil, copied, reseal, tmp_path):
    """And nothing is left behind."""
    directories, text = spoil(copied, reseal)
    assert text in refused(directories, tmp_path)


def test_a_label_for_different_labels_is_asked_for_and_kept(copied, reseal, tmp_path):
    """Every record is restored with its own."""
    directories, _ = other_label(copied, reseal)
    assert merge(directories, tmp_path / "out", label="both").findings == []
    assert manifest(tmp_path / "out")["run_label"] == "both"


@pytest.mark.parametrize("name", ["first/out", "retry"])
def test_nothing_is_written_into_a_shard_or_over_anything(name, copied, tmp_path, capsys):
    """A shard is bound; what exists stays."""
    assert main(["merge", *map(str, copied), "--output", str(tmp_path / name)]) == 2
    assert ("is inside the shard" in capsys.readouterr().err) or name == "retry"
    assert [audit(directory).findings for directory in copied] == [[], []]
