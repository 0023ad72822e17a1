"""Writes fixtures/evidence: good directories, and for every audit rule some that break this rule and no other.

    python tools/make_evidence_fixtures.py          # rewrite them all
    python tools/make_evidence_fixtures.py --check  # fail if what is committed differs

The lies are in evidence_lies.py; a directory of `bad` is named «rule» or «rule--deed».
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import merge_fixtures
import seal_fixtures
from evidence_directory import Directory, good_outcomes, observation, other_runs
from evidence_lies import LIES

from parproof.evidence.audit.junit import name_in_junit

__all__ = ["Directory", "good_outcomes", "observation"]
ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "fixtures" / "evidence"


def junit(records: list[dict[str, Any]], outcome: str = "", doubled: Sequence[int] = ()) -> str:
    """The JUnit file of the good run, as pytest would write it.

    outcome    an element put into the first case; doubled: cases that are there twice
    """
    cases = []
    for place, record in enumerate(records):
        end = record["conclusion"]
        classname, _, name = name_in_junit(record["identity"]["nodeid"]).partition("::")
        properties = {"parproof.level": end["evidence_level"] or "none", "parproof.status": end["status"]}
        inner = "".join(
            f"<property name={quoteattr(k)} value={quoteattr(v)} />" for k, v in properties.items()
        )
        inner = f"<properties>{inner}</properties>" + (outcome if place == 0 else "")
        case = f"<testcase classname={quoteattr(classname)} name={quoteattr(name)}>{inner}</testcase>"
        cases += [case] * (1 + (place in doubled))
    return "<testsuites><testsuite>\n" + "\n".join(cases) + "\n</testsuite></testsuites>\n"


def junit_files(records: list[dict[str, Any]]) -> dict[str, str]:
    """Name → text: the good one, and some that tell otherwise."""
    altered = copy.deepcopy(records)
    altered[0]["conclusion"]["evidence_level"] = "real_benchmark"
    altered[4]["conclusion"]["status"] = "ok"
    return {
        "good": junit(records),
        "junit-agrees": junit(altered),
        "junit-agrees--failure": junit(records, "<failure message='rank 1 of 2: differs' />"),
        "junit-agrees--missing": junit(records[:-1]),
        "junit-agrees--twice": junit(records, doubled=[1]),
    }


def write_all(target: Path) -> None:
    """Good, other good runs, bad, JUnit, merged evidence and seals."""
    good = Directory()
    good.write(target / "good")
    for name, directory in other_runs().items():
        directory.write(target / "also-good" / name)
    (target / "junit").mkdir()
    for name, text in junit_files(good.records).items():
        (target / "junit" / f"{name}.xml").write_text(text)
    for name, lie in LIES.items():
        directory = Directory(lie.names)
        lie.deed(directory)
        directory.write(target / "bad" / name)
    merge_fixtures.write_all(target)
    seal_fixtures.write_all(target)


if __name__ == "__main__":
    from fixture_files import write_or_check

    sys.exit(write_or_check(write_all, FIXTURES, __doc__))
