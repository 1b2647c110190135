"""Where statements run: on connections of a pool, or on the caller's own connection.

A connection of a pool is used for one transaction. On the caller's own connection, statements join the
transaction that it has, or begin one if it is not in autocommit mode: they never commit what is the caller's.
The tenant is set for the transaction only, so that a proxy that assigns connections for one transaction at a
time (PgBouncer) can stand between; in a transaction of the caller's, the former tenant is set again.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg.types.json import JsonbBinaryLoader, JsonbLoader
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from ._statements import checked
from .errors import translated

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable

    from ._statements import Statement, T

Row: TypeAlias = dict[str, Any]
Connection: TypeAlias = "str | psycopg.Connection[Any] | ConnectionPool[Any]"
AsyncConnection: TypeAlias = "str | psycopg.AsyncConnection[Any] | AsyncConnectionPool[Any]"

_SET_TENANT = "SELECT set_config('kb.tenant', %s, true)"
_GET_TENANT = "SELECT coalesce(current_setting('kb.tenant', true), '') AS tenant"

# Prepared statements would be lost behind a proxy that assigns connections for one transaction at a time.
_POOLED = {"autocommit": True, "prepare_threshold": None}

# Who uses one connection from several threads or tasks takes turns: a transaction belongs to one of them.
_locks: WeakKeyDictionary[psycopg.Connection[Any], threading.RLock] = WeakKeyDictionary()
_async_locks: WeakKeyDictionary[psycopg.AsyncConnection[Any], asyncio.Lock] = WeakKeyDictionary()
_locks_lock = threading.Lock()


def _lock_of(connection: psycopg.Connection[Any]) -> threading.RLock:
    with _locks_lock:
        return _locks.setdefault(connection, threading.RLock())


def _async_lock_of(connection: psycopg.AsyncConnection[Any]) -> asyncio.Lock:
    with _locks_lock:
        return _async_locks.setdefault(connection, asyncio.Lock())


def _status(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> TransactionStatus:
    return connection.info.transaction_status


def _read_json(cursor: psycopg.Cursor[Row] | psycopg.AsyncCursor[Row]) -> None:
    # Frameworks register loaders of their own on their connections.
    cursor.adapters.register_loader("jsonb", JsonbLoader)
    cursor.adapters.register_loader("jsonb", JsonbBinaryLoader)


class Sessions:
    """Runs statements on a connection, or on those of a pool."""

    def __init__(self, source: Connection, tenant: str | None, max_connections: int, timeout: float) -> None:
        self._tenant = None if tenant is None else checked("tenant", tenant)
        self._owned: ConnectionPool[Any] | None = None
        self._pool: ConnectionPool[Any] | None = None
        self._connection: psycopg.Connection[Any] | None = None
        if isinstance(source, str):
            with translated():
                # Says at once, in the server's words, why nobody can connect. A pool would only wait.
                psycopg.connect(source).close()
                self._owned = self._pool = ConnectionPool(
                    source,
                    kwargs=_POOLED,
                    min_size=0,
                    max_size=max_connections,
                    timeout=timeout,
                    check=ConnectionPool.check_connection,
                    open=True,
                )
        elif isinstance(source, psycopg.Connection):
            self._connection = source
        else:
            self._pool = source

    def run(self, statement: Statement[T]) -> list[T]:
        """Run a statement and return its rows."""
        with self._cursor(atomic=False) as cursor:
            return _rows(cursor, statement)

    def run_all(self, statements: Iterable[Statement[T]]) -> list[T]:
        """Run statements in one transaction and return all of their rows."""
        rows: list[T] = []
        with self._cursor(atomic=True) as cursor:
            for statement in statements:
                rows += _rows(cursor, statement)
        return rows

    @contextmanager
    def _cursor(self, *, atomic: bool) -> Generator[psycopg.Cursor[Row]]:
        with translated(), ExitStack() as stack:
            if self._connection is not None:
                connection = self._connection
                stack.enter_context(_lock_of(connection))
                is_callers = not connection.autocommit or _status(connection) != TransactionStatus.IDLE
            else:
                assert self._pool is not None  # noqa: S101 (one of the two is there)
                connection = stack.enter_context(self._pool.connection())
                is_callers = False
            cursor = stack.enter_context(psycopg.Cursor(connection, row_factory=dict_row))
            _read_json(cursor)
            if is_callers:
                stack.enter_context(self._tenant_for_a_while(cursor))
            elif atomic or self._tenant is not None:
                stack.enter_context(connection.transaction())
                if self._tenant is not None:
                    cursor.execute(_SET_TENANT, [self._tenant])
            yield cursor

    @contextmanager
    def _tenant_for_a_while(self, cursor: psycopg.Cursor[Row]) -> Generator[None]:
        if self._tenant is None:
            yield
            return
        before = cursor.execute(_GET_TENANT).fetchall()[0]["tenant"]
        cursor.execute(_SET_TENANT, [self._tenant])
        try:
            yield
        finally:
            # A transaction that failed takes the setting with it.
            if _status(cursor.connection) == TransactionStatus.INTRANS:
                cursor.execute(_SET_TENANT, [before])

    def close(self) -> None:
        """Close the connections that this object has opened."""
        if self._owned is not None:
            self._owned.close()


def _rows(cursor: psycopg.Cursor[Row], statement: Statement[T]) -> list[T]:
    cursor.execute(statement.text, statement.values)
    return [statement.read(row) for row in cursor.fetchall()]


class AsyncSessions:
    """The same for asyncio."""

    def __init__(self, source: AsyncConnection, tenant: str | None, max_connections: int, timeout: float) -> None:
        self._tenant = None if tenant is None else checked("tenant", tenant)
        self._owned: AsyncConnectionPool[Any] | None = None
        self._pool: AsyncConnectionPool[Any] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._conninfo = ""
        self._opening = asyncio.Lock()
        self._is_open = False
        if isinstance(source, str):
            self._conninfo = source
            with translated():
                self._owned = self._pool = AsyncConnectionPool(
                    source,
                    kwargs=_POOLED,
                    min_size=0,
                    max_size=max_connections,
                    timeout=timeout,
                    check=AsyncConnectionPool.check_connection,
                    open=False,
                )
        elif isinstance(source, psycopg.AsyncConnection):
            self._connection = source
        else:
            self._pool = source

    async def open(self) -> None:
        """Connect, if that is this object's to do and it has not."""
        if self._owned is None:
            return
        async with self._opening:
            if not self._is_open:
                with translated():
                    await (await psycopg.AsyncConnection.connect(self._conninfo)).close()
                    await self._owned.open()
                self._is_open = True

    async def run(self, statement: Statement[T]) -> list[T]:
        """Run a statement and return its rows."""
        async with self._cursor(atomic=False) as cursor:
            return await _async_rows(cursor, statement)

    async def run_all(self, statements: Iterable[Statement[T]]) -> list[T]:
        """Run statements in one transaction and return all of their rows."""
        rows: list[T] = []
        async with self._cursor(atomic=True) as cursor:
            for statement in statements:
                rows += await _async_rows(cursor, statement)
        return rows

    @asynccontextmanager
    async def _cursor(self, *, atomic: bool) -> AsyncGenerator[psycopg.AsyncCursor[Row]]:
        await self.open()
        async with AsyncExitStack() as stack:
            stack.enter_context(translated())
            if self._connection is not None:
                connection = self._connection
                await stack.enter_async_context(_async_lock_of(connection))
                is_callers = not connection.autocommit or _status(connection) != TransactionStatus.IDLE
            else:
                assert self._pool is not None  # noqa: S101 (one of the two is there)
                connection = await stack.enter_async_context(self._pool.connection())
                is_callers = False
            cursor = await stack.enter_async_context(psycopg.AsyncCursor(connection, row_factory=dict_row))
            _read_json(cursor)
            if is_callers:
                await stack.enter_async_context(self._tenant_for_a_while(cursor))
            elif atomic or self._tenant is not None:
                await stack.enter_async_context(connection.transaction())
                if self._tenant is not None:
                    await cursor.execute(_SET_TENANT, [self._tenant])
            yield cursor

    @asynccontextmanager
    async def _tenant_for_a_while(self, cursor: psycopg.AsyncCursor[Row]) -> AsyncGenerator[None]:
        if self._tenant is None:
            yield
            return
        await cursor.execute(_GET_TENANT)
        before = (await cursor.fetchall())[0]["tenant"]
        await cursor.execute(_SET_TENANT, [self._tenant])
        try:
            yield
        finally:
            if _status(cursor.connection) == TransactionStatus.INTRANS:
                await cursor.execute(_SET_TENANT, [before])

    async def close(self) -> None:
        """Close the connections that this object has opened."""
        if self._owned is not None:
            await self._owned.close()


async def _async_rows(cursor: psycopg.AsyncCursor[Row], statement: Statement[T]) -> list[T]:
    await cursor.execute(statement.text, statement.values)
    return [statement.read(row) for row in await cursor.fetchall()]
