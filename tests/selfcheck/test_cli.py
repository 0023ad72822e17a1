"""The command line answers with its exit status and one clear line, never with a traceback."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from parproof import hardware, registry
from parproof.cli import main
from parproof.evidence import preflight
from parproof.evidence.audit import rules
from parproof.mutants import catalogue

pytestmark = pytest.mark.selfcheck
FIXTURES = Path(__file__).parents[2] / "fixtures" / "evidence"


def test_status_derives_states_from_tests_and_evidence(capsys):
    """planned, implemented, and the level that the evidence reached."""
    assert main(["status", "--evidence", str(FIXTURES / "good"), "--json"]) == 0
    states = {row["id"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states["PAR-NCCL-COLLECTIVE"] == "cpu_process_group: 3 ok, 1 failed, 1 skipped"
    assert states["PAR-ZERO-STATE"] == "implemented, not in this evidence"
    assert states["PAR-TRAINING-STATE"] == "planned"


def test_evidence_that_does_not_pass_its_audit_supports_no_state(capsys):
    """A typed level must not reach the table."""
    main(["status", "--evidence", str(FIXTURES / "bad" / "level-computed"), "--json"])
    states = {row["id"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states["PAR-NCCL-COLLECTIVE"] == "evidence does not pass its audit"
    assert states["PAR-ZERO-STATE"] == "evidence does not pass its audit"  # it may be what could not be read


@pytest.mark.parametrize(("lang", "heading"), [("en", "| experiment |"), ("zh", "| 实验 ID |")])
def test_status_prints_the_asset_table_in_both_languages(lang, heading, capsys):
    """One row an experiment, with what it consumes, then one an environment, with what it can show."""
    assert main(["status", "--lang", lang]) == 0
    experiments, environments = capsys.readouterr().out.split("\n\n")
    assert experiments.startswith(heading)
    assert experiments.count("\n| PAR-") == len(registry.load().experiments)
    (row,) = [line for line in experiments.splitlines() if line.startswith("| PAR-MOE-EXPERT")]
    assert "PAR-EXPERT-DISPATCH, PAR-NCCL-COLLECTIVE, PAR-OVERLAP-HOTSPOT" in row
    assert environments.count("\n| PAR-") == len(registry.load().profiles) == 5


def test_audit_prints_findings_and_ends_with_their_number(capsys):
    """0 clean, 1 findings, 2 unusable."""
    assert main(["audit", str(FIXTURES / "good")]) == 0
    assert "0 findings" in capsys.readouterr().out
    assert main(["audit", str(FIXTURES / "bad" / "level-computed"), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["rule"] == "level-computed"
    assert main(["audit", str(FIXTURES / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_faults_lists_every_mutant(capsys):
    """With the lie and whose fault it was modelled on."""
    assert main(["faults", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(catalogue())


def test_faults_counts_the_mutants_that_are_modelled_on_public_reports(capsys):
    """A line for each experiment after the list, and only for those that were asked for."""
    assert main(["faults"]) == 0
    counts = re.findall(
        r"^PAR-[A-Z-]+: (\d+) of (\d+) modelled on public reports, (\d+) on an address, (\d+) on common slips$",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    assert len(counts) == len({mutant.experiment for mutant in catalogue()})
    assert all(
        int(reports) + int(addresses) + int(slips) == int(total)
        for reports, total, addresses, slips in counts
    )
    reports = [mutant for mutant in catalogue() if mutant.origin == "public report"]
    assert sum(int(row[0]) for row in counts) == len(reports)
    assert main(["faults", "--experiment", "PAR-ZERO-STATE"]) == 0
    assert capsys.readouterr().out.count("modelled on public reports") == 1


def test_preflight_names_what_is_missing_and_how_to_get_it(capsys, monkeypatch):
    """Two GPUs, on a machine without any."""
    monkeypatch.setattr(hardware, "num_cuda_gpus", lambda: 0)
    assert main(["preflight", "--profile", "PAR-CPU"]) == 0
    assert main(["preflight", "--profile", "PAR-CUDA-MECHANISM"]) == 1
    printed = capsys.readouterr().out
    assert "FAIL lane cuda2: requires 2 CUDA GPUs" in printed
    assert "found 0" in printed
    assert main(["preflight", "--profile", "PAR-NONE"]) == 2
    assert "PAR-CPU" in capsys.readouterr().err


def test_preflight_asks_torch_itself(capsys, monkeypatch):
    """A package that is installed and does not import is not ready."""
    monkeypatch.setattr(
        preflight, "sys", SimpleNamespace(executable="/bin/false", version_info=sys.version_info)
    )
    assert main(["preflight", "--json"]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert not checks["torch build"]["ok"]
    assert "exit status" in checks["torch build"]["found"]
    assert checks["torch"]["ok"]


def test_version_and_an_experiment_without_tests(capsys):
    """One answers, the other is refused with the names that exist."""
    assert main(["version"]) == 0
    assert capsys.readouterr().out.startswith("parproof 0.")
    assert main(["faults", "--run", "--experiment", "PAR-ZERO"]) == 2
    assert "PAR-ZERO-STATE" in capsys.readouterr().err


def test_a_reader_who_has_seen_enough_gets_no_traceback():
    """`parproof audit --rules | head -1`."""
    command = f"{sys.executable} -m parproof audit --rules | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_a_reader_who_leaves_does_not_turn_findings_into_none():
    """`parproof audit DIR | head -1` must not end like a clean audit."""
    command = [sys.executable, "-m", "parproof", "audit", str(FIXTURES / "bad" / "schema")]
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["audit", str(FIXTURES / "good"), "--digest", "8c0760e7f8e7"], "all 64 hexadecimal digits"),
        (
            ["report", str(FIXTURES / "good"), "--digest", "8c0760e7f8e7", "--output", "never.html"],
            "all 64 hexadecimal digits",
        ),
        (["faults", "--experiment", "PAR-NOPE"], "no mutants of PAR-NOPE"),
        (["seal", str(FIXTURES / "good"), "--output", "/nowhere/at/all/seal.json"], "cannot be written"),
    ],
)
def test_a_slip_is_answered_with_what_was_expected(command, words, capsys):
    """Exit status 2: neither yes nor no."""
    assert main(command) == 2
    assert words in capsys.readouterr().err


def test_rules_can_be_read_by_a_program(capsys):
    """The same list as for people."""
    assert main(["audit", "--rules", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == rules()


def test_merging_writes_through_no_link(tmp_path, capsys):
    """Also one that leads nowhere."""
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    shards = [str(FIXTURES / "shards" / name) for name in ("first", "retry")]
    assert main(["merge", *shards, "--output", str(tmp_path / "link")]) == 2
    assert "a link that leads nowhere" in capsys.readouterr().err
    assert not (tmp_path / "elsewhere").exists()
