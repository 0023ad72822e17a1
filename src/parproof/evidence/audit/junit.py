"""JUnit and records tell the same of every test. The file is read as a stream: it may be as large as it likes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.parsers import expat

from parproof.evidence.attempts import SEVERITY
from parproof.evidence.audit.findings import Finding, Unusable, declare
from parproof.evidence.audit.opening import open_named, size_of

RULE = declare(
    "junit-agrees",
    "JUnit and records name the same tests, none more often than it ran, with the same status and level.",
    "junit-agrees",
)
MAX_BYTES = 256 * 1024 * 1024
MAX_TOKEN_BYTES = 4 * 1024 * 1024
MAX_CASES = 500_000
MAX_DEPTH = 100
_BLOCK = 1 << 16


@dataclass
class Case:
    """What is told of a test: of several cases of one name the worst, and how many there are."""

    status: str
    level: str
    num_cases: int = 1

    def add(self, status: str, level: str, num_cases: int = 1) -> None:
        """One more: it hides none that was worse."""
        self.num_cases += num_cases
        worse = (_severity(status), level) < (_severity(self.status), self.level)
        if worse:
            self.status, self.level = status, level

    def fits(self, record: Case) -> bool:
        """The same end, and in no more cases than there were attempts."""
        told, seen = (self.status, self.level), (record.status, record.level)
        return told == seen and self.num_cases <= record.num_cases

    def __str__(self) -> str:
        times = f" in {self.num_cases} cases" if self.num_cases > 1 else ""
        return f"{self.status} at level {self.level}{times}"


Told = dict[str, Case]


def keep(told: Told, name: str, status: str, level: str, num_cases: int = 1) -> None:
    """Note a case of this name."""
    if name in told:
        told[name].add(status, level, num_cases)
    else:
        told[name] = Case(status, level, num_cases)


def _severity(status: str) -> int:
    """An unknown word is somebody else's, and is shown as it is."""
    return SEVERITY.index(status) if status in SEVERITY else -1


def name_in_junit(nodeid: str) -> str:
    """pytest writes «a/b.py::C::t[x]» as class «a.b.C» and name «t[x]»."""
    address, bracket, parameters = nodeid.partition("[")
    path, *names = address.split("::")
    parts = [path.removesuffix(".py").replace("/", "."), *names[:-1]]
    return ".".join(parts) + "::" + (names[-1] if names else "") + bracket + parameters


def read_junit(path: Path) -> Told:
    """{class::name: case}. Errors: Unusable."""
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


def read_all(paths: Sequence[Path]) -> Told:
    """Of several files, one a shard. Errors: Unusable."""
    found: Told = {}
    for path in paths:
        for name, case in read_junit(path).items():
            keep(found, name, case.status, case.level, case.num_cases)
    return found


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
        keep(self.told, name, status[:200], level[:200])

    def _status(self) -> str:
        """The property says it in our words; a pass or a skip beside a failure is none."""
        seen = "ok"
        if "failure" in self._outcomes:
            seen = "failed"
        elif "error" in self._outcomes:
            seen = "blocked"
        elif "skipped" in self._outcomes:
            seen = "skipped"
        told = self._properties.get("parproof.status", seen)
        hidden = seen in ("failed", "blocked") and told == "skipped"
        return seen if told == "ok" or hidden else told


def compare(records: Told, junit: Told) -> Iterator[Finding]:
    """Both as they were told. A plugin that retries may log the last attempt only; none may be logged twice."""
    for name in sorted(set(records) | set(junit)):
        ours, theirs = records.get(name), junit.get(name)
        if ours is None or theirs is None or not theirs.fits(ours):
            yield Finding(RULE, name, f"JUnit {theirs or 'no case'}", f"record {ours or 'none'}")
