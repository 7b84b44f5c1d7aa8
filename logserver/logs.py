"""Logs on standard error: one line of text or one JSON object per event.

Owns their form; must not decide which events are logged: the callers do. A log record has the fields passed as
`extra`; no other data of a request gets into a line.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from storage.display import encode_json, one_line

TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def log_to_stderr(level: str, form: str) -> None:
    """Log events of `level` or above; `form` is text or json."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter(TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the fields passed as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class TextFormatter(logging.Formatter):
    """A formatter of text lines: the message, followed by its fields as name=value."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        fields = "".join(f" {name}={value}" for name, value in fields_of(record).items())
        return one_line(super().formatMessage(record) + fields)


class JsonFormatter(logging.Formatter):
    """A formatter of JSON objects: time, level, logger and message, the fields, and the exception if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        moment = datetime.fromtimestamp(record.created, UTC)
        event: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return encode_json(event, enc_hook=str).decode()
