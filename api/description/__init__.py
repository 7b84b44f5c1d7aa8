"""The descriptions of all calls of the API: parameters, bodies, answers and errors.

Owns the one source for the OpenAPI document, the page `/docs`, the check of query parameters and media types, and the
scope that a token needs; must not know how a call is handled.

To describe a route:

1. Write a `Doc` in the module of its part (`topics`, `produce`, `fetch`, ...), named like the handler, and
   name it in the route's row of `api/routes.py`.
2. Its query parameters are constants of `parameters`; the handler reads them by the same constant:
   `params = call.params()`, then `params[ACKS]` (it has a default) or `params.get(TIMEOUT)`.
   A parameter that the `Doc` does not list is rejected.
3. Bodies and answers are msgspec types by media type; `OCTETS` and `Lines` stand for bodies that are not one JSON
   value. The first media type of the first answer is the one for a client that accepts any type.
4. Each call has an `Example` or more; the tests execute them in a server with the topic `orders`, see `prepared`
   in `tests/http/test_openapi.py`. New path parameters go into `parameters.PATH` and `parameters.SAMPLES`, new
   error codes into `errors.MEANINGS`.
"""
