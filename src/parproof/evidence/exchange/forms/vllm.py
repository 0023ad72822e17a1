"""Result files of `vllm bench serve --save-result` (and of the script before it)."""

from __future__ import annotations

from typing import Any

from parproof.evidence.exchange import assessment, quantities
from parproof.evidence.exchange.assessment import Assessment, number, word
from parproof.evidence.exchange.forms import serving

FORMAT = "vLLM serving benchmark"
_HAS = {"duration", "completed", "total_input_tokens", "request_throughput", "num_prompts"}
_WHOLE = "e2el"


def recognise(document: Any) -> Assessment | None:
    """By the counts, and the name that only vLLM gives the number of prompts."""
    if not isinstance(document, dict) or not _HAS.issubset(document):
        return None
    if not {"model_id", "tokenizer_id", "endpoint_type", "backend"} & set(document):
        return None
    told = Assessment(FORMAT, "num_prompts and model_id beside duration, completed and request_throughput")
    assessment.check_finite(told, document, "", allowed=("request_rate",))
    failed = _failed(told, document)
    serving.counts(told, document, failed)
    serving.rate(told, document, "request_throughput", "completed")
    serving.rate(told, document, "output_throughput", "total_output_tokens")
    if "total_output_tokens" in document:
        serving.rate(told, document, "total_token_throughput", "total_input_tokens", "total_output_tokens")
    else:
        serving.rate(told, document, "total_token_throughput", "total_input_tokens")
    serving.percentiles(told, document)
    serving.first_before_last(told, document, _WHOLE)
    serving.details(told, document, failed)
    serving.groups(
        told, document, word(document.get("backend")) or word(document.get("endpoint_type")), _WHOLE
    )
    told.claims["model"] = document.get("model_id")
    quantities.check(told, document)
    serving.common_limits(told)
    told.limited("hardware-not-recorded", "(file)")
    told.limited("version-not-recorded", "model_id", document.get("model_id"))
    told.close()
    return told


def _failed(told: Assessment, run: dict[str, Any]) -> float | None:
    """Told since late 2025; before, what is missing of the prompts failed."""
    prompts, completed, failed = (number(run.get(name)) for name in ("num_prompts", "completed", "failed"))
    if prompts is None or completed is None:
        return failed
    if failed is None:
        failed = prompts - completed
        if failed < 0:
            told.found(
                "count-consistent", "completed", completed, f"at most {prompts:g}, the number of prompts"
            )
            return None
    elif completed + failed != prompts:
        told.found("count-consistent", "num_prompts", prompts, f"{completed + failed:g} completed and failed")
    return failed
