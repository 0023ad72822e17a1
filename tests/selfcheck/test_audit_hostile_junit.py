"""JUnit made to break its reader: declarations, encodings, depth, length, and what is no file; each is unusable (2)."""

import itertools
import os
import tracemalloc
from pathlib import Path

import pytest

from parproof.cli import main
from parproof.evidence.audit import Unusable, audit, junit
from parproof.evidence.audit.run import MAX_FINDINGS

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(120)]
GOOD = Path(__file__).parents[2] / "fixtures" / "evidence" / "good"

DTD = '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'
LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
XML = {
    "empty": b"",
    "cut": b"<a",
    "entity": DTD.encode(),
    "laughs": f'<!DOCTYPE a [<!ENTITY l0 "ha">{LAUGHS}]><a>&l9;</a>'.encode(),
    "external": b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
    "utf16": DTD.encode("utf-16"),
    "utf16_undeclared": DTD.encode("utf-16-le"),
    "utf7": b'<?xml version="1.0" encoding="UTF-7"?><a/>',
    "latin1": '<?xml version="1.0" encoding="iso-8859-1"?><a b="é"/>'.encode("latin-1"),
    "nul": b"<a>\x00</a>",
    "half_a_pair": b"<a>&#xD800;</a>",
    "deep": b"<a>" * 100_000 + b"</a>" * 100_000,
    "tag": b'<testsuite name="' + b"x" * 10_000_000 + b'"/>',
    "two_roots": b"<a/><b/>",
}


@pytest.mark.parametrize("name", XML)
def test_junit_that_cannot_be_read_is_unusable(name, tmp_path, capsys):
    """Declarations are refused before anything is expanded, whatever the encoding they hide in."""
    path = tmp_path / "junit.xml"
    path.write_bytes(XML[name])
    assert main(["audit", str(GOOD), "--junit", str(path)]) == 2
    told = capsys.readouterr().err
    assert "junit.xml" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "loop", "nothing"])
def test_junit_that_is_no_file_is_unusable(kind, tmp_path):
    """A pipe that nobody writes to, a device without end."""
    path = tmp_path / "junit.xml"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    named = {"device": "/dev/zero", "folder": tmp_path}.get(kind, path)
    assert main(["audit", str(GOOD), "--junit", str(named)]) == 2


def test_long_junit_is_read_as_a_stream(tmp_path, monkeypatch):
    """The text of failures may be long; many cases are many findings, of which the first are told."""
    path = tmp_path / "junit.xml"
    with path.open("wb") as file:
        file.write(b"<testsuites><testsuite><testcase name='a'><failure>")
        file.writelines(itertools.repeat(b"traceback " * 1000, 2000))
        file.write(b"</failure></testcase>")
        file.writelines(b"<testcase name='%d'/>" % number for number in range(20_000))
        file.write(b"</testsuite></testsuites>")
    tracemalloc.start()
    found = audit(GOOD, path).findings
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < path.stat().st_size
    assert found[-1].supported == f"{20_000 + 6 + 1 - MAX_FINDINGS} more like these"
    monkeypatch.setattr(junit, "MAX_CASES", 100)
    with pytest.raises(Unusable, match="more than 100 test cases"):
        audit(GOOD, path)
