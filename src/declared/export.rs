//! kb.export.

use super::sql::stored;
use kb_declared::declaration::{Identity, Kind};
use kb_declared::names::LISTS;
use kb_declared::write;
use kb_types::error::{Error, Result};
use kb_types::sizes;

/// The word that stands for all kinds or all ids.
const ALL: &str = "all";

/// What there is of a kind and an id as YAML, a knowledge base with its sources, indexes and shares.
pub fn export(kind: &str, id: &str) -> Result<String> {
    let kinds = || LISTS.iter().map(|(_, kind)| *kind).chain([Kind::Binding]);
    let wanted_kind = kinds().find(|known| known.name() == kind);
    if wanted_kind.is_none() && kind != ALL {
        let names: Vec<&str> = kinds().map(Kind::name).collect();
        let problem = format!("\"{}\" is not one of {} or {ALL}", sizes::cut(kind, 60), names.join(", "));
        return Err(Error::Argument { argument: "kind", problem });
    }
    let mut all = stored::all_exactly()?;
    let is_wanted = |identity: &Identity| {
        wanted_kind.is_none_or(|kind| identity.kind == kind)
            && (id == ALL || identity.id == id || identity.text() == id)
    };
    let wanted: Vec<Identity> = all.iter().map(|(identity, _)| identity.clone()).filter(is_wanted).collect();
    if wanted.is_empty() && id != ALL {
        return Err(Error::Argument {
            argument: "id",
            problem: format!("there is nothing with the id \"{id}\""),
        });
    }
    // Sources, indexes and shares are written within their knowledge base.
    let belongs = |identity: &Identity| match identity.owners() {
        owners if owners.is_empty() => wanted.contains(identity),
        owners => owners.iter().any(|owner| wanted.contains(owner)),
    };
    all.retain(|(identity, _)| belongs(identity));
    Ok(write::yaml(&all))
}
