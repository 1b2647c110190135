//! Turns as a chat model reads them: as JSON, so that no word of a conversation ends where it stands. Pure.

use crate::conversations::sql::turns::ReadTurn;
use kb_types::Json;
use kb_types::conversation::{TurnRole, read_content};
use serde_json::{Value, json};

/// The most characters of one turn in a prompt, and of all turns unless the results of a tool call exceed it.
const MAX_TURN: usize = 8_000;
const MAX_TURNS: usize = 24_000;
/// So many characters of a turn are always in the prompt.
const LEAST: usize = 200;

/// A turn as it is shown.
pub struct ShownTurn {
    pub id: String,
    pub depth: i64,
    pub role: String,
    /// Its text as far as it is shown.
    pub text: String,
    pub shown: Value,
}

/// Turns that are read together, from the oldest on.
#[derive(Default)]
pub struct ShownTurns {
    turns: Vec<ShownTurn>,
    characters: usize,
}

impl ShownTurns {
    /// Adds the next turn. Returns false if there is no room for it. The results of a tool call always have
    /// room beside it.
    pub fn add(&mut self, turn: &ReadTurn) -> bool {
        if self.characters >= MAX_TURNS && turn.role != TurnRole::Tool.name() {
            return false;
        }
        let room = MAX_TURNS.saturating_sub(self.characters).clamp(LEAST, MAX_TURN);
        let (mut shown, mut said) = (serde_json::Map::new(), String::new());
        shown.insert("role".into(), json!(turn.role));
        let mut add = |key: &str, text: &str| {
            let text = shortened(text, room);
            self.characters += text.chars().count();
            shown.insert(key.into(), json!(text));
            text
        };
        if let Some(content) = &turn.content {
            said = add("content", &text_of(content));
        }
        if let Some(calls) = &turn.tool_calls {
            add("tool_calls", calls.as_str());
        }
        if let Some(call) = &turn.tool_call_id {
            add("tool_call_id", call);
        }
        self.turns.push(ShownTurn {
            id: turn.id.clone(),
            depth: turn.depth,
            role: turn.role.clone(),
            text: said,
            shown: Value::Object(shown),
        });
        true
    }

    /// The id and the depth of the last one.
    pub fn last(&self) -> Option<(String, i64)> {
        self.turns.last().map(|turn| (turn.id.clone(), turn.depth))
    }

    pub fn turns(&self) -> &[ShownTurn] {
        &self.turns
    }

    pub fn into_turns(self) -> Vec<ShownTurn> {
        self.turns
    }

    /// The turns as JSON.
    pub fn into_json(self) -> Value {
        Value::Array(self.turns.into_iter().map(|turn| turn.shown).collect())
    }
}

/// The texts of a content.
pub fn text_of(content: &Json) -> String {
    let value = content.value().unwrap_or_default();
    match read_content(&value) {
        Ok((texts, 0)) => texts.join("\n"),
        Ok((texts, others)) => format!("{}\n[{others} parts without text]", texts.join("\n")),
        Err(_) => String::new(),
    }
}

/// The texts of a content, as they were said.
pub fn said(content: &Json) -> String {
    read_content(&content.value().unwrap_or_default())
        .map_or_else(|_| String::new(), |(texts, _)| texts.join("\n"))
}

/// The beginning and the end of a text, in at most so many characters.
fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_string();
    }
    let (begin, end) = (most * 3 / 4, most / 4);
    let at = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let left_out = count - begin - end;
    format!("{} [{left_out} characters left out] {}", &text[..at(begin)], &text[at(count - end)..])
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn turn(role: &str, content: &str, depth: i64) -> ReadTurn {
        ReadTurn {
            id: format!("turn_{depth}"),
            depth,
            role: role.into(),
            content: Some(Json::of_text(content)),
            tool_calls: None,
            tool_call_id: None,
        }
    }

    #[test]
    fn a_prompt_is_bounded_however_long_turns_are_and_results_stay_with_their_call() {
        let mut turns = ShownTurns::default();
        let long = "é".repeat(1_000_000);
        let mut depth = 0;
        while turns.add(&turn("user", &long, depth + 1)) {
            depth += 1;
        }
        assert_eq!((depth, turns.last()), (3, Some(("turn_3".into(), 3))));
        for result in 0..128 {
            assert!(turns.add(&turn("tool", &long, 4 + result)));
        }
        assert!(!turns.add(&turn("user", "x", 200)));
        assert!(turns.into_json().to_string().chars().count() < 70_000);
    }

    #[test]
    fn parts_are_read_as_their_texts() {
        let parts =
            Json::new(r#"[{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]"#);
        assert_eq!(text_of(&parts), "a\nb\n[1 parts without text]");
        assert_eq!(shortened("abcdefgh", 4), "abc [4 characters left out] h");
    }
}
