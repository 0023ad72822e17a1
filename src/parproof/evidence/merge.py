"""`parproof merge`: shards of one run become one evidence directory that can still be audited to the last record."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parproof.errors import UsageError
from parproof.evidence import canonical, shards
from parproof.evidence.audit import AuditResult, audit, require_sound
from parproof.evidence.audit.reading import parse, read_json, read_lines
from parproof.evidence.new_file import refuse_inside
from parproof.evidence.store import ENVIRONMENT, MANIFEST, RECORDS, EvidenceStore

Progress = Callable[[int, int], None]
OF_THE_WHOLE = frozenset({"required-claims"})
"""Rules that a shard need not keep alone: what it lacks may be in another. The merged evidence has to."""


@dataclass(frozen=True)
class _Input:
    directory: Path
    shard: shards.Shard


def merge(
    directories: Sequence[Path], output: Path, *, label: str | None = None, progress: Progress | None = None
) -> AuditResult:
    """Write the merged evidence, and return what its audit says; whole or not at all.

    label    of the merged run, needed where those of the shards differ
    Errors   UsageError when shards are not of one run, or one does not pass its own audit; Unusable when one is none
    Cost     an audit of every shard and one of the whole
    """
    if len(directories) < 2:
        raise UsageError(
            f"{len(directories)} evidence directory", expected="two or more shards of one run", where="merge"
        )
    told = progress or (lambda done, total: None)
    inputs = [_read(directory, told) for directory in directories]
    _check(inputs, output)
    ordered = shards.in_order([one.shard for one in inputs])
    by_run = {one.shard.run_id: one for one in inputs}
    store = EvidenceStore(
        output,
        root=output.parent,
        command=[],
        label=_label(ordered, label),
        run_id=shards.run_id(ordered),
        option="--output",
        made_from=(dict(ordered[0].manifest["source"]), shards.common_environment(ordered)),
    )
    store.open()
    try:
        for shard in ordered:
            _copy(by_run[shard.run_id], store)
        head = shards.head(ordered) | {"exit_status": int(bool(store.tally.unexpected))}
        store.bind(head)
        result = audit(store.partial, progress=told)
        wrong = [finding for finding in result.findings if finding.rule not in OF_THE_WHOLE]
        if wrong:
            raise UsageError(
                f"the merged evidence would not pass its audit: {wrong[0]}",
                where="merge",
                next_step="do two of the shards hold one run? did one change while it was read?",
            )
        store.publish()
    finally:
        store.discard()
    return result


def _read(directory: Path, progress: Progress) -> _Input:
    """A shard that passes its own audit."""
    require_sound(directory, progress, what="this shard", ignoring=OF_THE_WHOLE)
    manifest = read_json(directory, MANIFEST)
    if "merged" in manifest:
        raise UsageError(
            "this is merged evidence already",
            expected="shards as pytest wrote them",
            where=str(directory),
            next_step="merge its shards with the others in one step",
        )
    return _Input(directory, shards.Shard(manifest, read_json(directory, ENVIRONMENT)))


def _check(inputs: Sequence[_Input], output: Path) -> None:
    """Refuse shards of different runs, and a place in one of them."""
    refuse_inside(output, [one.directory for one in inputs], option="--output", kind="shard")
    for what, values in shards.incompatible([one.shard for one in inputs]):
        raise UsageError(
            f"the shards are not of one run: {what}: {values}",
            expected="one source, one suite and one torch, each shard once",
            where="merge",
            next_step="files that git does not ignore are part of the fingerprint; write evidence and JUnit elsewhere"
            if what == "source fingerprint"
            else "merge what belongs together; for two different runs there is no common answer",
        )


def _label(ordered: Sequence[shards.Shard], label: str | None) -> str:
    found = sorted({str(shard.manifest["run_label"]) for shard in ordered})
    if len(found) == 1:
        if label not in (None, found[0]):
            raise UsageError(f"label «{label}»", expected=f"«{found[0]}», as in every shard", where="--label")
        return found[0]
    if label is None:
        raise UsageError(
            f"the shards have different labels: {', '.join(f'«{name}»' for name in found)}",
            where="merge",
            next_step="name the merged run with --label",
        )
    return label


def _copy(one: _Input, store: EvidenceStore) -> None:
    """Its records with their origin, and every other file as it is."""
    for number, line in read_lines(one.directory / RECORDS):
        record = parse(line or b"null")
        if line != (canonical.dumps(record) + "\n").encode():
            raise UsageError(
                f"line {number} is not in canonical form, so it could not be restored from merged evidence",
                where=str(one.directory / RECORDS),
            )
        store.add(shards.moved(record))
    for name in (*one.shard.manifest["files"], MANIFEST):
        place = shards.place(name, one.shard.run_id)
        if place is not None and not (store.partial / place).exists():
            (store.partial / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(one.directory / name, store.partial / place, follow_symlinks=False)
