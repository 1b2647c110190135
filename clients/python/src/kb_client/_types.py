"""What goes into kb and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

Mode: TypeAlias = Literal["dense", "keyword", "hybrid"]
Format: TypeAlias = Literal["markdown", "xml", "json", "list"]
Object: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document to be put. What is None is decided by kb, or kept as it is if the document exists."""

    external_id: str
    content: str
    metadata: Object | None = None
    title: str | None = None
    content_type: str | None = None
    uri: str | None = None
    chunking: Object | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """What happened to a document: `added`, `updated` or `skipped`, or `deleted` or `not found`."""

    external_id: str
    status: str


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as kb has it. `content` is the extracted text, None until the document is processed."""

    external_id: str
    content: str | None
    metadata: dict[str, Any]
    title: str | None
    uri: str | None
    content_type: str | None
    status: str
    error: str | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A document that kb could not process."""

    external_id: str
    error: str
    sqlstate: str | None
    attempts: int
    failed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage that answers a question. The columns are those of kb.query in docs/reference/functions.md."""

    rank: int
    chunk_id: UUID
    kb_id: str
    external_id: str
    title: str | None
    content: str
    score: float | None
    rank_score: float | None
    token_count: int
    metadata: dict[str, Any]
    locator: dict[str, Any]
    stale: bool


@dataclass(frozen=True, slots=True)
class Context:
    """Passages as one text for a prompt. `blocks` says what the text has."""

    context: str
    chunk_ids: list[UUID]
    blocks: list[dict[str, Any]]
    tokens: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What a chat model answered from the passages that kb found, with its citations."""

    answer: str
    annotations: list[dict[str, Any]]
    chunks: list[dict[str, Any]]
    memories: list[dict[str, Any]]
    usage: dict[str, Any] | None
    cost: float | None
    finish_reason: str
    refused: bool
    invalid_citations: list[int]
    turn_id: str | None
