//! The kind of request that makes summaries.
//!
//! A summary is made of the newest one before and the turns after it. If these are more than a prompt holds,
//! several are made, one after the other.

use crate::chat_requests::requests::ChatRequest;
use crate::chat_requests::{Asked, Kind, Next};
use crate::conversations::append_turn::count;
use crate::conversations::read_turns::read;
use crate::conversations::sql::conversations::{self, WindowEnd};
use crate::conversations::sql::summaries::{self, NewSummary};
use crate::conversations::summary::{self, End};
use crate::conversations::summary_prompt;
use crate::gateway::client;
use crate::pg::{txn, wake};
use crate::upkeep::Log;
use kb_types::ServiceKind;
use kb_types::conversation::{CHARACTERS, SummaryStrategy};
use kb_types::error::{Error, Result};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// How often the gateway is asked which summaries are wanted, and how long its answer is waited for.
const GATHER_EVERY: Duration = Duration::from_secs(1);
const GATHER_WITHIN: Duration = Duration::from_secs(2);
/// Parts at most that are taken at a time.
const PARTS: usize = 20;

#[derive(Default)]
pub struct Summaries {
    gathered_at: Option<Instant>,
    /// Requests of which a part was asked and more is left, although the rest may be within the threshold.
    continued: HashSet<i64>,
}

impl Kind for Summaries {
    fn name(&self) -> &'static str {
        summary::KIND
    }

    fn prepare(&mut self, request: &ChatRequest, _vectors: Option<&[Vec<f32>]>) -> Result<Next> {
        let found = next(request, self.continued.contains(&request.request_no))?;
        if matches!(found, Some((_, true))) {
            self.continued.insert(request.request_no);
        } else {
            self.continued.remove(&request.request_no);
        }
        Ok(found.map_or(Next::Finish, |(asked, _)| Next::Ask(asked)))
    }

    /// Makes requests of the windows that lacked a summary.
    fn gather(&mut self, leaves: bool, log: &mut Log) -> bool {
        let is_time = self.gathered_at.is_none_or(|at| at.elapsed() >= GATHER_EVERY);
        if !(leaves || is_time) || !wake::gateway_runs() {
            return false;
        }
        self.gathered_at = Some(Instant::now());
        let mut any = false;
        for _ in 0..PARTS {
            match gather_part() {
                Ok(true) => any = true,
                Ok(false) => break,
                Err(error) => {
                    log.write("worker cannot read which summaries are wanted", &error);
                    break;
                }
            }
        }
        any
    }
}

fn gather_part() -> Result<bool> {
    let part = client::take_wanted_summaries(GATHER_WITHIN)?;
    for wanted in &part {
        let made = txn::in_txn(|| {
            summary::make(&wanted.tenant, &wanted.conversation_id, &wanted.subject, wanted.version)
        });
        match made {
            // Its conversation was dropped, or is locked: the next window asks again.
            Err(error) if !error.is_of_rows() => return Err(error),
            _ => {}
        }
    }
    Ok(!part.is_empty())
}

/// What to ask next, and whether more is left after it. None if no summary is wanted.
fn next(request: &ChatRequest, is_continued: bool) -> Result<Option<(Asked, bool)>> {
    let ChatRequest { tenant_id, conversation_id: Some(conversation_id), subject, .. } = request else {
        return Ok(None);
    };
    let Some((branch_no, depth)) = summary::read_subject(subject) else { return Ok(None) };
    let end = conversations::end_of_branch(tenant_id, conversation_id, branch_no, depth)?;
    let Some(WindowEnd { settings, depth: Some(depth), total_tokens: Some(total_tokens), .. }) = end else {
        return Ok(None);
    };
    let settings = conversations::parsed(&settings)?;
    let is_off = settings.summary.strategy == SummaryStrategy::Off;
    let Some(llm) = settings.summary.llm.clone().filter(|_| !is_off) else { return Ok(None) };
    let end = End { conversation_id, branch_no, depth, total_tokens, is_last: true };
    let newest = end.newest_summary()?;
    let boundary = match is_continued {
        true => Some(summary::boundary(&settings, &end)?),
        false => summary::wanted(&settings, &end, newest.as_ref())?,
    };
    let covered = newest.as_ref().map_or(0, |newest| newest.depth);
    let Some(boundary) = boundary.filter(|boundary| *boundary > covered) else { return Ok(None) };
    let turns = read(&end, covered, boundary)?;
    let Some((last, last_depth)) = turns.last() else { return Ok(None) };
    let max_tokens = settings.summary.max_tokens;
    let earlier = newest.as_ref().map(|newest| newest.content.as_str());
    let prompt = summary_prompt::prompt(earlier, turns, max_tokens);
    let new = Store {
        tenant_id: tenant_id.clone(),
        last,
        llm: llm.clone(),
        max_tokens,
        tokenizer: settings.tokenizer,
    };
    let store = Box::new(move |answer: &str| new.store(answer));
    Ok(Some((Asked { llm, max_tokens, prompt, version: depth, store, give_up: None }, last_depth < boundary)))
}

/// What is stored with a summary.
struct Store {
    tenant_id: String,
    /// The last turn that it covers.
    last: String,
    llm: String,
    max_tokens: i64,
    tokenizer: Option<String>,
}

impl Store {
    fn store(&self, answer: &str) -> Result<()> {
        let Store { tenant_id, last, llm, max_tokens, tokenizer } = self;
        let content = summary_prompt::read(answer).map_err(|problem| Error::Service {
            kind: ServiceKind::Llm,
            id: llm.clone(),
            problem,
            passing: true,
        })?;
        let (content, token_count) = within(content, *max_tokens, tokenizer.as_deref())?;
        summaries::insert(&NewSummary {
            tenant_id,
            summarized_up_to: last,
            content: &content,
            token_count,
            llm,
        })
    }
}

/// A summary that has at most so many tokens, with their number: the beginning of one that is longer.
fn within(mut content: String, max_tokens: i64, tokenizer: Option<&str>) -> Result<(String, i32)> {
    // No token is longer than this many characters on average, so that little is counted.
    let most = usize::try_from(max_tokens).unwrap_or(usize::MAX).saturating_mul(8 * CHARACTERS);
    loop {
        if let Some((at, _)) = content.char_indices().nth(most) {
            content.truncate(at);
        }
        let tokens = count(tokenizer, &[&content], 0)?;
        if i64::from(tokens) <= max_tokens {
            return Ok((content, tokens));
        }
        let characters = content.chars().count();
        let kept = (characters as i64).saturating_mul(max_tokens) / i64::from(tokens);
        let kept = usize::try_from(kept).unwrap_or(0).min(characters - 1);
        let at = content.char_indices().nth(kept.max(1)).map_or(0, |(at, _)| at);
        if at == 0 {
            return Ok((content, tokens));
        }
        content.truncate(at);
    }
}
