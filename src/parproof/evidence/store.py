"""Writing an evidence directory: whole or not at all.

Records go to a hidden sibling while the tests run; when everything is there, the manifest is written last and the
sibling takes the directory's name. If anything fails on the way, nothing is left.
"""

from __future__ import annotations

import datetime
import os
import secrets
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

from parproof.errors import UsageError
from parproof.evidence import canonical, environment, traces
from parproof.evidence.attempts import Ending, Tally, numbered

MANIFEST_SCHEMA = "parproof-manifest/v1"
RECORDS, MANIFEST, ENVIRONMENT = "records.jsonl", "manifest.json", "environment.json"


def now() -> str:
    """UTC, to the microsecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


class EvidenceStore:
    """One run's evidence. `open` first, `add` for each record in order, then `seal` or `discard`.

    option      where the directory was named, for errors
    made_from   source and environment of records that were made elsewhere; else those of here and now
    """

    def __init__(
        self,
        directory: Path,
        *,
        root: Path,
        command: list[str],
        label: str,
        run_id: str = "",
        option: str = "--evidence",
        made_from: tuple[dict[str, Any], dict[str, Any]] | None = None,
    ) -> None:
        self._named, self.directory = directory, directory.resolve()
        self._option = option
        self._root = root
        self._command = command
        self._label = label
        self.partial = self.directory.with_name(f".{self.directory.name}.partial-{os.getpid()}")
        self._file: TextIO | None = None
        self._run_id = run_id or secrets.token_hex(16)
        self._previous = canonical.GENESIS
        self._attempts: Counter[str] = Counter()
        self.tally = Tally()
        self._num_records = 0
        self._started = now()
        self._source, self._described = made_from or ({}, {})
        self._environment = ""
        self.digest = ""

    @property
    def artefacts(self) -> Path:
        """Where tests may keep files until the directory is sealed."""
        return self.partial / traces.FOLDER

    def open(self) -> None:
        """Check before any test runs that the evidence can be written. Errors: UsageError."""
        if self.directory.exists() and (not self.directory.is_dir() or any(self.directory.iterdir())):
            raise UsageError(
                f"{self.directory} exists and is not empty",
                expected="a new or empty directory: evidence is never overwritten",
                where=self._option,
                next_step="name another directory, or move the old one away",
            )
        if self._named.is_symlink() and not self._named.exists():
            raise UsageError(
                f"{self._named} is a link that leads nowhere",
                expected="a new or empty directory",
                where=self._option,
                next_step="name the directory itself",
            )
        if self.directory.is_mount():
            raise UsageError(
                f"{self.directory} is a mount point, which a finished directory cannot replace",
                expected="a new or empty directory",
                where=self._option,
                next_step=f"name a directory inside it: {self.directory / 'evidence'}",
            )
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self._sweep()
            # Before anything of ours is in the tree, and before a test can change either.
            self._source = self._source or environment.source_tree(self._root)
            self.partial.mkdir()
            _write(self.partial / ENVIRONMENT, self._described or environment.describe())
            self._environment = canonical.file_digest(self.partial / ENVIRONMENT)
            self._file = (self.partial / RECORDS).open("w", encoding="utf-8")
        except OSError as error:
            self.discard()
            raise UsageError(
                f"cannot write to {self.directory.parent}: {error}", where=self._option
            ) from error

    def add(self, record: dict[str, Any]) -> dict[str, Any]:
        """Give the record its place in this run, write it, and return it as written."""
        assert self._file is not None
        placed = record | {"run_id": self._run_id, "sequence": self._num_records, "previous": self._previous}
        placed["identity"] = placed["identity"] | {"run_label": self._label}
        nodeid = placed["identity"]["nodeid"]
        self._attempts[nodeid] += 1
        placed |= numbered(self._attempts[nodeid])
        if "origin" not in placed:  # else it was made elsewhere, and says so
            made_from = {"source": self._source["fingerprint"], "environment": self._environment}
            placed["provenance"] = placed["provenance"] | made_from | {"written": now()}
        line = canonical.dumps(placed)
        self._file.write(line + "\n")
        self._previous = canonical.digest(placed)
        self._num_records += 1
        self.tally.add(nodeid, Ending.of(placed["conclusion"]))
        return placed

    def seal(
        self,
        *,
        collected: list[str],
        collection_errors: list[str],
        num_deselected: int,
        exit_status: int,
        complete: bool,
    ) -> None:
        """Write the manifest over everything and give the directory its name. Errors: OSError; nothing is left then."""
        head = {
            "started": self._started,
            "ended": now(),
            "complete": complete,
            "exit_status": exit_status,
            "command": self._command,
            # Two tests may share a name; they are attempts of one then.
            "collected": list(dict.fromkeys(collected)),
            "collection_errors": collection_errors,
            "num_deselected": num_deselected,
        }
        self.bind(head)
        self.publish()

    def bind(self, head: dict[str, Any]) -> None:
        """Write the manifest: its head, and what follows from records and files."""
        assert self._file is not None
        self._sync_and_close()
        files = sorted(p for p in self.partial.rglob("*") if p.is_file())
        for path in files:
            _sync(path)
        manifest = head | {
            "schema": MANIFEST_SCHEMA,
            "run_id": self._run_id,
            "run_label": self._label,
            "num_records": self._num_records,
            "last_record": self._previous,
            "counts": self.tally.counts,
            "source": self._source,
            "files": {
                p.relative_to(self.partial).as_posix(): {
                    "sha256": canonical.file_digest(p),
                    "bytes": p.stat().st_size,
                }
                for p in files
            },
        }
        if self.tally.flaky:
            manifest["flaky"] = self.tally.flaky
        manifest["digest"] = self.digest = canonical.digest(manifest)
        _write(self.partial / MANIFEST, manifest)

    def publish(self) -> None:
        """Take the place of an empty directory, and of no other. Errors: OSError."""
        self.partial.rename(self.directory)
        _sync(self.directory.parent)

    def _sweep(self) -> None:
        """Remove what a run left that was killed before it could."""
        prefix = f".{self.directory.name}.partial-"
        for left in self.directory.parent.iterdir():
            owner = left.name.removeprefix(prefix)
            if left.name.startswith(prefix) and owner.isdecimal() and not _is_alive(int(owner)):
                shutil.rmtree(left, ignore_errors=True)

    def discard(self) -> None:
        """Leave nothing."""
        if self._file is not None:
            self._file.close()
            self._file = None
        shutil.rmtree(self.partial, ignore_errors=True)

    def _sync_and_close(self) -> None:
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(canonical.dumps(value) + "\n", encoding="utf-8")
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
