"""One process that owns one store: settings, the asynchronous service, upkeep and the command line.

This module must import nothing: every offline command and each worker of a distributed job loads it. `LogServer` and
`LogClient`, the classes that programs use, are imported on first use.
"""

__version__ = "0.2.0"
__all__ = ["LogClient", "LogServer"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from logserver.client import LogClient
    from logserver.embedding import LogServer


def __getattr__(name: str) -> object:
    """Import and return `LogServer` or `LogClient` when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from logserver.origins import misplaced_package

    problem = misplaced_package(("storage",))
    if problem is not None:
        raise ImportError(problem, name="storage")
    if name == "LogServer":
        from logserver.embedding import LogServer

        return LogServer
    from logserver.client import LogClient

    return LogClient
