"""What the AWS SDK would log."""

import logging

_TALKATIVE = ("botocore.auth", "botocore.endpoint", "botocore.parsers")
"""Loggers that tell whoever logs everything how requests are signed and what answers say: keys, and session tokens."""


def be_discreet() -> None:
    """Keep credentials out of everybody's logs, whatever is logged."""
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_worth_a_word)


def _worth_a_word(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
