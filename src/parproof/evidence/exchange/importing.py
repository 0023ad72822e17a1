"""`parproof import`: what foreign result files can and cannot support, without changing them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parproof.evidence.exchange import exporting
from parproof.evidence.exchange.assessment import Assessment, safe
from parproof.evidence.exchange.contract import CONCLUSIONS
from parproof.evidence.exchange.forms import (
    aggregate,
    mechanism,
    nccl_json,
    nccl_text,
    project_evidence,
    sglang,
    v1,
    vllm,
)
from parproof.evidence.exchange.original import Original, Unreadable, read
from parproof.evidence.exchange.writing import check_output, write_directory

COMPANION_SCHEMA = "parproof-import/v1"
# Asked in this order; the first that recognises a document reads it.
RECOGNISERS: tuple[Callable[[Any], Assessment | None], ...] = (
    aggregate.recognise,
    project_evidence.recognise,
    mechanism.recognise,
    v1.recognise,
    nccl_json.recognise,
    sglang.recognise,
    vllm.recognise,
)
FORMATS = (
    "distributed-benchmark/v1, aggregates of it, project-evidence/v1, mechanism JSON, nccl-tests text or JSON, "
    "vLLM or SGLang serving results"
)


@dataclass(frozen=True)
class Imported:
    """One document of one file. assessment: None when nothing could be said, with the reason in `why`."""

    path: Path
    part: int
    num_parts: int
    sha256: str | None
    num_bytes: int | None
    assessment: Assessment | None
    why: str = ""

    @property
    def name(self) -> str:
        """The file, and which document of several."""
        return f"{self.path}" if self.num_parts < 2 else f"{self.path} [{self.part + 1} of {self.num_parts}]"


def import_files(
    paths: Iterable[Path], output: Path | None = None, evidence: Path | None = None
) -> list[Imported]:
    """Assess every document of every file, in the order given.

    output     a new directory for the normalised companions; the originals stay as they are
    evidence   the directory that a document of ours names: audited, and the document is derived again from it
    Errors     UsageError for an output that is not empty, or evidence that does not pass its audit
    """
    chosen = list(paths)
    if output is not None:
        check_output(output, outside=evidence)
    ours = _derived(evidence) if evidence is not None else None
    found: list[Imported] = []
    seen: dict[str, Path] = {}
    for path in chosen:
        parts = list(_import(path, ours))
        digest, told = parts[0].sha256, parts[0].assessment
        if digest is not None and digest in seen and told is not None:
            told.found("same-file", "(file)", path, f"equal to {seen[digest]}, counted once")
        elif digest is not None:
            seen[digest] = path
        found += parts
    # Of nothing that was read there is nothing to write, and an empty directory would say otherwise.
    if output is not None and (texts := companions(found)):
        write_directory(output, texts)
    return found


def _import(path: Path, ours: Mapping[str, Any] | None) -> Iterator[Imported]:
    try:
        original = read(path)
    except Unreadable as error:
        yield Imported(path, 0, 1, None, None, None, str(error))
        return
    assessments = list(_assess(original, ours))
    if not any(assessments):
        why = original.why or _unknown(original)
        yield Imported(path, 0, 1, original.sha256, original.num_bytes, None, why)
        return
    for part, assessment in enumerate(assessments):
        why = "" if assessment else f"not recognised; known are {FORMATS}"
        yield Imported(path, part, len(assessments), original.sha256, original.num_bytes, assessment, why)


def _unknown(original: Original) -> str:
    """What to do with it instead, where that is known."""
    if not original.documents:
        return "no table and no JSON that is known"
    first = original.documents[0]
    if isinstance(first, dict) and str(first.get("schema")).startswith("parproof-"):
        return "part of an evidence directory of this suite; next: parproof audit DIR"
    return f"not recognised; known are {FORMATS}"


def _assess(original: Original, ours: Mapping[str, Any] | None) -> Iterator[Assessment | None]:
    if not original.documents:
        yield from nccl_text.recognise(original.text)
        return
    for document in original.documents:
        assessment = next(
            (told for recognise in RECOGNISERS if (told := recognise(document)) is not None), None
        )
        if assessment is not None and ours is not None:
            _attest(assessment, document, ours)
        yield assessment


def _derived(evidence: Path) -> dict[str, Any]:
    """What our own export makes of the evidence."""
    return {exporting.text(document): document for document in exporting.build(evidence).documents.values()}


def _attest(told: Assessment, document: Any, ours: Mapping[str, Any]) -> None:
    """A document of ours is what the evidence gives, or it is somebody else's."""
    if told.format != v1.STRICT:
        return
    told.limits[:] = [limit for limit in told.limits if limit.id != "evidence-not-given"]
    if exporting.text(document) in ours:
        told.attested = document["evidence_level"]
        told.limits[:] = [limit for limit in told.limits if limit.id not in _ANSWERED]
        told.findings[:] = [reason for reason in told.findings if reason.id != "level-above-support"]
        return
    digests = {made["artifacts"]["evidence"]["digest"] for made in ours.values()}
    same = document["artifacts"]["evidence"]["digest"] in digests
    supported = "another document" if same else f"evidence with digest {', '.join(sorted(digests))[:80]}"
    told.found(
        "evidence-disagrees",
        "artifacts.evidence.digest",
        document["artifacts"]["evidence"]["digest"],
        supported,
    )


_ANSWERED = ("no-sealed-observation", "accelerator-not-named")


def exit_status(found: Iterable[Imported]) -> int:
    """0 all supported as claimed, 1 findings, 2 something could not be read or recognised."""
    status = 0
    for imported in found:
        if imported.assessment is None:
            return 2
        status = max(status, int(bool(imported.assessment.findings)))
    return status


def describe(imported: Imported) -> dict[str, Any]:
    """One document as JSON: what the companion holds and `--json` prints."""
    told = imported.assessment
    described: dict[str, Any] = {
        "schema": COMPANION_SCHEMA,
        "original": {
            "name": imported.path.name,
            "sha256": imported.sha256,
            "bytes": imported.num_bytes,
            "part": imported.part,
            "parts": imported.num_parts,
        },
    }
    if told is None:
        found = described | {"format": None, "recognised_by": None, "why": imported.why}
    else:
        level, why = told.at_most()
        found = described | {
            "format": told.format,
            "recognised_by": told.recognised_by,
            "claims": told.claims,
            "supports": {
                "at_most": level,
                "reason": why,
                "attested": told.attested is not None,
                "may_conclude": CONCLUSIONS[level][0],
                "may_not_conclude": CONCLUSIONS[level][1],
            },
            "groups": told.plain_groups(),
            "not_collected": told.missing(),
            "values": told.values,
            "findings": [vars(reason) | {"sentence": reason.sentence} for reason in told.findings],
            "limits": [vars(reason) | {"sentence": reason.sentence} for reason in told.limits],
        }
    cleaned: dict[str, Any] = safe(found)
    return cleaned


def companions(found: Iterable[Imported]) -> dict[str, str]:
    """File name → text, for every document that was recognised; the name is bound to the content of the original."""
    texts: dict[str, str] = {}
    for imported in found:
        if imported.assessment is None:
            continue
        stem = re.sub(r"[^A-Za-z0-9._-]", "_", imported.path.name)[:80].lstrip(".") or "file"
        name = f"{stem}.{str(imported.sha256)[:12]}.{imported.part + 1}.json"
        texts.setdefault(
            name, json.dumps(describe(imported), sort_keys=True, indent=2, ensure_ascii=True) + "\n"
        )
    return texts
