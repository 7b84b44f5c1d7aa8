"""The operations of the API, a module per resource: types, parameters, documentation and handlers together.

`api.operation` says how an operation is declared; `api.app` collects them. A handler parses, calls the service and
renders; it must not contain a rule of the log.
"""
