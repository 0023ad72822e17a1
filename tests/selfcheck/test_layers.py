"""Dependencies point one way, and what must work without torch does."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "parproof"


def test_the_import_contracts_of_pyproject_hold():
    """The contracts are read by import-linter; its output says which import breaks which."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.parametrize("path", sorted((SOURCES / "oracles").rglob("*.py")), ids=lambda p: p.name)
def test_no_oracle_touches_a_process_group(path):
    """An oracle that communicates could share the fault it is meant to find."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        module = getattr(node, "module", None) or ""
        assert not any("torch.distributed" in name for name in [module, *names]), f"{path.name}:{node.lineno}"
        if isinstance(node, ast.Attribute):
            assert not (node.attr == "distributed" and getattr(node.value, "id", "") == "torch"), path.name


@pytest.mark.parametrize(
    "module",
    ["parproof", "parproof.plugin", "parproof.cli", "parproof.evidence.audit", "parproof.evidence.report"],
)
def test_importing_the_light_half_leaves_torch_out(module):
    """Checked in a fresh interpreter: another test may have imported torch here."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests" / "mechanisms").glob("test_*.py")), ids=lambda p: p.name
)
def test_no_mechanism_test_imports_another_test(path):
    """Tests share code through the library, so that each can be read alone."""
    for node in ast.walk(ast.parse(path.read_text())):
        module = getattr(node, "module", None) or ""
        assert not module.startswith(("tests", "test_")), f"{path.name}:{node.lineno} imports {module}"
