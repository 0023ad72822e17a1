"""What is built is whole: schemas, registry, mutants and plugin are in the wheel and work without the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.selfcheck, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this tree."""
    target = tmp_path_factory.mktemp("wheel")
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(target),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (built,) = target.glob("parproof-*.whl")
    return built


def test_the_wheel_holds_schemas_registry_mutants_and_the_type_marker(wheel):
    """Data files are what a build forgets first."""
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in (ROOT / "schemas").glob("*.schema.json"):
        assert f"parproof/_schemas/{path.name}" in names
    for path in (ROOT / "src" / "parproof").rglob("*.toml"):
        assert str(path.relative_to(ROOT / "src")) in names
    report = ROOT / "src" / "parproof" / "evidence" / "report"
    parts = [path for kind in ("*.jinja", "*.css", "*.js", "*.json") for path in report.rglob(kind)]
    assert len(parts) > 15
    assert {str(path.relative_to(ROOT / "src")) for path in parts} - names == set()
    assert "parproof/py.typed" in names
    assert not [name for name in names if name.startswith(("tests/", "fixtures/", "conftest"))]


def test_an_auditor_can_use_it_without_torch_and_pytest(wheel, tmp_path):
    """The unpacked wheel, in a process where importing torch or pytest is an error."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    prelude = "import sys; sys.modules['torch'] = sys.modules['pytest'] = None; sys.path.insert(0, sys.argv.pop(1));"
    code = prelude + "from parproof.cli import main; sys.exit(main(sys.argv[1:]))"

    def parproof(*arguments):
        command = [sys.executable, "-P", "-c", code, str(tmp_path), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    status = parproof("status")
    assert status.returncode == 0, status.stderr
    assert "PAR-ZERO-STATE" in status.stdout
    audit = parproof("audit", ROOT / "fixtures" / "evidence" / "good")
    assert audit.returncode == 0, audit.stdout + audit.stderr
    page = tmp_path / "report.html"
    report = parproof("report", ROOT / "fixtures" / "evidence" / "good", "--output", page, "--lang", "zh")
    assert report.returncode == 0, report.stdout + report.stderr
    assert page.read_text("utf-8").startswith("<!doctype html>")
