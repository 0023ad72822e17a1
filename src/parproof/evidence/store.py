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

MANIFEST_SCHEMA = "parproof-manifest/v1"
RECORDS, MANIFEST, ENVIRONMENT = "records.jsonl", "manifest.json", "environment.json"


def now() -> str:
    """UTC, to the microsecond."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")


class EvidenceStore:
    """One run's evidence. `open` first, `add` for each record in order, then `seal` or `discard`."""

    def __init__(self, directory: Path, *, root: Path, command: list[str], label: str) -> None:
        self.directory = directory.resolve()
        self._root = root
        self._command = command
        self._label = label
        self._partial = self.directory.with_name(f".{self.directory.name}.partial-{os.getpid()}")
        self._file: TextIO | None = None
        self._run_id = secrets.token_hex(16)
        self._previous = canonical.GENESIS
        self._counts: Counter[str] = Counter()
        self._num_records = 0
        self._started = now()
        self._source: dict[str, Any] = {}
        self._environment = ""
        self.digest = ""

    @property
    def artefacts(self) -> Path:
        """Where tests may keep files until the directory is sealed."""
        return self._partial / traces.FOLDER

    def open(self) -> None:
        """Check before any test runs that the evidence can be written. Errors: UsageError."""
        if self.directory.exists() and (not self.directory.is_dir() or any(self.directory.iterdir())):
            raise UsageError(
                f"{self.directory} exists and is not empty",
                expected="a new or empty directory: evidence is never overwritten",
                where="--evidence",
                next_step="name another directory, or move the old one away",
            )
        if self.directory.is_mount():
            raise UsageError(
                f"{self.directory} is a mount point, which a finished directory cannot replace",
                expected="a new or empty directory",
                where="--evidence",
                next_step=f"name a directory inside it: {self.directory / 'evidence'}",
            )
        try:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            self._sweep()
            # Before anything of ours is in the tree, and before a test can change either.
            self._source = environment.source_tree(self._root)
            self._partial.mkdir()
            _write(self._partial / ENVIRONMENT, environment.describe())
            self._environment = canonical.file_digest(self._partial / ENVIRONMENT)
            self._file = (self._partial / RECORDS).open("w", encoding="utf-8")
        except OSError as error:
            self.discard()
            raise UsageError(
                f"cannot write to {self.directory.parent}: {error}", where="--evidence"
            ) from error

    def add(self, record: dict[str, Any]) -> dict[str, Any]:
        """Give the record its place in this run, write it, and return it as written."""
        assert self._file is not None
        placed = record | {"run_id": self._run_id, "sequence": self._num_records, "previous": self._previous}
        placed["identity"] = placed["identity"] | {"run_label": self._label}
        made_from = {"source": self._source["fingerprint"], "environment": self._environment}
        placed["provenance"] = placed["provenance"] | made_from | {"written": now()}
        line = canonical.dumps(placed)
        self._file.write(line + "\n")
        self._previous = canonical.digest(placed)
        self._num_records += 1
        self._counts[placed["conclusion"]["status"]] += 1
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
        assert self._file is not None
        self._sync_and_close()
        files = sorted(p for p in self._partial.rglob("*") if p.is_file())
        for path in files:
            _sync(path)
        manifest = {
            "schema": MANIFEST_SCHEMA,
            "run_id": self._run_id,
            "run_label": self._label,
            "started": self._started,
            "ended": now(),
            "complete": complete,
            "exit_status": exit_status,
            "command": self._command,
            "collected": collected,
            "collection_errors": collection_errors,
            "num_deselected": num_deselected,
            "num_records": self._num_records,
            "last_record": self._previous,
            "counts": {status: self._counts[status] for status in ("ok", "failed", "blocked", "skipped")},
            "source": self._source,
            "files": {
                p.relative_to(self._partial).as_posix(): {
                    "sha256": canonical.file_digest(p),
                    "bytes": p.stat().st_size,
                }
                for p in files
            },
        }
        manifest["digest"] = self.digest = canonical.digest(manifest)
        _write(self._partial / MANIFEST, manifest)
        # Takes the place of an empty directory, and of no other.
        self._partial.rename(self.directory)
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
        shutil.rmtree(self._partial, ignore_errors=True)

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
