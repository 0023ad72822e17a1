"""JUnit and records tell the same of every test."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from pathlib import Path

from parproof.evidence.attempts import SEVERITY
from parproof.evidence.audit.findings import Finding, Unusable, declare

RULE = declare(
    "junit-agrees", "JUnit and records name the same tests, with the same status and level.", "junit-agrees"
)
MAX_BYTES = 256 * 1024 * 1024

Told = dict[str, tuple[str, str]]


def name_in_junit(nodeid: str) -> str:
    """pytest writes «a/b.py::C::t[x]» as class «a.b.C» and name «t[x]»."""
    address, bracket, parameters = nodeid.partition("[")
    path, *names = address.split("::")
    parts = [path.removesuffix(".py").replace("/", "."), *names[:-1]]
    return ".".join(parts) + "::" + (names[-1] if names else "") + bracket + parameters


def read_junit(path: Path) -> Told:
    """{class::name: (status, level)}, of several cases of one name the worst. Errors: Unusable."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise Unusable(f"{path} has more than {MAX_BYTES} bytes")
        text = path.read_bytes()
        # As text first: in another encoding a declaration would pass for something else.
        decoded = text.decode("utf-8")
        if "<!DOCTYPE" in decoded or "<!ENTITY" in decoded or "\0" in decoded:
            raise Unusable(f"{path} declares entities; pytest writes none")
        root = ElementTree.fromstring(decoded)
    except (OSError, ValueError, ElementTree.ParseError) as error:
        raise Unusable(f"{path}: {error}") from error
    found: Told = {}
    for case in root.iter("testcase"):
        properties = {p.get("name"): p.get("value") or "" for p in case.iter("property")}
        status = properties.get("parproof.status") or _status(case)
        node = properties.get("parproof.node")
        name = name_in_junit(node) if node else f"{case.get('classname')}::{case.get('name')}"
        _keep_worse(found, name, (status, properties.get("parproof.level", "none")))
    return found


def read_all(paths: Sequence[Path]) -> Told:
    """Of several files, one a shard: a test that is in more than one is told by its worst. Errors: Unusable."""
    found: Told = {}
    for path in paths:
        for name, told in read_junit(path).items():
            _keep_worse(found, name, told)
    return found


def _keep_worse(found: Told, name: str, told: tuple[str, str]) -> None:
    if name not in found or _severity(told[0]) < _severity(found[name][0]):
        found[name] = told


def _severity(status: str) -> int:
    """An unknown word is somebody else's, and is shown as it is."""
    return SEVERITY.index(status) if status in SEVERITY else -1


def _status(case: ElementTree.Element) -> str:
    children = {child.tag for child in case}
    if "failure" in children:
        return "failed"
    if "error" in children:
        return "blocked"
    return "skipped" if "skipped" in children else "ok"


def compare(records: Told, junit: Told) -> Iterator[Finding]:
    """Both hold {class::name: (status, level)}."""
    for name in sorted(set(records) | set(junit)):
        ours, theirs = records.get(name), junit.get(name)
        if ours != theirs:
            yield Finding(RULE, name, f"JUnit {theirs or 'no case'}", f"record {ours or 'none'}")
