"""Requests to a CDX server, one for each rule of Common Crawl's server, and checks of the answers.

``tests.support.cdx_oracle`` gives the expected answer, unless an exchange has a check of its own. Known differences of
plain pywb 2.10, without the patches of Common Crawl's server, are noted.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlencode

from tests.support import serving
from tests.support.cdx_known import Known
from tests.support.cdx_oracle import JSON_TYPE, TYPES, Answer, Capture, Oracle, Page, parameters

Reply = serving.Answer


def send(base: str, path: str) -> Reply:
    """Send a GET request; redirects are not followed, and nothing is inflated."""
    return serving.get(base, path, Accept_Encoding="identity")


Send = Callable[[str, str], Reply]
"""The type of ``send``."""
Check = Callable[[Reply, Known, str], bool]
"""Whether the reply of a server at a base is correct."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and a check of its answer if the oracle does not know it."""

    name: str
    query: str
    """Parameters of ``/CRAWL-index``, or a path if it starts with a slash; a template for ``Known.fill``."""
    check: Check | None = None
    """None to compare with the oracle."""
    pywb: str = ""
    """How plain pywb differs."""


def find_error(
    exchange: Exchange,
    base: str,
    oracle: Oracle,
    known: Known,
    send: Send = send,
    pages_of: dict[str, list[Page]] | None = None,
) -> str | None:
    """Describe the first error in a server's answer, on all its pages; None if it is correct.

    ``pages_of`` has pages of this server that were checked before, by path; new ones are added.
    """
    query = known.fill(exchange.query)
    path = query if query.startswith("/") else f"/{known.crawl}-index?{query}"
    reply = send(base, path)
    if exchange.check:
        return None if exchange.check(reply, known, base) else f"{path}: {reply}"
    try:
        pages = check_pages(
            lambda path: send(base, path), oracle, known.crawl, query, {} if pages_of is None else pages_of
        )
    except WrongPages as error:
        return f"the pages of {query} are wrong: {error}"
    given = parameters(query)
    if found := difference(path, reply, oracle.answer(query, requested_page(query, pages))):
        return found
    if "page" in given or len(pages) == 1:
        return None
    # Pages without filters were compared by check_pages.
    for number, page in enumerate(pages if set(given) - _PAGING else ()):
        numbered = f"{path}&page={number}"
        if found := difference(numbered, send(base, numbered), oracle.answer(query, page)):
            return found
    return None


def difference(path: str, reply: Reply, expected: Answer) -> str | None:
    if (reply.status, reply.type) != (expected.status, expected.type):
        return f"{path}: {reply.status} {reply.type} instead of {expected.status} {expected.type}: {reply.text[:300]}"
    if reply.text == expected.body:
        return None
    lines = expected.body.splitlines(keepends=True)
    at = next((at for at, (one, other) in enumerate(zip(reply.lines, lines, strict=False)) if one != other), None)
    if at is None:
        return f"{path}: {len(reply.lines)} lines instead of {len(lines)}"
    return f"{path}: line {at} of {len(lines)} is\n{reply.lines[at]}instead of\n{lines[at]}"


_PAGING = {"url", "matchType", "pageSize"}
"""Parameters that decide where pages end."""


class WrongPages(Exception):
    """The pages of a server are not a partition of the captures."""


def requested_page(query: str, pages: Sequence[Page]) -> Page:
    """Return the page that a query requests, the first by default; an empty one after the last."""
    text = parameters(query).get("page", ["0"])[-1]
    number = int(text) if text.isdecimal() else 0
    return pages[number] if number < len(pages) else Page((), len(pages))


def check_pages(
    send: Callable[[str], Reply], oracle: Oracle, crawl: str, query: str, pages_of: dict[str, list[Page]]
) -> list[Page]:
    """Return the captures of a query, without filters, as the server pages them, or raise WrongPages."""
    given = parameters(query)
    paging: dict[str, str] = {name: given[name][-1] for name in sorted(_PAGING) if name in given}
    plain, count = urlencode(paging), "&showNumPages=true"
    path = f"/{crawl}-index?{plain}"
    if oracle.answer(plain + count, Page(())).status != HTTPStatus.OK:
        return [Page(())]  # the query is refused
    if path not in pages_of:
        pages_of[path] = _check_partition(send, path, count, oracle.matching(query))
    return pages_of[path] or [Page(())]


def _check_partition(send: Callable[[str], Reply], path: str, count: str, captures: Sequence[Capture]) -> list[Page]:
    found = list[Page]()
    counted = send(path + count)
    if counted.status != HTTPStatus.OK:
        raise WrongPages(f"{path + count}: {counted}")
    pages = json.loads(counted.body)["pages"]
    if (pages > 0) != bool(captures):
        message = f"there are {pages} of {len(captures)} captures"
        raise WrongPages(message)
    start = 0
    for number in range(pages):
        reply = send(f"{path}&page={number}")
        end = start + len(reply.lines)
        expected = (HTTPStatus.OK, TYPES["cdxj"])
        if (reply.status, reply.type) != expected or reply.text != "".join(
            f"{each.line}\n" for each in captures[start:end]
        ):
            message = f"page {number} is {reply.status} and {end - start} lines: {reply.text[:300]}"
            raise WrongPages(message)
        found.append(Page(captures[start:end], pages))
        start = end
    if start != len(captures):
        message = f"together they are {start} captures instead of {len(captures)}"
        raise WrongPages(message)
    return found


def _message(status: int, text: str = "") -> Check:
    """JSON with a message that contains a text."""

    def check(reply: Reply, _: Known, __: str) -> bool:
        if (reply.status, reply.type) != (status, JSON_TYPE):
            return False
        answer = json.loads(reply.body)
        return [*answer] == ["message"] and text.lower() in answer["message"].lower()

    return check


def _status(*statuses: int) -> Check:
    return lambda reply, _, __: reply.status in statuses


def _html(*texts: str) -> Check:
    def check(reply: Reply, known: Known, _: str) -> bool:
        if reply.status != 200 or not reply.type.startswith("text/html"):
            return False
        return all(each.format(crawl=known.crawl) in reply.text for each in texts)

    return check


def _num_pages(output: str = "cdxj", size: int = 5) -> Check:
    def check(reply: Reply, _: Known, __: str) -> bool:
        if (reply.status, reply.type) != (200, TYPES[output]):
            return False
        found = json.loads(reply.body)
        pages = -(-found["blocks"] // size)
        exact = json.dumps({"pages": pages, "pageSize": size, "blocks": found["blocks"]})
        return found["blocks"] > 0 and reply.text == exact

    return check


def _crawl_list(reply: Reply, known: Known, base: str) -> bool:
    if (reply.status, reply.type) != (200, "application/json"):
        return False
    found = json.loads(reply.body)
    names = [each["id"] for each in found]
    return (
        known.crawl in names
        and names == sorted(names, reverse=True)
        and all([*each] == ["id", "name", "timegate", "cdx-api", "from", "to"] for each in found)
        and all(each["cdx-api"] == f"{base}/{each['id']}-index" for each in found)
        and reply.text.startswith('[\n  {\n    "id"')
    )


_EMPTY = "200 without a body if nothing is found"
_CRASH = "500, which clients retry for ever"
_HOME = "a page of its own"
_PORTS = "passes over hosts with a port"

EXCHANGES = (
    # paths
    Exchange("the home page", "/", _html("/collinfo.json", "/{crawl}-index", "cc-index.paths.gz"), _HOME),
    Exchange("a crawl's page", "/{crawl}/", _html('name="url"', "{crawl}-index", "showNumPages", "output"), _HOME),
    Exchange("a crawl's page without its slash", "/{crawl}", _html('name="url"', "{crawl}-index"), _HOME),
    Exchange("the list of crawls", "/collinfo.json", _crawl_list, "has names of its own in it"),
    Exchange("an unknown crawl", "/CC-MAIN-2099-01-index?url={url}", _status(404), _EMPTY),
    Exchange("no path", "/nothing/here", _status(404)),
    # url
    Exchange("no parameter", ""),
    Exchange("no url", "output=json"),
    Exchange("an empty url", "url=&output=json"),
    Exchange("a URL", "url={url}"),
    Exchange("a URL as JSON", "url={url}&output=json"),
    Exchange("a URL as CDXJ by name", "url={url}&output=cdxj"),
    Exchange("a URL as text", "url={url}&output=text", pywb="charset keeps its name and place"),
    Exchange("a URL with most captures", "url={often}&output=json"),
    Exchange("a URL of several subsets", "url={mixed}&output=json"),
    Exchange("a redirect", "url={redirected}&output=json"),
    Exchange("a truncated record", "url={truncated}&output=json"),
    Exchange("a URL with arguments", "url={argued}&output=json"),
    Exchange("a URL that is not there", "url=https://{nowhere}/", pywb=_EMPTY),
    Exchange("a URL that is not there as JSON", "url={nowhere}/a%20b&output=json", _message(404, "/a b"), _EMPTY),
    Exchange("an exact match by name", "url={url}&matchType=exact"),
    Exchange("an exact match of an asterisk", "url={host}/*&matchType=exact", pywb=_EMPTY),
    Exchange("the last of two URLs", "url={nowhere}&url={url}"),
    Exchange("empty parameters", "url={url}&matchType=&output=&filter=&from=&page=&limit=&fl="),
    Exchange("unknown parameters", "url={url}&collapse=urlkey&gzip=false&foo=bar"),
    # matchType
    Exchange("a host by a prefix", "url={host}/*"),
    Exchange("a host by a prefix without a slash", "url={host}*"),
    Exchange("a directory", "url={directory}*"),
    Exchange("a prefix by name", "url={directory}&matchType=prefix"),
    Exchange("a prefix by name of an asterisk", "url={directory}*&matchType=prefix", pywb=_EMPTY),
    Exchange("a prefix that is not there", "url={nowhere}/*&output=json", pywb=_EMPTY),
    Exchange("a host", "url={host}&matchType=host&output=json", pywb=_PORTS),
    Exchange("a host by a URL of it", "url={url}&matchType=host"),
    Exchange("a domain", "url=*.{host}", pywb=_PORTS),
    Exchange("a domain with a path", "url=*.{host}/*&output=json", pywb=_PORTS),
    Exchange("a domain by name", "url={host}&matchType=domain", pywb=_PORTS),
    Exchange("a domain with the default port", "url=*.{host}:80", pywb=_PORTS),
    Exchange("a domain by name with the default port", "url=http://{host}:80/&matchType=domain", pywb=_PORTS),
    Exchange("a domain that is not there", "url=*.{nowhere}", pywb=_EMPTY),
    Exchange("a top-level domain", "url=*.{tld}"),
    Exchange("a top-level domain in small pages", "url=*.{tld}&pageSize=1&output=json"),
    Exchange("ranges, which are not offered", "url={url}&matchType=range"),
    Exchange("an unknown match", "url={url}&matchType=foo"),
    # from, to
    Exchange("from a time", "url={host}/*&from={early}"),
    Exchange("to a time", "url={host}/*&to={late}"),
    Exchange("between times", "url={host}/*&from={early}&to={late}"),
    Exchange("a year", "url={host}/*&from={the[timestamp]:.4}&to={the[timestamp]:.4}"),
    Exchange("months", "url={host}/*&from_ts={early:.6}&to={early:.6}"),
    Exchange("days", "url={host}/*&from={late:.8}&to={late:.8}"),
    Exchange("hours", "url={host}/*&from={early:.10}&to={late:.11}"),
    Exchange("no time", "url={host}/*&from={late}&to={early}", pywb=_EMPTY),
    Exchange("long ago", "url={host}/*&to=1999", pywb=_EMPTY),
    # limit, sort, closest
    Exchange("one", "url={host}/*&limit=1"),
    Exchange("two that pass a filter", "url={host}/*&limit=2&filter=!=status:200"),
    Exchange("more than there are", "url={host}/*&limit=1000000"),
    Exchange("no limit", "url={host}/*&limit=0"),
    Exchange("less than nothing", "url={host}/*&limit=-1", pywb=_EMPTY),
    Exchange("no number of them", "url={host}/*&limit=abc", _message(400, "limit"), _CRASH),
    Exchange("reversed", "url={host}/*&sort=reverse"),
    Exchange("reversed by the other name", "url={host}/*&reverse=true"),
    Exchange("not reversed", "url={host}/*&reverse=false"),
    Exchange("the last two", "url={host}/*&sort=reverse&limit=2"),
    Exchange("closest to a time", "url={often}&closest={early}"),
    Exchange("the three closest to a time", "url={often}&closest={late}&limit=3"),
    Exchange("closest to a year", "url={often}&closest={early:.4}"),
    Exchange("closest to a day", "url={often}&closest={late:.8}&limit=3"),
    Exchange("closest to no time", "url={host}/*&sort=closest"),
    # filter
    Exchange("a status", "url={host}/*&filter=status:{status}"),
    Exchange("a part of a status", "url={host}/*&filter=status:{status:.2}"),
    Exchange("exactly a status", "url={host}/*&filter=%3Dstatus:{status}"),
    Exchange("exactly a part of a status", "url={host}/*&filter==status:{status:.2}", pywb=_EMPTY),
    Exchange("another status", "url={host}/*&filter=!=status:200"),
    Exchange("statuses by an expression", "url={host}/*&filter=~status:[345]..&output=json"),
    Exchange("an expression that is anchored", "url={host}/*&filter=~url:{host}", pywb=_EMPTY),
    Exchange("an expression that is not anchored at its end", "url={host}/*&filter=~status:2"),
    Exchange("no media type by an expression", "url={host}/*&filter=!~mime:(warc/revisit|text/.*)"),
    Exchange("a media type", "url={host}/*&filter=mime:{mime}"),
    Exchange("a detected media type", "url={host}/*&filter==mime-detected:text/html"),
    Exchange("a language", "url={host}/*&filter=languages:{the[languages]:.3}"),
    Exchange("no language", "url={host}/*&filter==languages:"),
    Exchange("a character set by its raw name", "url={host}/*&filter==charset:UTF-8"),
    Exchange("a character set by its name", "url={host}/*&filter==encoding:UTF-8", pywb="knows charset alone"),
    Exchange("a digest", "url=*.{tld}&filter==digest:{the[digest]}"),
    Exchange("something anywhere in a line", "url=*.{tld}&filter={the[digest]}"),
    Exchange("nothing of it anywhere in a line", "url={host}/*&filter=!text/html"),
    Exchange("two filters", "url={host}/*&filter=!=status:200&filter=mime:text"),
    Exchange("a filter with a space for a plus", "url={host}/*&filter=!~mime:(image/svg\\+xml|text/html)"),
    Exchange("an unknown field", "url={host}/*&filter=nosuch:x", pywb=_EMPTY),
    Exchange("not an unknown field", "url={host}/*&filter=!nosuch:x"),
    Exchange("no expression", "url={host}/*&filter=~url:(", _message(400), _CRASH),
    *(
        Exchange(f"a filter by {text.partition(':')[0]}", f"url={{host}}/*&filter={text}")
        for text in (
            *("u:example", "~original:https:.*", "statuscode:{status}", "~l:[2-5]", "~o:.*[02468]$", "m:{mime}"),
            *("!mimetype:{mime}", "~t:{early:.8}", "f:/warc/", "s:20"),  # s is the length, and not the status
        )
    ),
    Exchange("a digest by d", "url={url}&filter==d:{the[digest]}"),
    Exchange("a key by k", "url=*.{host}&filter=k:)/", pywb=_PORTS),
    Exchange(
        "waymore's filters",
        "url=*.{host}/*&output=json&fl=timestamp,url,mime,status,digest"
        "&filter=!~mime:(warc/revisit|text/css|image/svg\\+xml|image/x-icon)&filter=!~status:(404|301|302)",
        pywb=_PORTS,
    ),
    Exchange("a page of gau's", "url=*.{host}/*&output=json&fl=url&page=0&filter=!%3Dstatus:404", pywb=_PORTS),
    # fl
    Exchange("fields", "url={often}&output=json&fl=url,timestamp"),
    Exchange("fields by the other name", "url={often}&output=json&fields=digest,urlkey"),
    Exchange("fields by both names", "url={often}&output=json&fl=url&fields=status,mime"),
    Exchange("missing fields", "url={without_language}&output=json&fl=languages,url"),
    Exchange("no field at all", "url={url}&output=json&fl=nosuch"),
    Exchange("an alias, which is no field", "url={url}&output=json&fl=original,statuscode"),
    Exchange("fields as text", "url={without_language}&output=text&fl=timestamp,languages,nosuch,url"),
    Exchange("a repeated field as text", "url={often}&output=text&fl=url,status,url"),
    Exchange("fields as CDXJ", "url={often}&fl=url,timestamp,status"),
    Exchange("a character set as text", "url={url}&output=text&fl=encoding", pywb="knows charset alone"),
    # output
    Exchange("an unknown output", "url={url}&output=csv"),
    # pages
    Exchange("the first page", "url={host}/*&page=0"),
    Exchange("a page after the last", "url={url}&page=1"),
    Exchange("a page far after the last", "url={host}/*&page=9999&output=json"),
    Exchange("a page before the first", "url={url}&page=-1"),
    Exchange("a page after the first of nothing", "url={nowhere}&page=1"),
    Exchange("no page", "url={url}&page=abc"),
    Exchange("no size of pages", "url={url}&pageSize=abc"),
    Exchange("no size of pages to be counted", "url={url}&pageSize=abc&showNumPages=true"),
    Exchange("how many pages", "url={host}/*&showNumPages=true", _num_pages()),
    Exchange("how many pages as JSON", "url={url}&showNumPages=True&output=json", _num_pages("json")),
    Exchange("how many small pages", "url=*.{tld}&showNumPages=1&pageSize=1", _num_pages(size=1)),
    Exchange(
        "how many pages, without filters",
        "url={url}&showNumPages=true&limit=1&to=1999&filter=x:y",
        _num_pages(),
    ),
    Exchange("how many pages of nothing", "url={nowhere}&showNumPages=true"),
    Exchange("how many pages of nothing as JSON", "url=*.{nowhere}&showNumPages=true&output=json&pageSize=2"),
    Exchange("not how many pages", "url={url}&showNumPages=0"),
    Exchange("not how many pages, in a word", "url={url}&showNumPages=False"),
)
