//! kb.create_source and kb.alter_source.

use super::bucket::BucketConfig;
use super::config::{Allowed, Origin, SourceConfig, SourceType};
use super::query_columns;
use super::schedule;
use super::sql::catalog;
use super::sql::catalog::{Creator, Source};
use crate::builds::knowledge_bases;
use crate::builds::knowledge_bases::KnowledgeBase;
use crate::models::origins;
use crate::pg::role::{acting_roles, as_owner, caller_is, caller_name};
use crate::pg::subtransaction::in_subtransaction;
use crate::settings;
use crate::tenants::quota;
use kb_gateway::endpoint::secret_reference::Reference;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::named::Named;
use kb_types::quota::Thing;
use kb_types::{id, sizes};
use serde_json::Value;

/// The shortest time between two runs.
const SHORTEST: f64 = 1.0;

/// Creates a source, or finds the same one. Returns its number.
pub fn create_source(kb_id: &str, name: &str, type_name: &str, config: &Value) -> Result<i64> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let mut problems = Vec::new();
    problems.extend(id::problem(name, id::MAX_BYTES).map(|problem| format!("name: {problem}")));
    // Ids of documents begin with the name and a slash: so no two sources have the same.
    if name.contains('/') {
        problems.push("name: it must not contain a slash".into());
    }
    let kind =
        SourceType::one_of(type_name).map_err(|problem| problems.push(format!("type: {problem}"))).ok();
    if kind.is_none_or(SourceType::is_read_by_server) {
        may_name_paths()?;
    }
    let config = kind.and_then(|kind| check(&kb, kind, config).map_err(|found| problems.extend(found)).ok());
    let (Some(kind), Some(config), true) = (kind, config, problems.is_empty()) else {
        return Err(Error::configuration(format!("source \"{name}\""), problems));
    };
    let creator = creator();
    as_owner(|| {
        let kb = knowledge_bases::lock(&kb)?;
        if let Some(source) = catalog::by_name(kb.kb_no, name)? {
            return match source.kind == kind && source.config == config.to_json() {
                true => Ok(source.source_no),
                false => Err(Error::AlreadyExists { what: ObjectKind::Source, id: name.into() }),
            };
        }
        quota::check(&kb.tenant_id, Thing::AttachedTables)?;
        adopt(&config)?;
        quota::within(&kb.tenant_id, || catalog::insert(&kb, name, kind, &config, &creator))
    })
}

/// Replaces the configuration of a source. Its documents are read again.
pub fn alter_source(kb_id: &str, name: &str, config: &Value) -> Result<()> {
    let kb = knowledge_bases::get_own(kb_id)?;
    let kind = as_owner(|| get(&kb, name))?.kind;
    if kind.is_read_by_server() {
        may_name_paths()?;
    }
    let config = check(&kb, kind, config)
        .map_err(|problems| Error::configuration(format!("source \"{name}\""), problems))?;
    let creator = creator();
    as_owner(|| {
        let kb = knowledge_bases::lock(&kb)?;
        let source = get(&kb, name)?;
        adopt(&config)?;
        quota::within(&kb.tenant_id, || catalog::update(source.source_no, &config, &creator))
    })
}

/// The source of this name. Must run as the owner.
pub fn get(kb: &KnowledgeBase, name: &str) -> Result<Source> {
    catalog::by_name(kb.kb_no, name)?
        .ok_or_else(|| Error::NotFound { what: ObjectKind::Source, id: name.into() })
}

fn creator() -> Creator {
    let (roles, oids) = acting_roles();
    Creator { name: caller_name(), roles, oids }
}

/// A path decides which files the server reads, and an address where it connects to.
pub fn may_name_paths() -> Result<()> {
    match caller_is("kb_admin") {
        true => Ok(()),
        false => Err(Error::Permission {
            problem: "naming the path or address of a source requires kb_admin".into(),
        }),
    }
}

/// Records with the first secret of a source that this database may use it. Its copies may not.
fn adopt(config: &SourceConfig) -> Result<()> {
    match &config.origin {
        Origin::Bucket(bucket) if bucket.secret.is_some() => origins::adopt_if_none(),
        _ => Ok(()),
    }
}

/// What the server's settings say against a bucket.
fn check_bucket(bucket: &BucketConfig) -> Vec<String> {
    let mut problems = Vec::new();
    if let Err(problem) = settings::allowed_hosts().check(&bucket.bucket.url(), true) {
        problems.push(format!("config.endpoint: {problem}"));
    }
    let sources = settings::secret_sources();
    if let Some(Ok(reference)) = bucket.secret.as_deref().map(Reference::parse) {
        let listed = match &reference {
            Reference::Env(variable) => sources.variables.check(variable),
            _ => Ok(()),
        };
        let problem = listed.and_then(|()| reference.check_use(&sources)).err();
        problems.extend(problem.map(|problem| format!("config.secret: {problem}")));
    }
    problems
}

/// What the server's settings allow.
pub fn allowed() -> Allowed {
    Allowed {
        dirs: settings::source_dirs(),
        hosts: settings::allowed_hosts(),
        max_size: settings::max_document_size(),
    }
}

fn check(kb: &KnowledgeBase, kind: SourceType, config: &Value) -> Result<SourceConfig, Vec<String>> {
    let config = SourceConfig::parse(kind, config, &allowed())?;
    let mut problems = match &config.origin {
        Origin::Bucket(bucket) => check_bucket(bucket),
        _ => Vec::new(),
    };
    if let Some(every) = &config.every {
        match in_subtransaction(|| catalog::seconds(every)) {
            _ if schedule::next(every).is_some() => {}
            Ok(seconds) if seconds >= SHORTEST => {}
            Ok(_) => problems.push("config.every: must be a second or longer".to_string()),
            Err(error) => {
                problems.push(format!("config.every: {error}, and it is no cron expression either"))
            }
        }
    }
    if let Origin::Query(query) = &config.origin {
        let found = query_columns::problems(&query.query);
        problems.extend(found.into_iter().map(|problem| format!("config.query: {problem}")));
    }
    let keys: Vec<&str> =
        config.metadata.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect();
    problems.extend(kb.retrieval.key_problem(keys).map(|problem| format!("config.metadata: {problem}")));
    let size = config.to_json().to_string().len();
    problems.extend(sizes::problem(size, sizes::SOURCE).map(|problem| format!("config: as JSON {problem}")));
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}
