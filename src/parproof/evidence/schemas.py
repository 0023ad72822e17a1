"""The JSON Schemas: where they are, and validators for them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator


@functools.cache
def validator(name: str) -> Draft202012Validator:
    """The validator of schemas/NAME.schema.json: beside the package in a checkout, inside it in a wheel."""
    packaged = resources.files("parproof").joinpath("_schemas", f"{name}.schema.json")
    if packaged.is_file():
        text = packaged.read_text("utf-8")
    else:
        text = (Path(__file__).resolve().parents[3] / "schemas" / f"{name}.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def violations(name: str, value: Any) -> Iterator[str]:
    """«path: what is wrong», the shortest account of each violation."""
    for error in validator(name).iter_errors(value):
        path = "/".join(str(part) for part in error.absolute_path) or "(top)"
        yield f"{path}: {error.message[:300]}"
