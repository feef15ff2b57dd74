"""Parameters of a path, each described once: from that they are read, refused and documented."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from catalogue.errors import QueryError

_MOST_QUERY = 40_000
"""Characters of a query string."""
_MOST_FIELDS = 300


class BadParameter(QueryError):
    """A parameter that does not have the form it is documented with."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a query string."""

    name: str
    about: str
    """A sentence or two."""
    example: str | int
    pattern: str = ""
    """Of the whole text, in the syntax that Python and ECMAScript have in common, without anchors, which bounds its
    length too; empty for any."""
    choices: tuple[str, ...] = ()
    """If any, one of them."""
    longest: int = 2000
    """Characters of any text."""
    between: tuple[int, int] | None = None
    """Least and greatest; None if it is no number."""
    most: int = 1
    """How often it may be given."""
    required: bool = False
    default: int | None = None

    @property
    def schema(self) -> dict[str, Any]:
        """Of its value, in JSON Schema."""
        if self.between:
            one: dict[str, Any] = {"type": "integer", "minimum": self.between[0], "maximum": self.between[1]}
        elif self.choices:
            one = {"type": "string", "enum": list(self.choices)}
        elif self.pattern:
            one = {"type": "string", "pattern": f"^(?:{self.pattern})$"}
        else:
            one = {"type": "string", "minLength": 1, "maxLength": self.longest}
        if self.default is not None:
            one["default"] = self.default
        return one if self.most == 1 else {"type": "array", "items": one, "minItems": 1, "maxItems": self.most}

    @property
    def documented(self) -> dict[str, Any]:
        """As OpenAPI has it."""
        example = self.example if self.most == 1 else [self.example]
        return {
            "name": self.name,
            "in": "query",
            "description": self.about,
            "required": self.required,
            "schema": self.schema,
            "example": example,
        }

    def read(self, texts: Sequence[str]) -> Any:  # noqa: ANN401 - of the type that the schema says
        """Its value; None, or nothing, if it is not given.

        Raises:
            BadParameter: if it cannot have that.
        """
        if not texts:
            if self.required:
                raise BadParameter(f"{self.name} is needed: {self.about}")
            return self.default if self.most == 1 else ()
        if len(texts) > self.most:
            often = "once" if self.most == 1 else f"{self.most} times"
            raise BadParameter(f"{self.name} can be given {often}, and is given {len(texts):,} times")
        values = tuple(self._one(text) for text in texts)
        return values[0] if self.most == 1 else values

    def _one(self, text: str) -> str | int:
        if self.between:
            least, greatest = self.between
            if not re.fullmatch("-?[0-9]{1,18}", text) or not least <= int(text) <= greatest:
                raise BadParameter(f"{self.name} is a number from {least:,} to {greatest:,}, not {text[:100]!r}")
            return int(text)
        if self.choices and text not in self.choices:
            raise BadParameter(f"{self.name} is one of {', '.join(self.choices)}, not {text[:100]!r}")
        fits = re.fullmatch(self.pattern, text) if self.pattern else 1 <= len(text) <= self.longest
        if not self.choices and not fits:
            raise BadParameter(f"{self.name} cannot be {text[:100]!r}; one looks like {self.example}")
        return text


def read_parameters(query: bytes, parameters: Sequence[Parameter]) -> Mapping[str, Any]:
    """The values in a query string, by name of parameter.

    Raises:
        BadParameter: if one has not its form, is given too often, is unknown or is lacking.
    """
    if len(query) > _MOST_QUERY:
        raise BadParameter(f"the query string has {len(query):,} characters, and may have {_MOST_QUERY:,}")
    try:
        fields = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError as error:  # UnicodeDecodeError too
        raise BadParameter("the query string cannot be read: it is no escaped UTF-8, or has too many parts") from error
    known = {parameter.name: parameter for parameter in parameters}
    given: dict[str, list[str]] = {name: [] for name in known}
    for name, text in fields:
        if name not in known:
            near = difflib.get_close_matches(name[:100], known, 1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known) or 'none here'}"
            raise BadParameter(f"there is no parameter {name[:100]!r}; {hint}")
        given[name].append(text)
    return {name: parameter.read(given[name]) for name, parameter in known.items()}
