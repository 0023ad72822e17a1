"""Lanes: collected where they are asked for, skipped with a reason, an error when required."""

import subprocess

import pytest

from parproof import hardware
from parproof.plugin import outcomes

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(120)]

LANES = """
import pytest

@pytest.mark.lanes("cpu", "cuda2")
def test_both(ranks, lane): print("ran in", lane)

@pytest.mark.lanes("cpu", "cuda2")
def test_starts_no_ranks(): pass

def test_names_no_lane(ranks, lane): assert lane == "cpu"

@pytest.mark.lanes("cross_node")
def test_two_hosts(ranks): pass

@pytest.mark.lanes("cuda2")
def test_needs_four(ranks): ranks(4)

def test_plain(): pass
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Run the tests above in this process, on a machine with this many GPUs."""

    def run(*arguments, gpus=0):
        monkeypatch.setattr(hardware, "num_cuda_gpus", lambda: gpus)
        pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
        pytester.makepyfile(test_lanes=LANES)
        return pytester.runpytest_inprocess("-rsE", "-p", "no:cacheprovider", *arguments)

    return run


def test_a_test_is_collected_once_for_each_lane_it_names(run):
    """One that starts no ranks is collected once, in its first lane."""
    output = run("--collect-only", "-q").stdout.str()
    assert "test_both[cpu]" in output
    assert "test_both[cuda2]" in output
    assert "test_starts_no_ranks\n" in output
    assert "test_starts_no_ranks[" not in output


def test_the_cpu_lane_finds_what_names_no_lane_but_starts_ranks(run):
    """A stranger's test needs no marker of ours."""
    run("-m", "cpu").assert_outcomes(passed=3, deselected=4)


def test_a_lane_that_cannot_run_is_skipped_with_requirement_finding_and_remedy(run):
    """Three parts, so that the reader knows what to do."""
    result = run("-m", "cuda2")
    result.assert_outcomes(skipped=2, deselected=5)
    result.stdout.fnmatch_lines(
        [
            "*lane cuda2 requires 2 CUDA GPUs visible to a CUDA build of torch; found 0; run pytest -m cuda2 on*"
        ]
    )
    run("-m", "cross_node").stdout.fnmatch_lines(
        ["*lane cross_node requires ranks on two or more hosts; found one host*; run it through a launcher*"]
    )


def test_a_required_lane_that_cannot_run_is_an_error(run):
    """The same sentence; the session fails."""
    result = run("-m", "cuda2", "--require", "cuda2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(errors=2, deselected=5)
    result.stdout.fnmatch_lines(["*required lane cannot run: lane cuda2 requires 2 CUDA GPUs*"])


def test_requiring_one_lane_leaves_the_others_as_they_are(run):
    """`--require cuda2` says nothing about two hosts."""
    run("-m", "cross_node", "--require", "cuda2").assert_outcomes(skipped=1, deselected=6)


def test_a_world_too_large_for_the_gpus_is_skipped_where_it_is_asked_for(run):
    """Two GPUs run the lane, but not four ranks."""
    result = run("-k", "needs_four", gpus=2)
    result.assert_outcomes(skipped=1, deselected=6)
    result.stdout.fnmatch_lines(["*lane cuda2 requires 4 CUDA GPUs*found 2*"])
    run("-k", "needs_four", "--require", "cuda2", gpus=2).assert_outcomes(failed=1, deselected=6)


def test_an_unknown_lane_is_an_error_of_collection(pytester):
    """A typing error must not make a test vanish."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile("import pytest\n@pytest.mark.lanes('cpus')\ndef test_it(ranks): pass")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*test_it: unknown lane cpus; lanes are cpu, cuda1, cuda2, cross_node"])


def test_gpus_are_counted_in_a_process_of_its_own(monkeypatch):
    """CUDA must not be touched before ranks are forked; without a device nothing is started at all."""
    asked = []
    monkeypatch.setattr(
        hardware.glob, "glob", lambda pattern: ["/dev/nvidia0"] if "nvidia" in pattern else []
    )
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda command, **_: asked.append(command) or _done("GPU of a kind\nGPU of a kind\n"),
    )
    hardware.cuda_gpus.cache_clear()
    try:
        assert hardware.num_cuda_gpus() == 2
        assert hardware.names_of(["cuda:0", "cuda:1", "cpu"]) == "GPU of a kind"
        assert hardware.names_of(["cuda:2"]) is None
        assert len(asked) == 1
        monkeypatch.setattr(hardware.glob, "glob", lambda pattern: [])
        hardware.cuda_gpus.cache_clear()
        assert hardware.num_cuda_gpus() == 0
        assert len(asked) == 1
    finally:
        hardware.cuda_gpus.cache_clear()


def _done(stdout):
    return subprocess.CompletedProcess([], 0, stdout, "")


@pytest.mark.parametrize("trouble", [OSError("no python"), subprocess.TimeoutExpired("python", 120)])
def test_a_driver_that_does_not_answer_counts_as_no_gpu(trouble, monkeypatch):
    """A hanging driver must not take the session down; preflight says more."""

    def fail(*_, **__):
        raise trouble

    monkeypatch.setattr(hardware.glob, "glob", lambda pattern: ["/dev/nvidia0"])
    monkeypatch.setattr(subprocess, "run", fail)
    hardware.cuda_gpus.cache_clear()
    try:
        assert hardware.num_cuda_gpus() == 0
    finally:
        hardware.cuda_gpus.cache_clear()


@pytest.mark.parametrize(
    ("launcher", "devices", "name"),
    [
        ("local", ("cuda:0", "cuda:2"), "GPU A | GPU B"),
        ("local", ("cuda:0", "cuda:1"), "GPU A"),
        ("local", ("cpu", "cpu"), None),
        ("torchrun", ("cuda:0", "cuda:0"), None),
        ("local", ("cuda:3",), None),
    ],
)
def test_a_record_names_the_accelerator_of_its_ranks(launcher, devices, name, monkeypatch):
    """Of this machine: a rank elsewhere, or a device nobody can name, leaves it open."""
    monkeypatch.setattr(hardware, "cuda_gpus", lambda: ("GPU A", "GPU A", "GPU B"))
    run = {"launcher": launcher, "ranks": [{"device": device} for device in devices]}
    assert outcomes._accelerator([run]) == name
