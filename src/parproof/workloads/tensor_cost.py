"""What the cost model predicts for a case of the tensor-parallel experiment (even sizes only)."""

from __future__ import annotations

import math
from dataclasses import replace

from parproof.cost import tensor_plan as cost
from parproof.cost.traffic import Traffic
from parproof.workloads import tensor
from parproof.workloads.tensor import Case

KV_HEADS = {"mha": {2: 12, 3: 12, 4: 12}, "gqa": {2: 4, 3: 6, 4: 4}, "mqa": {2: 1, 3: 1, 4: 1}}
KV_HEADS["gqa_replicated"] = {4: 2}


def attention_case(plan: str, ranks: int, dtype: str = "float64", *, bias: bool = True) -> Case:
    """12 query heads with the plan's number of key/value heads."""
    return tensor.attention(f"{plan} {dtype}", 12, KV_HEADS[plan][ranks], bias=bias, dtype=dtype)


def ledger_cases(plan: str, ranks: int) -> tuple[Case, ...]:
    """All layers whose sizes divide; attention by plan, because not every subject has every plan."""
    if plan != "other_layers":
        return (attention_case(plan, ranks, "float64"), attention_case(plan, ranks, "float32"))
    return (
        *(
            case
            for case in tensor.LINEAR
            if case.name in ("column", "column gathered", "row", "row whole input")
        ),
        tensor.mlp("gelu", "gelu"),
        tensor.mlp("swiglu", "swiglu", bias=False),
        tensor.embedding("embedding", 12),
        tensor.loss("loss", 12),
        tensor.sequence("sequence", "rms", "swiglu", bias=False),
    )


def predicted(case: Case, p: int) -> list[Traffic]:
    """Calls and bytes of forward and backward, with the case's name in front of the phase."""
    x, y, e = math.prod(case.input_shape), math.prod(case.output_shape), _bytes(case)
    options = case.options
    if case.kind == "column":
        lines = cost.column_traffic(x, y, p, e, gather_output=options["gather_output"])
    elif case.kind == "row":
        lines = cost.row_traffic(x, y, p, e, input_is_split=options["input_is_split"])
    elif case.kind == "attention":
        copies = _copies(case, p)
        numbers = [n * copies // p for n in _kv_numbers(case)]
        lines = cost.attention_traffic(x, y, p, e, copies=copies, kv_numbers=numbers)
    elif case.kind == "embedding":
        lines = cost.embedding_traffic(y, p, e)
    elif case.kind == "loss":
        lines = cost.loss_traffic(case.input_shape[0], p, e)
    elif case.kind == "sequence":
        lines = cost.sequence_traffic(x, y, p, e, common=[math.prod(s) for s in _common(case).values()])
    else:
        lines = cost.pair_traffic(x, y, p, e)
    return [replace(line, phase=f"{case.name}/{line.phase}") for line in lines]


def resident_bytes(case: Case, p: int) -> int:
    """Parameter bytes each rank keeps."""
    common = sum(math.prod(shape) for shape in _common(case).values())
    shared = sum(_kv_numbers(case)) if case.kind == "attention" else 0
    split = sum(math.prod(shape) for shape in case.shapes.values()) - common - shared
    return cost.resident_bytes(split, common, p, _bytes(case), shared=shared, copies=_copies(case, p))


def _bytes(case: Case) -> int:
    return {"float32": 4, "float64": 8}[case.dtype]


def _common(case: Case) -> dict[str, tuple[int, ...]]:
    """Parameters that every rank keeps whole: norms, and biases that are added after the sum."""
    after_sum = {"row": "bias", "mlp": "down.bias", "sequence": "down.bias", "attention": "o.bias"}.get(
        case.kind
    )
    return {n: s for n, s in case.shapes.items() if n.startswith("norm.") or n == after_sum}


def _kv_numbers(case: Case) -> list[int]:
    return [math.prod(shape) for name, shape in case.shapes.items() if name[:2] in ("k.", "v.")]


def _copies(case: Case, p: int) -> int:
    if case.kind != "attention":
        return 1
    plan = cost.attention_plan(case.options["q_heads"], case.options["kv_heads"], p)
    return int(plan["kv_replication"])
