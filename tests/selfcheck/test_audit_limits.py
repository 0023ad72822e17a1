"""The audit's reader keeps its limits: memory, length, files that change under it, random bytes."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parproof.cli import main
from parproof.evidence.audit import Finding, Unusable, audit, files, opening, reading
from parproof.evidence.audit import run as running

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(120)]
FIXTURES = Path(__file__).parents[2] / "fixtures" / "evidence"
GOOD, WIDE = FIXTURES / "good", FIXTURES / "also-good" / "wide"
MAX_PEAK_MB = 500
# The peak of this process alone: what getrusage tells begins with the peak of the process it was started from.
CHILD = """
import re, sys
from parproof.cli import main
status = main(sys.argv[1:])
print("peak", int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024)
sys.exit(status)
"""
on_linux = pytest.mark.skipif(
    not Path("/proc/self/status").exists(),
    reason="requires /proc/self/status; found none; run it on Linux",
)


@pytest.fixture
def copied(tmp_path):
    """A copy of the good evidence that may be spoilt."""
    return Path(shutil.copytree(GOOD, tmp_path / "evidence"))


def peak_of(*arguments):
    """(exit status, peak MB, output) of the command line in a process of its own."""
    command = [sys.executable, "-c", CHILD, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert "Traceback" not in done.stderr
    shown, _, peak = done.stdout.rpartition("peak ")
    return done.returncode, int(peak), shown + done.stderr


def a_line_of_1_gb(directory):
    """Sparse: it costs no disk."""
    with (directory / "records.jsonl").open("r+b") as file:
        file.truncate(1 << 30)


def lines_of_8_mb(directory):
    """As many values as a line may have, of the kind that costs most."""
    with (directory / "records.jsonl").open("ab") as file:
        for _ in range(4):
            file.write(b'{"a":[' + b"[[]]," * 330_000 + b"[]]}" + b" " * 6_000_000 + b"\n")


def empty_lines(directory):
    """Each of them is a finding."""
    with (directory / "records.jsonl").open("ab") as file:
        file.write(b"\n" * 20_000_000)


def a_wide_manifest(directory):
    """Text that takes four times its size, once it is read."""
    text = '{"a":["\U0001f600' + "x" * 31_000_000 + '"]}'
    (directory / "manifest.json").write_text(text)


def a_manifest_of_lists(directory):
    """A value takes thirty times its text."""
    (directory / "manifest.json").write_bytes(b'{"a":[' + b"[[]]," * 6_000_000 + b"[]]}")


SPOILT = {a_line_of_1_gb: 1, lines_of_8_mb: 1, empty_lines: 1, a_wide_manifest: 1, a_manifest_of_lists: 2}


@on_linux
@pytest.mark.parametrize("spoil", SPOILT, ids=lambda spoil: spoil.__name__)
def test_no_size_takes_more_memory_than_a_large_audit(spoil, copied):
    """500 MB, as for 100,000 records."""
    spoil(copied)
    status, peak_mb, told = peak_of("audit", copied)
    assert status == SPOILT[spoil]
    assert peak_mb < MAX_PEAK_MB
    assert len(told) < 1_000_000


@on_linux
@pytest.mark.parametrize(
    "filling",
    [b'{"ph":"X","ts":1,"dur":2,"name":"all_reduce of a layer"},' * 550_000, b"[[]]," * 990_000],
    ids=["events", "lists"],
)
def test_a_trace_is_opened_without_being_held(filling, tmp_path):
    """Up to its limit: of every event only that it is one."""
    (tmp_path / "trace.json").write_bytes(b'{"traceEvents": [' + filling + b"{}]}")
    counted = (
        "from parproof.evidence.traces import count_events\ncount_events(open(sys.argv[1], 'rb').read())"
    )
    code = CHILD.replace("status = main(sys.argv[1:])", f"{counted}\nstatus = 0")
    command = [sys.executable, "-c", code, tmp_path / "trace.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < MAX_PEAK_MB


def test_files_larger_than_any_evidence_are_not_read(copied, tmp_path, capsys):
    """Nine GiB of nothing, as records and as JUnit."""
    (tmp_path / "junit.xml").touch()
    os.truncate(tmp_path / "junit.xml", 1 << 30)
    assert main(["audit", str(copied), "--junit", str(tmp_path / "junit.xml")]) == 2
    os.truncate(copied / "records.jsonl", 9 << 30)
    assert main(["audit", str(copied)]) == 2
    assert "more than" in capsys.readouterr().err


def test_a_line_without_end_is_passed_over(copied, monkeypatch):
    """The rest of the line is not read into memory, and the next line is read."""
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 1 << 16)
    with (copied / "records.jsonl").open("ab") as file:
        file.write(b"x" * (1 << 20) + b"\nnot json\n")
    told = [finding.supported for finding in audit(copied).findings if finding.rule == "schema"]
    assert told[0] == "line too long"
    assert len(told) == 2


def test_findings_and_bad_lines_are_counted_and_not_kept(copied, monkeypatch):
    """Whoever has a thousand of one kind does not read on."""
    monkeypatch.setattr(running, "MAX_FINDINGS", 5)
    monkeypatch.setattr(running, "MAX_BAD_LINES", 20)
    with (copied / "records.jsonl").open("ab") as file:
        file.write(b"{\n" * 1000)
    found = audit(copied)
    told = [finding for finding in found.findings if finding.rule == "schema"]
    assert [finding.supported for finding in told][-1] == "17 more like these"
    assert (len(told), found.num_records) == (6, 6 + 21)


def test_a_rule_that_stumbles_over_a_record_is_a_finding(monkeypatch):
    """What keeps the schema and still makes no sense is not passed over, and is no traceback."""

    def stumbles(record):
        yield from [record["no such name"]]

    class Watcher(running.RUN_RULES[0]):
        def see(self, record):
            raise TypeError("no sense")

    monkeypatch.setattr(running, "registered", lambda: {"level-computed": stumbles})
    monkeypatch.setattr(running, "RUN_RULES", (Watcher,))
    told = {(f.rule, f.supported) for f in audit(GOOD).findings if "cannot be judged" in f.supported}
    assert told == {
        ("level-computed", "it cannot be judged: KeyError: 'no such name'"),
        ("chain", "it cannot be judged: TypeError: no sense"),
    }


def test_a_finding_keeps_no_more_than_it_shows():
    """What it quotes may be as long as a line of the evidence."""
    assert len(Finding("rule", "x" * 10**6, "claimed", "supported").record) < 1100


def test_more_files_than_any_evidence_has_make_it_unusable(copied, monkeypatch):
    """Told, not listed one by one."""
    monkeypatch.setattr(opening, "MAX_FILES", 40)
    for number in range(50):
        (copied / f"more{number}").touch()
    assert main(["audit", str(copied)]) == 2


@pytest.mark.parametrize("name", ["records.jsonl", "environment.json"])
def test_a_file_that_may_not_be_read_is_named(name, copied, monkeypatch, capsys):
    """Permission bits do not bind root, so the refusal is played."""
    opened = os.open

    def refuses(path, *arguments, **given):
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied", name)
        return opened(path, *arguments, **given)

    monkeypatch.setattr(os, "open", refuses)
    monkeypatch.setattr(os, "supports_dir_fd", {refuses})
    assert main(["audit", str(copied)]) == 2
    told = capsys.readouterr().err
    assert name in told
    assert "Permission denied" in told


def test_a_file_that_vanishes_while_it_is_read_is_a_finding(tmp_path, monkeypatch):
    """It was listed, and was gone when it was opened."""
    directory = Path(shutil.copytree(WIDE, tmp_path / "evidence"))
    listed = files.entries

    def entries(path):
        found = listed(path)
        shutil.rmtree(directory / "artefacts")
        return found

    monkeypatch.setattr(files, "entries", entries)
    assert {finding.rule for finding in audit(directory).findings} == {"files-bound", "trace-kept"}


def test_a_file_that_grows_or_shrinks_while_it_is_read_holds_nobody_up(copied, monkeypatch):
    """What is judged is what was bound: more is not read, less is found."""
    monkeypatch.setattr(running, "TELL_EVERY", 1)
    path, line = copied / "records.jsonl", GOOD.joinpath("records.jsonl").read_bytes().splitlines()[0]

    def grows(done, total):
        with path.open("ab") as file:
            file.write(line * 100 + b"\n")

    assert audit(copied, progress=grows).num_records == 6
    shutil.copy(GOOD / "records.jsonl", path)
    found = audit(copied, progress=lambda done, total: os.truncate(path, 10))
    assert "files-bound" in {finding.rule for finding in found.findings}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    base=st.sampled_from([GOOD, WIDE]),
    place=st.floats(0, 1, exclude_max=True),
    new=st.binary(max_size=40)
    | st.sampled_from([b"1e308", b"-1", b"null", b"{}", b"[]", b'""', b"\\ud800", b"\n"]),
    cut=st.integers(0, 30),
    seed=st.integers(0, 10),
)
def test_random_bytes_anywhere_are_found_and_never_more(base, place, new, cut, seed, tmp_path_factory):
    """Put in, or put over others, in any file."""
    directory = Path(shutil.copytree(base, tmp_path_factory.mktemp("fuzz") / "evidence"))
    path = random.Random(seed).choice(sorted(p for p in directory.rglob("*") if p.is_file()))
    data = path.read_bytes()
    at = int(place * len(data))
    path.write_bytes(data[:at] + new + data[at + cut :])
    try:
        found = audit(directory).findings
    except Unusable:
        found = ["unusable"]
    assert bool(found) == (path.read_bytes() != data)
