"""The statements of this package: text, values, and how a row is read. They know nothing of connections.

Values travel as parameters only; the text is constant.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Generic, LiteralString, TypeVar
from uuid import UUID

from ._types import Answer, Context, Document, Failure, Hit, Stored, StoredDocument
from .errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ._types import Format, Mode, Object

T = TypeVar("T")

# A call of kb.put_documents has at most so many documents, and about so many characters.
_BATCH_DOCUMENTS = 1000
_BATCH_CHARACTERS = 16_000_000


@dataclass(frozen=True, slots=True)
class Statement(Generic[T]):
    """A statement with its values. `read` makes the result of a row, whose columns it gets by name."""

    text: LiteralString
    values: dict[str, Any]
    read: Callable[[dict[str, Any]], T]


def checked(what: str, value: str) -> str:
    """Return a text that PostgreSQL can store, or say what is wrong with it."""
    nul = value.find("\0")
    if nul >= 0:
        message = f"{what} has a NUL character at position {nul}"
        raise InvalidArgument(message, hint="PostgreSQL cannot store NUL characters: remove them from the text.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        message = f"{what} has a lone surrogate at position {error.start}"
        raise InvalidArgument(
            message, hint="The text is not valid Unicode: decode it with the right encoding."
        ) from None
    return value


def _text(what: str, value: str | None) -> str | None:
    return None if value is None else checked(what, value)


def _plain(value: Any) -> Any:
    """What JSON has no type for: times become text as kb's filters compare it."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    message = f"a value of type {type(value).__name__} is no JSON"
    raise TypeError(message)


# An escape of U+0000 whose backslash is not itself escaped.
_NUL_IN_JSON = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def to_json(what: str, value: Any) -> str:
    """Return a value as JSON that PostgreSQL can store, or say what is wrong with it."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        message = f"{what} is no JSON: {error}"
        raise InvalidArgument(message) from error
    if _NUL_IN_JSON.search(text):
        message = f"{what} has a NUL character"
        raise InvalidArgument(message, hint="PostgreSQL cannot store NUL characters: remove them from the text.")
    return checked(what, text)


def _json(what: str, value: Object | None) -> str | None:
    return None if value is None else to_json(what, value)


def _status(row: dict[str, Any]) -> str:
    return str(row["status"])


def _number(row: dict[str, Any]) -> int:
    return int(row["number"])


def _nothing(_: dict[str, Any]) -> None:
    return None


# ---------------------------------------------------------------------------------------------- documents


def put(
    kb_id: str,
    external_id: str,
    content: str | bytes,
    metadata: Object | None,
    title: str | None,
    content_type: str | None,
    uri: str | None,
    chunking: Object | None,
) -> Statement[str]:
    """Store a document that is text, or text in UTF-8."""
    values: dict[str, Any] = {
        "kb_id": kb_id,
        "external_id": checked("external_id", external_id),
        "metadata": _json("metadata", metadata),
        "title": _text("title", title),
        "content_type": _text("content_type", content_type),
        "uri": _text("uri", uri),
        "chunking": _json("chunking", chunking),
    }
    if isinstance(content, str):
        values["content"] = checked(f"content of document {external_id!r}", content)
        return Statement(
            """SELECT kb.put_document(kb_id => %(kb_id)s::text, external_id => %(external_id)s::text,
                content => %(content)s::text, metadata => %(metadata)s::jsonb, title => %(title)s::text,
                content_type => %(content_type)s::text, uri => %(uri)s::text,
                chunking => %(chunking)s::jsonb) AS status""",
            values,
            _status,
        )
    values["bytes"] = content
    return Statement(
        """SELECT kb.put_document(kb_id => %(kb_id)s::text, external_id => %(external_id)s::text,
            bytes => %(bytes)b::bytea, metadata => %(metadata)s::jsonb, title => %(title)s::text,
            content_type => %(content_type)s::text, uri => %(uri)s::text,
            chunking => %(chunking)s::jsonb) AS status""",
        values,
        _status,
    )


def put_file(
    kb_id: str,
    external_id: str,
    data: bytes,
    filename: str | None,
    metadata: Object | None,
    title: str | None,
    content_type: str | None,
    uri: str | None,
    chunking: Object | None,
) -> Statement[str]:
    """Store a file of any format that kb reads."""
    return Statement(
        """SELECT kb.put_file(kb_id => %(kb_id)s::text, external_id => %(external_id)s::text,
            bytes => %(bytes)b::bytea, filename => %(filename)s::text, metadata => %(metadata)s::jsonb,
            title => %(title)s::text, content_type => %(content_type)s::text, uri => %(uri)s::text,
            chunking => %(chunking)s::jsonb) AS status""",
        {
            "kb_id": kb_id,
            "external_id": checked("external_id", external_id),
            "bytes": data,
            "filename": _text("filename", filename),
            "metadata": _json("metadata", metadata),
            "title": _text("title", title),
            "content_type": _text("content_type", content_type),
            "uri": _text("uri", uri),
            "chunking": _json("chunking", chunking),
        },
        _status,
    )


def _element(document: Document | Object) -> tuple[str, str]:
    """The external_id of a document, and what kb.put_documents takes for it."""
    if isinstance(document, Document):
        fields: dict[str, Any] = {
            "external_id": document.external_id,
            "content": document.content,
            "metadata": document.metadata,
            "title": document.title,
            "content_type": document.content_type,
            "uri": document.uri,
            "chunking": document.chunking,
        }
        fields = {key: value for key, value in fields.items() if value is not None}
    else:
        fields = dict(document)
    external_id = fields.get("external_id")
    if not isinstance(external_id, str):
        message = f"a document has no external_id of type str, but {external_id!r}"
        raise InvalidArgument(message)
    return external_id, to_json(f"document {external_id!r}", fields)


def put_many(kb_id: str, documents: Iterable[Document | Object]) -> Iterator[Statement[Stored]]:
    """Store documents in batches, which belong into one transaction."""
    seen: set[str] = set()
    batch: list[str] = []
    size = 0
    for document in documents:
        external_id, element = _element(document)
        if external_id in seen:
            message = f"external_id {external_id!r} occurs twice among the documents"
            raise InvalidArgument(message)
        seen.add(external_id)
        if batch and (len(batch) == _BATCH_DOCUMENTS or size + len(element) > _BATCH_CHARACTERS):
            yield _put_batch(kb_id, batch)
            batch, size = [], 0
        batch.append(element)
        size += len(element)
    if batch:
        yield _put_batch(kb_id, batch)


def _put_batch(kb_id: str, batch: list[str]) -> Statement[Stored]:
    # In text format, each document would be escaped before it is sent.
    return Statement(
        """SELECT external_id, status FROM kb.put_documents(%(kb_id)s::text, %(documents)b::text[]::jsonb[])""",
        {"kb_id": kb_id, "documents": batch},
        lambda row: Stored(**row),
    )


# The knowledge base that kb.query means by this id: the tenant's own, else one that it may read.
_KB_NO: LiteralString = """(
    SELECT k.kb_no FROM kb.knowledge_bases AS k
    WHERE k.id = %(kb_id)s::text AND (k.tenant_id IN (kb.current_tenant(), 'shared') OR EXISTS (
        SELECT FROM kb.shares AS s WHERE s.kb_no = k.kb_no AND s.tenant_id = kb.current_tenant()))
    ORDER BY k.tenant_id = kb.current_tenant() DESC, k.tenant_id = 'shared' DESC, k.kb_no LIMIT 1)"""

_DOCUMENT_COLUMNS: LiteralString = (
    "d.external_id, d.content, d.metadata, d.title, d.uri, d.content_type, d.status, d.error"
)


def get(kb_id: str, external_ids: Sequence[str]) -> Statement[StoredDocument]:
    """Read documents by external_id, in the order of these."""
    ids = [checked("external_id", external_id) for external_id in external_ids]
    return Statement(
        "SELECT " + _DOCUMENT_COLUMNS + " FROM unnest(%(ids)s::text[]) WITH ORDINALITY AS i (external_id, n)"
        " JOIN kb.documents AS d ON d.kb_no = " + _KB_NO + " AND d.external_id = i.external_id ORDER BY i.n",
        {"kb_id": kb_id, "ids": ids},
        lambda row: StoredDocument(**row),
    )


def page(kb_id: str, after: str | None, limit: int) -> Statement[StoredDocument]:
    """Read the next documents in the order of their external_ids."""
    return Statement(
        "SELECT " + _DOCUMENT_COLUMNS + " FROM kb.documents AS d WHERE d.kb_no = " + _KB_NO + " AND "
        "(%(after)s::text IS NULL OR d.external_id > %(after)s::text)"
        " ORDER BY d.external_id LIMIT %(limit)s::bigint",
        {"kb_id": kb_id, "after": after, "limit": limit},
        lambda row: StoredDocument(**row),
    )


def delete(kb_id: str, external_id: str) -> Statement[bool]:
    """Delete a document."""
    return Statement(
        "SELECT kb.delete_document(%(kb_id)s::text, %(external_id)s::text) AS deleted",
        {"kb_id": kb_id, "external_id": checked("external_id", external_id)},
        lambda row: bool(row["deleted"]),
    )


def delete_many(kb_id: str, external_ids: Sequence[str]) -> Statement[Stored]:
    """Delete documents."""
    ids = [checked("external_id", external_id) for external_id in external_ids]
    return Statement(
        "SELECT external_id, status FROM kb.delete_documents(%(kb_id)s::text, %(ids)s::text[])",
        {"kb_id": kb_id, "ids": ids},
        lambda row: Stored(**row),
    )


def delete_where(kb_id: str, filter: Object) -> Statement[int]:
    """Delete the documents that pass a filter."""
    return Statement(
        "SELECT kb.delete_by_filter(%(kb_id)s::text, %(filter)s::jsonb) AS number",
        {"kb_id": kb_id, "filter": to_json("filter", filter)},
        _number,
    )


def clear(kb_id: str) -> Statement[int]:
    """Delete all documents that were put."""
    return Statement(
        "SELECT deleted AS number FROM kb.sync_documents(%(kb_id)s::text, '{}'::jsonb[], '')",
        {"kb_id": kb_id},
        _number,
    )


def failures(kb_id: str, external_ids: Sequence[str] | None) -> Statement[Failure]:
    """List documents that kb could not process."""
    return Statement(
        """SELECT f.external_id, f.error, f.sqlstate, f.attempts, f.failed_at FROM kb.failures AS f
            WHERE f.kb_id = %(kb_id)s::text AND f.tenant_id = kb.current_tenant()
            AND (%(ids)s::text[] IS NULL OR f.external_id = ANY (%(ids)s::text[]))
            ORDER BY f.failed_at DESC, f.external_id""",
        {"kb_id": kb_id, "ids": None if external_ids is None else list(external_ids)},
        lambda row: Failure(**row),
    )


# ---------------------------------------------------------------------------------------------- questions

_HIT_COLUMNS: LiteralString = (
    "q.rank, q.chunk_id, q.kb_id, q.external_id, q.title, q.content, q.score, q.rank_score, q.token_count,"
    " q.metadata, q.locator, q.stale"
)


def limits(
    top_k: int | None,
    min_score: float | None,
    filter: Object | None,
    max_tokens: int | None,
    mode: Mode | None,
    options: Object | None,
) -> dict[str, Any]:
    return {
        "top_k": top_k,
        "min_score": min_score,
        "filter": _json("filter", filter),
        "max_tokens": max_tokens,
        "mode": mode,
        "options": _json("options", options),
    }


def query(kb_id: str, also: Sequence[str], question: str, limits: Mapping[str, Any]) -> Statement[Hit]:
    """Ask one or several knowledge bases."""
    values = {"kb_id": kb_id, "question": checked("the question", question), **limits}
    if not also:
        return Statement(
            "SELECT " + _HIT_COLUMNS + " FROM kb.query(%(kb_id)s::text, %(question)s::text, %(top_k)s::integer,"
            " %(min_score)s::double precision, %(filter)s::jsonb, %(max_tokens)s::integer, %(mode)s::text,"
            " %(options)s::jsonb) AS q ORDER BY q.rank",
            values,
            lambda row: Hit(**row),
        )
    values["kb_ids"] = [kb_id, *also]
    return Statement(
        "SELECT " + _HIT_COLUMNS + " FROM kb.query(%(kb_ids)s::text[], %(question)s::text, %(top_k)s::integer,"
        " %(min_score)s::double precision, %(filter)s::jsonb, %(max_tokens)s::integer, %(mode)s::text,"
        " %(options)s::jsonb) WITH ORDINALITY AS q ORDER BY q.ordinality",
        values,
        lambda row: Hit(**row),
    )


def to_vector(numbers: Iterable[float]) -> str:
    """Return numbers as pgvector reads them."""
    vector = [float(number) for number in numbers]
    if not all(math.isfinite(number) for number in vector):
        message = "the vector has numbers that are not finite"
        raise InvalidArgument(message)
    return "[" + ",".join(map(repr, vector)) + "]"


def query_vector(kb_id: str, vector: Iterable[float], limits: Mapping[str, Any]) -> Statement[Hit]:
    """Ask by a vector."""
    # Type vector may be in any schema: PostgreSQL infers it from the function.
    return Statement(
        "SELECT " + _HIT_COLUMNS + " FROM kb.query_vector(%(kb_id)s::text, %(vector)s, %(top_k)s::integer,"
        " %(min_score)s::double precision, %(filter)s::jsonb, %(max_tokens)s::integer, %(mode)s::text,"
        " %(options)s::jsonb) AS q ORDER BY q.rank",
        {"kb_id": kb_id, "vector": to_vector(vector), **limits},
        lambda row: Hit(**row),
    )


def context(
    kb_id: str, also: Sequence[str], question: str, format: Format, limits: Mapping[str, Any]
) -> Statement[Context]:
    """Ask for one text for a prompt."""
    values = {"kb_id": kb_id, "question": checked("the question", question), "format": format, **limits}
    if not also:
        return Statement(
            """SELECT context, chunk_ids, blocks, tokens, truncated FROM kb.context(%(kb_id)s::text,
                %(question)s::text, %(max_tokens)s::integer, %(format)s::text, %(top_k)s::integer,
                %(min_score)s::double precision, %(filter)s::jsonb, %(mode)s::text, %(options)s::jsonb)""",
            values,
            lambda row: Context(**row),
        )
    values["kb_ids"] = [kb_id, *also]
    return Statement(
        """SELECT context, chunk_ids, blocks, tokens, truncated FROM kb.context(%(kb_ids)s::text[],
            %(question)s::text, %(max_tokens)s::integer, %(format)s::text, %(top_k)s::integer,
            %(min_score)s::double precision, %(filter)s::jsonb, %(mode)s::text, %(options)s::jsonb)""",
        values,
        lambda row: Context(**row),
    )


def answer(
    kb_id: str,
    also: Sequence[str],
    question: str,
    llm: str,
    conversation: str | None,
    memory: str | None,
    max_tokens: int | None,
    options: Object | None,
) -> Statement[Answer]:
    """Have a chat model answer."""
    values: dict[str, Any] = {
        "kb_id": kb_id,
        "question": checked("the question", question),
        "llm": checked("llm", llm),
        "conversation": _text("conversation", conversation),
        "memory": _text("memory", memory),
        "max_tokens": max_tokens,
        "options": _json("options", options),
    }
    if not also:
        return Statement(
            """SELECT answer, annotations, chunks, memories, usage, cost, finish_reason, refused,
                invalid_citations, turn_id FROM kb.answer(%(kb_id)s::text, %(question)s::text, %(llm)s::text,
                %(conversation)s::text, %(memory)s::text, %(max_tokens)s::integer, %(options)s::jsonb)""",
            values,
            lambda row: Answer(**row),
        )
    values["kb_ids"] = [kb_id, *also]
    return Statement(
        """SELECT answer, annotations, chunks, memories, usage, cost, finish_reason, refused,
            invalid_citations, turn_id FROM kb.answer(%(kb_ids)s::text[], %(question)s::text, %(llm)s::text,
            %(conversation)s::text, %(memory)s::text, %(max_tokens)s::integer, %(options)s::jsonb)""",
        values,
        lambda row: Answer(**row),
    )


def wait(kb_id: str, timeout: float | None) -> Statement[None]:
    """Wait until kb has processed what is committed."""
    # Alone in its statement, the function holds no snapshot while it waits.
    return Statement(
        "SELECT kb.wait(%(kb_id)s::text, %(timeout)s::double precision)",
        {"kb_id": kb_id, "timeout": timeout},
        _nothing,
    )


def embed(kb_id: str, texts: Sequence[str], kind: str) -> Statement[list[float]]:
    """Embed texts as the knowledge base does."""
    return Statement(
        """SELECT e.vector::text AS vector FROM kb.knowledge_bases AS k,
            kb.embed(k.embedder, %(texts)s::text[], %(kind)s::text) WITH ORDINALITY AS e (vector, n)
            WHERE k.kb_no = """
        + _KB_NO
        + " ORDER BY e.n",
        {"kb_id": kb_id, "texts": [checked("text", text) for text in texts], "kind": kind},
        lambda row: [float(number) for number in json.loads(row["vector"])],
    )


# ----------------------------------------------------------------------------------------- knowledge bases


def create(kb_id: str, exist_ok: bool, settings: Mapping[str, Any]) -> Statement[None]:
    """Create a knowledge base."""
    jsons = {name: _json(name, settings[name]) for name in ("chunking", "preprocess", "retrieval", "metadata")}
    return Statement(
        """SELECT kb.create_knowledge_base(%(kb_id)s::text, embedder => %(embedder)s::text,
            vector_db => %(vector_db)s::text, description => %(description)s::text,
            chunking => %(chunking)s::jsonb, preprocess => %(preprocess)s::jsonb,
            retrieval => %(retrieval)s::jsonb, metadata => %(metadata)s::jsonb)
            WHERE NOT (%(exist_ok)s::boolean AND EXISTS (SELECT FROM kb.knowledge_bases AS k
                WHERE k.id = %(kb_id)s::text AND k.tenant_id = kb.current_tenant()))""",
        {"kb_id": kb_id, "exist_ok": exist_ok, **settings, **jsons},
        _nothing,
    )


def drop(kb_id: str) -> Statement[None]:
    """Drop a knowledge base."""
    return Statement("SELECT kb.drop_knowledge_base(%(kb_id)s::text)", {"kb_id": kb_id}, _nothing)
