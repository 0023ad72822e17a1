"""Every claim can fail: the planted mutants die, each at the claims that name it, with the expected text."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parproof.errors import UsageError
from parproof.mutants import catalogue

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted({mutant.experiment for mutant in catalogue()})


def run_against_mutants(tests, matrix):
    """The real tests, with mutants in place of subjects, in a session of their own."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-m",
        "cpu",
        "-p",
        "no:cacheprovider",
        "-p",
        "parproof.plugin",
        "--parproof-mutants",
    ]
    command += ["--parproof-kill-matrix", str(matrix), *map(str, tests)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_mutant_of_the_experiment_dies_at_every_claim_it_names(experiment, tmp_path):
    """A survivor is a claim that cannot fail; its lie is printed."""
    matrix = tmp_path / "kills.json"
    modules = [
        p for p in (ROOT / "tests").glob("*/test_*.py") if f'experiment("{experiment}")' in p.read_text()
    ]
    done = run_against_mutants(modules, matrix)
    rows = [row for row in json.loads(matrix.read_text()) if row["experiment"] == experiment]
    expected = {(m.name, claim) for m in catalogue() if m.experiment == experiment for claim in m.kills}
    assert {(row["mutant"], row["claim"]) for row in rows} == expected
    assert [f"{r['mutant']} lives through {r['claim']}: {r['lie']}" for r in rows if not r["killed"]] == []
    assert done.returncode == 0, done.stdout[-3000:]


def test_a_claim_that_cannot_fail_is_found(tmp_path):
    """A test that looks at nothing lets its mutants live, and the session fails for it."""
    blind = tmp_path / "test_blind.py"
    claim = next(iter(catalogue()[0].kills))
    blind.write_text(
        "import pytest\n"
        f'pytestmark = [pytest.mark.experiment("{catalogue()[0].experiment}"), pytest.mark.cpu]\n'
        f'@pytest.mark.claim("{claim}")\n'
        "def test_blind(subject): pass\n"
    )
    done = run_against_mutants(
        [blind, "-c", ROOT / "pyproject.toml", f"--rootdir={ROOT}"], tmp_path / "kills.json"
    )
    assert done.returncode == 1, done.stdout[-2000:]
    assert f"SURVIVED {catalogue()[0].name} against {claim}" in done.stdout


def test_failing_for_another_reason_is_not_a_kill(tmp_path):
    """An error in the test must not pass for the finding that the mutant was planted for."""
    broken = tmp_path / "test_broken.py"
    claim = next(iter(catalogue()[0].kills))
    broken.write_text(
        "import pytest\n"
        f'pytestmark = [pytest.mark.experiment("{catalogue()[0].experiment}"), pytest.mark.cpu]\n'
        f'@pytest.mark.claim("{claim}")\n'
        "def test_broken(subject): raise AssertionError('an unrelated slip')\n"
    )
    done = run_against_mutants(
        [broken, "-c", ROOT / "pyproject.toml", f"--rootdir={ROOT}"], tmp_path / "kills.json"
    )
    assert done.returncode == 1
    assert not any(row["killed"] for row in json.loads((tmp_path / "kills.json").read_text()))


@pytest.mark.parametrize("mutant", catalogue(), ids=lambda m: f"{m.experiment}-{m.name}")
def test_a_mutant_says_which_lie_it_tells_and_who_told_it_before(mutant):
    """Modelled on a public report, or on a slip that is common enough to name."""
    assert len(mutant.lie) > 15
    assert mutant.origin


def test_at_least_half_the_mutants_of_an_experiment_are_modelled_on_public_reports():
    """Faults that somebody really made; the rest are slips of which no report is known."""
    for experiment in {mutant.experiment for mutant in catalogue()}:
        origins = [mutant.origin for mutant in catalogue() if mutant.experiment == experiment]
        assert 2 * origins.count("public report") >= len(origins), experiment


def one_entry(modelled_on: str) -> str:
    """A TOML file with one mutant."""
    return f'[[mutant]]\nname = "same"\nexperiment = "E"\nlie = "l"\nmodelled_on = "{modelled_on}"\nkills = {{ C1 = "x" }}\n'


@pytest.mark.parametrize(
    ("modelled_on", "origin"),
    [
        ("NVIDIA/Megatron-LM#5337", "public report"),
        ("NVIDIA/apex#1218 (always in float32); verl-project/verl#7874", "public report"),
        ("https://arxiv.org/abs/2104.04473 (footnote)", "address"),
        ("common slip: group= left out", "common slip"),
    ],
)
def test_a_mutant_may_be_modelled_on_a_report_an_address_or_a_slip(
    modelled_on, origin, tmp_path, monkeypatch
):
    """Each in a form of its own, so that a reader sees which are which."""
    (tmp_path / "one.toml").write_text(one_entry(modelled_on))
    monkeypatch.setattr("parproof.mutants.resources.files", lambda package: tmp_path)
    (mutant,) = catalogue.__wrapped__()
    assert mutant.origin == origin


@pytest.mark.parametrize(
    "modelled_on",
    [
        "",
        "common slip",
        "common slip: ",
        "off by one in the ring loop",
        "pytorch#1",
        "pytorch/pytorch",
        "pytorch/pytorch#0",
        "pytorch/pytorch#12, #13",
        "pytorch/pytorch#12 and something like it",
        "http://example.org/x",
        "https://",
    ],
)
def test_a_mutant_modelled_on_nothing_that_can_be_looked_up_is_refused(modelled_on, tmp_path, monkeypatch):
    """Words that look like a source and are none would let a slip pass for a report."""
    (tmp_path / "one.toml").write_text(one_entry(modelled_on))
    monkeypatch.setattr("parproof.mutants.resources.files", lambda package: tmp_path)
    with pytest.raises(UsageError, match=r"one\.toml: 'same' is modelled on .*OWNER/REPO#NUMBER"):
        catalogue.__wrapped__()


def test_two_mutants_of_one_name_are_refused(tmp_path, monkeypatch):
    """In the kill matrix they would be one, and the death of the first would hide that the second lives."""
    for stem in ("one", "two"):
        (tmp_path / f"{stem}.toml").write_text(one_entry("common slip: one name for two"))
    monkeypatch.setattr("parproof.mutants.resources.files", lambda package: tmp_path)
    with pytest.raises(UsageError, match=r"two\.toml: 'same' is already the name of .*mutants\.one:same"):
        catalogue.__wrapped__()
