//! Every setting: its default, its range, who may set it and why.

use crate::pg::niceness;
use crate::pg::setting::{library_dir, share_dir};
use kb_gateway::endpoint::egress::AllowedHosts;
use kb_gateway::endpoint::seal::SealingKeys;
use kb_gateway::endpoint::secret_reference::{Sources, Variables};
use kb_types::Limits;
use kb_types::vector_db::Forced;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::time::Duration;

pub mod tenants;

static TENANT: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static SCOPES: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static DEFAULT_EMBEDDER: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static MODEL_DIR: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static SECRET_DIR: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static SOURCE_DIRS: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static SECRET_ENV: GucSetting<Option<CString>> =
    GucSetting::<Option<CString>>::new(Some(PROVIDERS_VARIABLES));
static SECRET_KEY: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static ALLOWED_HOSTS: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static GATEWAY_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(30_000);
static ANSWER_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(60_000);
static QUERY_CACHE_SIZE: GucSetting<i32> = GucSetting::<i32>::new(4096);
static MAX_DOCUMENT_SIZE: GucSetting<i32> = GucSetting::<i32>::new(10 * 1024);
static MAX_EXTRACTED_SIZE: GucSetting<i32> = GucSetting::<i32>::new(64 * 1024);
static MAX_CHUNKS_PER_DOCUMENT: GucSetting<i32> = GucSetting::<i32>::new(100_000);
static EXTRACT_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(60_000);
static EXTRACT_MEMORY: GucSetting<i32> = GucSetting::<i32>::new(1024 * 1024);
static EXTRACT_PROGRAM: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static WORKER_IDLE_TIMEOUT: GucSetting<i32> = GucSetting::<i32>::new(10_000);
static LEASE_DURATION: GucSetting<i32> = GucSetting::<i32>::new(120);
static MAX_ATTEMPTS: GucSetting<i32> = GucSetting::<i32>::new(8);
#[cfg(debug_assertions)]
static FORCED_SCAN: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
#[cfg(debug_assertions)]
static FORCED_TAIL: GucSetting<i32> = GucSetting::<i32>::new(0);
static QUERY_LOG_DAYS: GucSetting<i32> = GucSetting::<i32>::new(30);
static LAUNCHER_NAPTIME: GucSetting<i32> = GucSetting::<i32>::new(60);
static MODEL_THREADS: GucSetting<i32> = GucSetting::<i32>::new(0);
static MAX_INDEX_BUILDS: GucSetting<i32> = GucSetting::<i32>::new(1);

/// The variables that providers' documentation names for their keys, and kb's own.
const PROVIDERS_VARIABLES: &CStr = c"KB_*, OPENAI_API_KEY, ANTHROPIC_API_KEY, AZURE_OPENAI_API_KEY, AZURE_OPENAI_KEY, COHERE_API_KEY, CO_API_KEY, VOYAGE_API_KEY, JINA_API_KEY, MISTRAL_API_KEY, GEMINI_API_KEY, GOOGLE_API_KEY, HF_TOKEN, HUGGINGFACE_API_KEY, HUGGINGFACEHUB_API_TOKEN, OPENROUTER_API_KEY, LITELLM_API_KEY";

/// Defines all settings; called from _PG_init.
#[allow(clippy::too_many_lines)] // a list
pub fn define() {
    niceness::define_setting();
    // Anybody may set it, because a session uses it to say for which tenant it acts. kb.tenant_roles says
    // which tenants a role may name.
    GucRegistry::define_string_guc(
        c"kb.tenant",
        c"Sets the tenant that this session acts for.",
        c"The empty string is a tenant of its own; it does not mean all tenants.",
        &TENANT,
        GucContext::Userset,
        GucFlags::default(),
    );
    // Anybody may set it: it narrows what kb.http does, and SQL can do the same without kb.http.
    GucRegistry::define_string_guc(
        c"kb.scopes",
        c"Sets what kb.http may be used for: names of scopes, separated by spaces.",
        c"An empty string means everything. kb.assume_api_key sets it for a transaction.",
        &SCOPES,
        GucContext::Userset,
        GucFlags::default(),
    );
    GucRegistry::define_string_guc(
        c"kb.default_embedder",
        c"Sets the embedder of knowledge bases that are created without one.",
        c"An empty string means the first embedder that was created whose key can be found, or else minilm.",
        &DEFAULT_EMBEDDER,
        GucContext::Userset,
        GucFlags::default(),
    );
    // It decides which files the server reads, so only the configuration file may set it, and only superusers
    // see it.
    GucRegistry::define_string_guc(
        c"kb.model_dir",
        c"Sets the directory that contains a subdirectory for each local model.",
        c"An empty string means kb/models in PostgreSQL's share directory.",
        &MODEL_DIR,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
    // It decides which program the server starts.
    GucRegistry::define_string_guc(
        c"kb.extract_program",
        c"Sets the path of the program kb-extract, which reads files of foreign formats.",
        c"An empty string means kb-extract in PostgreSQL's library directory.",
        &EXTRACT_PROGRAM,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
    // Like kb.model_dir, it decides which files the server reads.
    GucRegistry::define_string_guc(
        c"kb.secret_dir",
        c"Sets the directory of the files that secrets of the form file:NAME refer to.",
        c"It must be an absolute path. An empty string disables such secrets.",
        &SECRET_DIR,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
    // Like kb.model_dir, it decides which files the server reads.
    GucRegistry::define_string_guc(
        c"kb.source_dirs",
        c"Lists the directories whose files sources may read.",
        c"A comma-separated list of absolute paths. An empty string allows none.",
        &SOURCE_DIRS,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
    // The environment holds keys of others (POSTGRES_PASSWORD, for example), and kb_admin may send a key to a
    // host of its own.
    GucRegistry::define_string_guc(
        c"kb.secret_env",
        c"Lists the environment variables of the server that secrets of the form env:NAME may refer to.",
        c"A comma-separated list of names, or of prefixes followed by *. An empty string disables such secrets.",
        &SECRET_ENV,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
    // Like kb.secret_dir. In addition, a role that may only set secrets must not change it.
    GucRegistry::define_string_guc(
        c"kb.secret_key",
        c"Sets the key that encrypts secrets stored by kb.set_secret, as file:/PATH or env:NAME.",
        c"In a comma-separated list, the first key encrypts, and each can decrypt. An empty string stores secrets unencrypted.",
        &SECRET_KEY,
        GucContext::Sighup,
        GucFlags::SUPERUSER_ONLY,
    );
    // It decides where the server connects to, and kb_admin may name hosts, so only the configuration file
    // may set it.
    GucRegistry::define_string_guc(
        c"kb.allowed_hosts",
        c"Lists the hosts of embedders, rerankers, chat models and extractors that kb may connect to.",
        c"A comma-separated list of patterns such as api.openai.com, *.example.com or localhost:11434. An empty string allows every host except link-local and metadata addresses.",
        &ALLOWED_HOSTS,
        GucContext::Sighup,
        GucFlags::default(),
    );
    tenants::define();
    GucRegistry::define_int_guc(
        c"kb.gateway_timeout",
        c"Sets the maximum time to wait for an answer of the gateway.",
        c"",
        &GATEWAY_TIMEOUT,
        1,
        3_600_000,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"kb.answer_timeout",
        c"Sets the maximum time of kb.answer, unless a call says otherwise.",
        c"",
        &ANSWER_TIMEOUT,
        1,
        3_600_000,
        GucContext::Userset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"kb.query_cache_size",
        c"Sets the number of questions whose vectors the gateway caches.",
        c"Zero disables the cache.",
        &QUERY_CACHE_SIZE,
        0,
        10_000_000,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"kb.model_threads",
        c"Sets the number of threads that compute local models.",
        c"Zero means one thread for each core.",
        &MODEL_THREADS,
        0,
        1024,
        GucContext::Sighup,
        GucFlags::default(),
    );
    // It bounds the memory of the worker, which all tenants share.
    GucRegistry::define_int_guc(
        c"kb.max_document_size",
        c"Sets the maximum size of a document.",
        c"",
        &MAX_DOCUMENT_SIZE,
        1,
        1024 * 1024,
        GucContext::Suset,
        GucFlags::UNIT_KB,
    );
    // These three bound the memory and the time that the worker, which all tenants share, and kb.chunk in a
    // session take.
    GucRegistry::define_int_guc(
        c"kb.max_extracted_size",
        c"Sets the maximum size of the text extracted from a document, and of all its chunks together.",
        c"A document that exceeds it fails and is listed in kb.failures.",
        &MAX_EXTRACTED_SIZE,
        1,
        1024 * 1024,
        GucContext::Suset,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"kb.max_chunks_per_document",
        c"Sets the maximum number of chunks of a document.",
        c"A document that exceeds it fails and is listed in kb.failures.",
        &MAX_CHUNKS_PER_DOCUMENT,
        1,
        10_000_000,
        GucContext::Suset,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"kb.extract_timeout",
        c"Sets the maximum time to parse a document and split it into chunks.",
        c"A document that takes longer fails and is listed in kb.failures. Zero disables the limit.",
        &EXTRACT_TIMEOUT,
        0,
        86_400_000,
        GucContext::Suset,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"kb.extract_memory",
        c"Sets the maximum memory (address space) of the program kb-extract.",
        c"A file that needs more fails and is listed in kb.failures.",
        &EXTRACT_MEMORY,
        256 * 1024,
        64 * 1024 * 1024,
        GucContext::Sighup,
        GucFlags::UNIT_KB,
    );
    GucRegistry::define_int_guc(
        c"kb.worker_idle_timeout",
        c"Sets the time without work after which the worker of a database exits.",
        c"",
        &WORKER_IDLE_TIMEOUT,
        1_000,
        86_400_000,
        GucContext::Sighup,
        GucFlags::UNIT_MS,
    );
    GucRegistry::define_int_guc(
        c"kb.lease_duration",
        c"Sets the time for which a worker keeps a job before another worker may take it over.",
        c"",
        &LEASE_DURATION,
        10,
        86_400,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"kb.max_attempts",
        c"Sets the maximum number of attempts to process a document.",
        c"",
        &MAX_ATTEMPTS,
        1,
        1000,
        GucContext::Sighup,
        GucFlags::default(),
    );
    // Each index build takes up to maintenance_work_mem.
    GucRegistry::define_int_guc(
        c"kb.max_index_builds",
        c"Sets the maximum number of HNSW indexes that are built at the same time in all databases.",
        c"",
        &MAX_INDEX_BUILDS,
        1,
        64,
        GucContext::Sighup,
        GucFlags::default(),
    );
    GucRegistry::define_int_guc(
        c"kb.launcher_naptime",
        c"Sets the time between the launcher's checks of all databases.",
        c"",
        &LAUNCHER_NAPTIME,
        1,
        86_400,
        GucContext::Sighup,
        GucFlags::UNIT_S,
    );
    GucRegistry::define_int_guc(
        c"kb.query_log_days",
        c"Sets the number of days after which logged questions are deleted.",
        c"",
        &QUERY_LOG_DAYS,
        1,
        36_500,
        GucContext::Sighup,
        GucFlags::default(),
    );
    // For tests; a release does not have it.
    #[cfg(debug_assertions)]
    GucRegistry::define_string_guc(
        c"kb.forced_scan",
        c"Sets how a filtered question finds the nearest vectors: list, index or join.",
        c"",
        &FORCED_SCAN,
        GucContext::Suset,
        GucFlags::NO_SHOW_ALL,
    );
    #[cfg(debug_assertions)]
    GucRegistry::define_int_guc(
        c"kb.forced_tail",
        c"Sets the maximum number of vectors without an index; zero means as many as can be compared quickly.",
        c"",
        &FORCED_TAIL,
        0,
        i32::MAX,
        GucContext::Suset,
        GucFlags::NO_SHOW_ALL,
    );
    crate::pg::setting::reserve_prefix(c"kb");
}

fn text(setting: &GucSetting<Option<CString>>) -> String {
    setting.get().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
}

fn whole(setting: &GucSetting<i32>) -> u64 {
    u64::try_from(setting.get()).unwrap_or(0)
}

/// The tenant for which the session asks to act, or an empty string if it names none.
pub fn tenant() -> String {
    text(&TENANT)
}

/// What kb.http may be used for, separated by spaces; an empty string means everything.
pub fn scopes() -> String {
    text(&SCOPES)
}

/// The embedder that setting kb.default_embedder fixes, or an empty string.
pub fn default_embedder() -> String {
    text(&DEFAULT_EMBEDDER)
}

/// The directory of local models. A relative path is relative to the share directory.
pub fn model_dir() -> PathBuf {
    let given = text(&MODEL_DIR);
    if given.is_empty() { share_dir().join("kb/models") } else { share_dir().join(given) }
}

/// The program kb-extract.
pub fn extract_program() -> PathBuf {
    let given = text(&EXTRACT_PROGRAM);
    library_dir().join(if given.is_empty() { "kb-extract" } else { &given })
}

/// In bytes.
pub fn extract_memory() -> u64 {
    whole(&EXTRACT_MEMORY) * 1024
}

/// The directories whose files sources may read, without a slash at the end.
pub fn source_dirs() -> Vec<String> {
    let dirs = text(&SOURCE_DIRS);
    let dirs = dirs.split(',').map(str::trim).filter(|dir| dir.starts_with('/'));
    dirs.map(|dir| dir.trim_end_matches('/').to_string()).collect()
}

/// The places where keys may be kept. A list of variables that cannot be read allows none.
pub fn secret_sources() -> Sources {
    let dir = text(&SECRET_DIR);
    Sources {
        dir: (!dir.is_empty()).then(|| PathBuf::from(dir)),
        variables: Variables::parse(&text(&SECRET_ENV)).unwrap_or_default(),
        sealing: sealing_keys(),
    }
}

/// The keys under which stored secrets are sealed.
pub fn sealing_keys() -> SealingKeys {
    SealingKeys::new(&text(&SECRET_KEY))
}

/// The hosts where embedders may be. A setting that cannot be read allows none.
pub fn allowed_hosts() -> AllowedHosts {
    AllowedHosts::parse(&text(&ALLOWED_HOSTS)).unwrap_or_else(|_| AllowedHosts::none())
}

pub fn gateway_timeout() -> Duration {
    Duration::from_millis(whole(&GATEWAY_TIMEOUT))
}

/// The time for an answer of a chat model, with all that it takes.
pub fn answer_timeout() -> Duration {
    Duration::from_millis(whole(&ANSWER_TIMEOUT))
}

pub fn query_cache_size() -> usize {
    whole(&QUERY_CACHE_SIZE) as usize
}

/// In bytes.
pub fn max_document_size() -> usize {
    whole(&MAX_DOCUMENT_SIZE) as usize * 1024
}

/// The limits of one document. [`Limits`] describes `interrupt`.
pub fn limits(interrupt: fn()) -> Limits {
    let millis = whole(&EXTRACT_TIMEOUT);
    Limits {
        time: (millis > 0).then(|| Duration::from_millis(millis)),
        chunks: whole(&MAX_CHUNKS_PER_DOCUMENT) as usize,
        bytes: whole(&MAX_EXTRACTED_SIZE) as usize * 1024,
        interrupt,
    }
}

pub fn worker_idle_timeout() -> Duration {
    Duration::from_millis(whole(&WORKER_IDLE_TIMEOUT))
}

pub fn lease_duration() -> Duration {
    Duration::from_secs(whole(&LEASE_DURATION))
}

pub fn max_attempts() -> i32 {
    MAX_ATTEMPTS.get()
}

pub fn query_log_days() -> i64 {
    i64::from(QUERY_LOG_DAYS.get())
}

pub fn model_threads() -> usize {
    MODEL_THREADS.get().max(0) as usize
}

pub fn max_index_builds() -> i32 {
    MAX_INDEX_BUILDS.get()
}

pub fn launcher_naptime() -> Duration {
    Duration::from_secs(whole(&LAUNCHER_NAPTIME))
}

/// The number of vectors without an index that a test allows.
pub fn forced_tail() -> Option<u64> {
    #[cfg(debug_assertions)]
    return Some(whole(&FORCED_TAIL)).filter(|most| *most > 0);
    #[cfg(not(debug_assertions))]
    None
}

/// The way in which a test makes filtered questions look for vectors.
pub fn forced_scan() -> Option<Forced> {
    #[cfg(debug_assertions)]
    return match text(&FORCED_SCAN).as_str() {
        "list" => Some(Forced::List),
        "index" => Some(Forced::Index),
        "join" => Some(Forced::Join),
        _ => None,
    };
    #[cfg(not(debug_assertions))]
    None
}
