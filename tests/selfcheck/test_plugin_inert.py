"""The plugin is not there until it is used: no torch, no files, no effects, no option without our prefix."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(240)]
ROOT = Path(__file__).parents[2]
SHORT = {"--subject", "--evidence", "--require"}


def python(code, *arguments, cwd):
    """Run code in a fresh interpreter; its standard output."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


COLLECT = """
import resource, sys, pytest
status = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *sys.argv[1:]])
print("status", int(status), "torch", "torch" in sys.modules)
print("cpu_s", resource.getrusage(resource.RUSAGE_SELF).ru_utime)
"""


def test_collecting_the_suite_imports_no_torch():
    """Rank programs, oracles and workloads load it when they run."""
    output = python(COLLECT, "-m", "cpu or cuda2", "tests/mechanisms", cwd=ROOT)
    assert "status 0 torch False" in output
    assert float(output.split("cpu_s ")[1]) < 20, (
        "collecting must not work; the goal is 2 s on a quiet machine"
    )


def test_a_strangers_tests_are_collected_without_torch(pytester):
    """With fixtures and markers of ours in use."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.lanes("cpu", "cuda2")
        def test_it(ranks, subject, evidence): pass
        """
    )
    assert "status 0 torch False" in python(COLLECT, cwd=pytester.path)


def test_a_session_that_starts_no_ranks_has_no_trace_of_us(pytester):
    """No file, no fixture used, no torch, no line of output."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(
        """
        import sys
        def test_it(request):
            assert "torch" not in sys.modules
            assert request.fixturenames == ["request"]
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
    result.assert_outcomes(passed=1)
    assert "parproof" not in result.stdout.str().replace(str(ROOT), "")
    assert not list(pytester.path.rglob("*parproof*"))


def test_every_option_has_our_prefix_or_is_one_of_three(pytester):
    """Asked of pytest itself, so that no module of the plugin is forgotten."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    config = pytester.parseconfig("-p", "parproof.plugin")
    group = config._parser.getgroup("parproof")
    names = {name for option in group.options for name in option.names()}
    assert {name for name in names if not name.startswith("--parproof-")} == SHORT
    assert {f"--parproof-{name[2:]}" for name in SHORT} <= names, "each has a long form"


@pytest.mark.parametrize(
    "options", [("-p", "no:timeout"), ("-p", "no:xdist"), ("-p", "no:benchmark"), ("-p", "no:terminal")]
)
def test_no_other_plugin_is_needed(options, pytester):
    """A lane that cannot run is looked at, so that hooks of ours run too."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(
        """
        import pytest
        @pytest.mark.lanes("cross_node")
        def test_it(ranks): pass
        def test_plain(): pass
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)
    assert result.ret == 0


def test_an_exception_that_only_looks_like_ours_is_left_alone(pytester):
    """Somebody's test may raise what it likes."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(
        """
        class RankSkip(Exception): pass
        def test_it(): raise RankSkip("mine")
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(failed=1)


@pytest.mark.parametrize(
    ("options", "loads"),
    [
        (("-m", "cpu"), True),
        ((), False),
        (("-m", "not cpu"), False),
        (("-m", "cuda2"), False),
        (("-m", "cpu", "--collect-only"), False),
    ],
)
def test_torch_loads_beside_the_collection_for_whoever_selects_the_cpu_lane(options, loads, pytester):
    """In a process of its own, which ends with the session; nobody else pays for it."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile(
        """
        from multiprocessing import forkserver
        from pathlib import Path
        Path("seen").write_text(str(forkserver._forkserver._forkserver_pid))
        def test_it(): pass
        """
    )
    python("import sys, pytest; pytest.main(sys.argv[1:])", *options, cwd=pytester.path)
    seen = (pytester.path / "seen").read_text()
    assert (seen != "None") == loads
    assert not loads or not psutil.pid_exists(int(seen))


@pytest.mark.parametrize("collects", [True, False])
def test_the_garbage_collector_is_as_it_was_once_tests_are_collected(collects, pytester):
    """It rests while items are made; a test must find it as its user set it, and a module that fails changes nothing."""
    pytester.makeconftest(
        f'import gc\ngc.{"enable" if collects else "disable"}()\npytest_plugins = ["parproof.plugin"]'
    )
    pytester.makepyfile(
        test_gc=f"import gc\nDURING = gc.isenabled()\ndef test_it(): assert (DURING, gc.isenabled()) == (False, {collects}), "
        "'collects garbage: (while tests are collected, in the test)'"
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
