"""One process that owns one store: settings, the asynchronous service, upkeep and the command line.

This module must import nothing: it is loaded by every offline command and by each worker of a distributed job.
What programs want of it, `LogServer` and `LogClient`, is imported when it is asked for.
"""

__version__ = "0.1.0"
__all__ = ["LogClient", "LogServer"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logserver.client import LogClient
    from logserver.embedding import LogServer


def __getattr__(name: str) -> object:
    """The two doors, each imported when it is used."""
    if name == "LogServer":
        from logserver.embedding import LogServer

        return LogServer
    if name == "LogClient":
        from logserver.client import LogClient

        return LogClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
