//! kb.answer: finds what answers a question, has a chat model answer from it, checks what the model cites,
//! and appends both to the conversation.
//!
//! No row is locked while the model is asked: the conversation is locked only to append to it, at the end.

use super::found::{self, Asked, Found, Given, Written};
use super::token_counter::TokenCounter;
use super::turns;
use crate::gateway::client;
use crate::memory::recall::Recalled;
use crate::models::ask;
use crate::models::services::{self, ServiceRow};
use crate::settings;
use kb_search::answer_prompt;
use kb_search::citations::{self, CheckedAnswer, Citation};
use kb_search::request::Request;
use kb_types::answer_options::AnswerOptions;
use kb_types::error::{Error, Result};
use kb_types::{ChatReply, Dialogue, FinishReason, Json, ServiceKind};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The most tokens of the prompt, unless the call says otherwise.
const MAX_TOKENS: usize = 8000;
/// The parts of it that the conversation and the memories may have: a half and a quarter of what the
/// instructions and the question leave. Passages get the rest, a quarter or more.
const WINDOW: usize = 2;
const MEMORIES: usize = 4;

/// The reason that is given if the model was not asked.
const NO_CONTEXT: &str = "no_context";

/// The arguments.
pub struct Wanted {
    pub asked: Asked,
    pub question: String,
    pub llm: String,
    pub conversation: Option<String>,
    pub memory: Option<String>,
    pub max_tokens: Option<i32>,
    pub options: AnswerOptions,
}

pub struct Answered {
    pub text: String,
    pub annotations: Vec<Value>,
    /// The passages that the model was given.
    pub chunks: Json,
    /// The facts that the model was given.
    pub memories: Json,
    pub usage: Value,
    /// In the currency of the model's price. None: it has no price, or does not say what it used.
    pub cost: Option<f64>,
    pub finish_reason: &'static str,
    /// Whether there is no answer: nothing qualifies, or the model refuses.
    pub refused: bool,
    /// The numbers that the model cited although they were not given.
    pub invalid_citations: Vec<i32>,
    /// The turn with the answer.
    pub turn_id: Option<String>,
}

pub fn answer(wanted: &Wanted) -> Result<Answered> {
    let timeout = wanted.options.timeout.unwrap_or_else(settings::answer_timeout);
    let deadline = Deadline { begun: Instant::now(), timeout };
    let mut answered = client::until(deadline.end(), || deadline.named(given_answer(wanted, &deadline)))?;
    if let Some(conversation) = &wanted.conversation {
        answered.turn_id = Some(turns::append(conversation, wanted, &answered)?);
    }
    Ok(answered)
}

/// The time for everything.
struct Deadline {
    begun: Instant,
    timeout: Duration,
}

impl Deadline {
    fn end(&self) -> Instant {
        self.begun + self.timeout
    }

    fn late(&self, what: String) -> Error {
        Error::Timeout { what, seconds: self.timeout.as_secs_f64() }
    }

    /// Returns the time that is left, or an error if none is.
    fn left(&self, what: &str) -> Result<Duration> {
        let left = self.end().saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.late(what.to_string())) } else { Ok(left) }
    }

    /// Makes an error that the end of the time has caused one of the time.
    fn named<T>(&self, result: Result<T>) -> Result<T> {
        // The gateway answers a little before the time of a request is over.
        let is_over = self.begun.elapsed() + self.timeout / 15 >= self.timeout;
        result.map_err(|error| match error {
            Error::Gateway { .. }
            | Error::Service { passing: true, .. }
            | Error::Provider { passing: true, .. }
                if is_over =>
            {
                self.late(format!("an answer ({error})"))
            }
            error => error,
        })
    }
}

fn given_answer(wanted: &Wanted, deadline: &Deadline) -> Result<Answered> {
    let Wanted { question, options, .. } = wanted;
    let max_tokens = check(wanted)?;
    let row = services::get(ServiceKind::Llm, &wanted.llm)?;
    let counter = TokenCounter::of(&row.llm()?)?;
    let filter = options.filter.clone();
    let request = Request::new("", None, None, filter, None, None, Some(options.retrieval.clone()))?;
    let mut prompt = Prompt::begin(wanted, max_tokens, &counter)?;
    let found = found::find(&wanted.asked, &request, question)?;
    deadline.left("the documents")?;
    let recalled = match &wanted.memory {
        Some(memory) => found::remembered(memory, question, options.subject.as_deref())?,
        None => Vec::new(),
    };
    deadline.left("the memories")?;
    if found.hits.is_empty() && recalled.is_empty() {
        return Ok(Answered::without_context(&options.refusal, &row));
    }
    if let Some(conversation) = &wanted.conversation {
        prompt.add_turns(conversation)?;
    }
    let memories = prompt.add_memories(&recalled)?;
    let (dialogue, written) = prompt.end(&found, &memories)?;
    if written.given.is_empty() && memories.is_empty() {
        let problem = format!("{max_tokens} leaves no room for what was found");
        return Err(Error::Argument { argument: "max_tokens", problem });
    }
    let reply = ask::continued(&row, dialogue, found.kb_no, deadline.left("an answer")?)?;
    answered(reply, &row, &options.refusal, &written.given, &memories)
}

/// Checks the arguments. Returns the most tokens of the prompt.
fn check(wanted: &Wanted) -> Result<usize> {
    let refused = |argument, problem: String| Err(Error::Argument { argument, problem });
    if wanted.question.trim().is_empty() {
        return refused("question", "it is empty".into());
    }
    if wanted.memory.is_none() && wanted.options.subject.is_some() {
        return refused("options", "options.subject: has no effect without a memory".into());
    }
    if let Some(conversation) = &wanted.conversation {
        turns::check(conversation, &wanted.question)?;
    }
    match wanted.max_tokens.map(usize::try_from) {
        None => Ok(MAX_TOKENS),
        Some(Ok(most @ 1..)) => Ok(most),
        Some(_) => refused("max_tokens", "it is below 1".into()),
    }
}

/// A prompt while it is filled. Its parts share one budget.
struct Prompt<'a> {
    wanted: &'a Wanted,
    counter: &'a TokenCounter,
    system: String,
    earlier: Vec<kb_types::Message>,
    max_tokens: usize,
    /// What instructions and question leave, and what of it is left.
    room: usize,
    left: usize,
}

impl<'a> Prompt<'a> {
    fn begin(wanted: &'a Wanted, max_tokens: usize, counter: &'a TokenCounter) -> Result<Prompt<'a>> {
        let AnswerOptions { refusal, instructions, .. } = &wanted.options;
        let system = answer_prompt::system(refusal, instructions.as_deref());
        let least = counter.total([system.as_str(), &answer_prompt::user("", &[], &wanted.question)])?;
        let Some(room) = max_tokens.checked_sub(least) else {
            let problem = format!("instructions and question have {least} tokens, {max_tokens} are allowed");
            return Err(Error::Argument { argument: "max_tokens", problem });
        };
        Ok(Prompt { wanted, counter, system, earlier: Vec::new(), max_tokens, room, left: room })
    }

    /// Adds the last turns of a conversation.
    fn add_turns(&mut self, conversation: &str) -> Result<()> {
        self.earlier = turns::messages(conversation, self.room / WINDOW, self.counter)?;
        let tokens = self.counter.total(self.earlier.iter().map(|message| message.text.as_str()))?;
        self.left = self.left.saturating_sub(tokens);
        Ok(())
    }

    /// Returns the facts that fit, best first.
    fn add_memories<'m>(&mut self, recalled: &'m [Recalled]) -> Result<Vec<&'m Recalled>> {
        let mut room = self.room / MEMORIES;
        let mut kept = Vec::new();
        for recalled in recalled {
            let tokens = self.counter.count(&answer_prompt::memory(&recalled.entry.fact))?;
            if let Some(rest) = room.checked_sub(tokens) {
                (room, self.left) = (rest, self.left.saturating_sub(tokens));
                kept.push(recalled);
            }
        }
        Ok(kept)
    }

    /// Fills the rest with passages.
    fn end(self, found: &Found, memories: &[&Recalled]) -> Result<(Dialogue, Written)> {
        let Wanted { question, options, .. } = self.wanted;
        let facts: Vec<&str> = memories.iter().map(|recalled| recalled.entry.fact.as_str()).collect();
        let mut room = self.left;
        loop {
            let written = found.write(room, self.counter)?;
            let user = answer_prompt::user(&written.text, &facts, question);
            let (system, earlier) = (self.system.clone(), self.earlier.clone());
            let dialogue = Dialogue::new(system, earlier, user, options.answer_tokens);
            let total = self.counter.total(dialogue.texts())?;
            // Parts may have a few more tokens together than each by itself.
            if total <= self.max_tokens || room == 0 {
                return Ok((dialogue, written));
            }
            room = room.saturating_sub(total - self.max_tokens);
        }
    }
}

/// Checks the reply of the model.
fn answered(
    reply: ChatReply,
    row: &ServiceRow,
    refusal: &str,
    given: &[Given],
    memories: &[&Recalled],
) -> Result<Answered> {
    // Texts in PostgreSQL cannot contain NUL.
    let said = reply.text.replace('\0', " ");
    let said = said.trim();
    if said.is_empty() && reply.finish == FinishReason::Stop {
        let problem = "its answer is empty".to_string();
        return Err(Error::Service { kind: ServiceKind::Llm, id: row.id.clone(), problem, passing: true });
    }
    let contents: Vec<&str> = given.iter().map(|given| given.content.as_str()).collect();
    let CheckedAnswer { text, citations, invalid } = citations::check(said, &contents);
    let tokens =
        reply.input_tokens.zip(reply.output_tokens).map(|(input, output)| input.saturating_add(output));
    Ok(Answered {
        annotations: annotations(&citations, given),
        refused: reply.finish == FinishReason::ContentFilter || said == refusal,
        text,
        chunks: Json::array(&given.iter().map(|given| given.described.clone()).collect::<Vec<_>>()),
        memories: Json::array(&memories.iter().map(|fact| found::described(fact)).collect::<Vec<_>>()),
        usage: json!({
            "input_tokens": reply.input_tokens,
            "output_tokens": reply.output_tokens,
            "total_tokens": tokens,
        }),
        cost: tokens.and_then(|tokens| cost(row, tokens)),
        finish_reason: reply.finish.name(),
        invalid_citations: invalid.into_iter().filter_map(|number| i32::try_from(number).ok()).collect(),
        turn_id: None,
    })
}

impl Answered {
    /// The refusal where nothing was found, without asking the model.
    fn without_context(refusal: &str, row: &ServiceRow) -> Answered {
        Answered {
            text: refusal.to_string(),
            annotations: Vec::new(),
            chunks: Json::array(&[]),
            memories: Json::array(&[]),
            usage: json!({"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}),
            cost: cost(row, 0),
            finish_reason: NO_CONTEXT,
            refused: true,
            invalid_citations: Vec::new(),
            turn_id: None,
        }
    }
}

/// In the currency of the price for a million tokens, which is kept in millionths.
fn cost(row: &ServiceRow, tokens: u64) -> Option<f64> {
    let price = row.remote().price_micros?;
    Some(price as f64 * tokens as f64 / 1e12)
}

/// An annotation for each number of each marker, as kb.annotate returns them.
fn annotations(citations: &[Citation], given: &[Given]) -> Vec<Value> {
    let mut documents: Vec<i64> = Vec::new();
    for passage in given {
        if !documents.contains(&passage.document_id) {
            documents.push(passage.document_id);
        }
    }
    let annotation = |citation: &Citation| {
        let passage = given.get(citation.number.checked_sub(1)?)?;
        Some(json!({
            "type": "file_citation",
            "text": format!("[{}]", citation.number),
            "index": documents.iter().position(|document| *document == passage.document_id),
            "start_index": citation.start,
            "end_index": citation.end,
            "file_id": passage.external_id,
            "filename": passage.title,
            "kb_id": passage.kb_id,
            "chunk_id": passage.chunk_id,
            "quote": citation.quote,
        }))
    };
    citations.iter().filter_map(annotation).collect()
}
