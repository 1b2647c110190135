//! Reads the body of a request in its dialect: checks every key and its type, and that there is no other key.

use super::Kind;
use super::dialect::Dialect;
use serde_json::{Map, Value, json};

/// What a request asks for.
#[derive(Debug, Default)]
pub struct Parsed<'a> {
    pub texts: Vec<&'a str>,
    /// None: the dialect does not state it, or it is neither.
    pub kind: Option<Kind>,
    /// "" where the dialect names none.
    pub model: &'a str,
    /// The requested dimension, if the request states it.
    pub dimension: Option<usize>,
    /// The question for which texts are scored.
    pub query: &'a str,
    /// Vectors as base64 of little-endian f32.
    pub is_base64: bool,
}

/// The words for a document and for a query, then those that are neither.
const GOOGLE_TASKS: [&str; 8] = [
    "RETRIEVAL_DOCUMENT",
    "RETRIEVAL_QUERY",
    "SEMANTIC_SIMILARITY",
    "CLASSIFICATION",
    "CLUSTERING",
    "QUESTION_ANSWERING",
    "FACT_VERIFICATION",
    "CODE_RETRIEVAL_QUERY",
];
const COHERE_TASKS: [&str; 4] = ["search_document", "search_query", "classification", "clustering"];
const JINA_TASKS: [&str; 5] =
    ["retrieval.passage", "retrieval.query", "text-matching", "classification", "separation"];
const PLAIN_TASKS: [&str; 2] = ["document", "query"];

/// Reads `body`; `model` is what the path named. What is wrong is added to `problems`.
pub fn parse<'a>(
    dialect: Dialect,
    model: &'a str,
    body: &'a Value,
    max_batch: usize,
    problems: &mut Vec<String>,
) -> Parsed<'a> {
    let mut parsed = Parsed { model, ..Parsed::default() };
    let mut fields = Fields::new("body.".to_string(), body, problems);
    match dialect {
        Dialect::OpenAi | Dialect::AzureOpenAi => {
            parsed.model = fields.string("model", dialect == Dialect::OpenAi).unwrap_or("dep");
            parsed.texts = fields.texts("input");
            parsed.is_base64 =
                fields.one_of("encoding_format", &["float", "base64"], false) == Some("base64");
            parsed.dimension = fields.positive("dimensions");
        }
        Dialect::Ollama => {
            parsed.model = fields.string("model", true).unwrap_or_default();
            parsed.texts = fields.texts("input");
            fields.boolean("truncate", true);
            parsed.dimension = fields.positive("dimensions");
            fields.get("options", false);
            fields.get("keep_alive", false);
        }
        Dialect::HuggingFace => {
            parsed.texts = fields.texts("inputs");
            fields.boolean("normalize", true);
            fields.boolean("truncate", true);
            fields.one_of("truncation_direction", &["Left", "Right"], false);
            fields.string("prompt_name", false);
            parsed.dimension = fields.positive("dimensions");
        }
        Dialect::CohereRerank | Dialect::JinaRerank | Dialect::VoyageRerank | Dialect::TeiRerank => {
            parse_rerank(dialect, &mut fields, &mut parsed)
        }
        Dialect::OpenAiChat | Dialect::OllamaChat => parse_chat(dialect, &mut fields, &mut parsed),
        Dialect::AnthropicChat => parse_anthropic(&mut fields, &mut parsed),
        Dialect::GeminiChat => parse_gemini_chat(&mut fields, &mut parsed),
        Dialect::Gemini => parse_gemini(&mut fields, &mut parsed),
        Dialect::Vertex => parse_vertex(&mut fields, &mut parsed),
        Dialect::Cohere => {
            parsed.model = fields.string("model", true).unwrap_or_default();
            parsed.texts = fields.texts("texts");
            parsed.kind = fields.kind("input_type", &COHERE_TASKS);
            if fields.get("embedding_types", true).is_some_and(|types| *types != json!(["float"])) {
                fields.problem("embedding_types", "is not [\"float\"]");
            }
            fields.one_of("truncate", &["NONE", "START", "END"], true);
            parsed.dimension = fields.positive("output_dimension");
            fields.positive("max_tokens");
        }
        Dialect::Voyage => {
            parsed.model = fields.string("model", true).unwrap_or_default();
            parsed.texts = fields.texts("input");
            parsed.kind = fields.kind("input_type", &PLAIN_TASKS);
            fields.boolean("truncation", true);
            parsed.dimension = fields.positive("output_dimension");
            fields.one_of("output_dtype", &["float"], false);
            parsed.is_base64 = fields.one_of("encoding_format", &["base64"], false).is_some();
        }
        Dialect::Jina => {
            parsed.model = fields.string("model", true).unwrap_or_default();
            parsed.texts = fields.texts("input");
            parsed.kind = fields.kind("task", &JINA_TASKS);
            if fields.boolean("late_chunking", false) == Some(true) {
                fields.problem("late_chunking", "would mix the texts of one request");
            }
            fields.boolean("truncate", true);
            fields.boolean("normalized", false);
            parsed.dimension = fields.positive("dimensions");
            parsed.is_base64 = fields.one_of("embedding_type", &["float", "base64"], false) == Some("base64");
        }
        Dialect::Mistral => {
            parsed.model = fields.string("model", true).unwrap_or_default();
            parsed.texts = fields.texts("input");
            parsed.dimension = fields.positive("output_dimension");
            fields.one_of("output_dtype", &["float"], false);
            parsed.is_base64 =
                fields.one_of("encoding_format", &["float", "base64"], false) == Some("base64");
        }
        Dialect::Http => {
            parsed.model = fields.string("m", true).unwrap_or_default();
            parsed.texts = fields.texts("q");
            parsed.kind = fields.kind("as", &PLAIN_TASKS);
        }
    }
    fields.finish();
    if parsed.texts.is_empty() || parsed.texts.len() > max_batch {
        problems.push(format!("there are {} texts, not 1 to {max_batch}", parsed.texts.len()));
    }
    if let Some(place) = parsed.texts.iter().position(|text| text.is_empty()) {
        problems.push(format!("text {place} is empty"));
    }
    parsed
}

fn parse_rerank<'a>(dialect: Dialect, fields: &mut Fields<'a, '_>, parsed: &mut Parsed<'a>) {
    if dialect == Dialect::TeiRerank {
        parsed.query = fields.string("query", true).unwrap_or_default();
        parsed.texts = fields.texts("texts");
        for key in ["raw_scores", "return_text", "truncate"] {
            fields.boolean(key, true);
        }
        if parsed.texts.len() > 32 {
            fields.problem("texts", "are more than --max-client-batch-size");
        }
        return;
    }
    parsed.model = fields.string("model", true).unwrap_or_default();
    parsed.query = fields.string("query", true).unwrap_or_default();
    parsed.texts = fields.texts("documents");
    if dialect != Dialect::CohereRerank && fields.boolean("return_documents", true) == Some(true) {
        fields.problem("return_documents", "asks for what is known");
    }
    match dialect {
        Dialect::VoyageRerank => drop(fields.boolean("truncation", true)),
        Dialect::CohereRerank => drop(fields.positive("max_tokens_per_doc")),
        _ => {}
    }
}

fn parse_chat<'a>(dialect: Dialect, fields: &mut Fields<'a, '_>, parsed: &mut Parsed<'a>) {
    parsed.model = fields.string("model", true).unwrap_or_default();
    let messages = fields.items("messages");
    let (system, others) = messages.split_at(messages.len().min(1));
    if system.first().is_none_or(|system| system["role"] != "system" || !system["content"].is_string()) {
        fields.problem("messages", "do not begin with that of the system");
    }
    parse_messages(others, "assistant", fields, parsed);
    if fields.boolean("stream", true) == Some(true) {
        fields.problem("stream", "asks for what is not read");
    }
    match dialect {
        Dialect::OpenAiChat => {
            fields.get("temperature", false);
            fields.positive("max_tokens");
        }
        _ => drop(fields.get("options", false)),
    }
}

fn parse_gemini<'a>(fields: &mut Fields<'a, '_>, parsed: &mut Parsed<'a>) {
    for (i, item) in fields.items("requests").iter().enumerate() {
        let mut request = Fields::new(format!("body.requests[{i}]."), item, fields.problems);
        let model = request.string("model", true);
        if model.is_some_and(|model| model.strip_prefix("models/") != Some(parsed.model)) {
            request.problem("model", "is not models/ and the model of the path");
        }
        let kind = request.kind("taskType", &GOOGLE_TASKS);
        let dimension = request.positive("outputDimensionality");
        let content = request.get("content", true);
        if i > 0 && (kind, dimension) != (parsed.kind, parsed.dimension) {
            request.problem("taskType", "or outputDimensionality is not that of the request before");
        }
        request.finish();
        (parsed.kind, parsed.dimension) = (kind, dimension);
        let Some(content) = content else { continue };
        let mut content = Fields::new(format!("body.requests[{i}].content."), content, fields.problems);
        let parts = content.items("parts");
        if parts.len() != 1 {
            content.problem("parts", "has not exactly one part");
        }
        content.finish();
        for part in parts {
            let mut part = Fields::new(format!("body.requests[{i}].content.parts[]."), part, fields.problems);
            parsed.texts.extend(part.string("text", true));
            part.finish();
        }
    }
}

fn parse_anthropic<'a>(fields: &mut Fields<'a, '_>, parsed: &mut Parsed<'a>) {
    parsed.model = fields.string("model", true).unwrap_or_default();
    if fields.positive("max_tokens").is_none() {
        fields.problem("max_tokens", "is missing");
    }
    if fields.string("system", true) == Some("") {
        fields.problem("system", "is empty");
    }
    let messages = fields.items("messages");
    parse_messages(messages, "assistant", fields, parsed);
    if fields.get("temperature", false).is_some_and(|t| !t.as_f64().is_some_and(|t| (0.0..=1.0).contains(&t)))
    {
        fields.problem("temperature", "is not between 0 and 1");
    }
}

fn parse_gemini_chat<'a>(fields: &mut Fields<'a, '_>, parsed: &mut Parsed<'a>) {
    let text = |content: &'a Value| match content["parts"].as_array().map(Vec::as_slice) {
        Some([part]) if part.as_object().is_some_and(|part| part.len() == 1) => part["text"].as_str(),
        _ => None,
    };
    if fields.get("systemInstruction", true).and_then(text).is_none() {
        fields.problem("systemInstruction", "is not one part of text");
    }
    let contents = fields.items("contents");
    for (i, content) in contents.iter().enumerate() {
        if content["role"] != ["user", "model"][i % 2] || text(content).is_none_or(str::is_empty) {
            fields.problem("contents", "do not alternate, or have one that is not one part of text");
        }
    }
    if contents.len().is_multiple_of(2) {
        fields.problem("contents", "do not end with the user's");
    }
    parsed.texts.extend(contents.last().and_then(text));
    if let Some(value) = fields.get("generationConfig", false) {
        let mut config = Fields::new("body.generationConfig.".to_string(), value, fields.problems);
        config.get("temperature", false);
        config.positive("maxOutputTokens");
        config.finish();
    }
}

/// Messages of the user and the model in turn. The last one, which is the user's, is the text.
fn parse_messages<'a>(
    messages: &'a [Value],
    model: &'static str,
    fields: &mut Fields<'a, '_>,
    parsed: &mut Parsed<'a>,
) {
    if messages.len().is_multiple_of(2) {
        fields.problem("messages", "do not end with the user's");
    }
    for (i, item) in messages.iter().enumerate() {
        let mut message = Fields::new(format!("body.messages[{i}]."), item, fields.problems);
        message.one_of("role", &[["user", model][i % 2]], true);
        let content = message.string("content", true);
        message.finish();
        if i + 1 == messages.len() {
            parsed.texts.extend(content);
        }
    }
}

fn parse_vertex<'a>(fields: &mut Fields<'a, '_>, parsed: &mut Parsed<'a>) {
    for (i, item) in fields.items("instances").iter().enumerate() {
        let mut instance = Fields::new(format!("body.instances[{i}]."), item, fields.problems);
        parsed.texts.extend(instance.string("content", true));
        let kind = instance.kind("task_type", &GOOGLE_TASKS);
        if i > 0 && kind != parsed.kind {
            instance.problem("task_type", "is not that of the instance before");
        }
        parsed.kind = kind;
        instance.finish();
    }
    if let Some(value) = fields.get("parameters", true) {
        let mut parameters = Fields::new("body.parameters.".to_string(), value, fields.problems);
        parameters.boolean("autoTruncate", false);
        parsed.dimension = parameters.positive("outputDimensionality");
        parameters.finish();
    }
}

/// The keys of one object. What is missing, of another type or unknown becomes a problem.
struct Fields<'a, 'p> {
    /// What to put before a key in a problem.
    place: String,
    map: Option<&'a Map<String, Value>>,
    taken: Vec<&'static str>,
    problems: &'p mut Vec<String>,
}

impl<'a, 'p> Fields<'a, 'p> {
    fn new(place: String, value: &'a Value, problems: &'p mut Vec<String>) -> Fields<'a, 'p> {
        let map = value.as_object();
        if map.is_none() {
            problems.push(format!("{} is no object", place.trim_end_matches('.')));
        }
        Fields { place, map, taken: Vec::new(), problems }
    }

    fn problem(&mut self, key: &str, what: &str) {
        self.problems.push(format!("{}{key} {what}", self.place));
    }

    fn get(&mut self, key: &'static str, is_required: bool) -> Option<&'a Value> {
        self.taken.push(key);
        let value = self.map?.get(key);
        if value.is_none() && is_required {
            self.problem(key, "is missing");
        }
        value
    }

    fn string(&mut self, key: &'static str, is_required: bool) -> Option<&'a str> {
        let text = self.get(key, is_required)?.as_str();
        if text.is_none() {
            self.problem(key, "is no string");
        }
        text
    }

    fn boolean(&mut self, key: &'static str, is_required: bool) -> Option<bool> {
        let flag = self.get(key, is_required)?.as_bool();
        if flag.is_none() {
            self.problem(key, "is no boolean");
        }
        flag
    }

    fn positive(&mut self, key: &'static str) -> Option<usize> {
        let number = self.get(key, false)?.as_u64().filter(|number| *number > 0);
        if number.is_none() {
            self.problem(key, "is no positive integer");
        }
        number.map(|number| number as usize)
    }

    fn one_of(&mut self, key: &'static str, words: &[&str], is_required: bool) -> Option<&'a str> {
        let word = self.string(key, is_required)?;
        if !words.contains(&word) {
            self.problem(key, &format!("is {word:?}, none of {words:?}"));
            return None;
        }
        Some(word)
    }

    /// The kind that one of these words says: the first is a document's, the second a query's.
    fn kind(&mut self, key: &'static str, words: &[&str]) -> Option<Kind> {
        match self.one_of(key, words, true)? {
            word if word == words[0] => Some(Kind::Document),
            word if word == words[1] => Some(Kind::Query),
            _ => None,
        }
    }

    fn items(&mut self, key: &'static str) -> &'a [Value] {
        let Some(value) = self.get(key, true) else { return &[] };
        let Some(items) = value.as_array() else {
            self.problem(key, "is no array");
            return &[];
        };
        items
    }

    fn texts(&mut self, key: &'static str) -> Vec<&'a str> {
        let items = self.items(key);
        if !items.iter().all(Value::is_string) {
            self.problem(key, "holds what is no string");
        }
        items.iter().filter_map(Value::as_str).collect()
    }

    fn finish(self) {
        let Fields { place, map, taken, problems } = self;
        for key in map.into_iter().flat_map(Map::keys) {
            if !taken.contains(&key.as_str()) {
                problems.push(format!("{place}{key} is unknown"));
            }
        }
    }
}
