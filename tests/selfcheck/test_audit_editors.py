"""What an editor does who seals again: values, order, copies, cuts and records of other runs, chosen by Hypothesis.

The naive editor makes sizes, digests and the manifest fit. The careful one also numbers and chains the records anew, and
counts them. Whatever the first changes is found. Of the second's changes all are found but those of what a test says of
itself and nothing else bears out: TRUSTED, listed in docs/evidence.md.
"""

import copy
import json
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from parproof.evidence import canonical
from parproof.evidence.audit import audit

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures" / "evidence"
GOOD, WIDE = FIXTURES / "good", FIXTURES / "also-good" / "wide"
OTHERS = ("another-run", "another-commit", "another-machine")
TRUSTED = (
    *(f"communication/ledger/*/{name}" for name in ("op", "dtype", "phase", "group_size", "control")),
    *(f"communication/ledger/*/{name}" for name in ("in_bytes", "out_bytes", "ranks/*")),
    "communication/predicted/rank",
    "communication/predicted/lines/*/group_size",
    "communication/wire_model/sent_bytes/*",
    *(f"conclusion/{name}" for name in ("expected_nonconformance", "failure/*", "skip/*")),
    *(f"identity/{name}" for name in ("lane", "parameters/*", "subject/*", "workload/*")),
    "load/overflow",
    "measurements/*",
    "not_collected/*",
    *(f"observation/{name}" for name in ("model", "failed_runs/*/problems/*")),
    "provenance/worker",
    "topology/accelerator",
    *(f"time/{name}" for name in ("test_s", "compute_s", "communication_s", "exposed_s")),
    *(f"time/measured/*/{name}" for name in ("name", "samples_s/*")),
)
_TRUSTED = re.compile("|".join(f"(?:{place.replace('*', '.+')})" for place in TRUSTED))


def read(directory):
    """Its records and its manifest."""
    lines = (directory / "records.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines], json.loads((directory / "manifest.json").read_text())


RECORDS = {path: read(path)[0] for path in (GOOD, WIDE)}


def chained(records, manifest):
    """Numbered, chained and counted anew."""
    previous = canonical.GENESIS
    for number, record in enumerate(records):
        record |= {"sequence": number, "previous": previous, "run_id": manifest["run_id"]}
        previous = canonical.digest(record)
    statuses = [record["conclusion"]["status"] for record in records]
    counts = {status: statuses.count(status) for status in ("ok", "failed", "blocked", "skipped")}
    manifest |= {"num_records": len(records), "last_record": previous, "counts": counts}


def rules_of(base, change, *, careful):
    """The rules that find what a change of (records, manifest) has made of good evidence."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(shutil.copytree(base, Path(folder) / "evidence"))
        records, manifest = read(directory)
        changed = change(copy.deepcopy(records), manifest)
        if changed == records:
            assume(False)
        if careful:
            chained(changed, manifest)
        (directory / "records.jsonl").write_text("".join(canonical.dumps(r) + "\n" for r in changed))
        for name, bound in manifest["files"].items():
            path = directory / name
            bound |= {"sha256": canonical.file_digest(path), "bytes": path.stat().st_size}
        manifest["digest"] = canonical.digest({k: v for k, v in manifest.items() if k != "digest"})
        (directory / "manifest.json").write_text(canonical.dumps(manifest) + "\n")
        return {finding.rule for finding in audit(directory).findings}


def leaves(value, path=()):
    """Places of all plain values, and of what is empty."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [leaf for key, item in inside for leaf in leaves(item, (*path, key))] or [path]


def derived(place):
    """Does the value follow from others? What chains the records is the editor's own."""
    name = "/".join(str(key) for key in place[1:])
    return name not in ("sequence", "previous", "run_id") and not _TRUSTED.fullmatch(name)


def put(place, value):
    """A change of one value of the records."""

    def change(records, manifest):
        *way, last = place
        target = records
        for key in way:
            target = target[key]
        target[last] = value
        return records

    return change


# A busy machine is not a fault.
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
bases = st.sampled_from([GOOD, WIDE])
# Words and numbers of the format itself, which keep the schema where others would not.
values = st.sampled_from(
    [
        "ok",
        "failed",
        "cuda2",
        "multi_host",
        "real",
        "nccl",
        "real_benchmark",
        "accept",
        "PAR-ZERO-STATE",
        None,
        [],
        {},
    ]
) | st.one_of(st.booleans(), st.integers(0, 9), st.floats(0, 9), st.text(max_size=6))


def test_the_same_evidence_sealed_again_is_good():
    """Or nothing below means anything: the editor's tools find nothing by themselves."""
    marked = put((0, "identity", "subject", "name"), "mine")
    assert rules_of(GOOD, marked, careful=True) == set()


@settings(SLOW, max_examples=100)
@given(base=bases, data=st.data(), value=values)
def test_whatever_a_naive_editor_changes_is_found(base, data, value):
    """Any value of any record, files and manifest made to fit."""
    place = data.draw(st.sampled_from(leaves(RECORDS[base])))
    assert rules_of(base, put(place, value), careful=False)


@settings(SLOW, max_examples=150)
@given(base=bases, data=st.data(), value=values)
def test_what_a_careful_editor_changes_is_found_unless_nothing_bears_it_out(base, data, value):
    """Every value but those of TRUSTED follows from others."""
    place = data.draw(st.sampled_from([place for place in leaves(RECORDS[base]) if derived(place)]))
    assert rules_of(base, put(place, value), careful=True), place


@settings(SLOW, max_examples=60)
@given(base=bases, careful=st.booleans(), data=st.data())
def test_records_in_another_order_left_out_or_doubled_are_found(base, careful, data):
    """Also when they are numbered and chained anew: time goes forward, and every test has one record."""
    num_records = len(RECORDS[base])
    order = data.draw(st.lists(st.integers(0, num_records - 1), max_size=num_records + 2))
    found = rules_of(
        base, lambda records, _: [copy.deepcopy(records[place]) for place in order], careful=careful
    )
    assert found & {"chain", "clock-forward", "complete", "counted-once"}


@settings(SLOW, max_examples=40)
@given(base=bases, place=st.integers(0, 5), name=st.text("abcdef", min_size=1))
def test_a_copy_under_another_name_is_counted_once(base, place, name):
    """Announced as collected, and written when the run ended."""

    def change(records, manifest):
        again = copy.deepcopy(records[place])
        again["identity"]["nodeid"] += name
        again["provenance"] |= {"worker": "gw9", "written": manifest["ended"]}
        manifest["collected"].append(again["identity"]["nodeid"])
        return [*records, again]

    assert rules_of(base, change, careful=True) >= {"counted-once"}


@settings(SLOW, max_examples=60)
@given(other=st.sampled_from(OTHERS), places=st.sets(st.integers(0, 5), min_size=1), label=st.booleans())
def test_records_of_another_run_are_found(other, places, label):
    """Any of them, in place of the same test's, numbered and chained anew under this run's id."""
    there, _ = read(FIXTURES / "also-good" / other)

    def change(records, manifest):
        return [there[place] if place in places else record for place, record in enumerate(records)]

    found = rules_of(GOOD, change, careful=True)
    by = {
        "another-run": "clock-forward",
        "another-commit": "source-bound",
        "another-machine": "environment-bound",
    }
    assert by[other] in found


def test_what_is_trusted_is_told():
    """The page about evidence lists it, so that nobody takes it for derived."""
    page = (ROOT / "docs" / "evidence.md").read_text()
    assert [place for place in TRUSTED if f"`{place}`" not in page] == []
