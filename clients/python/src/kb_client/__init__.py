"""Client of kb, the PostgreSQL extension for knowledge bases.

`KnowledgeBase` and `AsyncKnowledgeBase` put documents and ask questions. `kb_client.langchain` and
`kb_client.llama_index` are the adapters for these frameworks.
"""

from importlib.metadata import version as _version

from ._async_knowledge_base import AsyncKnowledgeBase
from ._knowledge_base import KnowledgeBase
from ._types import Answer, Context, Document, Failure, Format, Hit, Mode, Stored, StoredDocument
from .errors import (
    AlreadyExists,
    ConnectionLost,
    ExtensionMissing,
    InUse,
    InvalidArgument,
    InvalidDocument,
    InvalidState,
    KbError,
    NotFound,
    Paused,
    PermissionDenied,
    PreconditionFailed,
    ProcessingFailed,
    ProviderFailed,
    ProviderUnavailable,
    ReadOnly,
    TimedOut,
    TooLarge,
)

__version__ = _version("kb-client")

__all__ = [
    "AlreadyExists",
    "Answer",
    "AsyncKnowledgeBase",
    "ConnectionLost",
    "Context",
    "Document",
    "ExtensionMissing",
    "Failure",
    "Format",
    "Hit",
    "InUse",
    "InvalidArgument",
    "InvalidDocument",
    "InvalidState",
    "KbError",
    "KnowledgeBase",
    "Mode",
    "NotFound",
    "Paused",
    "PermissionDenied",
    "PreconditionFailed",
    "ProcessingFailed",
    "ProviderFailed",
    "ProviderUnavailable",
    "ReadOnly",
    "Stored",
    "StoredDocument",
    "TimedOut",
    "TooLarge",
]
