//! kb.resolve_bindings: the bindings that apply at one place, merged over its scopes.

use crate::bindings::sql::bindings;
use crate::builds::knowledge_bases;
use kb_search::bindings::{Binding, Scope, resolve};
use kb_types::error::{Error, Result};
use std::collections::HashMap;

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
    // The narrowest scope's own one, then those of wider scopes, then the one of this id.
    let candidates = |id_ref: &str| -> Vec<String> {
        let own = scopes.iter().rev().filter_map(|scope| scope.own_id(id_ref));
        own.chain([id_ref.to_string()]).collect()
    };
    let ids: Vec<String> =
        resolved.iter().flat_map(|resolved| candidates(&resolved.binding.id_ref)).collect();
    let readable: HashMap<String, Option<String>> = knowledge_bases::readable(&ids)?
        .into_iter()
        .map(|readable| (readable.id, readable.inject_as))
        .collect();
    Ok(resolved
        .into_iter()
        .map(|resolved| {
            let mut binding = resolved.binding;
            let meant = candidates(&binding.id_ref).into_iter().find(|id| readable.contains_key(id));
            let injected_as = meant.as_ref().and_then(|id| readable[id].clone());
            binding.inject_as = binding.inject_as.or(injected_as);
            BoundKnowledgeBase { kb_id: meant, scopes: resolved.scopes, binding }
        })
        .collect())
}
