"""`parproof export`: documents of `distributed-benchmark/v1` from an evidence directory that passes its audit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parproof import registry
from parproof.errors import UsageError
from parproof.evidence import canonical, traces
from parproof.evidence.attempts import worst_of
from parproof.evidence.audit import records, require_sound
from parproof.evidence.audit.reading import read_json
from parproof.evidence.consume import edges_of
from parproof.evidence.exchange import documents
from parproof.evidence.exchange.contract import ROLES
from parproof.evidence.exchange.writing import check_output, write_directory
from parproof.evidence.store import ENVIRONMENT, MANIFEST, RECORDS


@dataclass(frozen=True)
class Export:
    """Documents by file name, and the projects of which nothing can be said, with the reason."""

    documents: dict[str, documents.Document]
    refused: dict[str, str]


def export(directory: Path, output: Path, projects: Iterable[str] = ()) -> Export:
    """Write one file for each document to a new directory. The same evidence gives the same bytes.

    projects   semantic ids; all four when empty
    Errors     UsageError for evidence with findings, for what is no project, when there is nothing to write, and for an
               output that is not empty; Unusable when there is no evidence
    """
    check_output(output, outside=directory)
    made = build(directory, projects)
    if not made.documents:
        told = "; ".join(f"{project}: {why}" for project, why in made.refused.items())
        raise UsageError(f"nothing to export: {told}", where=str(directory))
    write_directory(output, {name: text(document) for name, document in made.documents.items()})
    return made


def build(directory: Path, projects: Iterable[str] = ()) -> Export:
    """The documents, without writing them. The evidence is audited first."""
    chosen = _chosen(list(projects))
    require_sound(directory)
    manifest = read_json(directory, MANIFEST)
    made = assemble(manifest, records(directory), chosen)
    bound = {**manifest["files"], MANIFEST: _bound(directory / MANIFEST)}
    for document in made.documents.values():
        kept = [traces.name_of(digest) for digest in document["artifacts"]["traces"]]
        document["sources"] = [
            {"path": name, **bound[name]} for name in (MANIFEST, RECORDS, ENVIRONMENT, *kept)
        ]
    return made


def _bound(path: Path) -> dict[str, Any]:
    return {"sha256": canonical.file_digest(path), "bytes": path.stat().st_size}


def assemble(
    manifest: Mapping[str, Any], records: Iterable[dict[str, Any]], chosen: Iterable[str] = tuple(ROLES)
) -> Export:
    """Documents of records that have passed their audit, in one pass; without sources."""
    made = Export({}, {})
    cited: dict[str, list[Mapping[str, Any]]] = {}
    own: dict[str, list[dict[str, Any]]] = {project: [] for project in chosen}
    for record in records:
        project = record["identity"]["semantic_id"]
        cited.setdefault(project, []).append(documents.cite(record))
        if project in own:
            own[project].append(record)
    cited = {producer: worst_of(found) for producer, found in cited.items()}
    for project, found in own.items():
        exported, not_exported = _divided(found)
        for record in exported:
            document = documents.result(project, manifest, record)
            document["artifacts"]["not_exported"] = not_exported
            made.documents[f"{project}.{record['sequence']:06d}.json"] = document
        if not exported:
            _cite(project, manifest, cited, not_exported, made)
    return Export(dict(sorted(made.documents.items())), made.refused)


def _divided(own: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(records to export, the others with their reasons): of several attempts the worst stands for the test."""
    counting = {record["sequence"] for record in worst_of(own)}
    exported, others = [], []
    for record in own:
        end = record["conclusion"]
        if record["sequence"] not in counting:
            why = "another attempt of this test counts: of several the worst"
        elif end["evidence_level"] is None:
            why = (end["skip"] or end["failure"] or {"reason": end["status"]}).get("reason") or end["status"]
        else:
            exported.append(record)
            continue
        others.append({"nodeid": record["identity"]["nodeid"], "status": end["status"], "reason": why})
    return exported, others


def _cite(
    project: str,
    manifest: Mapping[str, Any],
    cited: dict[str, list[Mapping[str, Any]]],
    not_exported: list[dict[str, Any]],
    made: Export,
) -> None:
    """A document for a project that did not run, if one of its mechanisms did."""
    producers = [edge.producer for edge in edges_of(project)]
    ran = [
        record
        for producer in producers
        for record in cited.get(producer, ())
        if record["conclusion"]["evidence_level"] is not None
    ]
    if ran:
        made.documents[f"{project}.json"] = documents.citation(project, manifest, cited, not_exported)
    else:
        made.refused[project] = f"it did not run, and of its mechanisms neither ({', '.join(producers)})"


def text(document: Mapping[str, Any]) -> str:
    """Sorted names, two spaces, one line break at the end."""
    return json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _chosen(projects: list[str]) -> list[str]:
    for project in projects:
        if project in ROLES:
            continue
        known = registry.load().experiment(project)
        if known is None:
            raise UsageError(
                f"unknown project {project!r}", expected=f"one of {', '.join(ROLES)}", where="export"
            )
        raise UsageError(
            f"{project} is a {known.kind}, and the format has roles for projects only",
            expected=f"one of {', '.join(ROLES)}: a mechanism's record is no project's result",
            where="export",
            next_step="hand on the evidence directory itself, or export a project that cites it",
        )
    return list(dict.fromkeys(projects)) or list(ROLES)
