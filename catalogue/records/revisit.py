"""Explain records without a body: a revisit refers to the earlier capture that has it."""

from catalogue.formatting import printable
from catalogue.records.record import Record


def missing_body(record: Record) -> str | None:
    """Return why a record has no body, and which capture has it; None if it has one or is no revisit."""
    if record.kind != "revisit" or record.body:
        return None
    url, date = (_known(record.header(f"WARC-Refers-To-{name}")) for name in ("Target-URI", "Date"))
    original = "its record does not say which capture has it"
    if url or date:
        original = f"the capture of {url or record.url}{f' of {date}' if date else ''} has it"
    what = f"the capture of {printable(record.url[:200])} is a revisit, without a body since it did not change"
    return f"{what}; {original}"


def _known(value: str | None) -> str:
    text = (value or "").strip().removeprefix("<").removesuffix(">")
    return "" if text == "-" else printable(text[:200])
