"""Evidence made to break its reader: each gives findings (1) or «unusable» (2) by the command line, and never more."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.evidence import canonical
from parproof.evidence.audit import Unusable, opening

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(120)]
GOOD = Path(__file__).parents[2] / "fixtures" / "evidence" / "good"
RECORD = json.loads((GOOD / "records.jsonl").read_text().splitlines()[0])
LEDGER_LINE = RECORD["communication"]["ledger"][0]
AMOUNTS = {name: LEDGER_LINE[name] for name in ("calls", "in_bytes", "out_bytes", "group_size")}
PREDICTED_LINE = AMOUNTS | {"phase": "", "members": [], "dtype": ""}
TOLD = {
    "wide": "more than 1000000 values",
    "half_a_pair": "surrogates not allowed",
    "many_ledger_lines": "more than 1000000 pairs of lines",
    "world_of_ranks": "ranks-reported",
    "month_99": "no such time",
    "deep": "nested",
}


@pytest.fixture
def copied(tmp_path):
    """A copy of the good evidence that may be spoilt."""
    return Path(shutil.copytree(GOOD, tmp_path / "evidence"))


def seal(directory, **changes):
    """Make the manifest fit what is there, as whoever wrote the directory can; files that are none are left out."""
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text()) | changes
    found = [p for p in sorted(directory.rglob("*")) if p.is_file() and p != path]
    named = {p.relative_to(directory).as_posix(): p for p in found}
    bound = {n: {"sha256": canonical.file_digest(p), "bytes": p.stat().st_size} for n, p in named.items()}
    manifest["files"] = bound | changes.get("files", {})
    manifest["digest"] = canonical.digest({k: v for k, v in manifest.items() if k != "digest"})
    path.write_text(canonical.dumps(manifest) + "\n")


def with_line(directory, line):
    """One more line of records, bound."""
    with (directory / "records.jsonl").open("ab") as file:
        file.write(line + b"\n")
    seal(directory)


def changed(**values):
    """The good record with other values, by dotted name."""
    record = json.loads(json.dumps(RECORD))
    for name, value in values.items():
        *way, last = name.split("__")
        target = record
        for step in way:
            target = target[int(step) if isinstance(target, list) else step]
        target[last] = value
    return json.dumps(record).encode()


# What is large is made where it is used, not while tests are collected.
LINES = {
    "empty": b"",
    "text": b"not json",
    "null": b"null",
    "list": b"[]",
    "nan": b'{"a": NaN}',
    "infinity": b'{"a": 1e999}',
    "long_integer": b'{"a": ' + b"9" * 5000 + b"}",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "nested": b"[" * 60 + b"]" * 60,
    "wide": lambda: b"[" + b"[]," * 1_500_000 + b"[]]",
    "latin1": '{"a": "é"}'.encode("latin-1"),
    "utf16": '{"a": 1}'.encode("utf-16"),
    "byte_order_mark": b'\xef\xbb\xbf{"a": 1}',
    "nul": b'{"a": "\x00"}',
    "twice": b'{"a": 1, "a": 2}',
    "half_a_pair": changed(identity__nodeid="\ud800"),
    "half_a_pair_as_name": changed(measurements={"\udfff": 1}),
    "nul_in_a_name": changed(identity__nodeid="a\x00b"),
    "sequence": changed(sequence=10**18),
    "float_as_integer": changed(sequence=1e18, observation__runs__0__world_size=2.0),
    "world_of_ranks": changed(
        observation__runs__0__world_size=10**18, observation__runs__0__num_reports=10**18
    ),
    "largest_loads": changed(load__per_rank=[1.7e308, 1.7e308], load__max_over_mean=1.0),
    "no_loads": changed(load__per_rank=[], load__max_over_mean=1.0),
    "month_99": changed(time__started="2026-99-99T99:99:99.000000+00:00"),
    "many_claims": lambda: changed(identity__claims=[f"C{n}" for n in range(200_000)]),
    "many_ledger_lines": lambda: changed(
        communication__ledger=[LEDGER_LINE | {"op": f"o{n}", "phase": ""} for n in range(20_000)],
        communication__predicted={
            "rank": 0,
            "within": [],
            "lines": [PREDICTED_LINE | {"op": f"o{n}"} for n in range(20_000)],
        },
    ),
    "unequal_ranks": lambda: changed(
        communication__ledger__0__ranks=[[n] if n % 2 else {"n": n} for n in range(100_000)]
    ),
    "unequal_items": lambda: changed(identity__claims=[[n] if n % 2 else {"n": n} for n in range(100_000)]),
    "many_traces": lambda: changed(observation__traces=[f"{n:064x}" for n in range(50_000)]),
}


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_is_no_record_costs_that_record_and_not_the_audit(name, copied, capsys):
    """No JSON, other encodings, numbers and nesting without end, and records that keep the schema and make no sense."""
    line = LINES[name]
    with_line(copied, line() if callable(line) else line)
    assert main(["audit", str(copied)]) == 1
    told = capsys.readouterr().out
    assert TOLD.get(name, "") in told
    assert len(told) < 3_000_000


@pytest.mark.parametrize("name", ["manifest.json", "environment.json"])
@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"\xff\xfe{\x00}\x00", b"[" * 5000, b"[" + b"0," * 2_000_000 + b"0]", b'{"a":"\\ud800"}'],
    ids=["empty", "cut", "utf16", "deep", "wide", "half_a_pair"],
)
def test_a_manifest_or_environment_that_cannot_be_read_makes_it_unusable(name, text, copied, capsys):
    """There is nothing to compare with: one line that names the file."""
    (copied / name).write_bytes(text)
    assert main(["audit", str(copied)]) == 2
    told = capsys.readouterr().err
    assert name in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("text", [b"[]", b"null", b'{"schema": 1}'], ids=["list", "null", "other"])
def test_a_manifest_that_is_none_is_a_finding(text, copied):
    """It is JSON, and breaks its schema."""
    (copied / "manifest.json").write_bytes(text)
    assert main(["audit", str(copied)]) == 1


def test_a_large_manifest_of_unequal_things_is_judged_in_no_time(copied):
    """To compare each with each would take hours."""
    seal(copied, collected=[[n] if n % 2 else n for n in range(300_000)])
    assert main(["audit", str(copied)]) == 1


def test_whoever_binds_names_that_climb_out_opens_nothing_there(copied, tmp_path, capsys):
    """A name with dots is a file that is not there; the file outside is never read."""
    (tmp_path / "secret").write_text("secret")
    seal(copied, files={"a/../../secret": {"sha256": "0" * 64, "bytes": 6}})
    assert main(["audit", str(copied)]) == 1
    assert "files-bound a/../../secret: claimed 6 bytes; supported no such file" in capsys.readouterr().out
    for name in ("../secret", "/etc/passwd", "a//b", "./records.jsonl", ""):
        with pytest.raises(Unusable, match="leaves the directory"):
            opening.open_regular(copied, name)


def linked(copied, name):
    """The very same content, by a link."""
    path = copied / name
    path.rename(copied.parent / path.name)
    path.symlink_to(copied.parent / path.name)


SPECIAL = {
    "link": linked,
    "link_to_itself": lambda copied, name: (
        (copied / name).unlink(),
        (copied / name).symlink_to(copied / name),
    ),
    "fifo": lambda copied, name: ((copied / name).unlink(), os.mkfifo(copied / name)),
    "folder": lambda copied, name: ((copied / name).unlink(), (copied / name).mkdir()),
    "device": lambda copied, name: ((copied / name).unlink(), (copied / name).symlink_to("/dev/zero")),
    "gone": lambda copied, name: (copied / name).unlink(),
}


@pytest.mark.parametrize("name", ["manifest.json", "records.jsonl", "environment.json"])
@pytest.mark.parametrize("kind", SPECIAL)
def test_a_part_that_is_no_regular_file_makes_it_unusable(kind, name, copied, capsys):
    """Links, also to the very same content, loops, pipes on which one would wait for ever, endless devices."""
    SPECIAL[kind](copied, name)
    assert main(["audit", str(copied)]) == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["fifo", "socket", "link", "loop", "folder_link", "deep"])
def test_what_else_lies_in_the_directory_is_named_and_not_opened(kind, copied, tmp_path):
    """A folder is not entered by a link, and not for ever."""
    with socket.socket(socket.AF_UNIX) as there, contextlib.chdir(copied):
        if kind == "fifo":
            os.mkfifo("more")
        elif kind == "socket":
            there.bind("more")
        elif kind == "deep":
            for _ in range(900):
                os.mkdir("d")
                os.chdir("d")
        else:
            os.symlink({"link": "records.jsonl", "loop": "more", "folder_link": ".."}[kind], "more")
    assert main(["audit", str(copied)]) == (2 if kind == "deep" else 1)
    if kind == "deep":
        shutil.rmtree(copied / "d", ignore_errors=True)
        subprocess.run(["rm", "-rf", copied / "d"], check=True)


@pytest.mark.parametrize("kind", ["link", "loop", "file", "device", "nothing", "name_without_end", "nul"])
def test_a_directory_that_is_none_is_unusable(kind, copied, tmp_path, capsys):
    """Also a link to good evidence: what it leads to may change while it is read."""
    path = tmp_path / "named"
    if kind in ("link", "loop"):
        path.symlink_to(copied if kind == "link" else path)
    named = {
        "file": copied / "records.jsonl",
        "device": "/dev/zero",
        "name_without_end": "x" * 5000,
        "nul": "a\0b",
    }
    assert main(["audit", str(named.get(kind, path))]) == 2
    assert capsys.readouterr().err.count("\n") == 1
