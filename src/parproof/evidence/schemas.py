"""The JSON Schemas: where they are, and validators for them."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import jsonschema_rs
from jsonschema import Draft202012Validator


@functools.cache
def validator(name: str) -> Draft202012Validator:
    """The validator of a schema, with errors that say what is wrong."""
    schema = _schema(name)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@functools.cache
def _fast(name: str) -> jsonschema_rs.Draft202012Validator:
    """A compiled validator: fifty times as fast. It only says yes; what it does not accept, the other one explains."""
    return jsonschema_rs.Draft202012Validator(_schema(name))


def _schema(name: str) -> dict[str, Any]:
    """schemas/NAME.schema.json: beside the package in a checkout, inside it in a wheel."""
    packaged = resources.files("parproof").joinpath("_schemas", f"{name}.schema.json")
    if packaged.is_file():
        text = packaged.read_text("utf-8")
    else:
        text = (Path(__file__).resolve().parents[3] / "schemas" / f"{name}.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


MAX_VIOLATIONS = 20
"""More of one document nobody reads."""


def violations(name: str, value: Any, *, brief: bool = False) -> Iterator[str]:
    """«path: what is wrong», the shortest account of each violation, of the first twenty.

    brief   tell only one: for a large document, of which a full account could take hours
    """
    if _accepted(name, value):
        return
    if brief:
        yield _first(name, value)
        return
    nothing_found = True
    for error in itertools.islice(validator(name).iter_errors(value), MAX_VIOLATIONS):
        nothing_found = False
        yield _account(error.absolute_path, error.message)
    if nothing_found:
        yield from _strict(name, value)


def _accepted(name: str, value: Any) -> bool:
    try:
        return _fast(name).is_valid(value)
    except ValueError:  # numbers that it cannot hold, text that is no Unicode
        return False


def _first(name: str, value: Any) -> str:
    try:
        _fast(name).validate(value)
    except jsonschema_rs.ValidationError as error:
        return _account(error.instance_path, error.message)
    except ValueError as error:
        return f"(top): {str(error)[:300]}"
    return "(top): not accepted"


def _strict(name: str, value: Any) -> Iterator[str]:
    """What only the compiled validator refuses: a pattern's end is the end there, also before a line break."""
    try:
        errors = list(_fast(name).iter_errors(value))
    except ValueError:
        return
    for error in errors:
        yield _account(error.instance_path, error.message)


def _account(path: Iterable[str | int], message: str) -> str:
    return f"{'/'.join(str(part) for part in path) or '(top)'}: {message[:300]}"
