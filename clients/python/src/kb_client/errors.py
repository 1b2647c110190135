"""The errors of kb as exceptions, one for each kind of SQLSTATE."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from ._types import Failure


class KbError(Exception):
    """An error of kb or of PostgreSQL.

    `sqlstate` is the code that the server gave (None for an error of the connection or of this package),
    `detail` lists all problems of a configuration, and `hint` says what can be done. What psycopg raised is
    in `__cause__`.
    """

    def __init__(
        self, message: str, *, sqlstate: str | None = None, detail: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        parts = [self.message]
        if self.detail:
            parts.append(f"DETAIL: {self.detail}")
        if self.hint:
            parts.append(f"HINT: {self.hint}")
        return "\n".join(parts)


class InvalidArgument(KbError):
    """An argument, a filter or a configuration is invalid (22023, 22004)."""


class InvalidDocument(KbError):
    """A document has no usable text, or is of a type that kb does not read (22000, 0A000)."""


class TooLarge(KbError):
    """A document, a question or a request exceeds a limit (54000)."""


class NotFound(KbError):
    """The knowledge base or another object does not exist, or the tenant cannot see it (42704)."""


class AlreadyExists(KbError):
    """An object of this name exists (42710)."""


class InUse(KbError):
    """An object cannot be dropped, because something uses it (2BP01)."""


class PermissionDenied(KbError):
    """The knowledge base belongs to another tenant, or the role lacks a privilege (42501)."""


class InvalidState(KbError):
    """The operation is not possible now, such as waiting for one's own uncommitted work (55000)."""


class PreconditionFailed(KbError):
    """What was to be changed has changed since it was read: its etag is another one (KB412)."""


class ReadOnly(KbError):
    """The server is a standby, or the transaction is read-only (25006)."""


class Paused(KbError):
    """A budget or quota is used up, or a provider is paused (53400)."""


class ProviderUnavailable(KbError):
    """A provider or kb's gateway failed in a way that may pass (08006)."""


class ProviderFailed(KbError):
    """A model or provider failed in a way that will not pass (58000, 58030)."""


class TimedOut(KbError):
    """`wait` or `answer` was not done in time (55P03)."""


class ExtensionMissing(KbError):
    """The database has no kb, or one that lacks a function (3F000, 42883)."""


class ConnectionLost(KbError):
    """There is no connection to the server, or it broke. What a broken transaction did is undone."""


class ProcessingFailed(KbError):
    """Documents were stored, but kb could not process them. `failures` says which, and why."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        first = failures[0]
        message = f"{len(failures)} document(s) could not be processed; first {first.external_id!r}: {first.error}"
        super().__init__(message, sqlstate=first.sqlstate)
        self.failures = tuple(failures)


_BY_SQLSTATE: dict[str, type[KbError]] = {
    "08006": ProviderUnavailable,
    "0A000": InvalidDocument,
    "22000": InvalidDocument,
    "22004": InvalidArgument,
    "22023": InvalidArgument,
    "25006": ReadOnly,
    "2BP01": InUse,
    "3F000": ExtensionMissing,
    "42501": PermissionDenied,
    "42704": NotFound,
    "42710": AlreadyExists,
    "42883": ExtensionMissing,
    "53400": Paused,
    "54000": TooLarge,
    "55000": InvalidState,
    "55P03": TimedOut,
    "57P01": ConnectionLost,
    "57P02": ConnectionLost,
    "57P03": ConnectionLost,
    "58000": ProviderFailed,
    "58030": ProviderFailed,
    "KB412": PreconditionFailed,
}

_EXTENSION_HINT = (
    "CREATE EXTENSION kb CASCADE installs kb in this database; ALTER EXTENSION kb UPDATE brings it up to date."
)


def from_psycopg(error: psycopg.Error) -> KbError:
    """Return the exception for an error of psycopg."""
    sqlstate = error.sqlstate
    message = error.diag.message_primary or str(error)
    detail, hint = error.diag.message_detail, error.diag.message_hint
    if sqlstate is None:
        # libpq, or the pool, gives no code.
        kind = ConnectionLost if isinstance(error, psycopg.OperationalError) else KbError
    else:
        kind = _BY_SQLSTATE.get(sqlstate, KbError)
    if kind is ExtensionMissing:
        hint = _EXTENSION_HINT
    return kind(message, sqlstate=sqlstate, detail=detail, hint=hint)


@contextmanager
def translated() -> Generator[None]:
    """Raise the errors of psycopg in this block as those of kb."""
    try:
        yield
    except psycopg.Error as error:
        raise from_psycopg(error) from error
