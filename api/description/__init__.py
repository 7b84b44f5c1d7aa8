"""What each call of the API takes and gives, told once: from here come the OpenAPI document, the page
`/docs`, the check of query parameters and media types, and the scope that a token needs.

How a route is described:

1. A `Doc` in the module of its part (`topics`, `produce`, `fetch`, ...), named like the handler, and
   named in the route's row of `api/routes.py`.
2. Its query parameters are constants of `parameters`; the handler reads them by the same constant:
   `params = call.params()`, then `params[ACKS]` (it has a default) or `params.get(TIMEOUT)`.
   A parameter that the `Doc` does not list is refused.
3. Bodies and answers are msgspec types by media type; `OCTETS` and `Lines` stand for what is not one JSON
   value. The first media type of the first answer is what a client gets that takes anything.
4. Each call has an `Example` or more; the tests execute them in a server with the topic `orders`, see `prepared`
   in `tests/api/test_openapi.py`. New path parameters go into `parameters.PATH` and `parameters.SAMPLES`, new
   error codes into `errors.MEANINGS`.
"""
