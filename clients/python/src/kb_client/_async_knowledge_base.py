"""A knowledge base, as programs with asyncio use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from . import _statements as statements
from ._sessions import AsyncSessions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Sequence
    from types import TracebackType

    import psycopg

    from ._sessions import AsyncConnection
    from ._types import Answer, Context, Document, Failure, Format, Hit, Mode, Object, Stored, StoredDocument


class AsyncKnowledgeBase:
    """A knowledge base of kb, by its id.

    `connection` is where it is: a connection string (this object then opens up to `max_connections`
    connections when it needs them, waits at most `timeout` seconds for one, and closes them in `close`), a
    `psycopg_pool.AsyncConnectionPool`, or a `psycopg.AsyncConnection`. On a connection of yours, statements join your
    transaction and are committed and rolled back with it; if the connection is not in autocommit mode, they begin
    one, as all statements do.

    `tenant` sets `kb.tenant` for each of this object's transactions, and never beyond. None leaves the setting
    as it is on the connection.

    Tasks of one event loop may share an object. With a single connection, they take turns.
    """

    def __init__(
        self,
        kb_id: str,
        connection: AsyncConnection,
        *,
        tenant: str | None = None,
        max_connections: int = 4,
        timeout: float = 30,
    ) -> None:
        self.kb_id = statements.checked("kb_id", kb_id)
        self.tenant = tenant
        self._sessions = AsyncSessions(connection, tenant, max_connections, timeout)

    def using(self, connection: psycopg.AsyncConnection[Any]) -> AsyncKnowledgeBase:
        """Return the same knowledge base on a connection of yours, for example to join its transaction."""
        return AsyncKnowledgeBase(self.kb_id, connection, tenant=self.tenant)

    async def close(self) -> None:
        """Close the connections that this object has opened; none that were given to it."""
        await self._sessions.close()

    async def __aenter__(self) -> Self:
        await self._sessions.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.kb_id!r}, tenant={self.tenant!r})"

    # The knowledge base itself.

    async def create(
        self,
        *,
        embedder: str | None = None,
        vector_db: str | None = None,
        description: str | None = None,
        chunking: Object | None = None,
        preprocess: Object | None = None,
        retrieval: Object | None = None,
        metadata: Object | None = None,
        exist_ok: bool = False,
    ) -> Self:
        """Create the knowledge base. With `exist_ok`, one that exists is left as it is."""
        settings: dict[str, Any] = {
            "embedder": embedder,
            "vector_db": vector_db,
            "description": description,
            "chunking": chunking,
            "preprocess": preprocess,
            "retrieval": retrieval,
            "metadata": metadata,
        }
        await self._sessions.run(statements.create(self.kb_id, exist_ok, settings))
        return self

    async def drop(self) -> None:
        """Drop the knowledge base with all that it has."""
        await self._sessions.run(statements.drop(self.kb_id))

    # Documents.

    async def put(
        self,
        external_id: str,
        content: str | bytes,
        *,
        metadata: Object | None = None,
        title: str | None = None,
        content_type: str | None = None,
        uri: str | None = None,
        chunking: Object | None = None,
    ) -> str:
        """Store a document: text, or bytes that are text in UTF-8. Return `added`, `updated` or `skipped`.

        It can be found once it is committed and processed: see `wait`.
        """
        statement = statements.put(self.kb_id, external_id, content, metadata, title, content_type, uri, chunking)
        return (await self._sessions.run(statement))[0]

    async def put_file(
        self,
        external_id: str,
        data: bytes,
        *,
        filename: str | None = None,
        metadata: Object | None = None,
        title: str | None = None,
        content_type: str | None = None,
        uri: str | None = None,
        chunking: Object | None = None,
    ) -> str:
        """Store a file of any format that kb reads, such as PDF. Return `added`, `updated` or `skipped`."""
        statement = statements.put_file(
            self.kb_id, external_id, data, filename, metadata, title, content_type, uri, chunking
        )
        return (await self._sessions.run(statement))[0]

    async def put_many(self, documents: Iterable[Document | Object]) -> list[Stored]:
        """Store documents, either all or none, in one transaction. Their number is not limited."""
        return await self._sessions.run_all(statements.put_many(self.kb_id, documents))

    async def get(self, external_ids: Sequence[str]) -> list[StoredDocument]:
        """Return the documents that exist, in the order of their ids."""
        return await self._sessions.run(statements.get(self.kb_id, external_ids))

    async def documents(self, *, page_size: int = 500) -> AsyncIterator[StoredDocument]:
        """Return all documents in the order of their ids. They are read in pages."""
        after: str | None = None
        while page := await self._sessions.run(statements.page(self.kb_id, after, page_size)):
            for document in page:
                yield document
            after = page[-1].external_id

    async def delete(self, external_id: str) -> bool:
        """Delete a document. Return whether it existed."""
        return (await self._sessions.run(statements.delete(self.kb_id, external_id)))[0]

    async def delete_many(self, external_ids: Sequence[str]) -> list[Stored]:
        """Delete documents. Return `deleted` or `not found` for each."""
        return await self._sessions.run(statements.delete_many(self.kb_id, external_ids))

    async def delete_where(self, filter: Object) -> int:
        """Delete the documents that pass a filter. Return their number."""
        return (await self._sessions.run(statements.delete_where(self.kb_id, filter)))[0]

    async def clear(self) -> int:
        """Delete all documents that were put; those of sources and attached tables stay. Return their number."""
        return (await self._sessions.run(statements.clear(self.kb_id)))[0]

    async def failures(self, external_ids: Sequence[str] | None = None) -> list[Failure]:
        """Return the documents that could not be processed, of all or of these, the latest first."""
        return await self._sessions.run(statements.failures(self.kb_id, external_ids))

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until all that is committed is processed, at most `timeout` seconds (`TimedOut`).

        In a transaction that has put documents and not committed them, this raises `InvalidState`.
        """
        await self._sessions.run(statements.wait(self.kb_id, timeout))

    # Questions.

    async def query(
        self,
        question: str,
        *,
        top_k: int | None = None,
        min_score: float | None = None,
        filter: Object | None = None,
        max_tokens: int | None = None,
        mode: Mode | None = None,
        options: Object | None = None,
        also: Sequence[str] = (),
    ) -> list[Hit]:
        """Return the passages that answer a question, best first. `also` names further knowledge bases to ask."""
        limits = statements.limits(top_k, min_score, filter, max_tokens, mode, options)
        return await self._sessions.run(statements.query(self.kb_id, also, question, limits))

    async def query_vector(
        self,
        vector: Iterable[float],
        *,
        top_k: int | None = None,
        min_score: float | None = None,
        filter: Object | None = None,
        max_tokens: int | None = None,
        options: Object | None = None,
    ) -> list[Hit]:
        """Return the passages whose vectors are nearest to one of the same embedder, best first."""
        limits = statements.limits(top_k, min_score, filter, max_tokens, None, options)
        return await self._sessions.run(statements.query_vector(self.kb_id, vector, limits))

    async def context(
        self,
        question: str,
        *,
        max_tokens: int | None = None,
        format: Format = "markdown",
        top_k: int | None = None,
        min_score: float | None = None,
        filter: Object | None = None,
        mode: Mode | None = None,
        options: Object | None = None,
        also: Sequence[str] = (),
    ) -> Context:
        """Return what answers a question as one text for a prompt, of at most `max_tokens` tokens."""
        limits = statements.limits(top_k, min_score, filter, max_tokens, mode, options)
        return (await self._sessions.run(statements.context(self.kb_id, also, question, format, limits)))[0]

    async def answer(
        self,
        question: str,
        llm: str,
        *,
        conversation: str | None = None,
        memory: str | None = None,
        max_tokens: int | None = None,
        options: Object | None = None,
        also: Sequence[str] = (),
    ) -> Answer:
        """Have a chat model of kb answer a question from what the knowledge base has, and cite it."""
        statement = statements.answer(self.kb_id, also, question, llm, conversation, memory, max_tokens, options)
        return (await self._sessions.run(statement))[0]

    async def embed(self, texts: Sequence[str], *, kind: str = "document") -> list[list[float]]:
        """Return the vectors that the knowledge base's embedder makes of texts, or of questions (`kind="query"`)."""
        return await self._sessions.run(statements.embed(self.kb_id, texts, kind))
