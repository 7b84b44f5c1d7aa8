"""One process that owns one store: settings, the asynchronous service, upkeep and the command line.

This module must import nothing: it is loaded by every offline command and by each worker of a distributed job.
"""

__version__ = "0.1.0"
