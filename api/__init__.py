"""The HTTP front end: parses requests, calls the service, renders answers.

Owns the HTTP interface; must not contain any rule of the log itself.
"""

__part_of__ = "duolog"
