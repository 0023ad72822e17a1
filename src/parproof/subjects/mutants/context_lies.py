"""How a lie about attention over a split sequence becomes a subject; shared by the modules of such mutants."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
from torch import Tensor

from parproof.subjects.context_protocol import ContextPlan
from parproof.subjects.protocol import Subject
from parproof.subjects.reference.context import ContextAttention
from parproof.subjects.reference.context_sharing import SharingAttention
from parproof.subjects.reference.context_wire import ContextWire


def exchange(lie: type[ContextWire]) -> type[ContextAttention]:
    """The reference with another wire."""
    return type(lie.__name__, (ContextAttention,), {"wire": lie})


def layer(lie: type[SharingAttention]) -> type[ContextAttention]:
    """The reference with another layer around what every rank holds."""

    class Lying(ContextAttention):
        def sharing(self, shared: Mapping[str, Tensor], plan: ContextPlan, group: dist.ProcessGroup) -> Any:
            return lie(self, shared, plan, group)

    return Lying


def subjects(module: str, lies: SimpleNamespace) -> dict[str, Subject]:
    """One subject a lie, by the names of the catalogue; `lies` is the module's LIES."""
    return {name: Subject(name=name, mechanisms={"context": f"{module}:LIES.{name}"}) for name in vars(lies)}
