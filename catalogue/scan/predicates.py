"""Conditions of polars, as far as a query can apply them.

An operator is recognized only if polars' public functions build an equal expression from its inputs. Others are left to
polars, so another version of polars means at most more reading.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

_MAX_DEPTH = 100
"""Nested operators; deeper conditions are left to polars."""
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CLOSED = {"both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "none": (">", "<")}


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with constants."""

    column: str
    operator: str
    """One of ``_COMPARISONS`` or ``_TEXT``, ``in``, ``null`` or ``valid``."""
    values: tuple[Any, ...] = ()
    """Constants, not null; several for ``in`` only."""


@dataclass(frozen=True, slots=True)
class Combination:
    """Conditions combined by ``and``, ``or`` or ``not``, with SQL's logic of nulls."""

    operator: str
    parts: "tuple[Condition, ...]"


Condition: TypeAlias = Comparison | Combination

_Build: TypeAlias = Callable[..., pl.Expr]
_COMPARISONS: Mapping[str, _Build] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LOGIC: Mapping[str, _Build] = {"and": operator.and_, "or": operator.or_}
_TEXT: Mapping[str, _Build] = {
    "prefix": lambda column, value: column.str.starts_with(value),
    "suffix": lambda column, value: column.str.ends_with(value),
    "contains": lambda column, value: column.str.contains(value, literal=True),
    "matches": lambda column, value: column.str.contains(value),
}
_BY_INPUTS: Mapping[int, Mapping[str, _Build]] = {
    1: {"not": operator.invert, "null": lambda column: column.is_null(), "valid": lambda column: column.is_not_null()},
    2: {**_LOGIC, **_COMPARISONS, **_TEXT, "in": lambda column, values: column.is_in(values)},
    3: {
        **{
            closed: lambda column, low, high, closed=closed: column.is_between(low, high, closed=closed)
            for closed in _CLOSED
        },
        "when": lambda then, otherwise, when: pl.when(when).then(then).otherwise(otherwise),
    },
}
"""Functions that build expressions, by the number of their inputs."""


def conjuncts(predicate: pl.Expr) -> Iterator[pl.Expr]:
    """Yield conditions that are true for every row for which the predicate is."""
    waiting = [predicate]
    while waiting:
        expression = waiting.pop()
        name, inputs = _operator(expression)
        if name == "and":
            waiting += reversed(inputs)
        elif name == "when" and _is_null(inputs[0]):
            waiting.append(inputs[1])
        elif name == "when" and _is_null(inputs[1]):
            waiting.append(inputs[0])
        else:
            yield expression


def recognized(expression: pl.Expr, depth: int = 0) -> Condition | None:
    """Return an equal condition, if there is one."""
    name, inputs = _operator(expression)
    if name in {"and", "or", "not"} and depth < _MAX_DEPTH:
        parts: list[Condition] = []
        for each in inputs:
            if (part := recognized(each, depth + 1)) is None:
                return None
            parts += part.parts if isinstance(part, Combination) and part.operator == name != "not" else (part,)
        return Combination(name, tuple(parts))
    if name in _COMPARISONS and (column := _column(inputs[1])) is not None:
        name, inputs = _MIRRORED[name], [inputs[1], inputs[0]]
    column = _column(inputs[0]) if inputs else None
    if column is None:
        return None
    if name in {"null", "valid"}:
        return Comparison(column, name)
    if name == "in":
        values = _constants(inputs[1])
        return None if values is None else Comparison(column, name, values)
    constants = [_constant(each) for each in inputs[1:]]
    if any(each is None for each in constants):
        return None
    if name in _CLOSED:
        pairs = zip(_CLOSED[name], constants, strict=True)
        return Combination("and", tuple(Comparison(column, each, (value,)) for each, value in pairs))
    return Comparison(column, name, tuple(constants)) if name in {*_COMPARISONS, *_TEXT} else None


def _operator(expression: pl.Expr) -> tuple[str, list[pl.Expr]]:
    inputs = expression.meta.pop()[::-1]
    for name, build in _BY_INPUTS.get(len(inputs), {}).items():
        if build(*inputs).meta.eq(expression):
            return name, inputs
    return "", []


def _column(expression: pl.Expr) -> str | None:
    names = expression.meta.root_names()
    return names[0] if len(names) == 1 and pl.col(names[0]).meta.eq(expression) else None


def _literal(expression: pl.Expr) -> pl.Series | None:
    plain = expression.meta.undo_aliases()
    return pl.select(plain).to_series() if plain.meta.is_literal() else None


def _constant(expression: pl.Expr) -> Any:  # noqa: ANN401 - of any type
    series = _literal(expression)
    return None if series is None or len(series) != 1 else series[0]


def _constants(expression: pl.Expr) -> tuple[Any, ...] | None:
    """Return the values of a literal list or Series; None if there is a null, which may match nulls."""
    series = _literal(expression)
    if series is not None and isinstance(series.dtype, pl.List) and len(series) == 1:
        series = series[0]
    if series is None or series.null_count():
        return None
    return tuple(series.to_list())


def _is_null(expression: pl.Expr) -> bool:
    series = _literal(expression)
    return series is not None and series.null_count() == len(series) == 1
