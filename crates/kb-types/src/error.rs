//! The error type of all crates. Every variant names the object that it concerns and chooses its SQLSTATE.

use crate::ServiceKind;
use crate::quota::Shortage;
use std::fmt;
use std::time::Duration;
use thiserror::Error;

/// What kind of thing an error names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectKind {
    KnowledgeBase,
    Service(ServiceKind),
    VectorDb,
    Secret,
    Run,
    Table,
    Role,
    Column,
    EvalSet,
    Binding,
    Source,
    Memory,
    MemoryEntry,
    Conversation,
    Turn,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ObjectKind::KnowledgeBase => "knowledge base",
            ObjectKind::Service(kind) => kind.name(),
            ObjectKind::VectorDb => "vector database",
            ObjectKind::Secret => "secret",
            ObjectKind::Run => "run",
            ObjectKind::Table => "table",
            ObjectKind::Role => "role",
            ObjectKind::Column => "column",
            ObjectKind::EvalSet => "evaluation set",
            ObjectKind::Binding => "binding",
            ObjectKind::Source => "source",
            ObjectKind::Memory => "memory",
            ObjectKind::MemoryEntry => "entry",
            ObjectKind::Conversation => "conversation",
            ObjectKind::Turn => "turn",
        })
    }
}

impl ObjectKind {
    /// How to find the objects of this kind, and how to create one.
    fn hint(self) -> Option<&'static str> {
        Some(match self {
            ObjectKind::KnowledgeBase => {
                "List them with SELECT id FROM kb.knowledge_bases; create one with kb.create_knowledge_base(id)."
            }
            ObjectKind::Service(ServiceKind::Embedder) => {
                "List them with SELECT id FROM kb.embedders; create one with kb.create_embedder(id, provider, model, dimension)."
            }
            ObjectKind::Service(ServiceKind::Reranker) => {
                "List them with SELECT id FROM kb.rerankers; create one with kb.create_reranker(id, provider)."
            }
            ObjectKind::Service(ServiceKind::Llm) => {
                "List them with SELECT id FROM kb.llms; create one with kb.create_llm(id, provider)."
            }
            ObjectKind::Service(ServiceKind::Extractor) => {
                "List them with SELECT id FROM kb.extractors; create one with kb.create_extractor(id, provider, base_url => …)."
            }
            ObjectKind::VectorDb => {
                "List them with SELECT id FROM kb.vector_dbs; create one with kb.create_vector_db(id, type, dimension)."
            }
            ObjectKind::EvalSet => {
                "List them with SELECT name FROM kb.eval_sets; create one with kb.create_eval_set(kb_id, eval_set)."
            }
            ObjectKind::Source => {
                "List them with SELECT name FROM kb.sources; create one with kb.create_source(kb_id, name, type, config)."
            }
            ObjectKind::Memory => {
                "List them with SELECT id FROM kb.knowledge_bases JOIN kb.memory_stores USING (kb_no); create one with kb.create_memory(id)."
            }
            ObjectKind::MemoryEntry => "List them with SELECT id, fact FROM kb.memories.",
            ObjectKind::Conversation => {
                "List them with SELECT id FROM kb.conversations; create one with kb.create_conversation(id)."
            }
            ObjectKind::Turn => {
                "List them with SELECT id FROM kb.turns WHERE conversation_id = 'a conversation'."
            }
            ObjectKind::Binding => {
                "List them with SELECT scope, id_ref FROM kb.bindings; replace one with kb.bind(scope, id_ref, replace => true)."
            }
            ObjectKind::Secret
            | ObjectKind::Run
            | ObjectKind::Table
            | ObjectKind::Role
            | ObjectKind::Column => return None,
        })
    }
}

impl From<ServiceKind> for ObjectKind {
    fn from(kind: ServiceKind) -> Self {
        ObjectKind::Service(kind)
    }
}

/// A problem, in words a PostgreSQL user can act on. `Display` is the primary message; see
/// [`Error::detail`], [`Error::hint`] and [`Error::sqlstate`] for the rest of the report.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Error {
    #[error("{what} \"{id}\" does not exist")]
    NotFound { what: ObjectKind, id: String },
    /// `table` with its schema, quoted.
    #[error("table {table} is not attached to knowledge base \"{kb_id}\"")]
    NotAttached { table: String, kb_id: String },
    #[error("{what} \"{id}\" already exists")]
    AlreadyExists { what: ObjectKind, id: String },
    #[error("{what} \"{id}\" is still used by {by}")]
    InUse { what: ObjectKind, id: String, by: String },
    /// The caller's if_match is not the present etag.
    #[error("{what} \"{id}\" has changed since it was read")]
    Stale { what: ObjectKind, id: String, etag: String },
    /// What was wrong is not said: it would help whoever guesses.
    #[error("the API key is not valid")]
    ApiKey,
    /// Every problem of one configuration, reported together. `setting`: the one that a superuser would
    /// change to allow it.
    #[error("invalid configuration of {object}")]
    Configuration { object: String, problems: Vec<String>, setting: Option<Allowing> },
    #[error("{argument} must not be NULL")]
    Null { argument: &'static str },
    #[error("invalid {argument}: {problem}")]
    Argument { argument: &'static str, problem: String },
    #[error("document \"{external_id}\": {problem}")]
    Document { external_id: String, problem: String },
    #[error("document \"{external_id}\" has {size} bytes; at most {limit} are allowed")]
    DocumentTooLarge { external_id: String, size: usize, limit: usize },
    /// A field of something that is stored is too long.
    #[error("{field} of {object} is too long")]
    FieldTooLong { object: String, field: &'static str, size: usize, limit: usize },
    /// A document exceeds a limit that a setting imposes.
    #[error("{object}: {problem}")]
    Limit { object: String, problem: String, setting: &'static str },
    #[error("document \"{external_id}\": content type \"{content_type}\" is not supported")]
    ContentType { external_id: String, content_type: String },
    /// The process that worked on a document was killed, by the system or by a fault of its own.
    #[error("document \"{external_id}\": the worker process died while processing it")]
    Died { external_id: String },
    #[error("permission denied: {problem}")]
    Permission { problem: String },
    /// The session's roles may not act for the tenant that it asks for.
    #[error("permission denied: {problem}")]
    Tenant { problem: String },
    /// A tenant's quota is exhausted.
    #[error("tenant \"{tenant}\" may have at most {} {}", .shortage.allowed, .shortage.what)]
    Quota { tenant: String, shortage: Shortage },
    /// The files of a local model are missing or unusable.
    #[error("model \"{model}\": {problem}")]
    ModelFiles { model: String, problem: String },
    #[error("a text of {tokens} tokens is longer than the {limit} that model \"{model}\" reads")]
    InputTooLong { model: String, tokens: usize, limit: usize },
    #[error("embedder \"{embedder}\": {problem}")]
    Embedding { embedder: String, problem: String },
    /// A remote provider failed. `passing` means that the same request may succeed later.
    #[error("embedder \"{embedder}\": {problem}")]
    Provider { embedder: String, problem: String, passing: bool },
    /// Nothing is sent for a while, because of limits, a budget, an open breaker or the provider's own
    /// request. `of_tenant` means that only the tenant who asked is affected.
    #[error("embedder \"{embedder}\" is paused: {problem}")]
    Paused { embedder: String, problem: String, retry_after_ms: u64, of_tenant: bool },
    /// A reranker, chat model or extractor gave no answer. `passing` means that it may answer later.
    #[error("{kind} \"{id}\": {problem}")]
    Service { kind: ServiceKind, id: String, problem: String, passing: bool },
    /// A reranker, chat model or extractor is not called for a while, because of limits, a budget or an open
    /// breaker.
    #[error("{kind} \"{id}\" is paused: {problem}")]
    ServicePaused { kind: ServiceKind, id: String, problem: String },
    /// A source is not read for a while, because its secret cannot be used.
    #[error("source \"{name}\" is paused: {problem}")]
    SourcePaused { name: String, problem: String },
    /// A request is larger than the gateway accepts.
    #[error("{what} has {size} bytes; at most {limit} are allowed")]
    TooLarge { what: String, size: usize, limit: usize },
    /// `available`: the providers that the hint lists. Empty where they are not known.
    #[error("provider \"{provider}\" is not available in this version of kb")]
    ProviderUnavailable { provider: String, available: String },
    #[error("the kb gateway {problem}")]
    Gateway { problem: String },
    /// The program kb-extract cannot be started.
    #[error("the program kb-extract {problem}")]
    Extractor { problem: String },
    #[error("timed out after {seconds} s waiting for {what}")]
    Timeout { what: String, seconds: f64 },
    /// A question of an evaluation set that could not be answered.
    #[error("question \"{id}\": {error}")]
    Question { id: String, error: Box<Error> },
    #[error("{problem}")]
    State { problem: String, hint: String },
    #[error("cannot execute {what} during recovery")]
    ReadOnly { what: &'static str },
    /// An error that PostgreSQL raised inside a background process. `has_values`: the message can contain
    /// values of rows.
    #[error("{message}")]
    Database { sqlstate: String, message: String, has_values: bool },
    #[error("kb internal error: {0}")]
    Internal(String),
}

/// A setting that would allow what a configuration asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowing {
    SecretEnv,
    AllowedHosts,
}

/// lock_not_available.
const LOCKED: &str = "55P03";

pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Every problem of one configuration.
    pub fn configuration(object: impl Into<String>, problems: Vec<String>) -> Self {
        Error::Configuration { object: object.into(), problems, setting: None }
    }

    /// The five-character SQLSTATE of this error.
    pub fn sqlstate(&self) -> &str {
        match self {
            Error::NotFound { .. } => "42704",                // undefined_object
            Error::NotAttached { .. } => "42704",             // undefined_object
            Error::AlreadyExists { .. } => "42710",           // duplicate_object
            Error::InUse { .. } => "2BP01",                   // dependent_objects_still_exist
            Error::Stale { .. } => "KB412", // of kb's own: a precondition failed, as status 412 of HTTP
            Error::ApiKey => "28P01",       // invalid_password
            Error::Configuration { .. } => "22023", // invalid_parameter_value
            Error::Argument { .. } => "22023", // invalid_parameter_value
            Error::Null { .. } => "22004",  // null_value_not_allowed
            Error::Document { .. } => "22000", // data_exception
            Error::DocumentTooLarge { .. } => "54000", // program_limit_exceeded
            Error::FieldTooLong { .. } => "54000", // program_limit_exceeded
            Error::Limit { .. } => "54000", // program_limit_exceeded
            Error::ContentType { .. } => "0A000", // feature_not_supported
            Error::Died { .. } => "58000",  // system_error
            Error::Permission { .. } => "42501", // insufficient_privilege
            Error::Tenant { .. } => "42501", // insufficient_privilege
            Error::Quota { .. } => "53400", // configuration_limit_exceeded
            Error::ModelFiles { .. } => "58030", // io_error
            Error::InputTooLong { .. } => "54000", // program_limit_exceeded
            Error::TooLarge { .. } => "54000", // program_limit_exceeded
            Error::Embedding { .. } => "58000", // system_error
            Error::Provider { passing: true, .. } => "08006", // connection_failure
            Error::Provider { .. } => "58000", // system_error
            Error::Paused { .. } => "53400", // configuration_limit_exceeded
            Error::Service { passing: true, .. } => "08006", // connection_failure
            Error::Service { .. } => "58000", // system_error
            Error::ServicePaused { .. } | Error::SourcePaused { .. } => "53400", // configuration_limit_exceeded
            Error::ProviderUnavailable { .. } => "0A000",                        // feature_not_supported
            Error::Gateway { .. } => "08006",                                    // connection_failure
            Error::Extractor { .. } => "58030",                                  // io_error
            Error::Timeout { .. } => "55P03", // lock_not_available, as of lock_timeout
            Error::State { .. } => "55000",   // object_not_in_prerequisite_state
            Error::ReadOnly { .. } => "25006", // read_only_sql_transaction
            Error::Question { error, .. } => error.sqlstate(),
            Error::Database { sqlstate, .. } => sqlstate,
            Error::Internal(_) => "XX000", // internal_error
        }
    }

    /// The DETAIL line, where there is one.
    pub fn detail(&self) -> Option<String> {
        match self {
            Error::Configuration { problems, .. } => Some(problems.join("\n")),
            Error::Question { error, .. } => error.detail(),
            Error::Stale { etag, .. } => Some(format!("Its etag is {etag} now.")),
            Error::FieldTooLong { size, limit, .. } => {
                Some(format!("It has {size} bytes; at most {limit} are allowed."))
            }
            Error::Quota { shortage: Shortage { used, needed, .. }, .. } => {
                Some(format!("It has {used}; this needs {needed} more."))
            }
            _ => None,
        }
    }

    /// The HINT line: what to do about it.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Error::NotFound { what, .. } | Error::AlreadyExists { what: what @ ObjectKind::Binding, .. } => {
                what.hint()?
            }
            Error::NotAttached { .. } => {
                "List them with SELECT * FROM kb.sources; attach one with kb.attach_table(kb_id, table, content)."
            }
            Error::Configuration { setting: Some(Allowing::SecretEnv), .. } => {
                "A superuser can add the variable to kb.secret_env in the server's configuration file. Keys in a file \
                 (file:NAME) or in the database (kb:NAME) need no such entry."
            }
            Error::Configuration { setting: Some(Allowing::AllowedHosts), .. } => {
                "A superuser can add the host to kb.allowed_hosts in the server's configuration file."
            }
            Error::Question { error, .. } => return error.hint(),
            Error::FieldTooLong { .. } => "Shorten it; text that is to be found belongs in the content.",
            Error::DocumentTooLarge { .. } => "Split the document, or raise kb.max_document_size.",
            Error::Limit { setting, .. } => return Some(format!("Split the document, or raise {setting}.")),
            Error::Quota { .. } => {
                "View kb.quota_status shows what is used. Delete what is not needed, or ask a member of kb_admin to \
                 raise the quota (kb.set_quota)."
            }
            Error::Tenant { .. } => {
                "SELECT kb.bound_tenants() lists the tenants that this session may act for. Choose one with SET \
                 kb.tenant = '...'."
            }
            Error::ContentType { .. } => {
                "kb.put_document takes text/plain, text/markdown, text/html and text/csv; kb.put_file also takes files of other \
                 formats. An extractor (kb.create_extractor) can read what kb cannot, such as images."
            }
            Error::Died { .. } => {
                "The server log says why the process died. If it ran out of memory, split the document or give the \
                 server more memory."
            }
            Error::ModelFiles { .. } => {
                "Put the model's directory (tokenizer.json, *.safetensors and, for a transformer, config.json) under kb.model_dir (kb/models in the server's share directory, unless it is set)."
            }
            Error::InputTooLong { .. } => {
                "Use smaller chunks (chunking size) or a shorter question, or set \"truncate\": true in the embedder's \
                 config to ignore the rest of a text."
            }
            Error::TooLarge { .. } => {
                "Use smaller chunks (chunking size) or a shorter question, and split longer texts."
            }
            Error::ProviderUnavailable { available, .. } => {
                return (!available.is_empty()).then(|| format!("Available are {available}."));
            }
            Error::Provider { passing: false, .. } => {
                "Fix the embedder (kb.alter_embedder, kb.check_embedder), then kb.retry the documents."
            }
            Error::Service { kind: ServiceKind::Reranker, passing: false, .. } => {
                "Fix the reranker (kb.alter_reranker, kb.check_reranker)."
            }
            Error::Service { kind: ServiceKind::Llm, passing: false, .. } => {
                "Fix the chat model (kb.alter_llm, kb.check_llm)."
            }
            Error::Service { kind: ServiceKind::Extractor, passing: false, .. } => {
                "Fix the file or the extractor (kb.alter_extractor, kb.check_extractor), then kb.retry the documents."
            }
            Error::Paused { .. } => {
                "Documents stay in the queue until it can be used again; SELECT * FROM kb.health() shows what is paused."
            }
            Error::Gateway { .. } => {
                "SELECT * FROM kb.health() says what is wrong; the gateway's messages are in the server log."
            }
            Error::Extractor { .. } => {
                "Install the program of this version of kb where kb.extract_program says. Documents wait until then."
            }
            Error::Timeout { .. } => "SELECT * FROM kb.status and kb.health() show what is being waited for.",
            Error::InUse { .. } => "Drop or change the objects that use it first.",
            Error::Stale { .. } => "Read it again, and decide with its new etag.",
            Error::State { hint, .. } => return (!hint.is_empty()).then(|| hint.clone()),
            _ => return None,
        };
        Some(text.to_string())
    }

    /// How long to wait before the next try, where this one does not count as an attempt because nothing was
    /// sent or the provider asked to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Paused { retry_after_ms, .. } => Some(Duration::from_millis(*retry_after_ms)),
            _ => None,
        }
    }

    /// The embedder that caused the error.
    pub fn embedder(&self) -> Option<&str> {
        match self {
            Error::Embedding { embedder, .. }
            | Error::Provider { embedder, .. }
            | Error::Paused { embedder, .. } => Some(embedder),
            _ => None,
        }
    }

    /// The same error, naming the chunk of a document (counted from 0) that it concerns.
    pub fn of_chunk(self, ordinal: i32) -> Error {
        match self {
            Error::Provider { embedder, problem, passing } => {
                Error::Provider { embedder, problem: format!("chunk {ordinal}: {problem}"), passing }
            }
            Error::Embedding { embedder, problem } => {
                Error::Embedding { embedder, problem: format!("chunk {ordinal}: {problem}") }
            }
            other => other,
        }
    }

    /// The same error of a text, naming the document that the text belongs to.
    pub fn of_document(self, external_id: &str) -> Error {
        match self {
            Error::Limit { problem, setting, .. } => {
                Error::Limit { object: format!("document \"{external_id}\""), problem, setting }
            }
            Error::Argument { argument: "content", problem } => {
                Error::Document { external_id: external_id.to_string(), problem }
            }
            other => other,
        }
    }

    /// Refuses a change of a document that comes from a row of an attached table: only the table changes it.
    pub fn of_a_row(external_id: &str, hint: &str) -> Error {
        Error::State {
            problem: format!("document \"{external_id}\" is a row of an attached table"),
            hint: format!("{hint}, or detach the table (kb.detach_table)."),
        }
    }

    /// Refuses a change of a document that comes from a source: from the one of this name, or from a row of
    /// an attached table, which has no name.
    pub fn of_a_source(external_id: &str, source: Option<&str>, row_hint: &str) -> Error {
        match source {
            None => Error::of_a_row(external_id, row_hint),
            Some(name) => Error::State {
                problem: format!("document \"{external_id}\" comes from source \"{name}\""),
                hint: "Change what the source reads; the next kb.ingest follows. Or drop the source (kb.drop_source)."
                    .into(),
            },
        }
    }

    /// An unfinished transaction holds a lock that is needed.
    pub fn busy() -> Error {
        Error::locked("an unfinished transaction has locked this document")
    }

    /// Another transaction has made a change that this transaction's snapshot does not show.
    pub fn not_serializable() -> Error {
        let message = "could not serialize access due to concurrent update".into();
        Error::Database { sqlstate: "40001".into(), message, has_values: false }
    }

    /// Another session holds a conflicting lock.
    pub fn locked(message: &str) -> Error {
        Error::Database { sqlstate: LOCKED.into(), message: message.into(), has_values: false }
    }

    /// Whether another session held a conflicting lock.
    pub fn is_lock(&self) -> bool {
        matches!(self, Error::Database { sqlstate, .. } if sqlstate == LOCKED)
    }

    /// Whether another session held a conflicting lock, or this session was chosen to end a deadlock.
    pub fn is_conflict(&self) -> bool {
        self.is_lock() || matches!(self, Error::Database { sqlstate, .. } if sqlstate.starts_with("40"))
    }

    /// Whether a statement names something that does not exist, or that may not be used: no row is the cause.
    pub fn is_of_names(&self) -> bool {
        matches!(self, Error::Database { sqlstate, has_values: false, .. } if sqlstate.starts_with("42"))
    }

    /// Whether the document can be the cause of the error. It is not the cause of a missing gateway, a full
    /// disk, a lack of resources, a shutdown or a lock, and no document fails because of those.
    pub fn is_of_the_work(&self) -> bool {
        match self {
            Error::Gateway { .. } | Error::Extractor { .. } => false,
            Error::ServicePaused { .. } | Error::SourcePaused { .. } => false,
            Error::Database { sqlstate, .. } => {
                sqlstate != LOCKED && !["53", "57", "58"].iter().any(|class| sqlstate.starts_with(class))
            }
            _ => true,
        }
    }

    /// Whether a row that another session wrote, deleted or locked can be the cause: an integrity constraint,
    /// a serialisation failure or a lock.
    pub fn is_of_rows(&self) -> bool {
        self.is_conflict() || matches!(self, Error::Database { sqlstate, .. } if sqlstate.starts_with("23"))
    }

    /// Whether a later retry can succeed although nobody has changed anything.
    pub fn is_transient(&self) -> bool {
        match self {
            Error::Gateway { .. } | Error::Timeout { .. } | Error::Paused { .. } | Error::Died { .. } => true,
            Error::ServicePaused { .. } | Error::SourcePaused { .. } | Error::Extractor { .. } => true,
            Error::Provider { passing, .. } | Error::Service { passing, .. } => *passing,
            // The classes of transient errors: serialisation, resources, operator intervention and system
            // errors.
            Error::Database { sqlstate, .. } => {
                ["40", "53", "55", "57", "58"].iter().any(|class| sqlstate.starts_with(class))
            }
            _ => false,
        }
    }
}

#[cfg(test)]
#[path = "error_tests.rs"]
mod tests;
