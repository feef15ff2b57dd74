"""The parameters of a query as pydantic models."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.json_schema import SkipJsonSchema

from catalogue.formatting import not_among
from catalogue.query.arguments import comma_separated
from catalogue.query.parameters import BY_NAME, Interface, parameters_of, typed

MAX_VALUES = 100
"""Values of a parameter that can be repeated."""
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Missing = SkipJsonSchema[None]
"""The type of an optional parameter that is not given; clients cannot send it."""


def listed(value: Any) -> Any:  # noqa: ANN401 - before validation
    """Make a list of a single value, and of JSON in a text, which some clients send."""
    if isinstance(value, str):
        with suppress(ValueError):
            decoded = json.loads(value)
            if isinstance(decoded, list):
                return decoded
    return value if value is None or isinstance(value, list) else [value]


def _words(value: Any) -> Any:  # noqa: ANN401 - before validation
    found = listed(value)
    is_text = isinstance(found, list) and all(isinstance(each, str) for each in found)
    return comma_separated(found) if is_text else found


class Arguments(BaseModel):
    """Arguments; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)  # clients send a status as number

    def query(self) -> dict[str, Any]:
        return typed(self.model_dump(include={*BY_NAME}))


def field_type(name: str) -> Any:  # noqa: ANN401 - a type
    """Return the type of a parameter with its name for clients, its description and its example."""
    each = BY_NAME[name]
    kind: Any = Literal[each.values] if each.choices else Text if each.kind is str else each.kind
    if each.several:
        make = _words if each.choices else listed
        kind = Annotated[list[kind], BeforeValidator(make), Field(min_length=1, max_length=MAX_VALUES)]
    example = [each.example] if each.several else each.example
    kind = kind if each.kind is bool else kind | Missing
    return Annotated[kind, Field(alias=each.field, description=each.description, examples=[example])]


def query_model(
    interface: Interface, *without: str, defaults: Mapping[str, object] = MappingProxyType({})
) -> type[Arguments]:
    """Return a model with the parameters of an interface; patterns without a value in ``defaults`` must be given."""
    fields: dict[str, Any] = {}
    for each in parameters_of(interface, *without):
        missing: Any = ... if each.name == "patterns" else False if each.kind is bool else None
        fields[each.name] = field_type(each.name), defaults.get(each.name, missing)
    return create_model("Arguments", __base__=Arguments, **fields)


def describe_invalid(model: type[Arguments], error: Any, name: str) -> str:  # noqa: ANN401 - of pydantic
    """Describe a validation error of a parameter in a sentence."""
    known = model.model_json_schema()["properties"]
    name, given, of_type = name[:100], str(error["input"])[:100], error["type"]
    rules = known.get(name, {})
    match of_type:
        case "missing":
            return f"{name} is required"
        case "extra_forbidden":
            return not_among("unknown parameter", name, known)
        case "too_long" | "too_short":
            return f"{name} can be given 1 to {MAX_VALUES} times"
        case "string_too_long":
            return f"invalid {name} {given!r}; it has more than {error['ctx']['max_length']:,} characters"
        case "literal_error":
            return not_among(f"invalid {name}", given, re.findall("'([^']+)'", error["ctx"]["expected"]))
        case "bool_parsing" | "bool_type":
            use = "true or false"
        case _ if "minimum" in rules:
            use = f"a number from {rules['minimum']:,}" + (f" to {rules['maximum']:,}" if "maximum" in rules else "")
        case _:
            example = next(iter(rules.get("examples", ["a text"])))
            return f"invalid {name} {given!r}; example: {example[0] if isinstance(example, list) else example}"
    return f"invalid {name} {given!r}; use {use}"
