"""Headers with metadata of an answer: the request's id, the server's name, and ignored input.

Owns these headers; must not know the content of an answer.
"""

from __future__ import annotations

import itertools
import logging
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import quote

from aiohttp import web

REQUEST_ID: Final = "X-Request-Id"
SERVER: Final = "logserver"
WARNINGS: Final = "X-Warnings"
MAX_WARNED: Final = 20
MAX_WARNED_CHARACTERS: Final = 80
log = logging.getLogger(__name__)
_USABLE_ID: Final = re.compile(r"[\x21-\x7e]{1,128}")
_ids: Final = map(f"{secrets.token_hex(6)}-{{:x}}".format, itertools.count(1))


def sign(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Set the server's name, the CORS headers of the request, and its id.

    This is the client's own id if it is valid in a header, else the next id of this process.
    """
    request_id = request.headers.get(REQUEST_ID)
    if request_id is None or not _USABLE_ID.fullmatch(request_id):
        request_id = next(_ids)
    response.headers[REQUEST_ID] = request_id
    response.headers["Server"] = SERVER
    cross_origin: Mapping[str, str] | None = getattr(request.protocol, "cross_origin", None)
    if cross_origin:
        for name, value in cross_origin.items():
            before = response.headers.get(name) if name == "Vary" else None
            response.headers[name] = value if before is None else f"{before}, {value}"


def warn(response: web.StreamResponse, problem: str, names: Iterable[str]) -> None:
    """List in a header, and in the log, the requested names that were ignored. Does nothing if there are none."""
    text = note(response, problem, names)
    if text is not None:
        log.warning("%s", text)


def note(response: web.StreamResponse, problem: str, names: Iterable[str]) -> str | None:
    """List names in a header. Return its text; None, without a header, if there are no names."""
    # Names are text of the client: no character of them may end the header or the log line.
    listed = [quote(name[:MAX_WARNED_CHARACTERS], safe=" ._:/-[]") for name in names]
    if not listed:
        return None
    more = len(listed) - MAX_WARNED
    text = f"{problem}: {', '.join(listed[:MAX_WARNED])}" + (
        f" and {more} more" if more > 0 else ""
    )
    response.headers[WARNINGS] = text
    return text
