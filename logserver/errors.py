"""Errors of the service in front of a store; they join the storage tree, so that one table maps
both to HTTP.

Owns the classes only; must not know HTTP or click.

    StorageError
      ServiceError     Busy NotReady TimedOut SettingsError CannotListen
"""

from __future__ import annotations

from storage import StorageError


class ServiceError(StorageError):
    """Root of what the service itself refuses or fails at."""

    code = "service-error"


class Busy(ServiceError):
    """Too much is in flight; nothing was stored. Facts: in_flight_bytes, limit_bytes (where it is
    bytes that are too many).
    """

    code = "busy"


class NotReady(ServiceError):
    """The store is not open: starting, recovering or stopping. Facts: state, and progress while
    recovering.
    """

    code = "not-ready"


class TimedOut(ServiceError):
    """The write was not confirmed in time: it may be stored or not. Facts: timeout_ms."""

    code = "timed-out"


class SettingsError(ServiceError):
    """A setting is unknown or has a bad value. Facts: setting, source (flag, environment, file or
    default).
    """

    code = "settings-error"


class CannotListen(ServiceError):
    """The address cannot be bound: in use, not ours, not allowed. Facts: listen, errno."""

    code = "cannot-listen"
