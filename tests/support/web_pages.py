"""Pages of a server, parsed."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from catalogue.server.web_pages import POLICY
from catalogue.settings import Settings
from tests.support.serving import Answer, get, serving

VOID = {"col", "input", "link", "meta", "wbr"}


@dataclass
class Node:
    tag: str
    attrs: dict[str, str]
    children: "list[Node | str]" = field(default_factory=list)

    @property
    def text(self) -> str:
        joined = "".join(child if isinstance(child, str) else f" {child.text} " for child in self.children)
        return " ".join(joined.split())

    def all(self, tag: str = "", **attrs: str) -> "list[Node]":
        """Find descendants by tag and by words in attributes."""
        found = []
        for child in self.children:
            if isinstance(child, Node):
                fits = tag in {"", child.tag} and all(
                    text in child.attrs.get(name.strip("_"), "").split() for name, text in attrs.items()
                )
                found += ([child] if fits else []) + child.all(tag, **attrs)
        return found

    def one(self, tag: str = "", **attrs: str) -> "Node":
        (found,) = self.all(tag, **attrs)
        return found


class Parsed(HTMLParser):
    """Parses a page; fails if an element is not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Node("", {})
        self._open = [self.root]
        self.feed(text)
        assert self._open == [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs})
        assert len(node.attrs) == len(attrs)
        self._open[-1].children.append(node)
        if tag not in VOID:
            self._open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].children.append(Node(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(data)


def page(answer: Answer, status: int = 200, *, policy: str = POLICY) -> Node:
    """Parse the page of an answer and check the rules of all pages; only pages with another policy have a script."""
    assert answer.status == status, answer.text[-2000:]
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    root = Parsed(answer.text).root
    every = root.all()
    assert root.one("html").attrs["lang"] == "en"
    assert bool(root.all("script")) == (policy != POLICY)
    assert not root.all("style")
    assert not [node for node in every for name in node.attrs if name == "style" or name.startswith("on")]
    ids = Counter(node.attrs["id"] for node in every if "id" in node.attrs)
    assert set(ids.values()) <= {1}
    assert len(root.all("h1")) == len(root.all("main")) == 1
    labelled = {node.attrs["for"] for node in root.all("label")}
    fields = [node for node in root.all("input") + root.all("select") if node.attrs.get("type") != "hidden"]
    assert {node.attrs["id"] for node in fields} == labelled
    for name in ("aria-describedby", "aria-labelledby"):
        assert {word for node in every for word in node.attrs.get(name, "").split()} <= set(ids)
    assert all(node.attrs.get("scope") in {"row", "col"} for node in root.all("th"))
    assert root.one("a", class_="skip").attrs["href"].removeprefix("#") in ids
    own = [node.attrs[name] for node in every for name in ("src", "action") if name in node.attrs]
    assert all(address.startswith("/") for address in own + [node.attrs["href"] for node in root.all("link")])
    return root


def search(address: str, form: str = "", **params: Any) -> Answer:
    given = {name.strip("_"): value for name, value in params.items()}
    return get(address, f"/search{form}?{urlencode(given, doseq=True)}")


def rows(root: Node) -> list[list[str]]:
    """Return time with subset, URL, status, type, language and length of captures."""
    found = []
    for body in [table.one("tbody") for table in root.all("table", class_="captures")]:
        for row in body.all("tr"):
            cells = [child.text for child in row.children if isinstance(child, Node)]
            found.append([cells[0], row.one("bdi").text, *cells[2:]])
    return found


def terms(root: Node, kind: str) -> dict[str, str]:
    return {row.one("dt").text: row.one("dd").text for row in root.one("dl", class_=kind).all("div")}


def serving_site(harvested_data: Path, settings: Settings) -> Iterator[str]:
    with serving(harvested_data, settings) as address:
        yield address
