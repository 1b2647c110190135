"""kb as a vector store and a retriever of LlamaIndex.

kb embeds nodes and questions itself, with the embedder of the knowledge base: a node's own `embedding` is not
used, and a question needs its text (`query_str`), or a vector that the same embedder made. Give an index, which
wants an embedding model, the one that does nothing: `VectorStoreIndex.from_vector_store(store,
embed_model=ServerSideEmbedding())`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        FilterCondition,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import (
        build_metadata_filter_fn,
        metadata_dict_to_node,  # pyright: ignore[reportUnknownVariableType] (not typed there)
        node_to_metadata_dict,
    )
except ImportError as error:
    message = "kb_client.llama_index needs LlamaIndex: pip install 'kb-client[llama-index]'"
    raise ImportError(message) from error
from pydantic import PrivateAttr

from . import Document
from ._async_knowledge_base import AsyncKnowledgeBase
from ._knowledge_base import KnowledgeBase
from .errors import ProcessingFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._types import Hit, Mode, StoredDocument

__all__ = ["KnowledgeBaseRetriever", "KnowledgeBaseVectorStore", "ServerSideEmbedding", "to_kb_filter"]


class ServerSideEmbedding(BaseEmbedding):
    """The embedding model of an index whose store embeds by itself: it makes empty vectors, at no cost."""

    model_name: str = "kb"

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex serializes this class."""
        return "KbServerSideEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return []

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return []

    def _get_text_embedding(self, text: str) -> list[float]:
        return []

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return []


# ----------------------------------------------------------------------------------------------- filters

_OPERATORS = {
    FilterOperator.EQ: "eq",
    FilterOperator.NE: "ne",
    FilterOperator.GT: "gt",
    FilterOperator.GTE: "gte",
    FilterOperator.LT: "lt",
    FilterOperator.LTE: "lte",
    FilterOperator.IN: "in",
    FilterOperator.NIN: "nin",
    FilterOperator.CONTAINS: "contains",
    FilterOperator.ALL: "contains",
}


def to_kb_filter(filters: MetadataFilters) -> dict[str, Any]:
    """Return the filter of kb that says the same."""
    parts = [to_kb_filter(part) if isinstance(part, MetadataFilters) else _of_a_key(part) for part in filters.filters]
    condition = filters.condition or FilterCondition.AND
    if condition == FilterCondition.OR:
        return {"type": "or", "filters": parts}
    if condition == FilterCondition.NOT:
        return {"type": "not", "filter": {"type": "or", "filters": parts}}
    return {"type": "and", "filters": parts}


def _of_a_key(part: MetadataFilter) -> dict[str, Any]:
    # A key that begins with $ is a field of the document in kb's filters; with two of them, it is a key.
    key = "$" + part.key if part.key.startswith("$") else part.key
    if part.operator == FilterOperator.ANY:
        values = part.value if isinstance(part.value, list) else [part.value]
        return {"type": "or", "filters": [{"type": "contains", "key": key, "value": value} for value in values]}
    if part.operator == FilterOperator.IS_EMPTY:
        nothing: list[Any] = [None, "", []]
        empty = [{"type": "eq", "key": key, "value": value} for value in nothing]
        return {"type": "or", "filters": [{"type": "exists", "key": key, "value": False}, *empty]}
    if part.operator not in _OPERATORS:
        message = (
            f"kb's filters have no operator {part.operator.value!r}: search by words with mode='text_search' instead"
        )
        raise NotImplementedError(message)
    return {"type": _OPERATORS[part.operator], "key": key, "value": part.value}


def _all_of(parts: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    given = [part for part in parts if part is not None]
    if len(given) > 1:
        return {"type": "and", "filters": given}
    return given[0] if given else None


def _one_of(key: str, values: Sequence[str] | None) -> dict[str, Any] | None:
    return None if values is None else {"type": "in", "key": key, "value": list(values)}


def _filter(
    node_ids: Sequence[str] | None, ref_doc_ids: Sequence[str] | None, filters: MetadataFilters | None
) -> dict[str, Any] | None:
    own = to_kb_filter(filters) if filters is not None and filters.filters else None
    return _all_of([_one_of("$external_id", node_ids), _one_of("ref_doc_id", ref_doc_ids), own])


def _parts_of(ref_doc_id: str) -> dict[str, Any]:
    return {"type": "eq", "key": "ref_doc_id", "value": ref_doc_id}


def _passes(filters: MetadataFilters | None, document: StoredDocument) -> bool:
    """Whether a document passes filters, as LlamaIndex itself sees it."""
    if filters is None or not filters.filters:
        return True
    parts = [
        _passes(part, document) if isinstance(part, MetadataFilters) else _has(part, document)
        for part in filters.filters
    ]
    condition = filters.condition or FilterCondition.AND
    if condition == FilterCondition.OR:
        return any(parts)
    if condition == FilterCondition.NOT:
        return not any(parts)
    return all(parts)


def _has(part: MetadataFilter, document: StoredDocument) -> bool:
    try:
        return build_metadata_filter_fn(lambda _: document.metadata, MetadataFilters(filters=[part]))("")
    except TypeError:
        # A value of another type is not comparable.
        return False


# ------------------------------------------------------------------------------------------------- nodes


def _to_put(node: BaseNode) -> Document:
    return Document(
        external_id=node.node_id,
        content=node.get_content(metadata_mode=MetadataMode.NONE),
        metadata=node_to_metadata_dict(node, remove_text=True, flat_metadata=False),
        content_type="text/plain",
    )


def _to_node(metadata: dict[str, Any], node_id: str, content: str) -> BaseNode:
    """The node that was added; for a document that came another way, a node that says where it is from."""
    if "_node_content" in metadata:
        return metadata_dict_to_node(metadata, text=content)
    return TextNode(id_=node_id, text=content, metadata=metadata)


def _of_document(document: StoredDocument) -> BaseNode:
    return _to_node(document.metadata, document.external_id, document.content or "")


def _of_hit(hit: Hit) -> BaseNode:
    about = {"kb_id": hit.kb_id, "external_id": hit.external_id, "title": hit.title, "locator": hit.locator}
    if "_node_content" in hit.metadata:
        return _to_node(hit.metadata, hit.external_id, hit.content)
    return _to_node({**hit.metadata, "kb": about}, str(hit.chunk_id), hit.content)


def _score(hit: Hit) -> float:
    """What the rows are ordered by; 0 for one that a reranker did not read."""
    return hit.rank_score or 0.0


def _result(hits: Sequence[Hit]) -> VectorStoreQueryResult:
    nodes = [_of_hit(hit) for hit in hits]
    return VectorStoreQueryResult(
        nodes=nodes, similarities=[_score(hit) for hit in hits], ids=[node.node_id for node in nodes]
    )


_MODES: dict[VectorStoreQueryMode, Mode | None] = {
    # As the knowledge base's settings say.
    VectorStoreQueryMode.DEFAULT: None,
    VectorStoreQueryMode.MMR: None,
    VectorStoreQueryMode.SPARSE: "keyword",
    VectorStoreQueryMode.TEXT_SEARCH: "keyword",
    VectorStoreQueryMode.HYBRID: "hybrid",
    VectorStoreQueryMode.SEMANTIC_HYBRID: "hybrid",
}


def _arguments(query: VectorStoreQuery, given: dict[str, Any]) -> dict[str, Any]:
    """What KnowledgeBase.query takes, or query_vector if there is no question in words."""
    if query.mode not in _MODES:
        message = f"kb does not search in mode {query.mode.value!r}"
        raise NotImplementedError(message)
    top_k = query.similarity_top_k
    options: dict[str, Any] = {}
    if _MODES[query.mode] == "keyword":
        top_k = query.sparse_top_k or top_k
    elif _MODES[query.mode] == "hybrid":
        top_k = query.hybrid_top_k or top_k
        if query.alpha is not None:
            options["hybrid"] = {"alpha": query.alpha}
    elif query.mode == VectorStoreQueryMode.MMR:
        options["mmr"] = {"lambda": 0.5 if query.mmr_threshold is None else query.mmr_threshold}
    options |= given.pop("options", None) or {}
    arguments: dict[str, Any] = {
        "top_k": top_k,
        # An index that keeps no list of its nodes gives an empty one, which restricts nothing.
        "filter": _filter(query.node_ids or None, query.doc_ids or None, query.filters),
        "options": options or None,
        **given,
    }
    if query.query_str:
        arguments.setdefault("mode", _MODES[query.mode])
    elif not query.query_embedding or _MODES[query.mode] is not None:
        message = "kb needs the question in words: set query_str"
        raise ValueError(message)
    return arguments


class KnowledgeBaseVectorStore(BasePydanticVectorStore):
    """A knowledge base as a vector store. A node is a document whose external_id is the node's id.

    With `async_kb`, the asynchronous methods use that; otherwise they run `kb` in threads.

    kb processes nodes in the background. With `wait`, the methods that add them return when they can be found (at
    most `wait_timeout` seconds later, else `TimedOut`), and raise `ProcessingFailed` if some cannot.

    Keyword arguments of `query` (`min_score`, `mode`, `options`, `max_tokens`, `also`) are those of
    `KnowledgeBase.query`.
    """

    stores_text: bool = True
    is_embedding_query: bool = False

    _kb: KnowledgeBase = PrivateAttr()
    _async_kb: AsyncKnowledgeBase | None = PrivateAttr(default=None)
    _wait: bool = PrivateAttr(default=True)
    _wait_timeout: float | None = PrivateAttr(default=None)

    def __init__(
        self,
        kb: KnowledgeBase,
        *,
        async_kb: AsyncKnowledgeBase | None = None,
        wait: bool = True,
        wait_timeout: float | None = None,
    ) -> None:
        super().__init__(stores_text=True)
        self._wait = wait
        self._wait_timeout = wait_timeout
        self._kb = kb
        self._async_kb = async_kb

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex serializes this class."""
        return "KbKnowledgeBaseVectorStore"

    @property
    def client(self) -> KnowledgeBase:
        """The knowledge base."""
        return self._kb

    # Nodes.

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes, either all or none, or replace those of the same ids. Return the ids."""
        ids = [stored.external_id for stored in self._kb.put_many(map(_to_put, nodes))]
        if self._wait and ids:
            self._kb.wait(self._wait_timeout)
            if failures := self._kb.failures(ids):
                raise ProcessingFailed(failures)
        return ids

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes, either all or none, or replace those of the same ids. Return the ids."""
        if self._async_kb is None:
            return await asyncio.to_thread(self.add, nodes, **kwargs)
        ids = [stored.external_id for stored in await self._async_kb.put_many(map(_to_put, nodes))]
        if self._wait and ids:
            await self._async_kb.wait(self._wait_timeout)
            if failures := await self._async_kb.failures(ids):
                raise ProcessingFailed(failures)
        return ids

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        self._kb.delete_where(_parts_of(ref_doc_id))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document."""
        if self._async_kb is None:
            await asyncio.to_thread(self.delete, ref_doc_id)
        else:
            await self._async_kb.delete_where(_parts_of(ref_doc_id))

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete the nodes that have one of these ids and pass the filters. Without both, nothing is deleted."""
        if (which := _filter(node_ids, None, filters)) is not None:
            self._kb.delete_where(which)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete the nodes that have one of these ids and pass the filters. Without both, nothing is deleted."""
        if self._async_kb is None:
            await asyncio.to_thread(self.delete_nodes, node_ids, filters)
        elif (which := _filter(node_ids, None, filters)) is not None:
            await self._async_kb.delete_where(which)

    def clear(self) -> None:
        """Delete all nodes."""
        self._kb.clear()

    async def aclear(self) -> None:
        """Delete all nodes."""
        if self._async_kb is None:
            await asyncio.to_thread(self.clear)
        else:
            await self._async_kb.clear()

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return the nodes that have one of these ids and pass the filters, each with its whole text.

        Without ids, this reads all documents of the knowledge base, in pages.
        """
        documents = self._kb.documents() if node_ids is None else self._kb.get(node_ids)
        return [_of_document(document) for document in documents if _passes(filters, document)]

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return the nodes that have one of these ids and pass the filters, each with its whole text."""
        if self._async_kb is None:
            return await asyncio.to_thread(self.get_nodes, node_ids, filters)
        if node_ids is None:
            documents = [document async for document in self._async_kb.documents()]
        else:
            documents = await self._async_kb.get(node_ids)
        return [_of_document(document) for document in documents if _passes(filters, document)]

    # Questions.

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the nodes that answer a question, best first."""
        arguments = _arguments(query, kwargs)
        if query.query_str:
            return _result(self._kb.query(query.query_str, **arguments))
        return _result(self._kb.query_vector(query.query_embedding or [], **arguments))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the nodes that answer a question, best first."""
        if self._async_kb is None:
            return await asyncio.to_thread(self.query, query, **kwargs)
        arguments = _arguments(query, kwargs)
        if query.query_str:
            return _result(await self._async_kb.query(query.query_str, **arguments))
        return _result(await self._async_kb.query_vector(query.query_embedding or [], **arguments))


class KnowledgeBaseRetriever(BaseRetriever):
    """A knowledge base as a retriever: no index and no embedding model is needed.

    The keyword arguments (`top_k`, `filter`, `min_score`, `mode`, `options`, `max_tokens`, `also`) are those of
    `KnowledgeBase.query`. Nodes that were not added by LlamaIndex have in their metadata, under `kb`, where they are
    from.
    """

    def __init__(
        self, kb: KnowledgeBase | None = None, *, async_kb: AsyncKnowledgeBase | None = None, **arguments: Any
    ) -> None:
        if kb is None and async_kb is None:
            message = "a retriever needs kb, async_kb or both"
            raise ValueError(message)
        super().__init__()  # pyright: ignore[reportUnknownMemberType] (not typed there)
        self._kb = kb
        self._async_kb = async_kb
        self._arguments = arguments

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._kb is None:
            message = "this retriever has no kb for synchronous calls, only async_kb"
            raise NotImplementedError(message)
        return _with_scores(self._kb.query(query_bundle.query_str, **self._arguments))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._async_kb is None:
            return await asyncio.to_thread(self._retrieve, query_bundle)
        return _with_scores(await self._async_kb.query(query_bundle.query_str, **self._arguments))


def _with_scores(hits: Sequence[Hit]) -> list[NodeWithScore]:
    return [NodeWithScore(node=_of_hit(hit), score=_score(hit)) for hit in hits]
