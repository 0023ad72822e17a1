"""The catalogue of planted mutants: subjects that are wrong in exactly one documented way. No torch here.

Each `subjects/mutants/NAME.toml` lists the mutants of `subjects/mutants/NAME.py`:

    [[mutant]]
    name = "forgets_the_reduce"              # attribute of the module: a Subject
    experiment = "PAR-TENSOR-LAYOUT"
    lie = "row-parallel output is not reduced"
    modelled_on = "NVIDIA/Megatron-LM#5337"  # whose fault it was (below)
    kills = { C1 = "rank 0 of 2: .* differs" }   # claim → text that the failure must contain (regex)
    witness = "test_c1_every_rank"               # optional: only tests with this in their id are tried

`modelled_on` names public reports of a fault of the same kind, `OWNER/REPO#NUMBER` (issues or pull requests, joined by "; "), or an address,
`https://…`; a few words in brackets may follow either. Where nobody's report is known it is `common slip: ` and the form in which it is met.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from parproof.errors import UsageError

_FIELDS = frozenset({"name", "experiment", "lie", "modelled_on", "kills"})
_OPTIONAL = frozenset({"witness"})
_WORDS = r"(?: \([^()]+\))?"
_REPORT = r"[\w.-]+/[\w.-]+#[1-9][0-9]*" + _WORDS
_ORIGINS = {
    "public report": re.compile(f"{_REPORT}(?:; {_REPORT})*"),
    "address": re.compile(r"https://[^\s()]+\.[^\s()]+" + _WORDS),
    "common slip": re.compile(r"common slip: \S.{6,}"),
}


@dataclass(frozen=True)
class Mutant:
    """One planted fault. `kills` maps each claim that must catch it to the expected failure text (regex).

    `witness` saves time where only few cases of a claim can see the fault: other cases are not tried.
    """

    name: str
    experiment: str
    lie: str
    modelled_on: str
    kills: Mapping[str, str]
    address: str
    witness: str = ""

    @property
    def origin(self) -> str:
        """What kind of source `modelled_on` names: "public report", "address" or "common slip"; "" for none of them."""
        return next((kind for kind, form in _ORIGINS.items() if form.fullmatch(self.modelled_on)), "")


@functools.cache
def catalogue() -> tuple[Mutant, ...]:
    """All mutants, in file order. Errors name the file and the entry."""
    found: list[Mutant] = []
    folder = resources.files("parproof.subjects.mutants")
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".toml"):
            stem = file.name.removesuffix(".toml")
            for entry in tomllib.loads(file.read_text())["mutant"]:
                found.append(_checked(entry, stem, file.name))
                _refuse_namesake(found[-1], found[:-1], file.name)
    return tuple(found)


def _refuse_namesake(mutant: Mutant, others: Sequence[Mutant], where: str) -> None:
    """The kill matrix, test ids and reports know a mutant by its name: two of one name would hide a survivor."""
    for other in others:
        if other.name == mutant.name:
            raise UsageError(
                f"{mutant.name!r} is already the name of {other.address}",
                expected="a name of its own for every mutant",
                where=where,
                next_step="say in the name what the lie is about, e.g. experts_drop_the_remainder",
            )


def _checked(entry: dict[str, object], stem: str, where: str) -> Mutant:
    if set(entry) - _OPTIONAL != _FIELDS or not entry["kills"]:
        raise UsageError(
            f"entry {entry.get('name')!r} has {sorted(entry)}",
            expected=f"exactly {sorted(_FIELDS)}, with at least one claim in kills",
            where=where,
        )
    address = f"parproof.subjects.mutants.{stem}:{entry['name']}"
    mutant = Mutant(address=address, **entry)  # type: ignore[arg-type]
    if not mutant.origin:
        raise UsageError(
            f"{mutant.name!r} is modelled on {mutant.modelled_on!r}",
            expected="OWNER/REPO#NUMBER, an https address, or 'common slip: ' and the form in which it is met",
            where=where,
            next_step="name a public report of a fault of the same kind, or say that none is known",
        )
    return mutant
