"""The tool ``get_page``: an archived page as text, Markdown, links or headers."""

from typing import TYPE_CHECKING

from catalogue.errors import BadDocument, BadRecord, NotArchived, TooExpensive
from catalogue.formatting import to_json
from catalogue.mcp_server.tool_models import PageAnswer, PageArguments
from catalogue.mcp_server.untrusted import marked, visible
from catalogue.records.record import missing_body

if TYPE_CHECKING:
    from catalogue.get_page import GetEstimate
    from catalogue.mcp_server.calls import Calls
    from catalogue.records.page import Page

_MAX_TEXTS = 8
_MAX_TYPE = 100
"""Characters of a media type, which the web server chose."""


def get_page(arguments: PageArguments, call: "Calls") -> PageAnswer:
    key = arguments.model_dump_json(exclude={"offset", "max_chars", "max_requests"})
    text = call.texts.get(key) if arguments.offset else None
    if text is None:
        found = _search(arguments, call)
        if isinstance(found, PageAnswer):
            return found
        text = _read(found, arguments)
        call.texts.pop(key, None)
        call.texts[key] = text
        while len(call.texts) > _MAX_TEXTS:
            del call.texts[next(iter(call.texts))]
    return _part(*text, arguments, call)


def _search(arguments: PageArguments, call: "Calls") -> "Page | PageAnswer":
    empty: list[str] = []

    def approve(estimate: "GetEstimate") -> None:
        empty.extend(estimate.empty)
        call.check_cost(estimate.requests - estimate.spent, estimate.bytes, str(estimate), arguments.max_requests)

    try:
        with call.within(arguments.max_requests):
            return call.catalogue.get(
                arguments.url,
                at=arguments.at,
                crawls=None if arguments.crawl == ["all"] else arguments.crawl,
                follow=arguments.follow,
                max_requests=min(arguments.max_requests, call.left),
                approve=approve,
            )
    except NotArchived as error:
        return PageAnswer(
            outcome="target_not_archived" if error.target else "not_proven" if error.doubts else "not_archived",
            reason=str(error),
            url=error.target,
            crawls_without_capture=[*error.empty],
            notes=[*call.notes, *error.doubts],
            cost=call.cost,
        )
    except TooExpensive as error:
        if not call.requests:
            raise
        return PageAnswer(
            outcome="not_read", reason=str(error), crawls_without_capture=empty, notes=[*call.notes], cost=call.cost
        )


def _read(page: "Page", arguments: PageArguments) -> tuple[PageAnswer, str]:
    notes = [*page.notes, *page.substitutions]
    if page.record.truncated:
        notes.append(
            f"the archived page is incomplete, because the crawler truncated it: {page.record.truncated[:_MAX_TYPE]}"
        )
    content, missing = "", missing_body(page.record)
    try:
        content = _content(page, arguments, notes)
    except (BadDocument, BadRecord) as error:
        notes.append(f"the page cannot be parsed ({error}); the format headers always works")
    else:
        if not (content or missing) and arguments.format in {"text", "markdown"}:
            notes.append(f"the page has no text; its type is {(page.record.mime or 'unknown')[:_MAX_TYPE]}")
    if missing:
        notes.append(f"{missing}; the format headers always works")
    shown, removed = visible(content)
    facts = PageAnswer.model_construct(
        outcome="found",
        url=page.url,
        exact=page.exact,
        time=to_json(page.time),
        status=page.status,
        mime=page.record.mime and page.record.mime[:_MAX_TYPE],
        crawl=page.crawl,
        subset=page.subset,
        redirects=[each.url or "-" for each in page.redirects],
        content_length=len(shown),
        removed_characters=removed,
        notes=notes,
    )
    return facts, shown


def _content(page: "Page", arguments: PageArguments, notes: list[str]) -> str:
    match arguments.format:
        case "text":
            return page.to_text(main_content=arguments.main_content) or ""
        case "markdown":
            return page.to_markdown(main_content=arguments.main_content) or ""
        case "links":
            links, omitted = page.find_links()
            notes += [omitted] if omitted else []
            lines = ((link["url"] or "", " ".join((link["text"] or "").split())) for link in links)
            return "\n".join(f"{url} {text}".rstrip() for url, text in lines if url)
        case "headers":
            fields = "\n".join(f"{name}: {value}" for name, value in page.headers.items())
            return f"{page.record.status_line}\n{fields}"


def _part(facts: PageAnswer, text: str, arguments: PageArguments, call: "Calls") -> PageAnswer:
    start, end = arguments.offset, arguments.offset + arguments.max_chars
    content, nonce = marked(text[start:end])
    return facts.model_copy(
        update={
            "content": content,
            "content_nonce": nonce,
            "content_offset": start,
            "next_offset": end if end < len(text) else None,
            "notes": [*call.notes, *facts.notes],
            "cost": call.cost,
        }
    )
