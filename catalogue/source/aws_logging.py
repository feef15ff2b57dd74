"""Limit what the AWS SDK logs."""

import logging

_TALKATIVE = ("botocore.auth", "botocore.endpoint", "botocore.parsers")
"""Loggers that, at their lowest level, log signatures and responses: keys and session tokens."""


def be_discreet() -> None:
    """Keep credentials out of all logs, whatever their level."""
    for name in _TALKATIVE:
        logging.getLogger(name).addFilter(_worth_a_word)


def _worth_a_word(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
