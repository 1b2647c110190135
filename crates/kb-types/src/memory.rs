//! A memory: its settings, a fact that is to be remembered, and which facts a recall considers.

use crate::json::Json;
use crate::json_reader::Fields;
use crate::retrieval::Mode;
use crate::{id, sizes, timestamp};
use serde_json::{Value, json};

/// The most bytes of a fact.
pub const FACT: usize = 8192;
/// The most bytes of its context, of which less is read (`chunk_context.rs`).
pub const CONTEXT: usize = sizes::TITLE;
/// The most tags of a fact, and the most bytes of one.
pub const MOST_TAGS: usize = 64;
pub const TAG: usize = 255;
/// The most rows that a recall returns.
pub const MOST_RESULTS: i64 = 1000;
const MOST_DAYS: i64 = 36_500;

/// When facts are extracted from a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtractionStrategy {
    /// Only by kb.extract_memories.
    Off,
    /// When the conversation rests.
    Lazy,
    /// After each turn of the assistant.
    Eager,
}

crate::named!(ExtractionStrategy { Off => "off", Lazy => "lazy", Eager => "eager" });

/// How facts are extracted from conversations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractionSettings {
    pub strategy: ExtractionStrategy,
    /// What to extract, in place of kb's own instructions.
    pub prompt: Option<String>,
    /// The most facts of one answer.
    pub max_facts: usize,
    /// After how long without a turn a conversation rests.
    pub rest_seconds: i64,
}

const MOST_FACTS: i64 = 50;
const PROMPT: usize = 8_000;

/// Instructions in place of kb's own.
fn prompt(fields: &mut Fields) -> Option<String> {
    let prompt = fields.text("prompt").filter(|prompt| !prompt.trim().is_empty());
    if let Some(problem) = prompt.as_ref().and_then(|prompt| sizes::problem(prompt.len(), PROMPT)) {
        fields.problem("prompt", problem);
    }
    prompt
}

impl ExtractionSettings {
    /// With a chat model, facts are extracted when a conversation rests.
    fn default_of(has_llm: bool) -> ExtractionSettings {
        let strategy = if has_llm { ExtractionStrategy::Lazy } else { ExtractionStrategy::Off };
        ExtractionSettings { strategy, prompt: None, max_facts: 10, rest_seconds: 300 }
    }

    fn parse(fields: &mut Fields, has_llm: bool) -> ExtractionSettings {
        let default = ExtractionSettings::default_of(has_llm);
        let strategy = fields.named("strategy").unwrap_or(default.strategy);
        if strategy != ExtractionStrategy::Off && !has_llm {
            fields.problem("strategy", "needs a chat model, and settings.llm is missing");
        }
        let prompt = prompt(fields);
        let max_facts = fields.integer("max_facts", 1, MOST_FACTS);
        let max_facts = max_facts.map_or(default.max_facts, |facts| facts as usize);
        let rest_seconds = fields.integer("rest_seconds", 0, 86_400).unwrap_or(default.rest_seconds);
        ExtractionSettings { strategy, prompt, max_facts, rest_seconds }
    }

    fn to_json(&self) -> Value {
        json!({
            "strategy": self.strategy.name(),
            "prompt": self.prompt,
            "max_facts": self.max_facts,
            "rest_seconds": self.rest_seconds,
        })
    }
}

/// How related entries of a subject are merged.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsolidationSettings {
    /// After how many hours that is done again. None: only by kb.consolidate_memories.
    pub interval_hours: Option<i64>,
    /// The least cosine similarity of an entry to those that are merged with it.
    pub min_similarity: f64,
    /// How often the chat model is asked at most in one run.
    pub max_calls: i64,
    /// What to merge, in place of kb's own instructions.
    pub prompt: Option<String>,
}

const MOST_HOURS: i64 = 8_760;
const MOST_CALLS: i64 = 10_000;

impl ConsolidationSettings {
    /// With a chat model, entries are merged once a day.
    fn default_of(has_llm: bool) -> ConsolidationSettings {
        let interval_hours = has_llm.then_some(24);
        ConsolidationSettings { interval_hours, min_similarity: 0.6, max_calls: 100, prompt: None }
    }

    fn parse(fields: &mut Fields, has_llm: bool) -> ConsolidationSettings {
        let default = ConsolidationSettings::default_of(has_llm);
        let is_never = fields.null("interval_hours");
        let hours = fields.integer("interval_hours", 1, MOST_HOURS);
        if hours.is_some() && !has_llm {
            fields.problem("interval_hours", "needs a chat model, and settings.llm is missing");
        }
        ConsolidationSettings {
            interval_hours: if is_never { None } else { hours.or(default.interval_hours) },
            min_similarity: fields.number("min_similarity", 0.0, 1.0).unwrap_or(default.min_similarity),
            max_calls: fields.integer("max_calls", 1, MOST_CALLS).unwrap_or(default.max_calls),
            prompt: prompt(fields),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "interval_hours": self.interval_hours,
            "min_similarity": self.min_similarity,
            "max_calls": self.max_calls,
            "prompt": self.prompt,
        })
    }
}

/// How a memory is searched, for how long its entries count, and how facts become entries.
#[derive(Debug, Clone, PartialEq)]
pub struct MemorySettings {
    /// Rows of a recall, and the least score.
    pub max_results: usize,
    pub min_score: f64,
    pub mode: Mode,
    /// The days after which the score of an entry that was not accessed is half its similarity; after twice
    /// as many it is 0. None: scores do not decay.
    pub half_life_days: Option<f64>,
    /// The days after which an entry that was not accessed is archived. None: never.
    pub auto_archive_days: Option<i64>,
    /// Whether a recall counts as an access to the entries that it returns.
    pub count_accesses: bool,
    /// The chat model that extracts facts and merges entries.
    pub llm: Option<String>,
    pub extraction: ExtractionSettings,
    pub consolidation: ConsolidationSettings,
}

impl Default for MemorySettings {
    fn default() -> Self {
        MemorySettings {
            max_results: 10,
            min_score: 0.6,
            mode: Mode::Hybrid,
            half_life_days: Some(90.0),
            auto_archive_days: Some(180),
            count_accesses: true,
            llm: None,
            extraction: ExtractionSettings::default_of(false),
            consolidation: ConsolidationSettings::default_of(false),
        }
    }
}

impl MemorySettings {
    /// Reads `retrieval`, `decay`, `retention`, `llm`, `extraction` and `consolidation`. What is missing has
    /// its default. Returns every problem.
    pub fn parse(value: &Value) -> Result<MemorySettings, Vec<String>> {
        let default = MemorySettings::default();
        let mut fields = Fields::new("settings", value);
        let retrieval = fields.object("retrieval").unwrap_or_default();
        let mut retrieval = Fields::new("retrieval", &retrieval);
        let max_results =
            retrieval.integer("max_results", 1, MOST_RESULTS).map_or(default.max_results, |n| n as usize);
        let min_score = retrieval.number("min_score", 0.0, 1.0).unwrap_or(default.min_score);
        let mode = retrieval.named("mode").unwrap_or(default.mode);
        let count_accesses = retrieval.boolean("count_accesses").unwrap_or(default.count_accesses);
        fields.extend(retrieval);
        let decay = fields.object("decay").unwrap_or_default();
        let mut decay = Fields::new("decay", &decay);
        let is_enabled = decay.boolean("enabled").unwrap_or(true);
        let half_life = decay.number("half_life_days", 0.001, MOST_DAYS as f64).or(default.half_life_days);
        fields.extend(decay);
        let retention = fields.object("retention").unwrap_or_default();
        let mut retention = Fields::new("retention", &retention);
        let auto_archive_days = match retention.null("auto_archive_days") {
            true => None,
            false => retention.integer("auto_archive_days", 1, MOST_DAYS).or(default.auto_archive_days),
        };
        fields.extend(retention);
        let half_life_days = half_life.filter(|_| is_enabled);
        let llm = fields.text("llm");
        let extraction = fields.object("extraction").unwrap_or_default();
        let mut of_extraction = Fields::new("extraction", &extraction);
        let extraction = ExtractionSettings::parse(&mut of_extraction, llm.is_some());
        fields.extend(of_extraction);
        let consolidation = fields.object("consolidation").unwrap_or_default();
        let mut of_consolidation = Fields::new("consolidation", &consolidation);
        let consolidation = ConsolidationSettings::parse(&mut of_consolidation, llm.is_some());
        fields.extend(of_consolidation);
        let settings = MemorySettings {
            max_results,
            min_score,
            mode,
            half_life_days,
            auto_archive_days,
            count_accesses,
            llm,
            extraction,
            consolidation,
        };
        let problems = fields.finish();
        if problems.is_empty() { Ok(settings) } else { Err(problems) }
    }

    /// With every default, as [`MemorySettings::parse`] reads it.
    pub fn to_json(&self) -> Value {
        let decay = match self.half_life_days {
            Some(days) => json!({"enabled": true, "half_life_days": days}),
            None => json!({"enabled": false}),
        };
        json!({
            "retrieval": {
                "max_results": self.max_results,
                "min_score": self.min_score,
                "mode": self.mode.name(),
                "count_accesses": self.count_accesses,
            },
            "decay": decay,
            "retention": {"auto_archive_days": self.auto_archive_days},
            "llm": self.llm,
            "extraction": self.extraction.to_json(),
            "consolidation": self.consolidation.to_json(),
        })
    }
}

/// Where a fact was said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    pub conversation_id: Option<String>,
    pub turn_id: Option<String>,
    /// The part of the turn's text that says it, in characters: its first one, from 0 on, and the one after
    /// its last.
    pub start: Option<i64>,
    pub end: Option<i64>,
}

impl Source {
    fn problems(&self) -> Vec<String> {
        let problem = match (self.start, self.end) {
            (None, None) => return Vec::new(),
            _ if self.turn_id.is_none() => "source_start: it is a place in a turn, which is missing",
            (Some(start), Some(end)) if start >= 0 && end > start && end <= i64::from(i32::MAX) => {
                return Vec::new();
            }
            (Some(_), Some(_)) => "source_end: it is not after source_start, or source_start is below 0",
            _ => "source_start, source_end: give both or none",
        };
        vec![problem.to_string()]
    }
}

/// A fact that is to be remembered. Times are in microseconds since 1970.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fact {
    pub fact: String,
    /// Whom or what it is about: a user, an agent, a session. '' if it is about none of them.
    pub subject: String,
    pub tags: Vec<String>,
    /// From 0 to 1.
    pub confidence: Option<f64>,
    pub metadata: Option<Json>,
    pub valid_from: Option<i64>,
    pub valid_to: Option<i64>,
    pub expires_at: Option<i64>,
    /// The id of an entry that it replaces from `valid_from` on.
    pub supersedes: Option<String>,
    /// The id of the entry, which is replaced if it exists. None: the id is made of subject and fact.
    pub id: Option<String>,
    pub source: Source,
    /// What the fact needs to be found, although it is not part of it, such as what was said before. It is
    /// embedded and searched with the fact. Blank: there is none any more.
    pub context: Option<String>,
}

impl Fact {
    /// Reads a fact from an object with these members. Returns every problem.
    pub fn parse(name: &str, given: &Json) -> Result<Fact, Vec<String>> {
        let members = given.members().ok_or_else(|| vec![format!("{name} must be a JSON object")])?;
        // Metadata is kept as it is written.
        let (metadata, others): (Vec<_>, Vec<_>) = members.iter().partition(|(key, _)| key == "metadata");
        let others: Vec<(&str, &Json)> =
            others.into_iter().map(|(key, value)| (key.as_str(), value)).collect();
        let value = Json::object(&others).value().map_err(|problem| vec![format!("{name}: {problem}")])?;
        let metadata =
            metadata.into_iter().map(|(_, value)| value.clone()).find(|value| value.as_str() != "null");
        let mut fields = Fields::new(name, &value);
        if metadata.as_ref().is_some_and(|metadata| !metadata.is_object()) {
            fields.problem("metadata", "must be a JSON object");
        }
        let mut time = |key| {
            let text = fields.text(key)?;
            let read = timestamp::microseconds(&text);
            if read.is_none() {
                fields.problem(key, format!("\"{}\" is not a timestamp", sizes::cut(&text, 64)));
            }
            read
        };
        let (valid_from, valid_to, expires_at) = (time("valid_from"), time("valid_to"), time("expires_at"));
        let fact = Fact {
            fact: fields.required_text("fact"),
            subject: fields.text("subject").unwrap_or_default(),
            tags: fields.texts("tags").unwrap_or_default(),
            confidence: fields.number("confidence", 0.0, 1.0),
            metadata,
            valid_from,
            valid_to,
            expires_at,
            supersedes: fields.text("supersedes"),
            id: fields.text("id"),
            source: Source {
                conversation_id: fields.text("source_conversation_id"),
                turn_id: fields.text("source_turn_id"),
                start: fields.integer("source_start", 0, i64::from(i32::MAX)),
                end: fields.integer("source_end", 0, i64::from(i32::MAX)),
            },
            context: fields.text("context"),
        };
        let problems = fields.finish();
        if problems.is_empty() { Ok(fact) } else { Err(problems) }
    }

    /// What is wrong with it.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        match self.fact.trim() {
            "" => problems.push("fact: it is empty".to_string()),
            fact => {
                problems.extend(sizes::problem(fact.len(), FACT).map(|problem| format!("fact: {problem}")))
            }
        }
        let context = self.context.as_deref().unwrap_or_default();
        problems.extend(sizes::problem(context.len(), CONTEXT).map(|problem| format!("context: {problem}")));
        for (name, text) in [("fact", self.fact.as_str()), ("context", context)] {
            if text.contains('\0') {
                problems.push(format!("{name}: it contains a NUL character"));
            }
        }
        if !self.subject.is_empty() {
            problems.extend(
                id::problem(&self.subject, id::MAX_BYTES).map(|problem| format!("subject: {problem}")),
            );
        }
        problems.extend(tag_problems(&self.tags));
        problems.extend(self.source.problems());
        if self.confidence.is_some_and(|confidence| !(0.0..=1.0).contains(&confidence)) {
            problems.push("confidence: it is not between 0 and 1".into());
        }
        if let (Some(from), Some(to)) = (self.valid_from, self.valid_to)
            && to < from
        {
            problems.push("valid_to: it is before valid_from".into());
        }
        if self.supersedes.is_some() && self.supersedes == self.id {
            problems.push("supersedes: an entry cannot supersede itself".into());
        }
        if let Some(id) = &self.id {
            problems.extend(id::problem(id, id::MAX_BYTES).map(|problem| format!("id: {problem}")));
        }
        problems
    }
}

/// What is wrong with tags.
pub fn tag_problems(tags: &[String]) -> Vec<String> {
    let mut problems = Vec::new();
    if tags.len() > MOST_TAGS {
        problems.push(format!("tags: there are {}, more than {MOST_TAGS}", tags.len()));
    }
    problems.extend(
        tags.iter().filter_map(|tag| id::problem(tag, TAG)).map(|problem| format!("tags: {problem}")),
    );
    problems
}

/// Which entries of a memory a statement considers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryCondition {
    pub kb_no: i64,
    /// None: all subjects.
    pub subject: Option<String>,
    /// An entry has all of these.
    pub tags: Vec<String>,
    /// Only entries that are valid and not expired at this time, in microseconds since 1970. None: all.
    pub valid_at: Option<i64>,
    /// Without those that were last accessed at this time or before.
    pub accessed_after: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_defaults_of_the_seed_and_survive_a_round_trip() {
        let default = MemorySettings::parse(&json!({})).unwrap();
        assert_eq!(default, MemorySettings::default());
        assert_eq!((default.max_results, default.min_score), (10, 0.6));
        assert_eq!((default.half_life_days, default.auto_archive_days), (Some(90.0), Some(180)));
        assert_eq!(default.consolidation.interval_hours, None);
        let with_llm = MemorySettings::parse(&json!({"llm": "small"})).unwrap();
        assert_eq!(with_llm.consolidation.interval_hours, Some(24));
        for given in [
            json!({}),
            json!({"llm": "small"}),
            json!({"llm": "small", "extraction": {"strategy": "eager", "prompt": "What?", "max_facts": 3, "rest_seconds": 0}}),
            json!({"llm": "small", "consolidation": {"interval_hours": null, "min_similarity": 0.9, "max_calls": 3, "prompt": "Which?"}}),
            json!({"llm": "small", "consolidation": {"interval_hours": 1}}),
            json!({"decay": {"enabled": false}, "retention": {"auto_archive_days": null}}),
            json!({"retrieval": {"count_accesses": false}}),
            json!({"retrieval": {"max_results": 3, "min_score": 0, "mode": "dense"}, "decay": {"half_life_days": 7}}),
        ] {
            let settings = MemorySettings::parse(&given).unwrap();
            assert_eq!(MemorySettings::parse(&settings.to_json()), Ok(settings), "{given}");
        }
    }

    #[test]
    fn every_problem_of_settings_and_facts_is_reported() {
        let wrong =
            json!({"retrieval": {"max_results": 0, "mode": "fast"}, "decay": {"half_life_days": -1}, "x": 1});
        assert_eq!(MemorySettings::parse(&wrong).unwrap_err().len(), 4);
        let wrong =
            json!({"extraction": {"strategy": "lazy", "max_facts": 0, "prompt": "x".repeat(9000), "y": 1}});
        assert_eq!(MemorySettings::parse(&wrong).unwrap_err().len(), 4);
        let wrong =
            json!({"consolidation": {"interval_hours": 1, "min_similarity": 2, "max_calls": 0, "z": 1}});
        assert_eq!(MemorySettings::parse(&wrong).unwrap_err().len(), 4);
        let wrong =
            Json::new(r#"{"subject": 1, "confidence": 2, "valid_from": "soon", "metadata": [], "other": 1}"#);
        assert_eq!(Fact::parse("facts[1]", &wrong).unwrap_err().len(), 6);
        let fact = Fact {
            fact: " \n".into(),
            tags: vec![String::new(), "x".repeat(300)],
            confidence: Some(f64::NAN),
            valid_from: Some(2),
            valid_to: Some(1),
            context: Some("\0".repeat(CONTEXT + 1)),
            ..Fact::default()
        };
        assert_eq!(fact.problems().len(), 7, "{:?}", fact.problems());
    }

    #[test]
    fn a_span_is_a_part_of_a_turn() {
        let problems = |turn_id: Option<&str>, start, end| {
            let source = Source { conversation_id: None, turn_id: turn_id.map(str::to_string), start, end };
            source.problems().len()
        };
        assert_eq!(problems(None, None, None) + problems(Some("t"), None, None), 0);
        assert_eq!(problems(Some("t"), Some(0), Some(1)), 0);
        let wrong = [
            (Some(1), Some(1)),
            (Some(-1), Some(1)),
            (Some(1), None),
            (None, Some(1)),
            (Some(0), Some(i64::MAX)),
        ];
        assert!(wrong.iter().all(|(start, end)| problems(Some("t"), *start, *end) == 1));
        assert_eq!(problems(None, Some(0), Some(1)), 1);
    }

    #[test]
    fn a_fact_keeps_the_numbers_of_its_metadata() {
        let given = Json::new(
            r#"{"fact": "a", "metadata": {"n": 12345678901234567890.125}, "valid_from": "2024-01-02"}"#,
        );
        let fact = Fact::parse("facts[1]", &given).unwrap();
        assert_eq!(fact.metadata.unwrap().as_str(), r#"{"n": 12345678901234567890.125}"#);
        assert_eq!(fact.valid_from, Some(1_704_153_600_000_000));
    }
}
