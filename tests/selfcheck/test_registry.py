"""The registry is the single source: claims and tests name each other, edges go by role, pages are aliases."""

import ast
import copy
import functools
import tomllib
from pathlib import Path

import pytest

from parproof import registry
from parproof.errors import UsageError
from parproof.evidence.schemas import violations
from parproof.mutants import catalogue

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
RAW = tomllib.loads((ROOT / "src" / "parproof" / "registry.toml").read_text())
EXPERIMENTS = registry.load().experiments
MODULES = sorted((ROOT / "tests").glob("*/test_*.py"))


def marks(path):
    """(experiment, claims) that a test module names."""
    experiment, claims = None, set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            values = [a.value for a in node.args if isinstance(a, ast.Constant)]
            if node.func.attr == "experiment" and path.parent.name != "selfcheck":
                experiment = values[0]
            elif node.func.attr == "claim":
                claims |= set(values)
    return experiment, claims


@functools.cache
def claims_by_experiment():
    """Experiment -> claims, over all modules; not at import, for it reads them all and collection has to be quick."""
    return {found[0]: found[1] for found in map(marks, MODULES) if found[0]}


def test_the_registry_keeps_its_schema():
    """A state, for one, may not be written."""
    assert list(violations("registry", RAW)) == []
    typed = copy.deepcopy(RAW)
    typed["experiment"][0]["state"] = "done"
    assert list(violations("registry", typed)) != []


def test_eight_mechanisms_a_decision_page_four_projects_and_five_profiles():
    """What the requirements list."""
    kinds = [experiment.kind for experiment in EXPERIMENTS]
    assert [kinds.count(kind) for kind in ("mechanism", "decision", "project")] == [8, 1, 4]
    assert len(registry.load().profiles) == 5


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.id)
def test_registered_claims_and_tested_claims_are_the_same(experiment):
    """A claim without a test is a promise; a test of an unregistered claim says nothing to an auditor."""
    assert {claim.id for claim in experiment.claims} == claims_by_experiment().get(experiment.id, set())


@pytest.mark.parametrize("experiment", [e for e in EXPERIMENTS if e.claims], ids=lambda e: e.id)
def test_every_claim_is_named_by_a_mutant(experiment):
    """A claim that nothing can break cannot be trusted to hold."""
    killed = {claim for mutant in catalogue() if mutant.experiment == experiment.id for claim in mutant.kills}
    assert {claim.id for claim in experiment.claims} == killed


def test_no_test_names_an_experiment_that_is_not_registered():
    """A typing error would drop it from every table."""
    assert set(claims_by_experiment()) <= {experiment.id for experiment in EXPERIMENTS}


def test_a_page_number_means_something_only_with_its_revision():
    """46 and 47 have changed places between two revisions of the source pages."""
    found = registry.load()
    assert found.by_alias("46", "assets").id == found.by_alias("47", "stored").id == "PAR-EXPERT-DISPATCH"
    assert found.by_alias("47", "assets").id == found.by_alias("46", "stored").id == "PAR-NCCL-COLLECTIVE"
    assert found.by_alias("46", "some other") is None
    assert found.experiment("46") is None


def test_projects_consume_collectives_as_collectives():
    """In the source's own numbering two projects consume expert dispatch, a leftover of the renumbering."""
    roles = {(edge.consumer, edge.role): edge.producer for edge in registry.load().edges}
    for project in ("PAR-TRAINING-STATE", "PAR-MODEL-INTERNAL", "PAR-MOE-EXPERT"):
        assert roles[project, "collective_cost"] == "PAR-NCCL-COLLECTIVE"
    assert ("PAR-TRAINING-STATE", "expert_split") not in roles
    one_producer = {}
    for edge in registry.load().edges:
        assert one_producer.setdefault(edge.role, edge.producer) == edge.producer, (
            f"{edge.role} of two mechanisms"
        )


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda raw: raw["experiment"].append(raw["experiment"][0]), "experiment id"),
        (lambda raw: raw["experiment"][1]["aliases"].append({"page": "27", "revision": "all"}), "alias"),
        (
            lambda raw: raw["edge"].append({"consumer": "X", "producer": "PAR-ZERO-STATE", "role": "r"}),
            "end of an edge",
        ),
        (lambda raw: raw["experiment"][0]["profiles"].append("PAR-NONE"), "profile of"),
        (lambda raw: raw["experiment"][0]["claim"].append(raw["experiment"][0]["claim"][0]), "claim of"),
    ],
    ids=["id", "alias", "edge", "profile", "claim"],
)
def test_a_registry_that_contradicts_itself_is_refused(spoil, text):
    """By name."""
    raw = copy.deepcopy(RAW)
    spoil(raw)
    with pytest.raises(UsageError, match=text):
        registry.parse(raw)
