"""The parameters of a query as pydantic models."""

import json
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic.json_schema import SkipJsonSchema

from catalogue.query.parameters import PARAMETERS, Interface, parameters_of, typed

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


class Arguments(BaseModel):
    """Arguments; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)  # clients send a status as number

    def query(self) -> dict[str, Any]:
        return typed(self.model_dump(include={each.name for each in PARAMETERS}))


def field_type(name: str) -> Any:  # noqa: ANN401 - a type
    """Return the type of a parameter with its name for clients, its description and its example."""
    (each,) = (each for each in PARAMETERS if each.name == name)
    kind: Any = Literal[each.values] if each.choices else Text if each.kind is str else each.kind
    if each.several:
        kind = Annotated[list[kind], BeforeValidator(listed), Field(min_length=1, max_length=MAX_VALUES)]
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
