//! kb.apply.

use super::differences;
use super::make::{is_as_declared, is_of_the_file, make, unmake};
use super::sql::functions::{PutObjects, put_objects};
use super::sql::stored;
use crate::builds::knowledge_bases;
use crate::models::{default_embedder, services};
use crate::pg::advisory;
use crate::pg::report::check_interrupts;
use crate::pg::subtransaction::{Raised, in_subtransaction, in_subtransaction_with_report};
use crate::pg::txn;
use crate::resources::{self, Resource};
use crate::tenants::bindings;
use kb_declared::declaration::{Declaration, Identity, Kind, Problem};
use kb_declared::read;
use kb_types::error::{Error, Result};
use kb_types::{ServiceKind, sizes};
use serde_json::{Map, Value, json};
use std::collections::{BTreeSet, HashMap};

/// The most bytes of a file.
const LONGEST: usize = 4 * 1024 * 1024;

type Stored = HashMap<Identity, Map<String, Value>>;

/// The SQLSTATE of an invalid configuration.
const INVALID: &str = "22023";

/// What became of one thing.
pub struct Applied {
    pub identity: Identity,
    /// created, changed, unchanged or pruned.
    pub action: &'static str,
    /// Lines of YAML that begin with - or +.
    pub difference: String,
}

/// Makes what the YAML declares. With `prune`, what the caller's tenant has besides is dropped, of the kinds
/// that are declared; sources, tables, indexes and shares only of the knowledge bases that are declared,
/// bindings only of the scopes. With `dry_run`, everything is undone. `if_match` is the etag of the one
/// resource that is declared.
pub fn apply(yaml: &str, dry_run: bool, prune: bool, if_match: Option<&str>) -> Result<Vec<Applied>> {
    if let Some(problem) = sizes::problem(yaml.len(), LONGEST) {
        return Err(Error::Argument { argument: "yaml", problem });
    }
    let declared = with_names_of_tables(read::declarations(yaml).map_err(invalid)?)?;
    // Two calls at the same time would each see what the other changes as its own.
    advisory::lock(&format!("what is declared of {}", bindings::current()?));
    if let Some(etag) = if_match {
        let (resource, id) = only_resource(&declared)?;
        resources::check(resource, id, Some(etag))?;
    }
    if !dry_run {
        return apply_all(&declared, prune);
    }
    let mut applied = None;
    let undone = in_subtransaction(|| -> Result<()> {
        applied = Some(apply_all(&declared, prune)?);
        Err(Error::State { problem: "it was only tried".into(), hint: String::new() })
    });
    match (applied, undone) {
        (Some(applied), _) => Ok(applied),
        (None, Err(error)) => Err(error),
        (None, Ok(())) => Ok(Vec::new()),
    }
}

/// Names tables as kb.sources does. One that does not exist keeps its name, and fails later.
fn with_names_of_tables(mut declared: Vec<Declaration>) -> Result<Vec<Declaration>> {
    let mut known = BTreeSet::new();
    let mut problems = Vec::new();
    for one in declared.iter_mut().filter(|one| one.identity.kind == Kind::Table) {
        // A text that is no name at all raises an error.
        match in_subtransaction(|| stored::printed_name(&one.identity.id)) {
            Ok(Some(name)) => one.identity.id = name,
            Err(error) if !is_of_the_file(&error) => return Err(error),
            Ok(None) | Err(_) => {}
        }
        if !known.insert(one.identity.clone()) {
            problems.push(one.place.problem(format!("table \"{}\" is declared twice", one.identity.text())));
        }
    }
    if problems.is_empty() { Ok(declared) } else { Err(invalid(problems)) }
}

/// The one thing of the file that has an etag.
fn only_resource(declared: &[Declaration]) -> Result<(Resource<'_>, &str)> {
    let resource = |one: &Identity| match one.kind {
        Kind::Llm => Some(Resource::Service(ServiceKind::Llm)),
        Kind::Embedder => Some(Resource::Service(ServiceKind::Embedder)),
        Kind::Reranker => Some(Resource::Service(ServiceKind::Reranker)),
        Kind::Extractor => Some(Resource::Service(ServiceKind::Extractor)),
        Kind::VectorDb => Some(Resource::VectorDb),
        Kind::KnowledgeBase | Kind::Memory => Some(Resource::KnowledgeBase),
        _ => None,
    };
    let mut found =
        declared.iter().filter_map(|one| Some((resource(&one.identity)?, one.identity.id.as_str())));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        _ => Err(Error::Argument {
            argument: "if_match",
            problem: "the file must declare exactly one embedder, vector database, knowledge base, memory, \
                      chat model, reranker or extractor"
                .into(),
        }),
    }
}

fn invalid(mut problems: Vec<Problem>) -> Error {
    problems.sort();
    Error::configuration("the file", problems.iter().map(Problem::to_string).collect())
}

fn apply_all(declared: &[Declaration], prune: bool) -> Result<Vec<Applied>> {
    // The statement's own snapshot does not show what it makes.
    let all = || txn::with_latest_snapshot(stored::all);
    let in_order = all()?;
    let before: Stored = in_order.iter().cloned().collect();
    let mut problems = Vec::new();
    let mut failed: BTreeSet<Identity> = BTreeSet::new();
    let mut objects: HashMap<&Identity, PutObjects> = HashMap::new();
    for declaration in declared {
        check_interrupts();
        if needed(declaration).iter().any(|needed| failed.contains(needed)) {
            failed.insert(declaration.identity.clone());
            continue;
        }
        let properties = completed(declaration, declared);
        let known = before.get(&declaration.identity);
        let identity = &declaration.identity;
        let made = in_subtransaction_with_report(|| match (identity.kind, properties.get("objects")) {
            (Kind::Objects, Some(given)) => put_objects(&identity.of, given).map(Some),
            _ => make(identity, &properties, known).map(|()| None),
        });
        objects.extend(made.as_ref().ok().cloned().flatten().map(|put| (identity, put)));
        if let Err(Raised { error, detail, .. }) = made {
            if !is_of_the_file(&error) {
                return Err(error);
            }
            problems.extend(located(declaration, &error, detail));
            failed.insert(declaration.identity.clone());
        }
    }
    problems.extend(txn::with_latest_snapshot(|| dangling(declared, &failed, &before))?);
    if !problems.is_empty() {
        return Err(invalid(problems));
    }
    let pruned: Vec<&Identity> = match prune {
        true => superfluous(declared, in_order.iter().map(|(identity, _)| identity)),
        false => Vec::new(),
    };
    // What is made last goes first.
    for identity in pruned.iter().rev() {
        unmake(identity, &before[*identity])?;
    }
    let after: Stored = all()?.into_iter().collect();
    let applied = declared.iter().map(|declaration| {
        let identity = declaration.identity.clone();
        if let Some(put) = objects.get(&identity) {
            return of_objects(identity, put);
        }
        let (old, new) = (before.get(&identity), after.get(&identity));
        let action = match old {
            None => "created",
            Some(_) if old == new => "unchanged",
            Some(_) => "changed",
        };
        Applied { action, difference: differences::lines(&identity, old, new), identity }
    });
    let pruned = pruned.into_iter().map(|identity| Applied {
        action: "pruned",
        difference: differences::lines(identity, before.get(identity), None),
        identity: identity.clone(),
    });
    Ok(applied.chain(pruned).collect())
}

/// What became of the objects of an agent.
fn of_objects(identity: Identity, put: &PutObjects) -> Applied {
    let PutObjects { added, updated, skipped, deleted } = *put;
    let action = match (updated + skipped + deleted, added + updated + deleted) {
        (0, _) => "created",
        (_, 0) => "unchanged",
        _ => "changed",
    };
    let counts = [("-", "deleted", deleted), ("+", "added", added), ("+", "updated", updated)];
    let lines = counts.iter().filter(|(.., count)| *count > 0);
    let lines: Vec<String> = lines.map(|(sign, what, count)| format!("{sign} {what}: {count}")).collect();
    Applied { identity, action, difference: lines.join("\n") }
}

/// What has to be there before a thing can be made.
fn needed(declaration: &Declaration) -> Vec<Identity> {
    let Declaration { identity, properties, .. } = declaration;
    let named = |name: &str| properties.get(name).and_then(Value::as_str);
    match identity.kind {
        Kind::KnowledgeBase | Kind::Memory => {
            let embedder = named("embedder").map(|id| Identity::new(Kind::Embedder, "", id));
            let vector_db = named("vector_db").map(|id| Identity::new(Kind::VectorDb, "", id));
            embedder.into_iter().chain(vector_db).collect()
        }
        _ => identity.owners(),
    }
}

/// The properties, for a vector database with the dimension of the embedder that fills it.
fn completed(declaration: &Declaration, declared: &[Declaration]) -> Map<String, Value> {
    let Declaration { identity, properties, .. } = declaration;
    let mut properties = properties.clone();
    if identity.kind == Kind::VectorDb && !properties.contains_key("dimension") {
        let user = declared.iter().find(|user| {
            user.properties.get("vector_db").and_then(Value::as_str) == Some(&identity.id)
                && matches!(user.identity.kind, Kind::KnowledgeBase | Kind::Memory)
        });
        let embedder = user.map(|user| {
            let named = user.properties.get("embedder").and_then(Value::as_str).map(str::to_string);
            named.map_or_else(default_embedder, Ok)
        });
        let found = |embedder: String| txn::with_latest_snapshot(|| services::find_embedder(&embedder));
        let found = embedder.and_then(|embedder| found(embedder.ok()?).ok().flatten());
        if let Some(embedder) = found {
            properties.insert("dimension".into(), json!(embedder.dimension));
        }
    }
    properties
}

/// What an error says, each problem where it is in the file.
fn located(declaration: &Declaration, error: &Error, detail: Option<String>) -> Vec<Problem> {
    let Identity { kind, .. } = declaration.identity;
    let name = format!("{} \"{}\"", kind.name().replace('_', " "), declaration.identity.text());
    let problems = match (error, detail) {
        // The detail of an invalid configuration has a problem in each line.
        (error, Some(detail)) if error.sqlstate() == INVALID => detail.lines().map(str::to_string).collect(),
        (error, Some(detail)) => vec![format!("{error}: {detail}")],
        (error, None) => vec![error.to_string()],
    };
    let located = |problem: &String| declaration.place_of(problem).problem(format!("{name}: {problem}"));
    problems.iter().map(located).collect()
}

/// Bindings of knowledge bases that do not exist. They would never be asked. Those that are there already
/// are left alone: their knowledge base was dropped.
fn dangling(declared: &[Declaration], failed: &BTreeSet<Identity>, before: &Stored) -> Result<Vec<Problem>> {
    let mut problems = Vec::new();
    // The scopes that have a knowledge base of their own under a name. A task or agent may be of any
    // workflow, and a workflow may have any tasks and agents.
    let mut scopes: HashMap<&str, Vec<&str>> = HashMap::new();
    for one in declared.iter().filter(|one| one.identity.kind == Kind::KnowledgeBase) {
        if let Some((scope, name)) = one.identity.id.split_once('/') {
            scopes.entry(name).or_default().push(scope);
        }
    }
    let is_asked = |one: &&Declaration| {
        one.identity.kind == Kind::Binding
            && !failed.contains(&one.identity)
            && !is_as_declared(&one.properties, before.get(&one.identity))
    };
    for one in declared.iter().filter(is_asked) {
        let (id, of) = (&one.identity.id, one.identity.of.as_str());
        let own = scopes.get(id.as_str()).into_iter().flatten().copied().chain([of]);
        let own = own.filter(|_| of != "project");
        let ids: Vec<String> = own.map(|scope| format!("{scope}/{id}")).chain([id.clone()]).collect();
        let is_failed = ids.iter().any(|id| failed.contains(&Identity::new(Kind::KnowledgeBase, "", id)));
        if !is_failed && knowledge_bases::readable(&ids)?.is_empty() {
            problems.push(one.place.problem(format!(
                "binding \"{}\": knowledge base \"{id}\" does not exist",
                one.identity.text()
            )));
        }
    }
    Ok(problems)
}

/// What is there besides the declared things, in the order in which it was made.
fn superfluous<'a>(declared: &[Declaration], there: impl Iterator<Item = &'a Identity>) -> Vec<&'a Identity> {
    let known: BTreeSet<&Identity> = declared.iter().map(|one| &one.identity).collect();
    let kinds: BTreeSet<Kind> = known.iter().map(|identity| identity.kind).collect();
    let scopes: BTreeSet<&str> =
        known.iter().filter(|one| one.kind == Kind::Binding).map(|one| one.of.as_str()).collect();
    there
        .filter(|identity| !known.contains(identity))
        .filter(|identity| match identity.kind {
            Kind::MetadataIndex | Kind::Source | Kind::Share | Kind::Table => {
                identity.owners().iter().any(|owner| known.contains(owner))
            }
            Kind::Binding => scopes.contains(identity.of.as_str()),
            kind => kinds.contains(&kind),
        })
        .collect()
}
