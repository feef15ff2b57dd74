"""Expected answers of a CDX server for one crawl, by a scan of all captures.

The rules are those of https://index.commoncrawl.org/ as far as they are public: the documentation of pywb's CDX server
(https://pywb.readthedocs.io/en/latest/manual/cdxserver_api.html), the configuration in commoncrawl/cc-index-server, the
writer of the lines (``WarcCdxWriter`` of commoncrawl/nutch), and the exchanges recorded as test data of cdx_toolkit.
It uses nothing of the package. The server decides where pages end.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from urllib.parse import parse_qsl, quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

JSON_TYPE = "application/json; charset=utf-8"
"""Type of errors."""
TYPES = {"cdxj": "text/x-cdxj", "json": "text/x-ndjson", "text": "text/plain"}
"""Types of captures, by ``output``."""

_COLUMNS = {
    "url": "url",
    "content_mime_type": "mime",
    "content_mime_detected": "mime-detected",
    "fetch_status": "status",
    "content_digest": "digest",
    "warc_record_length": "length",
    "warc_record_offset": "offset",
    "warc_filename": "filename",
    # In the index, charset is first of these; the server renames it and puts it last.
    "content_languages": "languages",
    "content_truncated": "truncated",
    "fetch_redirect": "redirect",
    "content_charset": "encoding",
}
"""Fields by column, in the order of answers."""
_RAW = {"encoding": "charset", "languages": "languages", "truncated": "truncated", "redirect": "redirect"}
"""Fields with another place or name in the index, in its order."""
_ALIASES = {
    "u": "url",
    "original": "url",
    "statuscode": "status",
    "mimetype": "mime",
    "m": "mime",
    "s": "length",  # not the status
    "l": "length",
    "o": "offset",
    "d": "digest",
    "t": "timestamp",
    "k": "urlkey",
    "f": "filename",
    "charset": "encoding",
}
"""Other names of fields, valid only in filters."""
_EARLIEST, _LATEST = "10000101000000", "29991231235959"
"""Complete times of fewer than 14 digits."""
_FALSE = {"0", "false", "f", "off"}


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture and its lines."""

    key: str
    timestamp: str
    fields: dict[str, str]
    """In order, with key and timestamp."""

    @property
    def rest(self) -> dict[str, str]:
        return {name: value for name, value in self.fields.items() if name not in {"urlkey", "timestamp"}}

    @property
    def line(self) -> str:
        return f"{self.key} {self.timestamp} {json.dumps(self.rest)}"

    @property
    def raw(self) -> str:
        """The line in the crawl's index, by which lines are sorted."""
        fields = self.rest
        late = {_RAW[name]: fields.pop(name) for name in _RAW if name in fields}
        return f"{self.key} {self.timestamp} {json.dumps(fields | late)}"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    type: str
    body: str
    """Lines with newlines, or JSON without one."""


@dataclass(frozen=True, slots=True)
class Page:
    captures: Sequence[Capture]
    of: int = 1
    """Number of pages."""


def read_captures(mirror: Path, crawl: str, beginning: str = "") -> list[Capture]:
    """Read all captures of a crawl whose keys begin so, sorted by line."""
    found: list[Capture] = []
    for path in sorted((mirror / "cc-index/table/cc-main/warc" / f"crawl={crawl}").rglob("*.parquet")):
        file = pq.ParquetFile(path)
        names = [name for name in ("url_surtkey", "fetch_time", *_COLUMNS) if name in file.schema_arrow.names]
        table = file.read(names)
        table = table.filter(pc.starts_with(table.column("url_surtkey"), beginning))
        times = table.column("fetch_time").cast(pa.timestamp("s"), safe=False)
        table = table.set_column(names.index("fetch_time"), "fetch_time", times)
        found += map(_capture, table.to_pylist())
    return sorted(found, key=lambda capture: capture.raw.encode())


def _capture(row: dict[str, object]) -> Capture:
    key, timestamp = str(row["url_surtkey"]), f"{row['fetch_time']:%Y%m%d%H%M%S}"
    fields = {"urlkey": key, "timestamp": timestamp}
    for column, name in _COLUMNS.items():
        value = row.get(column)
        if value is None and name == "mime":  # each line of the CDX index has one
            value = "unk"
        if value is None or (name == "status" and value == -1):
            continue
        fields[name] = str(value)
    if not fields["url"].isascii():
        fields["url"] = quote(fields["url"], safe=":/")
    return Capture(key, timestamp, fields)


class Refused(Exception):
    """An invalid parameter: 400 with this message."""


class Oracle:
    """Expected answers for a crawl, given all its captures in order."""

    def __init__(self, captures: Sequence[Capture]) -> None:
        self.captures = captures
        self._keys = {capture.fields["url"]: capture.key for capture in captures}

    def answer(self, query: str, page: Page | None = None) -> Answer:
        """Return the expected answer for a page of captures without filters; by default all captures."""
        given = parameters(query)
        try:
            return self._answer(given, page if page is not None else Page(self.matching(query)))
        except Refused as refused:
            return Answer(400, JSON_TYPE, json.dumps({"message": str(refused)}))

    def matching(self, query: str) -> list[Capture]:
        """Return captures with matching keys, without filters, or raise Refused."""
        _, matches = self._match(parameters(query))
        return [capture for capture in self.captures if matches(capture.key)]

    def _answer(self, given: dict[str, list[str]], page: Page) -> Answer:
        last = {name: values[-1] for name, values in given.items()}
        output = last.get("output", "cdxj")
        if output not in TYPES:
            message = f"output={output} not supported"
            raise Refused(message)
        url, _ = self._match(given)
        for each in given.get("filter", []):
            capture_filter(each)
        size = _number(last, "pageSize", 5)
        if truth(last.get("showNumPages", "")):
            if page.captures:
                message = "the server decides the number of pages"
                raise NotImplementedError(message)
            return Answer(200, TYPES[output], json.dumps({"pages": 0, "pageSize": size, "blocks": 0}))
        if not 0 <= (number := _number(last, "page", 0)) < page.of:
            message = f"Page {number} invalid: First Page is 0, Last Page is {page.of - 1}"
            raise Refused(message)
        found = ordered(last, [capture for capture in page.captures if passes(given, capture)])
        if not found:
            return Answer(404, JSON_TYPE, json.dumps({"message": f"No Captures found for: {url}"}))
        text = last.get("fields") or last.get("fl")
        names = text.split(",") if text else None
        return Answer(200, TYPES[output], "".join(f"{_FORMS[output](capture, names)}\n" for capture in found))

    def _match(self, given: dict[str, list[str]]) -> tuple[str, Callable[[str], bool]]:
        """Return the URL without its wildcard, and a predicate of keys."""
        if "url" not in given:
            raise Refused('The "url" param is required')
        url = given["url"][-1]
        match = given["matchType"][-1] if "matchType" in given else None
        if match is None and url.startswith("*."):
            url, match = url[2:], "domain"
        elif match is None and url.endswith("*"):
            url, match = url[:-1], "prefix"
        key = self._keys.get(url) or plain_key(url)
        host = re.escape(key.partition(")")[0])
        if match in {None, "exact"}:
            return url, key.__eq__
        if match == "prefix":
            for end in "/?":
                key += end if url.endswith(end) and not key.endswith(end) else ""
            return url, lambda each: each.startswith(key)
        if match == "host":
            return url, lambda each: re.match(rf"{host}(:\d+)?\)", each) is not None
        if match == "domain":
            return url, lambda each: re.match(rf"{host}((:\d+)?\)|,)", each) is not None
        message = f"Invalid match_type: {match}"
        raise Refused(message)


def parameters(query: str) -> dict[str, list[str]]:
    """Parse a query string; blank values are left out."""
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(query):
        given.setdefault(name, []).append(value)
    return given


def plain_key(url: str) -> str:
    """Return the key of a plain URL, or raise ValueError."""
    found = re.fullmatch(r"(?:(https?)://)?([A-Za-z0-9.-]+)(?::(\d+))?(/[!-~]*?)?/?(?:\?([!-~]*))?", url)
    if not found or "%" in url or "#" in url or "//" in (found[4] or "") or "/." in (found[4] or ""):
        message = f"not a plain URL: {url}"
        raise ValueError(message)
    scheme, host, port, path, query = found.groups()
    host = re.sub(r"^(www\d*\.)+", "", host.lower())
    port = f":{port}" if port and port != {"https": "443"}.get(scheme or "", "80") else ""
    arguments = "&".join(sorted((query or "").lower().split("&")))
    return f"{','.join(reversed(host.split('.')))}{port}){(path or '/').lower()}{'?' if arguments else ''}{arguments}"


def truth(value: str) -> bool:
    return bool(value) and value.lower() not in _FALSE


def _number(last: dict[str, str], name: str, usual: int) -> int:
    try:
        return int(last.get(name, usual))
    except ValueError:
        message = f"Invalid value for {name}= param: {last[name]}"
        raise Refused(message) from None


def passes(given: dict[str, list[str]], capture: Capture) -> bool:
    start, end = (given.get("from") or given.get("from_ts") or [""])[-1], given.get("to", [""])[-1]
    if not start + _EARLIEST[len(start) :] <= capture.timestamp <= end + _LATEST[len(end) :]:
        return False
    return all(capture_filter(each)(capture) for each in given.get("filter", []))


@cache
def capture_filter(text: str) -> Callable[[Capture], bool]:
    inverted, text = text.startswith("!"), text.removeprefix("!")
    way, text = (text[0], text[1:]) if text[:1] in {"=", "~"} else ("", text)
    name, colon, value = text.partition(":")
    name = _ALIASES.get(name, name)
    operand = value if colon else text
    if way == "~":
        try:
            re.compile(operand)
        except re.error as error:
            raise Refused(str(error)) from None

    def passing(capture: Capture) -> bool:
        value = capture.fields.get(name, "") if colon else capture.raw
        found = value == operand if way == "=" else bool(re.match(operand, value)) if way == "~" else operand in value
        return found != inverted

    return passing


def ordered(last: dict[str, str], found: list[Capture]) -> list[Capture]:
    limit = _number(last, "limit", 0)  # 0 for all, negative for none
    if closest := last.get("closest"):
        moment = _seconds(closest + _LATEST[len(closest) :])
        found = sorted(found, key=lambda capture: abs(_seconds(capture.timestamp) - moment))
    elif last.get("sort") == "reverse" or truth(last.get("reverse", "")):
        found = found[::-1]
    return found if limit == 0 else found[: max(0, limit)]


def _seconds(timestamp: str) -> float:
    return datetime.strptime(timestamp, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()


def _as_json(capture: Capture, names: Sequence[str] | None) -> str:
    fields = capture.fields
    return json.dumps(fields if names is None else {name: fields[name] for name in names if name in fields})


def _as_cdxj(capture: Capture, names: Sequence[str] | None) -> str:
    rest = capture.rest
    chosen = rest if names is None else {name: rest[name] for name in names if name in rest}
    return f"{capture.key} {capture.timestamp} {json.dumps(chosen)}"


def _as_text(capture: Capture, names: Sequence[str] | None) -> str:
    fields = capture.fields
    return " ".join(fields.values() if names is None else [fields.get(name, "-") for name in names])


_FORMS = {"json": _as_json, "cdxj": _as_cdxj, "text": _as_text}
