//! kb.health: examines every part that a working kb needs.

use crate::documents::stored;
use crate::evaluate::poor_indexes::poor_indexes;
use crate::extract::Program;
use crate::gateway::client;
use crate::jobs::queue;
use crate::models::{origins, services};
use crate::pg::pidfile::{Presence, presence};
use crate::pg::role::as_owner;
use crate::pg::{background, report, wake};
use crate::settings;
use crate::sql::server_catalogs;
use crate::tables::sources::catalog;
use crate::tenants::bindings;
use crate::vectors;
use crate::vectors::grants;
use kb_inference::CrossEncoder;
use kb_text::model_files::ModelFiles;
use kb_types::ServiceKind;
use kb_types::error::Result;
use kb_types::extraction::VERSION;

/// The state of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Ok,
    Warning,
    Error,
}

kb_types::named!(Status { Ok => "ok", Warning => "warning", Error => "error" });

/// One row of the report.
pub struct Finding {
    pub component: &'static str,
    pub status: Status,
    pub detail: String,
    pub hint: Option<String>,
}

fn finding(component: &'static str, status: Status, detail: String, hint: &str) -> Finding {
    Finding { component, status, detail, hint: (!hint.is_empty()).then(|| hint.to_string()) }
}

/// Earlier versions of pgvector have no iterative scan.
const PGVECTOR_NEEDED: [u32; 3] = [0, 8, 0];
/// Bugs that later versions of pgvector have fixed and that can lose or corrupt what kb stores, according to
/// its changelog.
const PGVECTOR_FIXES: [([u32; 3], &str); 3] = [
    ([0, 8, 2], "a buffer overflow when an HNSW index is built in parallel (fixed in 0.8.2)"),
    ([0, 8, 3], "HNSW indexes that VACUUM may corrupt (0.8.3)"),
    ([0, 8, 4], "errors of VACUUM (\"hnsw graph not repaired\") and of inserts beside it (0.8.4)"),
];

/// One finding for each component, in the order in which an operator would check them.
pub fn health() -> Result<Vec<Finding>> {
    Ok(vec![
        pgvector()?,
        preload(),
        gateway(),
        providers()?,
        documents()?,
        failures()?,
        sources()?,
        tables()?,
        indexes()?,
        recall()?,
        rights()?,
        worker()?,
        processes()?,
        models()?,
        extractor(),
    ])
}

fn pgvector() -> Result<Finding> {
    let version = server_catalogs::extension_version("vector")?.unwrap_or_default();
    let mut numbers = version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    let found = [(); 3].map(|()| numbers.next().unwrap_or(0));
    let detail = format!("version {version}");
    if found < PGVECTOR_NEEDED {
        let hint = "Install pgvector 0.8 or later and run ALTER EXTENSION vector UPDATE.";
        return Ok(finding("pgvector", Status::Error, detail, hint));
    }
    let faults: Vec<&str> =
        PGVECTOR_FIXES.iter().filter(|(fixed, _)| found < *fixed).map(|(_, fault)| *fault).collect();
    match server_catalogs::vector_schema_without_usage()? {
        None if faults.is_empty() => Ok(finding("pgvector", Status::Ok, detail, "")),
        None => Ok(finding(
            "pgvector",
            Status::Warning,
            format!("{detail} has {}", faults.join(", ")),
            "Install pgvector 0.8.4 or later, run ALTER EXTENSION vector UPDATE, and open new sessions. REINDEX INDEX \
             rebuilds an index that may be corrupted.",
        )),
        Some((schema, grant)) => Ok(finding(
            "pgvector",
            Status::Error,
            format!(
                "{detail} is in schema {schema}, which role kb_vectors may not use, so queries by vector fail"
            ),
            &grant,
        )),
    }
}

fn preload() -> Finding {
    if background::preloaded() {
        return finding("preload", Status::Ok, "kb is in shared_preload_libraries".into(), "");
    }
    finding(
        "preload",
        Status::Ok,
        "kb is not in shared_preload_libraries; workers start on demand".into(),
        "If it were, pending documents would be processed after a restart before anybody uses the database, and the \
         first query would not wait for the gateway to start.",
    )
}

fn gateway() -> Finding {
    match client::health(settings::gateway_timeout()) {
        Ok(health) => finding(
            "gateway",
            Status::Ok,
            format!("models loaded: {}, endpoints paused: {}", health.models, health.open_breakers),
            "",
        ),
        Err(error) => finding(
            "gateway",
            Status::Error,
            error.to_string(),
            "Look for lines with \"kb\" in the server log. If no slot is free, raise max_worker_processes.",
        ),
    }
}

/// Remote embedders for which documents are waiting.
fn providers() -> Result<Finding> {
    let name = "providers";
    if !as_owner(origins::is_own)? {
        return Ok(finding(
            name,
            Status::Warning,
            "this database was restored or cloned from another, and sends no requests to remote embedders"
                .into(),
            "To allow this copy to spend money at providers, run SELECT kb.acknowledge_restore().",
        ));
    }
    waiting(
        name,
        true,
        "no document waits for a failing or paused embedder",
        "Documents are retried automatically. SELECT kb.check_embedder(id) checks an embedder now.",
    )
}

/// Faults other than those of embedders for which documents are waiting, such as a full disk.
fn documents() -> Result<Finding> {
    waiting(
        "documents",
        false,
        "no document waits after an error",
        "Fix the cause, which the server log describes. The documents are retried automatically.",
    )
}

/// Documents that failed.
fn failures() -> Result<Finding> {
    let name = "failures";
    let (failed, knowledge_bases) = stored::failed()?;
    if failed == 0 {
        return Ok(finding(name, Status::Ok, "no document failed".into(), ""));
    }
    Ok(finding(
        name,
        Status::Warning,
        format!("failed documents: {failed}, in knowledge bases: {knowledge_bases}"),
        "List them and the reasons with SELECT * FROM kb.failures. kb.retry(kb_id) retries them.",
    ))
}

/// Attached tables that can no longer be read, or whose rows no tenant can read.
fn sources() -> Result<Finding> {
    let faults = catalog::with_errors()?;
    let tenant = bindings::current()?;
    let unreadable = as_owner(|| catalog::unreadable(&tenant))?;
    let mut hints = Vec::new();
    if !faults.is_empty() {
        hints.push(
            "Attach the table again as it is now (kb.attach_table), or detach it (kb.detach_table); change the source \
             (kb.alter_source), or what it reads.",
        );
    }
    if !unreadable.is_empty() {
        hints.push(
            "Share the knowledge base with the tenants that own these rows (kb.share), or ask a member of kb_admin to \
             move it to tenant \"shared\" (kb.move_knowledge_base).",
        );
    }
    let of_nobody = |(table, kb): (String, String)| {
        format!("{table}: it has rows of tenants that cannot read knowledge base \"{kb}\"")
    };
    let faults = faults.into_iter().map(|(table, error)| format!("{table}: {error}"));
    let faults: Vec<String> = faults.chain(unreadable.into_iter().map(of_nobody)).collect();
    Ok(match faults.is_empty() {
        true => finding("sources", Status::Ok, "every attached table can be read".into(), ""),
        false => finding("sources", Status::Warning, faults.join("; "), &hints.join(" ")),
    })
}

/// The errors because of which documents are waiting: those of embedders, or all others.
fn waiting(name: &'static str, of_embedders: bool, nothing: &str, hint: &str) -> Result<Finding> {
    let errors = queue::last_errors(of_embedders, 5)?;
    Ok(match errors.is_empty() {
        true => finding(name, Status::Ok, nothing.into(), ""),
        false => finding(name, Status::Warning, errors.join("; "), hint),
    })
}

/// Vector tables that were dropped by hand.
fn tables() -> Result<Finding> {
    let lost = vectors::lost()?;
    if lost.is_empty() {
        return Ok(finding("tables", Status::Ok, "every vector table exists".into(), ""));
    }
    Ok(finding(
        "tables",
        Status::Error,
        lost.join("; "),
        "kb.ingest(kb_id, 'replace') creates a new table and embeds the documents again.",
    ))
}

/// Transactions for which an index build waits: CREATE INDEX CONCURRENTLY ends only after every transaction
/// that was open when it began.
fn indexes() -> Result<Finding> {
    let name = "indexes";
    let waits = as_owner(server_catalogs::index_builds_that_wait)?;
    if waits.is_empty() {
        return Ok(finding(name, Status::Ok, "no index build waits for a transaction".into(), ""));
    }
    let waits: Vec<String> = waits
        .into_iter()
        .map(|wait| match wait.seconds {
            Some(seconds) => format!("process {}, whose transaction has been open for {seconds} s", wait.pid),
            None => format!("process {}", wait.pid),
        })
        .collect();
    Ok(finding(
        name,
        Status::Warning,
        format!("an index build waits for {}", waits.join(" and for ")),
        "End that transaction, or run SELECT pg_terminate_backend(pid). Until then, vectors without an index are \
         compared one by one.",
    ))
}

/// Indexes that missed too much when they were last measured.
fn recall() -> Result<Finding> {
    let name = "recall";
    Ok(match poor_indexes()? {
        None => finding(name, Status::Ok, "no index was measured to have a low recall".into(), ""),
        Some((detail, hint)) => finding(name, Status::Warning, detail, &hint),
    })
}

/// Rights on kb's objects that kb did not grant.
fn rights() -> Result<Finding> {
    let name = "grants";
    let of_others = as_owner(grants::of_others)?;
    if of_others.is_empty() {
        return Ok(finding(
            name,
            Status::Ok,
            "no role has privileges on kb's objects that kb did not grant".into(),
            "",
        ));
    }
    let rights: Vec<String> = of_others
        .into_iter()
        .map(|(grantee, first, more)| match more {
            0 => format!("{grantee}: {first}"),
            more => format!("{grantee}: {first}, and {more} more"),
        })
        .collect();
    Ok(finding(
        name,
        Status::Warning,
        format!("privileges on kb's objects that kb did not grant: {}", rights.join("; ")),
        "Revoke privileges that are not intended (REVOKE). A role that may write kb's tables can read and change the \
         data of every tenant.",
    ))
}

fn worker() -> Result<Finding> {
    if report::in_recovery() {
        return Ok(finding("worker", Status::Ok, "this is a standby, which only answers queries".into(), ""));
    }
    let running = presence(&wake::worker_name(background::my_database()));
    let waiting = queue::any_visible()?;
    Ok(match (running, waiting) {
        (Presence::Running(pid), _) => finding("worker", Status::Ok, format!("running as process {pid}"), ""),
        (Presence::Absent, false) => {
            finding("worker", Status::Ok, "not running, because no document waits".into(), "")
        }
        (Presence::Absent, true) => {
            if wake::slots_are_short() {
                finding(
                    "worker",
                    Status::Warning,
                    "documents wait for a background worker slot; databases are served in turn".into(),
                    "Raise max_worker_processes (needs a restart) to serve more at a time.",
                )
            } else if wake::ensure_worker() {
                finding(
                    "worker",
                    Status::Warning,
                    "documents waited while no worker was running; one has been started".into(),
                    "",
                )
            } else {
                finding(
                    "worker",
                    Status::Error,
                    "documents wait and no worker can be started".into(),
                    "Raise max_worker_processes (needs a restart).",
                )
            }
        }
    })
}

/// Whether max_worker_processes has room for what kb may need at the same time, reported even before a
/// database has to wait.
fn processes() -> Result<Finding> {
    let name = "processes";
    let others = as_owner(server_catalogs::background_demand)?;
    let own = 1 + i64::from(background::preloaded()) + 2 * others.databases;
    let (wanted, most) =
        (own + others.parallel + others.replication, i64::from(background::most_processes()));
    let detail = format!(
        "{wanted} of max_worker_processes = {most} may be needed: {own} for kb in {} databases, {} to help build an \
         index, {} for \
         logical replication",
        others.databases, others.parallel, others.replication
    );
    Ok(match wanted > most {
        false => finding(name, Status::Ok, detail, ""),
        true => finding(
            name,
            Status::Warning,
            detail,
            "Raise max_worker_processes (needs a restart); otherwise databases are served in turn.",
        ),
    })
}

fn extractor() -> Finding {
    let program = Program::from_settings();
    match program.check() {
        Ok(()) => finding("extractor", Status::Ok, VERSION.into(), ""),
        Err(error) => {
            finding("extractor", Status::Warning, error.to_string(), &error.hint().unwrap_or_default())
        }
    }
}

fn models() -> Result<Finding> {
    let mut missing = Vec::new();
    let mut found = 0;
    let dir = settings::model_dir();
    for kind in [ServiceKind::Embedder, ServiceKind::Reranker] {
        for row in services::local(kind)? {
            let problem = match kind {
                ServiceKind::Embedder => ModelFiles::open(&dir, &row.model).err(),
                _ => CrossEncoder::check(&dir, &row.model).err(),
            };
            match problem {
                None => found += 1,
                Some(error) => missing.push(format!("{kind} \"{}\": {error}", row.id)),
            }
        }
    }
    Ok(if missing.is_empty() {
        finding("models", Status::Ok, format!("the files of {found} local models are present"), "")
    } else {
        finding(
            "models",
            Status::Warning,
            missing.join("; "),
            "Put the files under kb.model_dir, or use another embedder (hash needs none).",
        )
    })
}
