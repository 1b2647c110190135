"""kb as a vector store, a retriever and embeddings of LangChain.

kb cuts and embeds documents itself, with the embedder of the knowledge base. It takes no vectors of the caller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables.config import run_in_executor
    from langchain_core.vectorstores import VectorStore
except ImportError as error:
    message = "kb_client.langchain needs LangChain: pip install 'kb-client[langchain]'"
    raise ImportError(message) from error
from pydantic import ConfigDict, model_validator

from . import Document as KbDocument
from ._async_knowledge_base import AsyncKnowledgeBase
from ._knowledge_base import KnowledgeBase
from ._types import Mode
from .errors import ProcessingFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ._types import Hit, StoredDocument

__all__ = ["KnowledgeBaseEmbeddings", "KnowledgeBaseRetriever", "KnowledgeBaseVectorStore"]


class KnowledgeBaseEmbeddings(Embeddings):
    """The embedder of a knowledge base, on the server. Vectors are those that kb itself makes."""

    def __init__(self, kb: KnowledgeBase, async_kb: AsyncKnowledgeBase | None = None) -> None:
        self._kb = kb
        self._async_kb = async_kb

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts."""
        return self._kb.embed(texts)

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question."""
        return self._kb.embed([text], kind="query")[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the vectors of texts."""
        if self._async_kb is None:
            return await run_in_executor(None, self.embed_documents, texts)
        return await self._async_kb.embed(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """Return the vector of a question."""
        if self._async_kb is None:
            return await run_in_executor(None, self.embed_query, text)
        return (await self._async_kb.embed([text], kind="query"))[0]


class KnowledgeBaseVectorStore(VectorStore):
    """A knowledge base as a vector store. The id of a document is its external_id.

    With `async_kb`, the asynchronous methods use that; otherwise they run `kb` in threads.

    kb processes documents in the background. With `wait`, the methods that add them return when they can be found
    (at most `wait_timeout` seconds later, else `TimedOut`), and raise `ProcessingFailed` if some cannot.
    On a connection in a transaction of your own, say `wait=False`, commit, and call `kb.wait`.

    A text that is longer than the chunks of the knowledge base is cut into several, and a search may return more
    than one of them, each as a document with the same id. `content_type` says what the texts are;
    None lets kb find out.

    `filter` and further keyword arguments of a search (`min_score`, `mode`, `options`, `max_tokens`, `also`) are
    those of `KnowledgeBase.query`.
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        *,
        async_kb: AsyncKnowledgeBase | None = None,
        embedding: Embeddings | None = None,
        wait: bool = True,
        wait_timeout: float | None = None,
        content_type: str | None = "text/plain",
    ) -> None:
        _refuse_vectors(embedding)
        self.kb = kb
        self.async_kb = async_kb
        self._wait = wait
        self._wait_timeout = wait_timeout
        self._content_type = content_type
        self._embeddings = KnowledgeBaseEmbeddings(kb, async_kb)

    @property
    def embeddings(self) -> Embeddings:
        """The embedder of the knowledge base."""
        return self._embeddings

    # Documents.

    def add_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        """Add documents, either all or none, or replace those of the same ids. Return the ids.

        The ids are those of the argument `ids`, or else of the documents, or else new ones.
        """
        puts = self._to_put(documents, kwargs.get("ids"))
        self.kb.put_many(puts)
        ids = [put.external_id for put in puts]
        if self._wait and ids:
            self.kb.wait(self._wait_timeout)
            if failures := self.kb.failures(ids):
                raise ProcessingFailed(failures)
        return ids

    async def aadd_documents(self, documents: list[Document], **kwargs: Any) -> list[str]:
        """Add documents, either all or none, or replace those of the same ids. Return the ids."""
        if self.async_kb is None:
            return await run_in_executor(None, self.add_documents, documents, **kwargs)
        puts = self._to_put(documents, kwargs.get("ids"))
        await self.async_kb.put_many(puts)
        ids = [put.external_id for put in puts]
        if self._wait and ids:
            await self.async_kb.wait(self._wait_timeout)
            if failures := await self.async_kb.failures(ids):
                raise ProcessingFailed(failures)
        return ids

    def _to_put(self, documents: Iterable[Document], ids: Sequence[str | None] | None) -> list[KbDocument]:
        documents = list(documents)
        given = [document.id for document in documents] if ids is None else list(ids)
        if len(given) != len(documents):
            message = f"there are {len(given)} ids for {len(documents)} documents"
            raise ValueError(message)
        return [
            KbDocument(
                external_id=external_id or str(uuid4()),
                content=document.page_content,
                metadata=document.metadata,
                content_type=self._content_type,
            )
            for document, external_id in zip(documents, given, strict=True)
        ]

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents that exist, each with its whole text."""
        return [_whole(document) for document in self.kb.get(ids)]

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return the documents that exist, each with its whole text."""
        if self.async_kb is None:
            return await run_in_executor(None, self.get_by_ids, ids)
        return [_whole(document) for document in await self.async_kb.get(ids)]

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool | None:
        """Delete documents, or all if `ids` is None. Ids that do not exist are no error.

        With `filter`, the documents that pass it are deleted instead.
        """
        if (filter_ := kwargs.get("filter")) is not None:
            _only_one(ids)
            self.kb.delete_where(filter_)
        elif ids is None:
            self.kb.clear()
        else:
            self.kb.delete_many(ids)
        return True

    async def adelete(self, ids: list[str] | None = None, **kwargs: Any) -> bool | None:
        """Delete documents, or all if `ids` is None. Ids that do not exist are no error."""
        if self.async_kb is None:
            return await run_in_executor(None, self.delete, ids, **kwargs)
        if (filter_ := kwargs.get("filter")) is not None:
            _only_one(ids)
            await self.async_kb.delete_where(filter_)
        elif ids is None:
            await self.async_kb.clear()
        else:
            await self.async_kb.delete_many(ids)
        return True

    # Searches. Each has one line that asks, synchronously or not.

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the passages that answer a question, best first."""
        return [_document(hit) for hit in self.kb.query(query, top_k=k, **kwargs)]

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the passages that answer a question, best first."""
        return [document for document, _ in await self.asimilarity_search_with_score(query, k, **kwargs)]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[tuple[Document, float]]:
        """Return passages with what they are ordered by: the larger, the better.

        In mode `dense` without a reranker, that is the similarity. Rows that a reranker did not read have 0.
        """
        return [(_document(hit), hit.rank_score or 0.0) for hit in self.kb.query(query, top_k=k, **kwargs)]

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Return passages with what they are ordered by: the larger, the better."""
        if self.async_kb is None:
            return await run_in_executor(None, self.similarity_search_with_score, query, k, **kwargs)
        hits = await self.async_kb.query(query, top_k=k, **kwargs)
        return [(_document(hit), hit.rank_score or 0.0) for hit in hits]

    def _similarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        return _relevant(self.kb.query(query, top_k=k, **_by_meaning(kwargs)))

    async def _asimilarity_search_with_relevance_scores(
        self, query: str, k: int = 4, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        if self.async_kb is None:
            return await run_in_executor(None, self._similarity_search_with_relevance_scores, query, k, **kwargs)
        return _relevant(await self.async_kb.query(query, top_k=k, **_by_meaning(kwargs)))

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the passages that are nearest to a vector of the knowledge base's embedder."""
        return [_document(hit) for hit in self.kb.query_vector(embedding, top_k=k, **kwargs)]

    async def asimilarity_search_by_vector(self, embedding: list[float], k: int = 4, **kwargs: Any) -> list[Document]:
        """Return the passages that are nearest to a vector of the knowledge base's embedder."""
        if self.async_kb is None:
            return await run_in_executor(None, self.similarity_search_by_vector, embedding, k, **kwargs)
        return [_document(hit) for hit in await self.async_kb.query_vector(embedding, top_k=k, **kwargs)]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return passages that answer a question and differ from each other.

        kb orders the first 1,000 candidates this way, whatever `fetch_k` is.
        """
        return self.similarity_search(query, k, **_diverse(lambda_mult, kwargs))

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return passages that answer a question and differ from each other."""
        return await self.asimilarity_search(query, k, **_diverse(lambda_mult, kwargs))

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return passages that are near a vector and differ from each other."""
        return self.similarity_search_by_vector(embedding, k, **_diverse(lambda_mult, kwargs))

    async def amax_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Return passages that are near a vector and differ from each other."""
        return await self.asimilarity_search_by_vector(embedding, k, **_diverse(lambda_mult, kwargs))

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return float

    # Makers.

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Make a store and add texts to it. The other arguments, `kb` at least, are those of the class.

        `embedding` must be None or `KnowledgeBaseEmbeddings`.
        """
        store = cls(embedding=embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None = None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Make a store and add texts to it."""
        store = cls(embedding=embedding, **kwargs)
        await store.aadd_texts(texts, metadatas, ids=ids)
        return store


def _refuse_vectors(embedding: Embeddings | None) -> None:
    if embedding is not None and not isinstance(embedding, KnowledgeBaseEmbeddings):
        message = (
            "kb embeds documents itself and does not take vectors of the caller's yet: leave out `embedding`, and "
            "create the knowledge base with the embedder that you want"
        )
        raise NotImplementedError(message)


def _only_one(ids: list[str] | None) -> None:
    if ids is not None:
        message = "delete takes ids or a filter, not both"
        raise ValueError(message)


def _whole(document: StoredDocument) -> Document:
    return Document(id=document.external_id, page_content=document.content or "", metadata=document.metadata)


def _document(hit: Hit) -> Document:
    return Document(id=hit.external_id, page_content=hit.content, metadata=hit.metadata)


def _relevant(hits: list[Hit]) -> list[tuple[Document, float]]:
    return [(_document(hit), hit.score) for hit in hits if hit.score is not None]


def _by_meaning(arguments: dict[str, Any]) -> dict[str, Any]:
    """A row that was found by words only has no similarity."""
    return {"mode": "dense", **arguments}


def _diverse(lambda_mult: float, arguments: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {"mmr": {"lambda": lambda_mult}, **(arguments.get("options") or {})}
    return {**arguments, "options": options}


class KnowledgeBaseRetriever(BaseRetriever):
    """A knowledge base as a retriever.

    The metadata of each document has that of the document in kb, and under `kb` what a citation needs: external_id,
    title, chunk_id, rank, scores, locator (headings, page …) and whether the passage is stale.

    Every setting can be given in a call, too: `retriever.invoke("…", k=3, filter={"site": "Oslo"})`.
    """

    kb: KnowledgeBase | None = None
    """The knowledge base, for synchronous calls."""
    async_kb: AsyncKnowledgeBase | None = None
    """The same for asynchronous ones. Without it, these run `kb` in threads."""
    k: int | None = None
    """How many passages to return. None: as many as the knowledge base's settings say."""
    filter: dict[str, Any] | None = None
    min_score: float | None = None
    max_tokens: int | None = None
    mode: Mode | None = None
    options: dict[str, Any] | None = None
    also: tuple[str, ...] = ()
    """Further knowledge bases to ask."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    @model_validator(mode="after")
    def _needs_one(self) -> Self:
        if self.kb is None and self.async_kb is None:
            message = "a retriever needs kb, async_kb or both"
            raise ValueError(message)
        return self

    def _arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "top_k": self.k,
            "filter": self.filter,
            "min_score": self.min_score,
            "max_tokens": self.max_tokens,
            "mode": self.mode,
            "options": self.options,
            "also": self.also,
        }
        if "k" in given:
            given = {"top_k": given.pop("k"), **given}
        return arguments | given

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        if self.kb is None:
            message = "this retriever has no kb for synchronous calls, only async_kb"
            raise NotImplementedError(message)
        return [_cited(hit) for hit in self.kb.query(query, **self._arguments(kwargs))]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **kwargs: Any
    ) -> list[Document]:
        if self.async_kb is None:
            return await run_in_executor(
                None, self._get_relevant_documents, query, run_manager=run_manager.get_sync(), **kwargs
            )
        return [_cited(hit) for hit in await self.async_kb.query(query, **self._arguments(kwargs))]


def _cited(hit: Hit) -> Document:
    about = {
        "kb_id": hit.kb_id,
        "external_id": hit.external_id,
        "title": hit.title,
        "chunk_id": str(hit.chunk_id),
        "rank": hit.rank,
        "score": hit.score,
        "rank_score": hit.rank_score,
        "locator": hit.locator,
        "stale": hit.stale,
    }
    return Document(id=str(hit.chunk_id), page_content=hit.content, metadata={**hit.metadata, "kb": about})
