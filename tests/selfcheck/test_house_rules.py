"""The sizes and sentences that keep the tree readable (DESIGN: house rules)."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
SOURCE_FILES = sorted((ROOT / "src").rglob("*.py"))
TEST_FILES = sorted((ROOT / "tests").rglob("test_*.py"))


def functions(path):
    """Every function of a file with its first and last line."""
    return [
        n
        for n in ast.walk(ast.parse(path.read_text()))
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def num_lines(node):
    """Lines of a function's body without its docstring: what has to be held in mind."""
    first = node.body[0]
    has_docstring = ast.get_docstring(node) is not None
    start = (first.end_lineno if has_docstring else node.lineno) or node.lineno
    return (node.end_lineno or start) - start


def named(path):
    """A path as a test id."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCE_FILES, ids=named)
def test_a_source_file_is_short_and_its_functions_are_shorter(path):
    """300 lines a file, 40 a function: more is a sign to split by meaning."""
    assert len(path.read_text().splitlines()) <= 300
    assert [f"{f.name}: {num_lines(f)}" for f in functions(path) if num_lines(f) > 40] == []


@pytest.mark.parametrize("path", TEST_FILES, ids=named)
def test_a_test_module_is_short_and_its_tests_say_what_they_claim(path):
    """250 lines a module, 30 a test, and a sentence for each test."""
    assert len(path.read_text().splitlines()) <= 250
    tests = [f for f in functions(path) if f.name.startswith("test_")]
    assert [f"{f.name}: {num_lines(f)}" for f in tests if num_lines(f) > 30] == []
    assert [f.name for f in tests if not ast.get_docstring(f)] == []


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "mechanisms").glob("test_*.py")), ids=named)
def test_an_experiment_opens_with_its_question(path):
    """Question, Baseline, Candidate, Claims, Not shown: in this order."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    places = [text.find(word) for word in ("Question", "Baseline", "Candidate", "Claims", "Not shown")]
    assert -1 not in places
    assert places == sorted(places)


def test_the_cpu_lane_holds_experiments_only():
    """The suite's own tests would make the lane slower and its evidence longer, and say nothing about a stack."""
    collect = ["-m", "cpu", "--collect-only", "-q", "-p", "no:cacheprovider"]
    code = f"import sys, pytest; pytest.main({collect}); print('torch' in sys.modules)"
    listed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    assert listed[-1] == "False", "a test module imports torch while it is collected"
    assert [line for line in listed if line.startswith("tests/selfcheck")] == []
    assert [line for line in listed if line.startswith("tests/mechanisms")] != []
