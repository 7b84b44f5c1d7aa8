"""The handlers of the API, a module per part.

Owns parsing, the service call and rendering; must not contain a rule of the log.
"""
