"""Check the arguments of the Python API: names, the types that their annotations declare, and values."""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import wraps
from numbers import Integral
from os import PathLike
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast

from catalogue.errors import QueryError
from catalogue.formatting import closest_name, not_among

_VALID = {
    "str": "a text",
    "int": "a whole number",
    "bool": "True or False",
    "Path": "a path",
    "Callable": "a function",
    "Observer": "a function",
    "Settings": "Settings",
    "Executor": "an executor of concurrent.futures",
    "None": "None",
}
"""Parts of annotations that are checked, with what is valid."""
_C = TypeVar("_C")
_R = TypeVar("_R")
_E = TypeVar("_E", bound=Enum)
_P = ParamSpec("_P")


def checking_arguments(cls: type[_C]) -> type[_C]:
    """Let the public methods of a class check the names and types of their arguments, and be named after the class."""
    for name, method in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_"):
            method.__qualname__ = f"{cls.__name__}.{name}"  # Python's messages have it
            setattr(cls, name, checked(method))
    return cls


def checked(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that raises QueryError if an argument has none of the types that its annotation names."""
    kinds = {name: _kinds(str(words)) for name, words in function.__annotations__.items() if name != "return"}
    kinds = {name: found for name, found in kinds.items() if found}
    own = cast("FunctionType", function)
    names = own.__code__.co_varnames[: own.__code__.co_argcount + own.__code__.co_kwonlyargcount]
    takes_others = own.__code__.co_flags & inspect.CO_VARKEYWORDS

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - as the function has them
        for name in () if takes_others else options.keys() - names:
            raise unknown_argument(own.__name__, name, [each for each in names if each != "self"])
        given = [*args]
        for place, name in enumerate(names[: len(args)]):
            given[place] = _value(name, args[place], kinds)
        for name, value in options.items():
            options[name] = _value(name, value, kinds)
        return function(*given, **options)

    return call


def unknown_argument(call: str, name: str, names: Iterable[str]) -> TypeError:
    similar = closest_name(name, names)
    hint = f"did you mean {similar}=?" if similar else f"it has {', '.join(names)}"
    return TypeError(f"{call}() has no argument {name}; {hint}")


def flag(name: str, given: object) -> bool:
    """Return a value as a flag.

    Raises:
        QueryError: if it is not one: the text 'false' would be true.
    """
    if given is None or _is(given, "bool"):
        return bool(given)
    raise QueryError(f"invalid {name} {given!r:.100}; use True or False")


def several(words: str | int | Iterable[str | int], name: str = "value", *, numbers: bool = True) -> tuple[str, ...]:
    """Return one or several words of an argument as texts; ``numbers`` may be among them.

    Raises:
        QueryError: if they have another type; the items of bytes or of a DataFrame are no words.
    """
    if isinstance(words, str):
        return (str.__str__(words),)  # the value of a text that is a member of an Enum
    is_one = not isinstance(words, Iterable) or isinstance(words, bytes | bytearray | memoryview | Mapping)
    items = words.to_pylist() if hasattr(words, "to_pylist") else words  # of Arrow
    found: list[Any] = [words] if is_one or hasattr(words, "columns") else [*items]  # type: ignore[misc]
    valid = (str, Integral) if numbers else str
    for place, each in enumerate(found):
        if isinstance(each, bool) or not isinstance(each, valid):
            use = "texts or numbers" if numbers else "texts"
            raise QueryError(f"invalid {name} of type {type(each).__name__}; use a text or a list of {use}")
        found[place] = str.__str__(each) if isinstance(each, str) else str(each)
    return tuple(found)


def comma_separated(texts: str | int | Iterable[str | int], name: str = "value") -> list[str]:
    return [word.strip() for text in several(texts, name) for word in text.split(",")]


def entries(given: str | Iterable[str], name: str) -> tuple[str, ...]:
    """Return the entries of a list; one text may have several, separated by commas."""
    return tuple(comma_separated(given)) if isinstance(given, str) else several(given, name, numbers=False)


def one_of(name: str, choices: Iterable[str]) -> Callable[[str], str]:
    """Return a function that checks that a text is one of several."""
    valid = tuple(choices)

    def check(text: str) -> str:
        if not isinstance(text, str) or text not in valid:
            raise QueryError(not_among(f"invalid {name}", text, valid))
        return text

    return check


def member_of(name: str, kind: type[_E]) -> Callable[[_E | str], _E]:
    """Return a function that converts a text to the member of an enumeration that has it as value."""
    check = one_of(name, (each.value for each in kind))
    return lambda given: given if isinstance(given, kind) else kind(check(given))  # type: ignore[arg-type]


def row_limit(given: Any) -> int:  # noqa: ANN401 - any argument
    if isinstance(given, bool) or not isinstance(given, Integral) or given < 0:
        raise QueryError(f"invalid limit {given!r}; use a whole number, 0 or more")
    return min(int(given), sys.maxsize)


def column_name(given: str) -> str:
    if not isinstance(given, str):
        raise QueryError(f"invalid unique {given!r:.100}; use the name of one column")
    return given


def _kinds(annotation: str) -> tuple[str, ...]:
    parts = re.sub(r"Callable\[\[.*?\], .*?\](?= \||$)", "Callable", annotation).split(" | ")
    return tuple(parts) if _VALID.keys() >= {*parts} else ()


def _value(name: str, given: Any, kinds: Mapping[str, tuple[str, ...]]) -> Any:  # noqa: ANN401 - any argument
    allowed = kinds.get(name)
    if not allowed:
        return given
    if allowed == ("bool",):
        return flag(name, given)
    for kind in allowed:
        if _is(given, kind):
            return int(given) if kind == "int" else given
    valid = " or ".join(_VALID[kind] for kind in allowed if kind != "None")
    raise QueryError(f"invalid {name} {given!r:.100}; use {valid}")


def _is(given: object, kind: str) -> bool:
    match kind:
        case "None":
            return given is None
        case "bool":  # also that of numpy
            return type(given).__name__ in {"bool", "bool_"} or (isinstance(given, Integral) and given in {0, 1})
        case "int":  # 1e9 is a limit of bytes
            is_int = isinstance(given, Integral) and not isinstance(given, bool)
            return is_int or (isinstance(given, float) and given.is_integer())
        case "Path":
            return isinstance(given, PathLike)
        case "Callable" | "Observer":
            return callable(given)
        case "Settings" | "Executor":
            return kind in {each.__name__ for each in type(given).__mro__}
    return isinstance(given, str)
