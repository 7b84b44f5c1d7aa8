"""Headers that say something about the answer: the request's id, the server's name, and what was ignored.

Owns these headers; must not know what is answered.
"""

from __future__ import annotations

import itertools
import logging
import re
import secrets
from collections.abc import Iterable
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
    """Name the server and the request: by the client's own id where it can be put into a header,
    else by the next of this process.
    """
    given = request.headers.get(REQUEST_ID)
    if given is None or not _USABLE_ID.fullmatch(given):
        given = next(_ids)
    response.headers[REQUEST_ID] = given
    response.headers["Server"] = SERVER


def warn(response: web.StreamResponse, problem: str, names: Iterable[str]) -> None:
    """Name in a header, and in the log, what the request asked for and did not get. Nothing where there are none."""
    # A name is the client's own text: no character of it may end the header or the log line.
    listed = [quote(name[:MAX_WARNED_CHARACTERS], safe=" ._:/-") for name in names]
    if not listed:
        return
    more = len(listed) - MAX_WARNED
    text = f"{problem}: {', '.join(listed[:MAX_WARNED])}" + (
        f" and {more} more" if more > 0 else ""
    )
    response.headers[WARNINGS] = text
    log.warning("%s", text)
