"""What a subject is: a name, the mechanisms it implements, and what it says it lacks.

Bring your own: a module with `SUBJECT = Subject(...)`, then `pytest --subject your.module:SUBJECT`.
The interface of each mechanism is a Protocol class in a module of its own beside this one.
"""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from parproof.errors import Unsupported, UsageError

MECHANISMS = (
    "collectives",
    "functional_collectives",
    "autograd_collectives",
    "coalesced_collectives",
    "point_to_point",
    "object_collectives",
    "tensor",
    "zero",
    "pipeline",
    "expert",
    "context",
    "overlap",
    "replica",
    "decision",
)
"""What the suite's own experiments ask for. A test of yours may ask for mechanisms of other names."""


@dataclass(frozen=True)
class Subject:
    """An implementation under test.

    name         short, for test ids and records
    mechanisms   mechanism → address «module:attr» of a class (or factory) without arguments
    lacks        capability pattern → reason; a pattern may use * as in file names,
                 e.g. {"collectives.all_reduce.avg.int*": "gloo has no integer mean"}
    offers       capability patterns it provides, for a subject that does only a few things,
                 e.g. ("collectives.all_reduce.sum.*",); everything else is then lacking
    """

    name: str
    mechanisms: Mapping[str, str]
    lacks: Mapping[str, str] = field(default_factory=dict)
    offers: tuple[str, ...] = ("*",)

    def reason_against(self, capability: str) -> str | None:
        """Why this subject does not provide the capability, or None when it says it does."""
        if capability not in self._answers:
            self._answers[capability] = self._reason_against(capability)
        return self._answers[capability]

    @cached_property
    def _answers(self) -> dict[str, str | None]:
        """What was asked before: a case asks for the same capabilities in every test, and patterns take long to match."""
        return {}

    def _reason_against(self, capability: str) -> str | None:
        stated = next(
            (why for pattern, why in self.lacks.items() if fnmatch.fnmatchcase(capability, pattern)), None
        )
        if stated is not None:
            return stated
        if capability.split(".", 1)[0] not in self.mechanisms:
            return f"it does not implement {capability.split('.', 1)[0]}"
        if not any(_covers(pattern, capability) for pattern in self.offers):
            return f"it offers only {', '.join(self.offers)}"
        return None

    @cached_property
    def slips(self) -> list[str]:
        """Names that look like a known mechanism and are none: everything under them would be skipped in silence."""
        patterns = [*self.offers, *self.lacks]
        names = {*self.mechanisms, *(pattern.split(".", 1)[0] for pattern in patterns)}
        unknown = sorted(name for name in names if name not in MECHANISMS and name.isidentifier())
        near = ((name, difflib.get_close_matches(name, MECHANISMS, n=1, cutoff=0.8)) for name in unknown)
        return [f"{name!r} (did you mean {close[0]!r}?)" for name, close in near if close]


def _covers(pattern: str, capability: str) -> bool:
    """Asking for «collectives» is answered by a pattern for a part of it; a star spans dots."""
    return fnmatch.fnmatchcase(capability, pattern) or pattern.startswith(capability + ".")


@dataclass(frozen=True)
class SubjectRef:
    """A subject by address: travels to the ranks as text and is loaded where it is used."""

    address: str

    def load(self) -> Subject:
        """The subject itself."""
        found = resolve(self.address)
        subject = found if isinstance(found, Subject) or not callable(found) else _made(found, self.address)
        if not isinstance(subject, Subject):
            raise UsageError(
                f"{self.address} is a {type(subject).__name__}",
                expected="a parproof.subjects.protocol.Subject, or a function that returns one",
                where="--subject",
                next_step="see docs/subjects.md",
            )
        if slips := subject.slips:
            raise UsageError(
                f"{self.address}: no mechanism is called {', '.join(slips)}",
                expected=f"in mechanisms, offers and lacks: {', '.join(MECHANISMS)}, or names unlike these",
                where="--subject",
            )
        return subject

    @property
    def name(self) -> str:
        """The subject's own name."""
        return self.load().name

    def make(self, mechanism: str) -> Any:
        """A new instance of the subject's implementation of a mechanism."""
        self.require(mechanism)
        subject = self.load()
        address = subject.mechanisms[mechanism]
        where = f"mechanisms[{mechanism!r}] of subject {subject.name}"
        made = resolve(address, where=where)
        try:
            return made()
        except TypeError:
            # Only now: to look at a signature takes as long as a small run, and every run of every rank makes one.
            _require_no_arguments(made, address, where)
            raise

    def require(self, capability: str) -> None:
        """Raise Unsupported, with the reason, if the subject lacks the capability."""
        subject = self.load()
        reason = subject.reason_against(capability)
        if reason is not None:
            raise Unsupported(
                f"subject {subject.name} does not provide {capability}: {reason}",
                next_step="run it with a subject that does, or declare and implement the capability",
            )


def _require_no_arguments(made: Any, address: str, where: str) -> None:
    try:
        inspect.signature(made).bind()
    except ValueError:  # built in: it has no signature to look at
        return
    except TypeError as wanting:
        raise UsageError(
            f"{address}: {wanting}", expected="a class or function without arguments", where=where
        ) from wanting


def _made(factory: Any, address: str) -> Any:
    try:
        return factory()
    except Exception as broken:
        raise UsageError(
            f"{address} raised {type(broken).__name__}: {broken}",
            expected="a function without arguments that returns a Subject",
            where="--subject",
        ) from broken


def resolve(address: str, *, where: str = "--subject") -> Any:
    """The object at «module:attr»; errors say which half is wrong."""
    module_name, separator, attribute = address.partition(":")
    if not separator or not module_name or not attribute:
        raise UsageError(f"{address!r} is no address", expected="module:attr", where=where)
    if "/" in module_name or module_name.endswith(".py"):
        folder, _, file = module_name.rpartition("/")
        raise UsageError(
            f"{module_name!r} is a path",
            expected=f"the name of a module, e.g. {file.removesuffix('.py')}:{attribute}",
            where=where,
            next_step=f"add its folder to PYTHONPATH: {folder or '.'}",
        )
    found: Any = _imported(module_name, where)
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=1)
            hint = f"did you mean {near[0]!r}?" if near else ""
            raise UsageError(f"{module_name} has no attribute {attribute!r}", where=where, next_step=hint)
        found = getattr(found, part)
    return found


def _imported(module_name: str, where: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        own = missing.name is not None and (module_name + ".").startswith(missing.name + ".")
        raise UsageError(
            f"no module named {missing.name!r}" + ("" if own else f", which {module_name!r} imports"),
            where=where,
            next_step="install it in this environment, or add its folder to PYTHONPATH",
        ) from missing
    except Exception as broken:
        raise UsageError(
            f"importing {module_name!r} raised {type(broken).__name__}: {broken}",
            where=where,
            next_step=f"python -c 'import {module_name}' shows the traceback",
        ) from broken
