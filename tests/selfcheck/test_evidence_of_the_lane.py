"""What the experiments really write is accepted by the audit: predictions in records are those the ledger was held to."""

import subprocess
import sys
from pathlib import Path

import pytest

from parproof.evidence.audit import audit

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
LEDGER_CLAIMS = {
    "nccl_collective": "c7 and all_reduce or every_kind and prefix",
    "tensor_layout": "c8 and W3",
    "zero_state": "c5 and zero3",
    "pipeline_schedule": "c7",
    "expert_dispatch": "c5 and ep3",
    "context_ring": "c5 and W3",
}


@pytest.mark.parametrize("module", LEDGER_CLAIMS)
def test_the_evidence_of_a_ledger_claim_is_accepted(module, tmp_path):
    """Of the reference, in a session of its own; a prediction that leaves a call out is a finding."""
    evidence, junit = tmp_path / "evidence", tmp_path / "junit.xml"
    path = ROOT / "tests" / "mechanisms" / f"test_{module}.py"
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cpu", str(path), "-k", LEDGER_CLAIMS[module]]
    command += ["--subject", "parproof.subjects.reference:SUBJECT", "-p", "no:cacheprovider"]
    command += [f"--evidence={evidence}", f"--junitxml={junit}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    # One part of an experiment does not show its other claims.
    found = [finding for finding in audit(evidence, junit).findings if finding.rule != "required-claims"]
    assert found == []
