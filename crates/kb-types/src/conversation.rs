//! Conversations: their settings, what a turn may contain, and which turns a window has.

use crate::id;
use crate::json_reader::Fields;
use serde_json::{Value, json};
use std::collections::HashSet;

/// The beginning of the id of every turn. No conversation has such an id, so that kb.window can tell them
/// apart.
pub const TURN_PREFIX: &str = "turn_";
/// The beginning of the ids that kb makes for conversations.
pub const CONVERSATION_PREFIX: &str = "conv_";
/// The most tool calls of one turn. A window has a call with all of its results or not at all.
pub const MAX_TOOL_CALLS: usize = 128;
/// The tokens of a part that is not text, which is what an image costs at low detail.
const PART_TOKENS: usize = 85;
/// The characters of a token where no tokenizer is known.
pub const CHARACTERS: usize = 4;
const MAX_WINDOW_SIZE: i64 = 1000;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnRole {
    User,
    Assistant,
    System,
    /// The result of a tool call.
    Tool,
}

crate::named!(TurnRole { User => "user", Assistant => "assistant", System => "system", Tool => "tool" });

/// When a summary is made of the turns that have left the window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SummaryStrategy {
    #[default]
    Off,
    /// When a window is asked for.
    Lazy,
    /// After each turn.
    Eager,
}

crate::named!(SummaryStrategy { Off => "off", Lazy => "lazy", Eager => "eager" });

/// How summaries are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarySettings {
    pub strategy: SummaryStrategy,
    /// The chat model. None only where no summaries are made.
    pub llm: Option<String>,
    /// The most tokens of a summary.
    pub max_tokens: i64,
}

/// The settings of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationSettings {
    /// The most tokens of a window, unless the call says otherwise.
    pub token_threshold: i64,
    /// The OpenAI model or encoding by which tokens are counted. None: a token is four characters.
    pub tokenizer: Option<String>,
    /// How many of the last turns a summary leaves out, if they fit.
    pub window_size: usize,
    pub summary: SummarySettings,
    /// The memory that remembers facts of the conversation, and whom they are about.
    pub memory: Option<String>,
    pub subject: String,
}

impl Default for ConversationSettings {
    fn default() -> Self {
        let summary = SummarySettings { strategy: SummaryStrategy::Off, llm: None, max_tokens: 500 };
        ConversationSettings {
            token_threshold: 8000,
            tokenizer: None,
            window_size: 10,
            summary,
            memory: None,
            subject: String::new(),
        }
    }
}

impl ConversationSettings {
    /// Reads settings, with the default for each key that is absent. Returns all problems.
    pub fn parse(value: &Value) -> Result<ConversationSettings, Vec<String>> {
        let mut fields = Fields::new("settings", value);
        let default = ConversationSettings::default();
        let token_threshold =
            fields.integer("token_threshold", 1, 10_000_000).unwrap_or(default.token_threshold);
        let tokenizer = fields.text("tokenizer");
        let window_size = fields.integer("window_size", 1, MAX_WINDOW_SIZE);
        let window_size = window_size.map_or(default.window_size, |size| size as usize);
        let summary = fields.object("summary").unwrap_or_default();
        let mut summary = Fields::new("summary", &summary);
        let strategy = summary.named("strategy").unwrap_or(default.summary.strategy);
        let llm = summary.text("llm");
        let max_tokens = summary.integer("max_tokens", 1, 100_000).unwrap_or(default.summary.max_tokens);
        if strategy != SummaryStrategy::Off {
            if llm.is_none() {
                summary.problem("llm", "names the chat model that makes summaries, and is missing");
            }
            if max_tokens >= token_threshold {
                summary.problem("max_tokens", "must be less than token_threshold");
            }
        }
        fields.extend(summary);
        let summary = SummarySettings { strategy, llm, max_tokens };
        let (memory, subject) = (fields.text("memory"), fields.text("subject"));
        if subject.is_some() && memory.is_none() {
            fields.problem("subject", "is that of facts in a memory, and memory is missing");
        }
        let subject = subject.unwrap_or_default();
        if !subject.is_empty()
            && let Some(problem) = id::problem(&subject, id::MAX_BYTES)
        {
            fields.problem("subject", problem);
        }
        let problems = fields.finish();
        let settings =
            ConversationSettings { token_threshold, tokenizer, window_size, summary, memory, subject };
        if problems.is_empty() { Ok(settings) } else { Err(problems) }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "token_threshold": self.token_threshold,
            "tokenizer": self.tokenizer,
            "window_size": self.window_size,
            "summary": {
                "strategy": self.summary.strategy.name(),
                "llm": self.summary.llm,
                "max_tokens": self.summary.max_tokens,
            },
            "memory": self.memory,
            "subject": self.memory.as_ref().map(|_| &self.subject),
        })
    }
}

/// The texts of a turn's content and the number of its parts that are not text, or what is wrong with the
/// content. It is a string, or an array of parts as in the messages of OpenAI: objects that have a type.
pub fn read_content(content: &Value) -> Result<(Vec<&str>, usize), String> {
    let parts = match content {
        Value::String(text) => return Ok((vec![text], 0)),
        Value::Array(parts) if !parts.is_empty() => parts,
        _ => return Err("it must be a string, or an array of at least one part".into()),
    };
    let (mut texts, mut others) = (Vec::new(), 0);
    for (part, n) in parts.iter().zip(1..) {
        if part.get("type").and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(format!("part {n} must be an object whose type is a string"));
        }
        match (part.get("text"), part.get("refusal")) {
            (Some(Value::String(text)), _) | (None, Some(Value::String(text))) => texts.push(text.as_str()),
            (None, None) => others += 1,
            _ => return Err(format!("the text of part {n} must be a string")),
        }
    }
    Ok((texts, others))
}

/// What is wrong with the tool calls of a turn, which are objects that each have an id.
pub fn tool_calls_problem(tool_calls: &Value) -> Option<String> {
    let calls = match tool_calls {
        Value::Array(calls) if !calls.is_empty() => calls,
        _ => return Some("it must be an array of at least one tool call".into()),
    };
    if calls.len() > MAX_TOOL_CALLS {
        return Some(format!("it has {} tool calls; at most {MAX_TOOL_CALLS} are allowed", calls.len()));
    }
    let mut ids = HashSet::new();
    for (call, n) in calls.iter().zip(1..) {
        let Some(call_id) = call.get("id").and_then(Value::as_str) else {
            return Some(format!("tool call {n} must be an object whose id is a string"));
        };
        if let Some(problem) = id::problem(call_id, id::MAX_BYTES) {
            return Some(format!("the id of tool call {n}: {problem}"));
        }
        if !ids.insert(call_id) {
            return Some(format!("two tool calls have the id \"{call_id}\""));
        }
    }
    None
}

/// The tokens of texts, and of parts that are not text, where no tokenizer is known.
pub fn estimated_tokens(texts: &[&str], others: usize) -> usize {
    let characters: usize = texts.iter().map(|text| text.chars().count()).sum();
    characters.div_ceil(CHARACTERS).saturating_add(tokens_of_parts(others))
}

/// The tokens of parts that are not text.
pub fn tokens_of_parts(others: usize) -> usize {
    others.saturating_mul(PART_TOKENS)
}

/// Chooses the turns of a window, from the newest turn backwards.
///
/// A tool call and its results are chosen together or not at all: the results of a call follow it directly,
/// so a window may begin with any turn that is not a result. The newest turn is always chosen, with the call
/// that it answers.
#[derive(Debug)]
pub struct WindowChoice {
    budget: i64,
    /// How many turns are enough.
    enough: usize,
    tokens: i64,
    chosen: usize,
    /// Results whose call has not come yet, and their tokens.
    results: usize,
    result_tokens: i64,
}

impl WindowChoice {
    /// Begins a window of at most this many tokens.
    pub fn new(budget: i64) -> WindowChoice {
        WindowChoice::of_turns(budget, usize::MAX)
    }

    /// The same, which ends as soon as it has so many turns.
    pub fn of_turns(budget: i64, enough: usize) -> WindowChoice {
        WindowChoice { budget, enough, tokens: 0, chosen: 0, results: 0, result_tokens: 0 }
    }

    /// Considers the next older turn. Returns false if it does not fit or is not needed, and then no older
    /// one does or is.
    pub fn consider(&mut self, role: TurnRole, tokens: i64) -> bool {
        if self.chosen >= self.enough {
            return false;
        }
        let more = self.result_tokens.saturating_add(tokens);
        if role == TurnRole::Tool {
            (self.results, self.result_tokens) = (self.results + 1, more);
            return true;
        }
        let all = self.tokens.saturating_add(more);
        if self.chosen > 0 && all > self.budget {
            return false;
        }
        self.tokens = all;
        self.chosen += self.results + 1;
        (self.results, self.result_tokens) = (0, 0);
        true
    }

    /// How many turns are chosen, counted from the newest.
    pub fn chosen(&self) -> usize {
        self.chosen
    }

    /// The tokens of the turns that are chosen.
    pub fn tokens(&self) -> i64 {
        self.tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TurnRole::{Assistant, Tool, User};

    /// How many of these turns, newest first, are chosen.
    fn chosen(budget: i64, turns: &[(TurnRole, i64)]) -> usize {
        let mut choice = WindowChoice::new(budget);
        let _ = turns.iter().all(|(role, tokens)| choice.consider(*role, *tokens));
        choice.chosen()
    }

    #[test]
    fn a_window_has_as_many_of_the_newest_turns_as_fit() {
        let turns = [(User, 10), (Assistant, 10), (User, 10)];
        assert_eq!([9, 10, 19, 20, 29, 30, 99].map(|budget| chosen(budget, &turns)), [1, 1, 1, 2, 2, 3, 3]);
        assert_eq!(chosen(5, &[]), 0);
        // An older turn that would fit is not taken in place of one that does not.
        assert_eq!(chosen(25, &[(User, 10), (Assistant, 20), (User, 1)]), 1);
        assert_eq!(chosen(i64::MAX, &[(User, i64::MAX), (User, i64::MAX)]), 2);
    }

    #[test]
    fn a_tool_call_and_its_results_are_together_or_not_there() {
        let turns = [(User, 10), (Tool, 10), (Tool, 10), (Assistant, 10), (User, 10)];
        assert_eq!([10, 20, 39, 40, 50].map(|budget| chosen(budget, &turns)), [1, 1, 1, 4, 5]);
        // The newest turn is a result: its call comes with it, however long both are.
        assert_eq!(chosen(1, &turns[1..]), 3);
        // The call itself is the newest turn.
        assert_eq!(chosen(1, &turns[3..]), 1);
    }

    #[test]
    fn a_window_of_so_many_turns_has_no_more_but_whole_calls() {
        let turns = [(User, 10), (Tool, 10), (Tool, 10), (Assistant, 10), (User, 10)];
        for (enough, expected) in [(1, 1), (2, 4), (4, 4), (5, 5), (9, 5)] {
            let mut choice = WindowChoice::of_turns(1000, enough);
            let _ = turns.iter().all(|(role, tokens)| choice.consider(*role, *tokens));
            assert_eq!((choice.chosen(), choice.tokens()), (expected, 10 * expected as i64), "{enough}");
        }
    }

    #[test]
    fn content_is_a_string_or_parts_with_a_type() {
        assert_eq!(read_content(&json!("Hello")), Ok((vec!["Hello"], 0)));
        let parts = json!([{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:"}},
                           {"type": "refusal", "refusal": "No."}]);
        assert_eq!(read_content(&parts), Ok((vec!["What is this?", "No."], 1)));
        for wrong in [
            json!(null),
            json!(1),
            json!({}),
            json!([]),
            json!(["a"]),
            json!([{"text": "a"}]),
            json!([{"type": ""}]),
            json!([{"type": "text", "text": 1}]),
        ] {
            assert!(read_content(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tool_calls_have_ids_of_their_own() {
        assert_eq!(tool_calls_problem(&json!([{"id": "a"}, {"id": "b"}])), None);
        let many: Vec<Value> = (0..129).map(|n| json!({"id": n.to_string()})).collect();
        for wrong in [
            json!(null),
            json!([]),
            json!({"id": "a"}),
            json!([{}]),
            json!([{"id": 1}]),
            json!([{"id": " "}]),
            json!([{"id": "a"}, {"id": "a"}]),
            json!([{"id": "x".repeat(256)}]),
            json!(many),
        ] {
            assert!(tool_calls_problem(&wrong).is_some(), "{wrong}");
        }
    }

    #[test]
    fn a_token_is_four_characters_where_no_tokenizer_is_known() {
        assert_eq!(estimated_tokens(&["éééé"], 0), 1);
        assert_eq!(estimated_tokens(&["éééé", "e"], 0), 2);
        assert_eq!(estimated_tokens(&[], 2), 170);
    }

    #[test]
    fn settings_are_complete_and_all_their_problems_are_told() {
        let defaults = ConversationSettings::parse(&json!({})).unwrap();
        assert_eq!(defaults, ConversationSettings::default());
        assert_eq!(ConversationSettings::parse(&defaults.to_json()), Ok(defaults.clone()));
        let problems = ConversationSettings::parse(&json!({"token_threshold": 0, "tokenizer": 1, "x": 1}));
        assert_eq!(problems.unwrap_err().len(), 3);
        let wrong = json!({"window_size": 0, "summary": {"strategy": "lazy", "max_tokens": 8000, "x": 1}});
        assert_eq!(ConversationSettings::parse(&wrong).unwrap_err().len(), 4);
        let unknown = ConversationSettings::parse(&json!({"summary": {"strategy": "often"}})).unwrap_err();
        assert!(unknown[0].starts_with("settings.summary.strategy: "), "{unknown:?}");
        // The defaults of the specification.
        assert_eq!((defaults.window_size, defaults.token_threshold), (10, 8000));
        assert_eq!((defaults.summary.strategy, defaults.summary.max_tokens), (SummaryStrategy::Off, 500));
    }
}
