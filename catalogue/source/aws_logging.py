"""Limit what the AWS SDK logs."""

import logging

_LOGGERS = ("botocore.auth", "botocore.endpoint", "botocore.parsers")
"""Loggers whose debug messages contain signatures and responses, with keys and session tokens."""


def hide_credentials() -> None:
    """Keep credentials out of logs of any level."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_is_above_debug)


def _is_above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG
