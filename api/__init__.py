"""The HTTP front end: parses requests, calls the service, renders answers; must hold no rule of the
log itself.
"""
