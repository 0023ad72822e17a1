"""Which names are quantities, and what a quantity may be: a finite number, and no less than nothing.

A foreign file has no schema, so its names are all there is. A name is taken apart at underscores and capitals. A part that is a
unit, or a word for a time, a rate, a count or a size makes it a quantity. A difference, a ratio, an error or a loss
may be below zero, but is a number too. Null says that nothing was measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from parproof.evidence.exchange.assessment import MAX_NAME, MAX_REASONS, Assessment, NotFinite
from parproof.evidence.exchange.contract import MAPPINGS


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The one list of units and words; all lower case.
UNITS = _words(
    "s ms us ns sec secs second seconds bytes byte "
    "kb mb gb tb kib mib gib tib bps kbps mbps gbps tbps tflops flops hz qps"
)
TIMES_AND_RATES = _words(
    "time times duration elapsed latency latencies makespan wait ttft tpot itl e2el e2e throughput goodput "
    "bandwidth bw algbw busbw rate rtfx burstiness"
)
COUNTS = _words(
    "count counts calls num number tokens requests prompts completed failed iterations iters steps repeats warmup "
    "samples elements overflow wrong nwrong nthreads ngpus pid cost"
)
SIZES = _words(
    "size sizes dim dims len lens length lengths width heads layers stages experts batch batches accumulation memory "
    "concurrency concurrent capacity k factor degree abs"
)
# May be below zero.
SIGNED = _words(
    "loss ratio error errors delta diff difference change growth saved saving savings gain skew offset drift speedup "
    "overhead improvement regression margin slack bias residual"
)
NEVER_SIGNED = _words("count num rate abs")
_MEASURE_OF_ERROR = _words("rel relative max mean median rms")
# A name that ends in one of these is about a quantity, and holds a text.
ABOUT = _words(
    "unit name kind type mode source method status clock file path policy scope strategy note notes reason "
    "message label id at date stamp timestamp zone definition description formula basis dtype hash sha256 format "
    "device model schedule distribution order"
)
_TEXTS = frozenset(("start_time", "end_time", "model_size"))
WHOLE = frozenset(("world_size", "rank", "local_rank"))
# In what was asked for, these alone may also be described: `requests: poisson`.
_VAGUE = _words(
    "time rate wait memory capacity batch bandwidth factor requests prompts samples experts number length size"
)
# Parts of a file that hold words about quantities, or a stranger's settings, some of which use -1 for «none».
_WORDS_ONLY = _words("units not_collected")
SKIPPED = _WORDS_ONLY | _words("artifacts decision failure env args server_info")
# Here a truth value says whether, and a number how many.
_BOTH = _words("completed failed warmup overflow")
_STATISTIC = re.compile(r"p\d{1,3}(?:[._]\d+)?|mean|median|min|max|std|avg|sum|total|value|rank_?\d+|\d+")
# In what was asked for, not measured: «80 GB», «64K», «1024,4096».
_WRITTEN = re.compile(r"\d+(?:\.\d+)?(?:e\d+)? ?[A-Za-z/]{0,8}(?:, ?\d+(?:\.\d+)? ?[A-Za-z/]{0,8}){0,100}")
_ASKED_FOR = re.compile(r"(?:^|\.)(?:workload|hardware|config|runtime|baseline|candidates|experts|routing)\b")


@dataclass(frozen=True)
class Quantity:
    """What a name says. signed: may be below zero; unit: holds a unit; whole: an integer."""

    signed: bool
    unit: bool
    whole: bool


@lru_cache(maxsize=4096)
def quantity_of(name: str) -> Quantity | None:
    """None for a name that says nothing of a quantity."""
    # stepTimeMs is step_time_ms.
    plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    if plain in WHOLE or plain.endswith("_world_size"):
        return Quantity(signed=False, unit=False, whole=True)
    # «per rank» says of whom, not of what.
    parts = [part for part in re.split(r"[^a-z0-9]+", plain.replace("per_rank", "")) if part]
    if not parts or parts[-1] in ABOUT or plain in _TEXTS:
        return None
    found = set(parts)
    unit = bool(UNITS & found)
    if SIGNED & found and not NEVER_SIGNED & found:
        # A bare error is a message.
        message = bool({"error", "errors"} & found) and not _MEASURE_OF_ERROR & found
        return None if message and not unit else Quantity(signed=True, unit=unit, whole=False)
    if not unit and not (TIMES_AND_RATES | COUNTS | SIZES) & found:
        return None
    return Quantity(signed=False, unit=unit, whole=False)


def check(told: Assessment, document: Mapping[str, Any], where: str = "") -> None:
    """Every quantity of a document, wherever it stands; call after the checks that know more of a format."""
    known = {(reason.id, reason.where) for reason in told.findings}
    for place, name, value, inherited in _quantities(document, where, None):
        if len(told.findings) >= MAX_REASONS:
            return
        for reason, wanted in _wrong(place, name, value, inherited):
            if (reason, place) not in known:
                told.found(reason, place, value, wanted)


def check_named(told: Assessment, document: Mapping[str, Any], where: str, *names: str) -> None:
    """Only these, of a part that is somebody's settings."""
    check(told, {name: document[name] for name in names if name in document}, where)


def _quantities(
    value: Any, path: str, inherited: Quantity | None
) -> Iterator[tuple[str, str, Any, Quantity]]:
    """(place, name, leaf, what its name says) of every leaf that is one; a list and its statistics inherit."""
    for name, item in value.items():
        short = str(name)[:MAX_NAME]
        place = f"{path}.{short}" if path else short
        # A metric called as a part of the contract is a metric.
        if short in (_WORDS_ONLY if ".metrics." in f".{place}" else SKIPPED):
            continue
        own = None if short in MAPPINGS else quantity_of(short)
        # «tokens_per_s: {zero2: 5}» is a rate of zero2; a word beside it may be about anything.
        plain = inherited is not None and inherited.unit and not isinstance(item, (str, bool))
        if own is None and (plain or (inherited is not None and _STATISTIC.fullmatch(short))):
            own = inherited
        yield from _of(item, place, short, own)


def _of(item: Any, place: str, name: str, own: Quantity | None) -> Iterator[tuple[str, str, Any, Quantity]]:
    if name == "world_size" and isinstance(item, (Mapping, list)):
        yield place, name, str(item)[:MAX_NAME], Quantity(signed=False, unit=False, whole=True)
    elif isinstance(item, Mapping):
        yield from _quantities(item, place, own)
    elif isinstance(item, list):
        for index, entry in enumerate(item):
            yield from _of(entry, f"{place}[{index}]", name, own)
    elif own is not None and item is not None:
        yield place, name, item, own


def _wrong(place: str, name: str, value: Any, own: Quantity) -> Iterator[tuple[str, str]]:
    """(reason, what was expected); NaN and numbers of no measurable size are found with every other number."""
    if isinstance(value, NotFinite):
        return
    if isinstance(value, bool):
        if "." not in place or name not in _BOTH:
            yield "not-finite", "a number"
    elif isinstance(value, str):
        if not _may_be_text(place, name, value, own):
            yield "not-finite", "a number"
    elif value < 0 and not own.signed:
        yield "not-positive", "0 or more"
    elif own.whole and value == 0 and name == "world_size":
        yield "not-positive", "1 or more"
    elif own.whole and isinstance(value, float) and not value.is_integer():
        yield "field-type", "a whole number"


def _may_be_text(place: str, name: str, value: str, own: Quantity) -> bool:
    """No limit to a rate, a date under `time`, and in what was asked for a number with its unit or a description."""
    if name == "request_rate" and value == "inf":
        return True
    if own.unit or own.whole:
        return False
    if name == "time" and re.match(r"\d{4}-\d\d-\d\d", value):
        return True
    if not _ASKED_FOR.search(place):
        return False
    return own.signed or (name in _VAGUE and value[:1] != "-") or _WRITTEN.fullmatch(value[:1000]) is not None
