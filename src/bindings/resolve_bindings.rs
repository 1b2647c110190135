//! kb.resolve_bindings: the bindings that apply at one place, merged over its scopes.

use crate::bindings::sql::bindings;
use crate::builds::knowledge_bases;
use kb_search::bindings::{Binding, Scope, resolve};
use kb_types::error::{Error, Result};
use std::collections::HashSet;

/// A binding as it results from all scopes.
#[derive(Debug)]
pub struct BoundKnowledgeBase {
    pub binding: Binding,
    /// The scopes that have it, the widest first.
    pub scopes: Vec<String>,
    /// The knowledge base that it means. None: the caller can read none of this name.
    pub kb_id: Option<String>,
}

/// The bindings of these scopes, each name once, in the order in which the names appear first when the scopes
/// are read from the project to the agent.
pub fn resolve_bindings(scopes: &[String]) -> Result<Vec<BoundKnowledgeBase>> {
    let scopes =
        Scope::parse_all(scopes).map_err(|problem| Error::Argument { argument: "scopes", problem })?;
    let resolved = resolve(bindings::of_scopes(&scopes)?);
    let own = |id_ref: &str| scopes.iter().find_map(|scope| scope.own_id(id_ref));
    let names = resolved.iter().map(|resolved| resolved.binding.id_ref.clone());
    let ids: Vec<String> = names.clone().filter_map(|name| own(&name)).chain(names).collect();
    let readable: HashSet<String> = knowledge_bases::readable(&ids)?.into_iter().collect();
    let meant = |id_ref: &str| {
        let ids = own(id_ref).into_iter().chain([id_ref.to_string()]);
        ids.into_iter().find(|id| readable.contains(id))
    };
    Ok(resolved
        .into_iter()
        .map(|resolved| BoundKnowledgeBase {
            kb_id: meant(&resolved.binding.id_ref),
            scopes: resolved.scopes,
            binding: resolved.binding,
        })
        .collect())
}
