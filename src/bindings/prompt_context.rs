//! kb.prompt_context: one text for each name under which bindings enter a prompt.

use super::retrieve_context::{BoundAnswer, ask, weighed};
use crate::query::context;
use kb_search::bindings::{Weighed, by_worth, estimated_tokens};
use kb_search::context::{Cited, Written, text_from};
use kb_types::Hit;
use kb_types::context_format::ContextFormat;
use kb_types::error::{Error, Result};
use std::cell::Cell;
use uuid::Uuid;

/// The name of the text of bindings that give none.
const DEFAULT_NAME: &str = "context";

/// A text for a prompt.
pub struct PromptText {
    pub inject_as: String,
    pub text: String,
    /// The chunks in it, in order.
    pub chunk_ids: Vec<Uuid>,
    pub tokens: usize,
    /// Whether it consists of fallbacks, because nothing qualifies.
    pub is_fallback: bool,
    /// Whether the end of the best passage is left out, because it has more tokens than the texts may have.
    pub is_truncated: bool,
}

/// Asks the knowledge bases that are bound in these scopes, and writes what they answer. `max_tokens` bounds
/// all texts together, including everything around the passages. Passages are numbered through all texts.
pub fn prompt_context(
    scopes: &[String],
    question: &str,
    format: ContextFormat,
    max_tokens: Option<i32>,
) -> Result<Vec<PromptText>> {
    let max_tokens = match max_tokens {
        Some(tokens) if tokens < 1 => {
            return Err(Error::Argument { argument: "max_tokens", problem: format!("{tokens} is below 1") });
        }
        tokens => tokens.and_then(|tokens| usize::try_from(tokens).ok()),
    };
    let page = Page::new(ask(scopes, question)?, format)?;
    let Some(most) = max_tokens else { return page.written(page.by_worth.len()) };
    page.within(most)
}

/// A passage of the prompt.
struct Passage {
    /// The place of its text in the prompt.
    place: usize,
    hit: Hit,
    cited: Cited,
}

/// The texts of a prompt before it is clear what fits.
struct Page {
    format: ContextFormat,
    names: Vec<String>,
    /// For each name, what is used where no knowledge base has answered.
    fallbacks: Vec<String>,
    passages: Vec<Passage>,
    /// The places of the passages, the one that is left out last first.
    by_worth: Vec<usize>,
    counter: Counter,
}

impl Page {
    fn new(answers: Vec<BoundAnswer>, format: ContextFormat) -> Result<Page> {
        let counter = Counter::new(&answers);
        let (mut names, mut fallbacks): (Vec<String>, Vec<Vec<String>>) = (Vec::new(), Vec::new());
        let (mut found, mut rows): (Vec<(usize, Hit)>, Vec<Weighed>) = (Vec::new(), Vec::new());
        for BoundAnswer { bound, hits, .. } in answers {
            let name = bound.binding.inject_as.unwrap_or_else(|| DEFAULT_NAME.into());
            let place = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                fallbacks.push(Vec::new());
                names.len() - 1
            });
            if hits.is_empty() {
                fallbacks[place].extend(bound.binding.fallback);
            }
            for (rank, hit) in hits.into_iter().enumerate() {
                rows.push(weighed(&hit, rank));
                found.push((place, hit));
            }
        }
        // The passages of a text come together.
        let mut order: Vec<usize> = (0..found.len()).collect();
        order.sort_by_key(|row| found[*row].0);
        let rows: Vec<Weighed> = order.iter().map(|row| rows[*row]).collect();
        found.sort_by_key(|(place, _)| *place);
        let cited = context::cited(found.iter().map(|(_, hit)| hit))?;
        let passages: Vec<Passage> =
            found.into_iter().zip(cited).map(|((place, hit), cited)| Passage { place, hit, cited }).collect();
        let is_answered = |place: usize| passages.iter().any(|passage| passage.place == place);
        let fallbacks = fallbacks.into_iter().enumerate().map(|(place, mut texts)| {
            // The same sentence need not be said twice.
            texts.dedup();
            if is_answered(place) { String::new() } else { texts.join("\n\n") }
        });
        Ok(Page {
            format,
            names,
            fallbacks: fallbacks.collect(),
            by_worth: by_worth(&rows),
            passages,
            counter,
        })
    }

    /// The texts of the best passages, as many as fit. If not even the best one fits, its beginning does.
    fn within(mut self, most: usize) -> Result<Vec<PromptText>> {
        let total = |texts: &[PromptText]| texts.iter().map(|text| text.tokens).sum::<usize>();
        // Fallbacks are used as a whole or not at all.
        while total(&self.written(0)?) > most
            && let Some(last) = self.fallbacks.iter_mut().rfind(|text| !text.is_empty())
        {
            last.clear();
        }
        let all = self.written(self.by_worth.len())?;
        if total(&all) <= most {
            return Ok(all);
        }
        let (mut fits, mut exceeds) = (0, self.by_worth.len());
        while fits + 1 < exceeds {
            let middle = fits.midpoint(exceeds);
            match total(&self.written(middle)?) <= most {
                true => fits = middle,
                false => exceeds = middle,
            }
        }
        let mut texts = self.written(fits)?;
        if let (0, Some(best)) = (fits, self.by_worth.first().and_then(|best| self.passages.get(*best))) {
            let left = most.saturating_sub(total(&texts));
            let count = |texts: &[String]| Ok(self.counter.count(texts));
            let cut = text_from(1, std::slice::from_ref(&best.cited), self.format, Some(left), &count)?;
            if !cut.blocks.is_empty() {
                texts[best.place].add(cut, &[&best.hit]);
            }
        }
        Ok(texts)
    }

    /// The texts of the `count` best passages.
    fn written(&self, count: usize) -> Result<Vec<PromptText>> {
        let mut kept: Vec<usize> = self.by_worth.iter().take(count).copied().collect();
        kept.sort_unstable();
        let counted = |texts: &[String]| Ok(self.counter.count(texts));
        let mut texts = Vec::with_capacity(self.names.len());
        let mut first = 1;
        for (place, (name, fallback)) in self.names.iter().zip(&self.fallbacks).enumerate() {
            let own = kept.iter().map(|kept| &self.passages[*kept]).filter(|passage| passage.place == place);
            let (cited, hits): (Vec<Cited>, Vec<&Hit>) =
                own.map(|passage| (passage.cited.clone(), &passage.hit)).unzip();
            let mut text = PromptText {
                inject_as: name.clone(),
                text: fallback.clone(),
                chunk_ids: Vec::new(),
                tokens: 0,
                is_fallback: !fallback.is_empty(),
                is_truncated: false,
            };
            if !cited.is_empty() {
                text.add(text_from(first, &cited, self.format, None, &counted)?, &hits);
                first += cited.len();
            } else if text.is_fallback {
                text.tokens = self.counter.count(std::slice::from_ref(fallback)).into_iter().sum();
            }
            texts.push(text);
        }
        Ok(texts)
    }
}

impl PromptText {
    fn add(&mut self, written: Written, hits: &[&Hit]) {
        self.chunk_ids =
            written.blocks.iter().flat_map(|block| context::chunk_ids(hits[block.passage])).collect();
        self.is_truncated = written.blocks.iter().any(|block| block.is_truncated);
        (self.text, self.tokens) = (written.text, written.tokens);
    }
}

/// Counts tokens as the first knowledge base that has answered counts them, or, where its tokeniser is not at
/// hand, by characters.
struct Counter {
    embedder: Option<kb_types::Embedder>,
    is_away: Cell<bool>,
}

impl Counter {
    fn new(answers: &[BoundAnswer]) -> Counter {
        let target = answers.iter().find_map(|answer| answer.target.as_ref());
        Counter { embedder: target.map(context::counted_by), is_away: Cell::new(false) }
    }

    fn count(&self, texts: &[String]) -> Vec<usize> {
        let counted = self
            .embedder
            .as_ref()
            .filter(|_| !self.is_away.get())
            .map(|embedder| context::count(embedder, texts));
        match counted {
            Some(Ok(counts)) => counts,
            failed => {
                self.is_away.set(failed.is_some() || self.is_away.get());
                texts.iter().map(|text| estimated_tokens(text)).collect()
            }
        }
    }
}
