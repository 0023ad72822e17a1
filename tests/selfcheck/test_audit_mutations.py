"""Whatever is changed in good evidence is found: bytes, lines, values and whole files, chosen by Hypothesis."""

import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parproof.evidence.audit import Unusable, audit

pytestmark = pytest.mark.selfcheck
GOOD = Path(__file__).parents[2] / "fixtures" / "evidence" / "good"
FILES = ("records.jsonl", "manifest.json", "environment.json")
LINES = (GOOD / "records.jsonl").read_text().splitlines(keepends=True)


def found_in(change):
    """Does an audit of a changed copy find something, or call it unusable?"""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / "evidence"
        shutil.copytree(GOOD, copied)
        change(copied)
        try:
            return bool(audit(copied).findings)
        except Unusable:
            return True


def leaves(value, path=()):
    """Places of all plain values."""
    if isinstance(value, dict):
        return [leaf for key, item in value.items() for leaf in leaves(item, (*path, key))]
    if isinstance(value, list):
        return [leaf for key, item in enumerate(value) for leaf in leaves(item, (*path, key))]
    return [path]


def test_good_evidence_is_good():
    """Or nothing below means anything."""
    assert not found_in(lambda copied: None)


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_changed_byte_is_found(name, place, flip):
    """In any file, at any place; a line break at the end of the manifest or of the environment is a byte too."""

    def change(copied):
        content = bytearray((copied / name).read_bytes())
        content[int(place * len(content))] ^= flip
        (copied / name).write_bytes(content)

    assert found_in(change)


@settings(max_examples=40, deadline=None)
@given(order=st.lists(st.integers(0, len(LINES) - 1), max_size=len(LINES) + 2))
def test_records_left_out_doubled_or_in_another_order_are_found(order):
    """Any selection of the lines but the right one."""

    def change(copied):
        (copied / "records.jsonl").write_text("".join(LINES[i] for i in order))

    assert found_in(change) == (order != list(range(len(LINES))))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_changed_value_is_found(data):
    """One value of one record or of the manifest, replaced by another plain one."""
    name = data.draw(st.sampled_from(("records.jsonl", "manifest.json")))
    lines = [json.loads(line) for line in (GOOD / name).read_text().splitlines()]
    record = data.draw(st.sampled_from(lines))
    *path, last = data.draw(st.sampled_from(leaves(record)))
    other = data.draw(st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=8)))

    def change(copied):
        at = record
        for key in path:
            at = at[key]
        if (type(at[last]), at[last]) == (type(other), other):
            at[last] = [other]
        else:
            at[last] = other
        (copied / name).write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert found_in(change)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("deed", ["removed", "emptied", "cut", "a_link"])
def test_a_file_that_is_not_what_it_was_is_found(deed, name):
    """Gone, empty, cut in the middle, or a link to the very same content elsewhere."""

    def change(copied):
        path, content = copied / name, (copied / name).read_bytes()
        path.unlink()
        if deed == "a_link":
            (copied.parent / name).write_bytes(content)
            path.symlink_to(copied.parent / name)
        elif deed != "removed":
            path.write_bytes(b"" if deed == "emptied" else content[: len(content) // 2])

    assert found_in(change)


def test_a_file_that_nobody_bound_is_found():
    """Something put beside the evidence later is no part of it."""
    assert found_in(lambda copied: (copied / "trace.json").write_text("{}"))
