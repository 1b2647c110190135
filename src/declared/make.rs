//! Makes, changes and drops one thing, by the SQL function for it.

use super::sql::functions::{attach_table, call};
use super::sql::stored;
use crate::pg::subtransaction::in_subtransaction;
use crate::pg::txn;
use kb_declared::declaration::{Identity, Kind};
use kb_types::error::{Error, Result};
use serde_json::{Map, Value, json};

type Properties = Map<String, Value>;

/// Whether the file can be the cause of the error. It is not the cause of a cancellation, a full disk, a
/// lock or another transaction.
pub fn is_of_the_file(error: &Error) -> bool {
    error.is_of_the_work() && !error.is_conflict()
}

/// Whether a thing exists and has all that is declared of it.
pub fn is_as_declared(declared: &Properties, before: Option<&Properties>) -> bool {
    before.is_some_and(|before| {
        declared.iter().all(|(name, value)| value.is_null() || before.get(name) == Some(value))
    })
}

/// Makes what is declared, or changes what there is of it.
pub fn make(identity: &Identity, declared: &Properties, before: Option<&Properties>) -> Result<()> {
    let Identity { kind, of, id } = identity;
    let (of, id) = (json!(of), json!(id));
    let with = |names: &[&'static str]| given(declared, names);
    if is_as_declared(declared, before) {
        return Ok(());
    }
    match kind {
        Kind::Llm | Kind::Embedder | Kind::Reranker | Kind::Extractor => {
            let mut arguments = with(&["model", "dimension", "base_url", "secret", "config"]);
            arguments.push(("id", &id));
            match before {
                None => {
                    arguments.extend(with(&["provider"]));
                    call(&format!("create_{}", kind.name()), &arguments)
                }
                Some(before) => {
                    same(identity, &["provider"], declared, before)?;
                    call(&format!("alter_{}", kind.name()), &arguments)
                }
            }
        }
        Kind::VectorDb => match before {
            None => {
                let mut arguments = with(&["type", "dimension", "metric", "config"]);
                arguments.push(("id", &id));
                call("create_vector_db", &arguments)
            }
            Some(before) => same(identity, &["type", "dimension", "metric", "config"], declared, before),
        },
        Kind::KnowledgeBase => {
            let mut arguments =
                with(&["embedder", "description", "chunking", "preprocess", "retrieval", "metadata"]);
            arguments.push(("id", &id));
            match before {
                None => {
                    arguments.extend(with(&["vector_db"]));
                    call("create_knowledge_base", &arguments)
                }
                Some(before) => {
                    same(identity, &["vector_db"], declared, before)?;
                    call("alter_knowledge_base", &arguments)
                }
            }
        }
        Kind::Memory => memory(identity, declared, before),
        Kind::MetadataIndex => {
            let mut arguments = with(&["key", "type"]);
            arguments.push(("kb_id", &of));
            call("index_metadata", &arguments)
        }
        Kind::Source => {
            let mut arguments = with(&["type", "config"]);
            arguments.extend([("kb_id", &of), ("name", &id)]);
            let Some(before) = before else { return call("create_source", &arguments) };
            same(identity, &["type"], declared, before)?;
            // A source is found again, and not read again, if it says the same in other words.
            match in_subtransaction(|| call("create_source", &arguments)) {
                Ok(()) => return Ok(()),
                Err(error) if !is_of_the_file(&error) => return Err(error),
                Err(_) => {}
            }
            let mut arguments = with(&["config"]);
            arguments.extend([("kb_id", &of), ("name", &id)]);
            call("alter_source", &arguments)
        }
        Kind::Share => call("share", &[("kb_id", &of), ("tenant", &id)]),
        Kind::Table => attach(identity, declared, before),
        Kind::Objects => Ok(()),
        // These two functions replace the whole, so they are also given what the file does not name.
        Kind::Binding | Kind::Quota => {
            let mut whole = before.cloned().unwrap_or_default();
            whole.extend(declared.clone());
            let replace = json!(true);
            let mut arguments: Vec<(&str, &Value)> =
                whole.iter().map(|(name, value)| (name.as_str(), value)).collect();
            if *kind == Kind::Quota {
                arguments.push(("tenant", &id));
                return call("set_quota", &arguments);
            }
            arguments.extend([("scope", &of), ("id_ref", &id), ("replace", &replace)]);
            call("bind", &arguments)
        }
    }
}

/// An attached table is read again only if it is attached otherwise than before.
fn attach(identity: &Identity, declared: &Properties, before: Option<&Properties>) -> Result<()> {
    let Identity { of, id, .. } = identity;
    let mut whole = before.cloned().unwrap_or_default();
    whole.extend(declared.clone());
    if before.is_none() {
        return attach_table(of, id, &whole);
    }
    let mut is_same = false;
    let attached = in_subtransaction(|| {
        attach_table(of, id, &whole)?;
        let after =
            txn::with_latest_snapshot(stored::tables)?.into_iter().find(|(table, _)| table == identity);
        is_same = after.as_ref().map(|(_, after)| after) == before;
        match is_same {
            true => Err(Error::State { problem: "it is the same".into(), hint: String::new() }),
            false => Ok(()),
        }
    });
    if is_same { Ok(()) } else { attached }
}

/// A memory is a knowledge base with settings of its own, which two functions change.
fn memory(identity: &Identity, declared: &Properties, before: Option<&Properties>) -> Result<()> {
    let id = json!(identity.id);
    let with = |names: &[&'static str]| given(declared, names);
    match before {
        None => {
            let mut arguments = with(&["embedder", "settings", "description", "vector_db"]);
            arguments.push(("id", &id));
            call("create_memory", &arguments)?;
        }
        Some(before) => {
            same(identity, &["vector_db"], declared, before)?;
            if let Some(settings) = declared.get("settings").filter(|new| before.get("settings") != Some(new))
            {
                call("alter_memory", &[("id", &id), ("settings", settings)])?;
            }
        }
    }
    let mut arguments = with(&["chunking", "preprocess", "retrieval", "metadata"]);
    if before.is_some() {
        arguments.extend(with(&["embedder", "description"]));
    }
    if arguments.is_empty() {
        return Ok(());
    }
    arguments.push(("id", &id));
    call("alter_knowledge_base", &arguments)
}

/// The properties of these names that are declared, as arguments.
fn given<'a>(declared: &'a Properties, names: &[&'static str]) -> Vec<(&'static str, &'a Value)> {
    names.iter().filter_map(|name| Some((*name, declared.get(*name)?))).collect()
}

/// Drops what is there.
pub fn unmake(identity: &Identity, before: &Properties) -> Result<()> {
    let Identity { kind, of, id } = identity;
    let (of, id) = (json!(of), json!(id));
    match kind {
        Kind::Llm
        | Kind::Embedder
        | Kind::Reranker
        | Kind::Extractor
        | Kind::VectorDb
        | Kind::KnowledgeBase
        | Kind::Memory => call(&format!("drop_{}", kind.name()), &[("id", &id)]),
        Kind::MetadataIndex => {
            let none = Value::Null;
            let of_index = |name: &str| before.get(name).unwrap_or(&none);
            call("unindex_metadata", &[("kb_id", &of), ("key", of_index("key")), ("type", of_index("type"))])
        }
        Kind::Source => call("drop_source", &[("kb_id", &of), ("name", &id)]),
        Kind::Share => call("unshare", &[("kb_id", &of), ("tenant", &id)]),
        Kind::Table => call("detach_table", &[("kb_id", &of), ("relation", &id)]),
        // They are the documents of their knowledge base.
        Kind::Objects => Ok(()),
        Kind::Binding => call("unbind", &[("scope", &of), ("id_ref", &id)]),
        Kind::Quota => call("set_quota", &[("tenant", &id)]),
    }
}

/// These properties cannot be changed, so what is declared of them must be what they are.
fn same(identity: &Identity, names: &[&str], declared: &Properties, before: &Properties) -> Result<()> {
    let problems: Vec<String> = names
        .iter()
        .filter_map(|name| {
            let wanted = declared.get(*name).filter(|wanted| !wanted.is_null())?;
            let is = before.get(*name).unwrap_or(&Value::Null);
            let is_same = match (wanted, is) {
                (Value::Object(wanted), Value::Object(is)) => {
                    wanted.iter().all(|(name, value)| value.is_null() || is.get(name) == Some(value))
                }
                _ => wanted == is,
            };
            (!is_same).then(|| format!("{name}: is {is}, and cannot be changed; declare it under another id"))
        })
        .collect();
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::configuration(format!("{} \"{}\"", identity.kind.name(), identity.id), problems)),
    }
}
