//! Checks where facts are said to come from: conversations and turns of the tenant, and parts of their texts.

use super::sql::sources;
use super::sql::sources::SourceTurn;
use kb_types::conversation::read_content;
use kb_types::error::{Error, ObjectKind, Result};
use kb_types::memory::Fact;
use std::collections::{BTreeSet, HashMap};

/// Checks the sources of facts, and names the conversation of each turn that is a source. Must run as the
/// owner.
pub fn check(tenant_id: &str, facts: &mut [(String, Fact)]) -> Result<()> {
    let named = |of: fn(&Fact) -> Option<&String>| -> Vec<String> {
        let ids: BTreeSet<&String> = facts.iter().filter_map(|(_, fact)| of(fact)).collect();
        ids.into_iter().cloned().collect()
    };
    let turn_ids = named(|fact| fact.source.turn_id.as_ref());
    let conversation_ids = named(|fact| fact.source.conversation_id.as_ref());
    if !turn_ids.is_empty() {
        let found = sources::turns(tenant_id, &turn_ids)?;
        let turns: HashMap<&str, &SourceTurn> = found.iter().map(|turn| (turn.id.as_str(), turn)).collect();
        let mut problems = Vec::new();
        for (name, fact) in facts.iter_mut() {
            let Some(turn_id) = &fact.source.turn_id else { continue };
            let Some(turn) = turns.get(turn_id.as_str()) else {
                return Err(Error::NotFound { what: ObjectKind::Turn, id: turn_id.clone() });
            };
            let conversation_id =
                fact.source.conversation_id.get_or_insert_with(|| turn.conversation_id.clone());
            if *conversation_id != turn.conversation_id {
                problems.push(format!(
                    "{name}source_turn_id: turn \"{turn_id}\" is not in conversation \"{conversation_id}\""
                ));
            }
            let length = characters(turn)?;
            if fact.source.end.is_some_and(|end| end > length) {
                problems.push(format!(
                    "{name}source_end: the text of turn \"{turn_id}\" has {length} characters"
                ));
            }
        }
        if !problems.is_empty() {
            return Err(Error::Argument { argument: "fact", problem: problems.join("; ") });
        }
    }
    let known: BTreeSet<String> = match conversation_ids.is_empty() {
        true => BTreeSet::new(),
        false => sources::conversations(tenant_id, &conversation_ids)?.into_iter().collect(),
    };
    match conversation_ids.into_iter().find(|id| !known.contains(id)) {
        Some(id) => Err(Error::NotFound { what: ObjectKind::Conversation, id }),
        None => Ok(()),
    }
}

/// The length of a turn's text, whose parts are joined by line breaks.
fn characters(turn: &SourceTurn) -> Result<i64> {
    let Some(content) = &turn.content else { return Ok(0) };
    let content: serde_json::Value = serde_json::from_str(content.as_str())
        .map_err(|problem| Error::Internal(format!("stored turn: {problem}")))?;
    let (texts, _) =
        read_content(&content).map_err(|problem| Error::Internal(format!("stored turn: {problem}")))?;
    let breaks = texts.len().saturating_sub(1);
    let characters: usize = texts.iter().map(|text| text.chars().count()).sum();
    Ok(i64::try_from(characters + breaks).unwrap_or(i64::MAX))
}
