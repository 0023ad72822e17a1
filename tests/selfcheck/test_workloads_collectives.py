"""What is asked of collectives is thinned, but no reduction is left out anywhere, and the page says what is thinned."""

from dataclasses import replace
from pathlib import Path

import pytest

from parproof.checks import collective_runs as runs
from parproof.plugin.nonconformances import listed
from parproof.subjects.protocol import SubjectRef
from parproof.workloads import collective_coalesced as coalescing
from parproof.workloads import collective_forms as forms
from parproof.workloads import collective_waiting as waits
from parproof.workloads.collective_cases import (
    DTYPES,
    GROUPS,
    LAYOUTS,
    REDUCING,
    cases,
    group_cases,
    name,
    places,
    reduce_ops,
    value_cases,
)
from parproof.workloads.collective_forms import FORM_GROUPS, FORMS

pytestmark = pytest.mark.selfcheck
PAGE = (Path(__file__).parents[2] / "docs" / "subjects.md").read_text()


@pytest.mark.parametrize("place", [place for place in places() if place[0] in REDUCING], ids=name)
def test_every_reduction_is_judged_in_every_layout_and_world(place):
    """Integers have the bitwise ones; one dtype at least stands for each."""
    op, layout, kind, world = place
    dtypes = ("bool",) if kind == "bool" else tuple(dtype for dtype in DTYPES if dtype != "bool")
    asked = {case.reduce_op for case in value_cases(op, layout, kind, world)}
    assert asked == {reduce_op for dtype in dtypes for reduce_op in reduce_ops(dtype)}


HEAD = "| | operations | dtypes | layouts | worlds and groups | calls of all there would be |"


def line(words, asked, whole, groups):
    """A row of the page: how much of the cross product is asked for. A case tells its operation, dtype and layout."""
    ops, dtypes = {op for op, _, _ in asked}, {dtype for _, dtype, _ in asked}
    layouts = [layout for layout in LAYOUTS if layout in {layout for _, _, layout in asked}]
    many = "all" if len(layouts) == len(LAYOUTS) else ", ".join(layouts)
    counted = f"{len(asked)} of {whole}"
    return f"| {words} | {len(ops)} | {len(dtypes)} | {many} | {', '.join(groups)} | {counted} |"


def plain(cases):
    """Operation, dtype and layout of buffered cases."""
    return [(case.op, case.dtype, case.layout) for case in cases]


def rows_of_buffers():
    """C1, C2 and C7, and the asynchronous forms of C3."""
    found = []
    for words, chosen in (
        ("C1 C2 plain", lambda layout, p: layout == "contiguous" and p == 3),
        ("C1 C2 other worlds", lambda layout, p: layout == "contiguous" and p != 3),
        ("C1 C2 other layouts", lambda layout, p: layout != "contiguous"),
    ):
        here = [place for place in places() if chosen(place[1], place[3])]
        asked = [case for place in here for case in value_cases(*place)]
        whole = sum(len(cases(op, layout, kind=kind, p=p)) for op, layout, kind, p in here)
        found.append(line(words, plain(asked), whole, sorted({f"W{p}" for *_, p in here})))
    asked = [case for _, members in GROUPS.values() for case in group_cases(len(members[0]))]
    whole = sum(len(group_cases(len(members[0]), thin=1)) for _, members in GROUPS.values())
    found.append(line("C1 C7 groups", plain(asked), whole, GROUPS))
    asynchronous = waits.waiting_places()
    asked = [c for op, group in asynchronous for c in waits.waiting_cases(op, len(FORM_GROUPS[group][1][0]))]
    whole = len({group for _, group in asynchronous}) * len(LAYOUTS) * len(group_cases(3, thin=1))
    found.append(line("C3 C7", plain(asked), whole, dict.fromkeys(group for _, group in asynchronous)))
    return found


def defined(form, dtypes):
    """Dtypes that a functional form is asked for: bool has no reductions here, and integers no mean."""
    names = {None: dtypes, "avg": [d for d in dtypes if "float" in d]}
    return len(names.get(form.reduce_op, [d for d in dtypes if d != "bool"]))


def whole_of(words, layouts, dtypes):
    """Functional forms by the dtypes and layouts they are defined for."""
    scalars = sum(defined(f, dtypes) for op in words for f in FORMS[op] if f.op in forms.SCALAR)
    return sum(defined(f, dtypes) for op in words for f in FORMS[op]) * (layouts - 1) + scalars


def rows_of_forms():
    """C4: values, gradients, and both in groups; the older mechanism; coalesced calls."""

    def told(asked):
        return [(case.form.op, case.dtype, case.layout) for case in asked]

    found, three = [], ["W3"]
    for words, gradient, dtypes in (("C4 values", False, DTYPES), ("C4 gradients", True, forms.FLOATS)):
        asked = [
            case
            for op, layouts, _ in forms.value_places()
            for case in forms.cases((op,), forms.LAYOUT_SETS[layouts], gradient=gradient)
        ]
        found.append(line(words, told(asked), whole_of(FORMS, len(LAYOUTS), dtypes), three))
    for words, kind, dtypes in (
        ("C7 of these values", "values", DTYPES),
        ("C7 of these gradients", "gradient", forms.FLOATS),
    ):
        asked = [
            case
            for of, op, layouts, _ in _places_of_c7()
            if of == kind and layouts in forms.LAYOUT_SETS
            for case in forms.cases((op,), forms.LAYOUT_SETS[layouts], gradient=kind == "gradient")
        ]
        found.append(line(words, told(asked), whole_of(FORMS, len(LAYOUTS), dtypes), three))
    here = [place for place in forms.gradient_places() if place[1] == "group_cases"]
    asked = [case for word, *_ in here for case in forms.group_cases(word)]
    whole = len(forms.OTHER_GROUPS) * whole_of(FORMS, len(LAYOUTS), DTYPES)
    found.append(line("C4 C7 groups", told(asked), whole, dict.fromkeys(place[2] for place in here)))
    here = [place for place in forms.gradient_places() if place[1].startswith("autograd")]
    groups = dict.fromkeys(place[2] for place in here)
    for words, gradient in (("C4 C7 nn.functional values", False), ("C4 C7 nn.functional gradients", True)):
        asked = [
            case
            for word, layouts, _ in here
            for case in forms.autograd_cases(word, layouts)
            if case.gradient == gradient
        ]
        scalars = {case.form for case in asked if case.form.op in (*forms.SCALAR, "reduce")}
        layouts = len({case.form for case in asked}) * (len(LAYOUTS) - 1) + len(scalars)
        found.append(line(words, told(asked), layouts * len(forms.FLOATS) * len(groups), groups))
    for words, chosen in (("C4 C7 coalesced", True), ("C4 C7 coalesced, groups", False)):
        here = [place for place in coalescing.places() if (place[1] == "W3") == chosen]
        batches = [batch for form, _ in here for batch in coalescing.batches_of(form)]
        asked = [(part.form, part.dtype, part.layout) for batch in batches for part in batch.parts]
        groups = dict.fromkeys(group for _, group in here)
        names = {form for form, _, _ in asked}
        tensors = sum(len(coalescing.FORMS[form]) * len(coalescing.batches(form, thin=1)) for form in names)
        found.append(line(words, asked, tensors * len(LAYOUTS) * len(groups), groups))
    return found


def _places_of_c7():
    """The places of functional forms and messages whose ledgers are judged."""
    return [place for place in runs.form_ledgers() if len(place) == 4]


def rows_of_messages():
    """C5 on three ranks and in groups, and what of it C7 judges."""
    found = []
    ledgers = [(what, layouts, group) for kind, what, layouts, group in _places_of_c7() if kind == "messages"]
    for words, places_, chosen in (
        ("C5", forms.message_places(), True),
        ("C7 of these", ledgers, True),
        ("C5 groups", forms.message_places(), False),
        ("C7 of these", ledgers, False),
    ):
        here = [place for place in places_ if (place[2] == "W3") == chosen]
        asked = [
            (kind, dtype, layout)
            for kinds, layouts, _ in here
            for kind in forms.KINDS_OF[kinds]
            for layout in forms.LAYOUT_SETS[layouts]
            for dtype in forms.message_dtypes(layout)
        ]
        groups = dict.fromkeys(place[2] for place in here)
        whole = len(groups) * len(forms.MESSAGE_KINDS) * len(DTYPES) * len(LAYOUTS)
        found.append(line(words, asked, whole, groups))
    return found


def test_the_page_says_what_is_crossed_with_what():
    """The table of docs/subjects.md is the one that follows from the case tables."""
    table = [HEAD, "|---|---|---|---|---|---|", *rows_of_buffers(), *rows_of_forms(), *rows_of_messages()]
    assert "\n".join(table) + "\n\n" in PAGE, "docs/subjects.md should have\n" + "\n".join(table)


GRADIENTS = "test_c4_gradients_are_those_of_the_sum_of_all_losses"


def operations_of(word, layouts):
    """The operations that one run of gradients judges."""
    if layouts.startswith("autograd"):
        return {case.form.op for case in forms.autograd_cases(word, layouts)}
    cases_ = (
        forms.group_cases(word)
        if layouts == "group_cases"
        else forms.cases((word,), ("sliced",), gradient=True)
    )
    return {case.form.op for case in cases_}


@pytest.mark.parametrize("entry", [e for e in listed() if e.claim == "PAR-NCCL-COLLECTIVE/C4"], ids=str)
def test_a_listed_gradient_hides_no_other_operation(entry):
    """A run that is expected to fail judges one operation; what else there is has a run that has to pass."""
    hidden = [place for place in forms.gradient_places() if set(entry.case) <= {*place, GRADIENTS}]
    assert all(len(operations_of(*place[:2])) == 1 for place in hidden), hidden


def test_values_are_judged_in_groups_where_gradients_are_alone():
    """What may have a wrong gradient has its value judged with the rest; a permute is alone with both."""
    values = {case.form.op for case in forms.group_cases("most") if not case.gradient}
    assert set(forms.REST) - values == {"permute"}
    values = {case.form.op for case in forms.autograd_cases("values")}
    assert {form.op for word in forms.AUTOGRAD for form in forms.AUTOGRAD[word]} - values == set(forms.ALONE)


class _OnesThatRun:
    """Ranks that run nothing."""

    def __call__(self, world_size, **options):
        """Themselves, whatever is asked."""
        return self

    def run_once(self, program, *arguments):
        """Nothing."""


@pytest.mark.parametrize(
    ("lacking", "aspect"),
    [("point_to_point.any_source.*", ""), ("point_to_point.any_source.traffic", ".traffic")],
)
def test_a_missing_pattern_of_messages_leaves_the_others(lacking, aspect, monkeypatch):
    """One pattern and layout at a time is what a subject may lack."""
    subject = SubjectRef("parproof.subjects.reference:SUBJECT")
    narrower = replace(subject.load(), lacks={lacking: "no wildcard"})
    monkeypatch.setattr(SubjectRef, "load", lambda _: narrower)
    _, patterns, _ = runs.messages(_OnesThatRun(), subject, "most", "sliced", "without_rank_0", aspect=aspect)
    assert patterns == [(kind, "sliced") for kind in ("chain", "isend_irecv", "tags", "batch")]
