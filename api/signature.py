"""What every answer carries, whoever gives it: the request's id and the server's name.

Owns these two headers; must not know what is answered.
"""

from __future__ import annotations

import itertools
import re
import secrets
from typing import Final

from aiohttp import web

REQUEST_ID: Final = "X-Request-Id"
SERVER: Final = "logserver"
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
