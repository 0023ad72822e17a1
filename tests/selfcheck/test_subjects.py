"""Bring your own subject: addresses, what it offers and lacks, skips with a reason, failures with a rank.

The child pytests run outside the checkout, on modules that are written here.
"""

import re
from pathlib import Path

import pytest

from parproof.errors import UsageError
from parproof.plugin.subjects import distinct_ids
from parproof.subjects.protocol import Subject, SubjectRef

pytestmark = pytest.mark.selfcheck
ROOT = Path(__file__).parents[2]
C1 = "test_c1_every_participant_holds_the_oracles_value"
COLLECTIVES = ROOT / "tests" / "mechanisms" / "test_nccl_collective.py"

MODULES = {
    "a_factory": "from parproof.subjects.protocol import Subject\ndef make(): return Subject('made', {})",
    "a_raiser": "def make(): raise RuntimeError('no GPU today')",
    "a_string": "SUBJECT = 'a word'",
    "an_importer": "import a_module_that_nobody_has",
    "a_slip": "1 / 0",
    "a_misnomer": "from parproof.subjects.protocol import Subject\n"
    "SUBJECT = Subject('s', {'collective': 'm:C'}, offers=('colectives.*',))",
    "a_demander": "from parproof.subjects.protocol import Subject\nclass C:\n    def __init__(self, size): pass\n"
    "SUBJECT = Subject('s', {'collectives': 'a_demander:C', 'tensor': 'a_demander:D'})",
}
WRONG = {
    "no_colon": ("a_string", "'a_string' is no address; expected module:attr"),
    "no_module": ("nowhere:SUBJECT", "no module named 'nowhere'\n"),
    "a_path": (
        "/my/ring.py:SUBJECT",
        "'/my/ring.py' is a path; expected the name of a module, e.g. ring:SUBJECT",
    ),
    "near_miss": ("a_string:SUBJCT", "next: did you mean 'SUBJECT'?"),
    "misnamed": (
        "a_misnomer:SUBJECT",
        "'colectives' (did you mean 'collectives'?), 'collective' (did you mean",
    ),
    "no_attribute": ("a_string:SUBJET", "a_string has no attribute 'SUBJET'"),
    "wrong_type": ("a_string:SUBJECT", "a_string:SUBJECT is a str; expected a parproof"),
    "import_inside": (
        "an_importer:S",
        "no module named 'a_module_that_nobody_has', which 'an_importer' imports",
    ),
    "error_inside": ("a_slip:SUBJECT", "importing 'a_slip' raised ZeroDivisionError: division by zero"),
    "factory_raises": ("a_raiser:make", "a_raiser:make raised RuntimeError: no GPU today"),
}


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """Importable modules with something wrong in them."""
    for name, text in MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("name", WRONG)
def test_an_address_error_says_which_half_is_wrong(name, modules):
    """One line that a person can act on, whatever is wrong with the module behind it."""
    address, words = WRONG[name]
    with pytest.raises(UsageError, match=re.escape(words.strip())) as caught:
        SubjectRef(address).load()
    assert str(caught.value).startswith("--subject: ")


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        ("tensor", "mechanisms['tensor'] of subject s: a_demander has no attribute 'D'"),
        (
            "collectives",
            "missing a required argument: 'size'; expected a class or function without arguments",
        ),
    ],
)
def test_a_mechanism_that_cannot_be_made_is_named(mechanism, words, modules):
    """The address in `mechanisms`, not the one on the command line."""
    with pytest.raises(UsageError, match=re.escape(words)):
        SubjectRef("a_demander:SUBJECT").make(mechanism)


def test_mechanisms_of_ones_own_may_have_any_name_that_is_no_slip():
    """A test file of a stranger asks for what it likes."""
    assert (
        Subject("s", {"my_mechanism": "m:C", "collectives": "m:C"}, offers=("*.sum", "tensor*")).slips == []
    )


def test_a_function_may_make_the_subject(modules):
    """For a subject that depends on what is installed."""
    assert SubjectRef("a_factory:make").name == "made"


def test_a_wrong_address_is_one_error_at_the_start(pytester):
    """Not one in every test."""
    pytester.makeconftest('pytest_plugins = ["parproof.plugin"]')
    pytester.makepyfile("def test_one(subject): pass\ndef test_two(subject): pass")
    result = pytester.runpytest_subprocess("--subject", "nowhere:SUBJECT", "-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --subject: no module named 'nowhere'", "*next: *PYTHONPATH*"])
    assert "test_one" not in result.stdout.str()


OFFERS = [
    (("*",), {}, "collectives.barrier", None),
    (("collectives.all_reduce.sum.*",), {}, "collectives.all_reduce.sum.bfloat16.strided", None),
    (("collectives.all_reduce.sum.*",), {}, "collectives", None),
    (("collectives.all_reduce.sum.*",), {}, "collectives.all_reduce", None),
    (("collectives.all_reduce.sum.*",), {}, "collectives.all_reduce.max.int8.strided", "it offers only"),
    (("collectives.all_reduce.sum.*",), {}, "collectives.all_reduce.summit", "it offers only"),
    (("collectives.*.sum.*",), {}, "collectives.barrier", "it offers only collectives.*.sum.*"),
    (("*",), {"collectives.*.int*": "no integers"}, "collectives.reduce.sum.int8.strided", "no integers"),
    (("*",), {"collectives.*.int*": "no integers"}, "collectives.reduce.sum.bool.strided", None),
    (("collectives.reduce.*",), {"*.int8.*": "why"}, "collectives.reduce.sum.int8.strided", "why"),
    (("*",), {}, "tensor.column", "it does not implement tensor"),
]


@pytest.mark.parametrize(("offers", "lacks", "capability", "reason"), OFFERS)
def test_offers_and_lacks_decide_what_is_asked_of_a_subject(offers, lacks, capability, reason):
    """Lacks first, with its reason; then what is not implemented; then what is not offered."""
    found = Subject("s", {"collectives": "m:C"}, lacks, offers).reason_against(capability)
    assert found == reason if reason is None else str(found).startswith(reason)


def test_subjects_of_one_attribute_name_have_distinct_ids():
    """Ids are short while they can be."""
    assert distinct_ids(["one.ring:SUBJECT", "two.tree:SUBJECT"]) == ["ring", "tree"]
    assert distinct_ids(["one:FAST", "two:FAST", "two:SLOW"]) == ["one.FAST", "two.FAST", "SLOW"]
    assert distinct_ids(["a.ring:SUBJECT", "b.ring:SUBJECT"]) == ["a.ring.SUBJECT", "b.ring.SUBJECT"]


SKIPS = """
import pytest
from parproof.subjects.protocol import SubjectRef

def everywhere(ctx, subject):
    subject.require("tensor.row")

def on_rank_1(ctx, subject):
    if ctx.rank == 1:
        subject.require("tensor.row")

def test_parent(subject):
    subject.require("tensor.row")

def test_all_ranks(ranks, subject):
    ranks(2).run(everywhere, subject)

def test_one_rank(ranks, subject):
    ranks(2).run(on_rank_1, subject)

def test_works(ranks, subject):
    ranks(2).run(on_rank_1, SubjectRef("parproof.subjects.reference:SUBJECT"))
"""
MINE = """
import torch.distributed as dist
from parproof.subjects.protocol import Subject

class Sum:
    algorithms = {"all_reduce": "single_call"}

    def all_reduce(self, x, op, group, async_op=False):
        y = x.contiguous()
        dist.all_reduce(y, group=group)
        x.copy_(y)

class Wrong(Sum):
    def all_reduce(self, x, op, group, async_op=False):
        super().all_reduce(x, op, group)
        if dist.get_rank(group) == 2:
            x += 1

def _subject(name):
    return Subject(
        name, {"collectives": f"mine:{name}"}, {"*.async": "it waits"}, ("collectives.all_reduce.sum.*",)
    )

SUBJECT, WRONG = _subject("Sum"), _subject("Wrong")
"""


@pytest.fixture
def mine(pytester, monkeypatch):
    """A folder with somebody's subject in it, from which a child pytest runs."""
    (pytester.path / "mine.py").write_text(MINE)
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    return pytester


@pytest.mark.timeout(240)
def test_what_is_not_provided_is_a_skip_unless_one_rank_says_so_alone(mine):
    """In the test and in all ranks: a skip with the reason. In one rank: a failure that names it."""
    mine.makeconftest('pytest_plugins = ["parproof.plugin"]')
    mine.makepyfile(test_skips=SKIPS)
    result = mine.runpytest_subprocess("-rs", "--subject", "mine:SUBJECT", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1, skipped=2)
    output = result.stdout.str()
    reason = "subject Sum does not provide tensor.row: it does not implement tensor"
    assert re.search(rf"SKIPPED \[\d\] .*{reason}", output)
    assert f"RankFailure: rank 1 of 2: skipped alone ({reason}) while rank 0 ran" in output


@pytest.mark.timeout(240)
def test_a_subject_of_one_operation_passes_or_skips_and_a_wrong_one_fails_by_rank(mine):
    """The real claims, one of each kind, from outside: both subjects in one run."""
    chosen = "c1_every and numbers and W4 or barrier or objects and scatter"
    result = mine.runpytest_subprocess(
        *("-m", "cpu", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={ROOT}", str(COLLECTIVES), "-rf"),
        *("--subject", "mine:SUBJECT", "--subject", "mine:WRONG", "-k", chosen, "-p", "no:cacheprovider"),
    )
    output = result.stdout.str()
    failed = re.findall(r"^FAILED .*?::(\w+)\[(.*?)\]", output, re.MULTILINE)
    assert failed == [(C1, "WRONG-cpu-all_reduce-contiguous-numbers-W4")], output[-3000:]
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] == 1
    assert outcomes["skipped"] >= 10
    assert re.search(r"rank 2 of 4: all_reduce sum \w+ contiguous, x: 12 of 12 elements differ", output)
