"""JUnit and records tell the same of every test. The file is read as a stream: it may be as large as it likes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from parproof.evidence.audit.findings import Finding, Unusable, declare
from parproof.evidence.audit.opening import open_named, size_of

RULE = declare(
    "junit-agrees",
    "JUnit and records name the same tests, each once, with the same status and level.",
    "junit-agrees",
)
MAX_BYTES = 256 * 1024 * 1024
MAX_TOKEN_BYTES = 4 * 1024 * 1024
MAX_CASES = 500_000
MAX_DEPTH = 100
_BLOCK = 1 << 16

Told = dict[str, tuple[str, str]]


def name_in_junit(nodeid: str) -> str:
    """pytest writes «a/b.py::C::t[x]» as class «a.b.C» and name «t[x]»."""
    address, bracket, parameters = nodeid.partition("[")
    path, *names = address.split("::")
    parts = [path.removesuffix(".py").replace("/", "."), *names[:-1]]
    return ".".join(parts) + "::" + (names[-1] if names else "") + bracket + parameters


def read_junit(path: Path) -> Told:
    """{class::name: (status, level)}. Errors: Unusable."""
    reader = _Reader(path)
    with open_named(path) as file:
        if size_of(file) > MAX_BYTES:
            raise Unusable(f"{path} has more than {MAX_BYTES} bytes")
        rest = MAX_BYTES
        try:
            while block := file.read(min(_BLOCK, rest)):
                reader.feed(block)
                rest -= len(block)
            reader.close()
        except (expat.ExpatError, ValueError, OSError) as error:
            raise Unusable(f"{path}: {error}") from error
    return reader.told


class _Reader:
    """Keeps of each test case what is compared, and nothing of the rest."""

    def __init__(self, path: Path) -> None:
        self.told: Told = {}
        self._path = path
        self._fed = 0
        self._depth = 0
        self._case: dict[str, str] = {}
        self._properties: dict[str, str] = {}
        self._outcomes: set[str] = set()
        # The encoding is ours to say: in another one a declaration would pass for something else.
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.XmlDeclHandler = self._declared

    def feed(self, block: bytes) -> None:
        """A block of bytes; one tag may not go on for ever."""
        self._parser.Parse(block, False)
        self._fed += len(block)
        if self._fed - max(self._parser.CurrentByteIndex, 0) > MAX_TOKEN_BYTES:
            raise Unusable(f"{self._path} holds a tag of more than {MAX_TOKEN_BYTES} bytes")

    def close(self) -> None:
        """Nothing may be missing."""
        self._parser.Parse(b"", True)

    def _refuse(self, *_: object) -> None:
        raise Unusable(f"{self._path} declares a document type; pytest writes none")

    def _declared(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.lower() not in ("utf-8", "utf8", "us-ascii"):
            raise Unusable(f"{self._path} is in {encoding[:40]}; pytest writes utf-8")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unusable(f"{self._path} is nested more than {MAX_DEPTH} deep")
        if tag == "testcase":
            self._case, self._properties, self._outcomes = attributes, {}, set()
        elif tag == "property" and attributes.get("name", "").startswith("parproof."):
            self._properties[attributes["name"]] = attributes.get("value", "")
        elif tag in ("failure", "error", "skipped"):
            self._outcomes.add(tag)

    def _end(self, tag: str) -> None:
        self._depth -= 1
        if tag != "testcase":
            return
        if len(self.told) >= MAX_CASES:
            raise Unusable(f"{self._path} holds more than {MAX_CASES} test cases")
        node = self._properties.get("parproof.node")
        name = name_in_junit(node) if node else f"{self._case.get('classname')}::{self._case.get('name')}"
        status, level = self._status(), self._properties.get("parproof.level", "none")
        if name in self.told:
            # The later of two cases must not hide the earlier.
            status = f"{self.told[name][0]}, then {status}"[:200]
        self.told[name] = status, level

    def _status(self) -> str:
        """The property says it in our words; a pass beside a failure is none."""
        seen = "ok"
        if "failure" in self._outcomes:
            seen = "failed"
        elif "error" in self._outcomes:
            seen = "blocked"
        elif "skipped" in self._outcomes:
            seen = "skipped"
        told = self._properties.get("parproof.status", seen)
        return seen if told == "ok" else told


def compare(records: Told, junit: Told) -> Iterator[Finding]:
    """Both hold {class::name: (status, level)}."""
    for name in sorted(set(records) | set(junit)):
        ours, theirs = records.get(name), junit.get(name)
        if ours != theirs:
            yield Finding(RULE, name, f"JUnit {theirs or 'no case'}", f"record {ours or 'none'}")
