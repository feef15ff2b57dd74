"""Wrong types of arguments are refused before anything is done; numbers and flags of numpy are valid."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import catalogue
from catalogue import Catalogue
from catalogue.errors import QueryError

NO_CRAWL = "no crawl is named; name some, such as CC-MAIN-2022-05, latest or all"
NO_TEXTS = "warc has no texts; fetch text, or leave out main_content=True"


@pytest.mark.parametrize(
    ("call", "given", "wrong", "says"),
    [
        ("harvest", ["latest"], {"pages": "no"}, "invalid pages 'no'; use True or False"),
        ("harvest", ["latest"], {"refresh": "false"}, "invalid refresh 'false'; use True or False"),
        ("harvest", ["latest"], {"report": "no"}, "invalid report 'no'; use a function"),
        ("check", [], {"repair": "no"}, "invalid repair 'no'; use True or False"),
        ("check", [], {"read_subset": 5}, "invalid read_subset 5; use a text"),
        ("check", [[]], {}, NO_CRAWL),
        ("crawls", [], {"fetch": "no"}, "invalid fetch 'no'; use True or False"),
        ("connect", [], {"lake": "no"}, "invalid lake 'no'; use True or False"),
        ("doctor", [2022], {}, "invalid crawl 2022; use a text"),
        ("pull", [None], {}, "invalid place None; use a text or a path"),
        ("export_iceberg", [b"table"], {}, "invalid path b'table'; use a text or a path"),
        ("get", [b"example.com"], {}, "invalid url b'example.com'; use a text"),
        ("get", ["example.com"], {"max_requests": float("nan")}, "invalid max_requests nan; use a whole number"),
        ("get", ["example.com"], {"max_requests": "9"}, "invalid max_requests '9'; use a whole number"),
        ("site", ["example.com"], {"crawl": []}, NO_CRAWL),
        ("get", ["example.com"], {"crawls": []}, NO_CRAWL),
        ("record", [None], {}, "invalid capture None; use a row of captures, such as a dict"),
        ("fetch", [[], None], {}, "invalid output None; use a path, a URL or an open binary file"),
        (
            "join",
            [[{"url": "a.is"}]],
            {},
            "the list cannot be read as a table: Expected bytes, got a 'dict' object; use texts or a table",
        ),
        ("fetch", [[], "a.zip"], {"form": "text"}, "the name of a file with text ends in .jsonl; a.zip does not"),
        ("fetch", [[], "a.warc.gz"], {"main_content": True}, NO_TEXTS),
        ("fetch", [[], "a.jsonl"], {"main_content": "no"}, "invalid main_content 'no'; use True or False"),
        ("sample", ["*.example.com", 5], {}, "invalid captures '*.example.com'; use those of captures()"),
        ("join", [["example.com"]], {"budget": float("nan")}, "invalid budget nan; use a whole number"),
        ("scan", [], {"max_bytes": True}, "invalid max_bytes True; use a whole number"),
        ("sql", [5], {}, "invalid query 5; use a text"),
    ],
)
def test_refuses_arguments_of_other_types(
    harvested: Catalogue, call: str, given: list[object], wrong: dict[str, object], says: str
) -> None:
    before = harvested.requests
    with pytest.raises(QueryError, match=f"^{re.escape(says)}$"):
        getattr(harvested, call)(*given, **wrong)
    assert harvested.requests == before


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"progress": "no"}, "invalid progress 'no'; use True or False"),
        ({"trace": "no"}, "invalid trace 'no'; use True or False or a function"),
        ({"settings": "no"}, "invalid settings 'no'; use Settings"),
        ({"executor": "no"}, "invalid executor 'no'; use an executor of concurrent.futures"),
        ({"source": b"folder"}, "invalid source b'folder'; use a text or a path"),
        ({"data": __file__}, f"{__file__} is a file; name a folder for the data"),
        (
            {"table": ""},
            "'' is not a valid name of a dataset; use lower-case letters, digits, - and _, such as hosts",
        ),
        ({"data": ""}, "invalid value '' of the setting data; use a path"),
    ],
)
def test_open_refuses_arguments_of_other_types(tmp_path: Path, wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(QueryError, match=f"^{re.escape(says)}$"):
        catalogue.open(**{"data": tmp_path, **wrong})


@pytest.mark.parametrize("wrong", [None, b"example.com", pd.Series(["example.com"])])
def test_keys_are_made_of_texts(wrong: Any) -> None:
    with pytest.raises(QueryError, match=f"^invalid URL of type {type(wrong).__name__}; use one text"):
        catalogue.url_surtkey(wrong)


def test_takes_numbers_and_flags_of_numpy(harvested: Catalogue, crawl: str) -> None:
    given: list[Any] = [np.True_, np.int64(2), np.int64(7), 1e9]
    flag, two, seven, gigabyte = given
    for limit in (two, 2.0):
        found = harvested.captures("example.com/*", crawls=int(crawl[8:12]), ordered=flag, limit=limit)  # type: ignore[arg-type]
        assert found.count() == 2
    captures = harvested.captures("*", crawls=crawl)
    sampled = harvested.sample(captures, two, seed=seven)
    assert sampled.to_arrow().equals(harvested.sample(captures, 2, seed=7).to_arrow())
    assert harvested.scan("example.com/*", crawls=crawl, max_bytes=gigabyte).collect().height > 0


def test_messages_of_python_name_the_class(harvested: Catalogue) -> None:
    with pytest.raises(TypeError, match=r"^Catalogue\.sql\(\) takes 2 positional arguments but 3 were given$"):
        harvested.sql("SELECT 1", [1])  # type: ignore[call-arg]
