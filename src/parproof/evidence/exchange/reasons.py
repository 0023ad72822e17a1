"""Every reason an import can give, with a stable id and a sentence.

A finding says that a file claims more than it supports, or that its numbers do not hold together. A limit says what
cannot be concluded from a file that claims nothing of the kind. Numbers in brackets are those of the published rules
against over-claiming.
"""

from __future__ import annotations

from dataclasses import dataclass

from parproof.evidence.audit.findings import Finding

FINDINGS = {
    # the contract
    "schema-version": "A record names the version of its contract.",
    "field-missing": "A record has all nine required fields.",
    "role-unknown": "A role is one of the four of the contract.",
    "role-of-project": "Role and project belong together.",
    "hardware-is-text": "Hardware is a mapping, not a sentence.",
    "decision-is-text": "A decision is a mapping, not a word.",
    "not-a-mapping": "Workload and metrics are mappings.",
    "field-type": "A field of the contract has the type that the contract gives it.",
    "failure-form": "A failure is null or a mapping with a reason.",
    "empty-mapping": "Workload, hardware and metrics of a run that succeeded are not empty.",
    "decision-unknown": "A decision is accept, tune, reject, pending or not_evaluated.",
    "status-form": "Status, failure and metrics tell one story.",
    "metric-missing": "The metrics that the page asks for are there.",
    # over-claims
    "level-not-canonical": "A level is one of the five; another word has no meaning that could be checked.",
    "level-before-run": "A level belongs to what ran: stamped on a run that failed or never started, it is a wish (10).",
    "level-above-support": "A level is not above what the file supports.",
    "preflight-as-evidence": "A preflight is no evidence of communication (1).",
    "cross-node-claim": "Ranks of one host say nothing about several (2).",
    "mechanism-as-project": "A mechanism's result is no project's result (3).",
    "single-process": "Fewer than two ranks show no communication (4).",
    "orchestration-as-communication": "A placement group shows no bandwidth, correctness or efficiency (5).",
    "simulation-as-scaling": "A run on CPU shows no scaling, speed or memory of GPUs (6).",
    "workload-not-fixed": "A benchmark has a fixed workload and a named model or backend (7).",
    "failure-and-performance": "What failed has no performance to be compared (8).",
    "wrong-and-performance": "What is not correct has no performance to be read (8).",
    "sources-unequal": "Results of unequal workload or hardware are not put together (9).",
    "nothing-measured": "A level above theoretical needs something that was measured (10).",
    "smoke-promoted": "Adding up does not turn smoke into a result that is ready for review (11).",
    "logical-as-network": "Routed bytes are not bytes on a network (12).",
    "overflow-hidden": "Throughput with overflow is told for the tokens that took effect (12).",
    "slowest-rank": "A maximum over ranks is the maximum of what the ranks report (12).",
    "kernel-sum": "Summed kernel time is no critical path; exposed time is (13).",
    "gemm-no-serving": "Matrix products are no serving engine (14).",
    "decision-needs-comparison": "One file accepts nothing: a decision needs two runs of equal workload.",
    "source-twice": "A source counts once.",
    "source-undigested": "A source is named with its sha256, so that it can be told from another.",
    "source-count": "The number of sources is the number that is there.",
    "evidence-disagrees": "A document that names evidence says what this evidence gives.",
    "same-file": "A file counts once.",
    # numbers that do not hold together
    "not-finite": "A measured value is a finite number.",
    "not-positive": "Times, rates, counts and sizes are not negative, and a duration is above zero.",
    "identity-consistent": "World size and ranks are told alike wherever they are told.",
    "ranks-incomplete": "Every rank reports, each once.",
    "memory-of-one-rank": "A figure per rank is given for every rank.",
    "unit-gbps": "A field named gbps holds gigabits; this one holds gigabytes.",
    "rate-consistent": "A rate times its duration gives the count.",
    "value-derived": "A derived value follows from the values it is derived from.",
    "constant-ratio": "A ratio follows from the routing; a constant was never measured.",
    "count-consistent": "Requests that completed and failed add up to those that were sent.",
    "percentile-order": "A higher percentile is not below a lower one.",
    "latency-order": "The first token does not come after the last.",
    "requests-failed": "Throughput with failed requests is that of another workload.",
    "wrong-values": "No element is wrong.",
    "unchecked-called-ok": "Values that nobody compared are not OK.",
    "out-of-bounds": "The number of wrong values and its verdict follow from the rows.",
    "algbw": "Algorithm bandwidth is size over time.",
    "busbw": "Bus bandwidth is algorithm bandwidth times the factor of the operation.",
    "avg-busbw": "The average bus bandwidth is the mean of all rows.",
    "row-unreadable": "Every row of a table can be read: one left out might be the wrong one.",
    "table-cut-short": "A table that was begun has its end.",
    "cpu-time": "CPU time is the time to launch, not to communicate.",
    "run-errors": "A run that reports errors has no result.",
}
# Findings after which no number of the file can be used.
SPOILS = frozenset(
    (
        "not-finite",
        "not-positive",
        "ranks-incomplete",
        "identity-consistent",
        "slowest-rank",
        "rate-consistent",
        "value-derived",
        "count-consistent",
        "percentile-order",
        "latency-order",
        "wrong-values",
        "out-of-bounds",
        "algbw",
        "busbw",
        "avg-busbw",
        "table-cut-short",
        "row-unreadable",
        "run-errors",
        "wrong-and-performance",
        "failure-and-performance",
    )
)
LIMITS = {
    "no-sealed-observation": "Nothing binds the file to a run: whoever can write a level can write devices too.",
    "accelerator-not-named": "No accelerator is named, so nothing about one follows.",
    "failed": "The run failed; what it says is how.",
    "page-number": "A page number means something only with a revision of the pages: 46 and 47 changed places.",
    "mean-only": "Means only: no median, P95 or spread.",
    "average-over-ranks": "Times are averaged over ranks unless it was asked for otherwise; the slowest is hidden (12).",
    "no-repeats": "One sample, or none: nothing about spread.",
    "no-warm-up": "No warm-up is told: the first call may be in the figures.",
    "correctness-not-judged": "No value was judged against a bound: speed of a possibly wrong result.",
    "synthetic-model": "A synthetic model or payload: no statement about a real one.",
    "no-bus-factor": "Payload over time; without the factor of the operation it does not compare with a link.",
    "logical-bytes": "Bytes at the call, not on the network (12).",
    "synthetic-overlap": "Overlap with one matrix product, not of a framework (14).",
    "all-gather-no-ring": "All-gather of keys and values, not ring attention (14).",
    "replica-gemm": "Replica loads of matrix products, not a serving engine (14).",
    "one-host": "One host: nothing about several (2).",
    "hosts-not-told": "Where the ranks ran is not told.",
    "collective-not-named": "Which collective ran is not told.",
    "group-size-unknown": "How many ranks took part is not told, so bus bandwidth cannot be checked.",
    "values-unchecked": "Results were not compared with what they should be.",
    "devices-incomplete": "One device is listed for each process, not for each rank.",
    "environment-kept-out": "The file lists every environment variable; none is copied, since some may be secret.",
    "hardware-not-recorded": "The client's file does not tell the server's hardware.",
    "version-not-recorded": "Version of the engine and revision of the model are not told.",
    "warm-up-not-recorded": "Whether requests were sent before the measurement is not told.",
    "single-run": "One run: nothing about spread between runs.",
    "client-side": "Times as one client saw them: queueing, network and client included.",
    "not-strict-json": "The file holds NaN or Infinity, which other readers refuse.",
    "strategy-missing": "The page that reads a summary asks for `strategy`.",
    "project-not-registered": "The project is not one of this registry.",
    "sources-not-read": "The sources that are named were not read.",
    "evidence-not-given": "The evidence that the document names was not looked at.",
    "nothing-ran": "A plan or a manifest: nothing ran.",
}


@dataclass(frozen=True)
class Reason:
    """One reason of one file: where, what the file says, and what is supported."""

    id: str
    where: str
    claimed: str
    supported: str

    @property
    def sentence(self) -> str:
        """What the id means."""
        return FINDINGS.get(self.id) or LIMITS[self.id]

    def __str__(self) -> str:
        # Escaped and shortened as every word of a stranger.
        return str(Finding(self.id, self.where, self.claimed, self.supported))
