//! Reranking: a model scores how well each text answers a question.

mod by_chat;
mod cohere;
mod jina;
mod prompt;
mod remote;
mod tei;
mod voyage;

use super::chat::Chat;
use super::endpoint::access::Access;
use super::endpoint::classify::{Answer, Unusable};
use super::endpoint::usage::Usage;
use super::models::Models;
use super::protocol::Capability;
use super::services::{self, Caller, Services};
use super::turns::Urgency;
use crate::error::{Error, Object, Result};
use crate::model::{Llm, Reranker};
use serde::Deserialize;
use serde_json::Value;

/// A provider's dialect.
pub trait Dialect: Send + Sync {
    /// Where it is when base_url is not given; None: it must be given.
    fn base_url(&self) -> Option<&'static str>;
    /// The model when none is given; '' where the server has only one.
    fn model(&self) -> &'static str;
    /// Whether it answers only requests with a key when base_url is not given.
    fn needs_secret(&self) -> bool {
        true
    }
    /// Behind base_url.
    fn path(&self) -> &'static str;
    /// Texts that it takes in one request at most.
    fn max_batch(&self) -> usize;
    fn body(&self, reranker: &Reranker, query: &str, texts: &[String]) -> Value;
    /// Reads the answer for `count` texts. The error says what is wrong with it, without repeating it.
    fn read(&self, body: &[u8], count: usize) -> Result<Answer<Vec<f64>>, Unusable>;
}

/// Names of the providers that are reached over HTTP by themselves.
pub const NAMES: [&str; 4] = ["cohere", "jina", "voyage", "tei"];

pub fn find(name: &str) -> Option<&'static dyn Dialect> {
    Some(match name {
        "cohere" => &cohere::Cohere,
        "jina" => &jina::Jina,
        "voyage" => &voyage::Voyage,
        "tei" => &tei::Tei,
        _ => return None,
    })
}

/// What is to be scored.
pub struct Question {
    pub reranker: Reranker,
    /// The chat model of provider llm.
    pub llm: Option<Llm>,
    pub access: Access,
    pub query: String,
    pub texts: Vec<String>,
}

/// A score for each text, in order; larger is better, none is NaN or infinite. `usage` gets what it cost, also where it
/// fails.
pub async fn rerank(
    services: &Services,
    models: &Models,
    question: Question,
    caller: &Caller,
    usage: &mut Usage,
) -> Result<Vec<f64>> {
    let Question { reranker, llm, access, mut query, mut texts } = question;
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let most = reranker.config.max_chars;
    for text in texts.iter_mut().chain([&mut query]) {
        cut(text, most);
    }
    let id = reranker.id.clone();
    let scores = match reranker.provider.as_str() {
        "local" => {
            let scores = models.rank(&reranker, Urgency::Bulk, &caller.whose, query, texts);
            // What is not computed when the client leaves never is.
            let left = || services::left(Object::Reranker, &reranker.id);
            caller.cancellation.run_until_cancelled(scores).await.ok_or_else(left)??
        }
        "llm" => {
            let llm = llm.ok_or_else(|| Error::Internal("a reranker without its chat model".into()))?;
            let chat = Chat::open(services, &llm, &access)?;
            by_chat::scores(chat, &reranker, &query, &texts, caller, usage).await?
        }
        _ => remote::scores(services, reranker, &access, &query, &texts, caller, usage).await?,
    };
    if scores.iter().any(|score| !score.is_finite()) {
        let problem = "a score is not a number".to_string();
        return Err(Error::Service { what: Object::Reranker, id, problem, passing: false });
    }
    Ok(scores)
}

/// For whom usage is booked: the endpoint's id, and what it was called for.
pub fn booked_as(question: &Question) -> (String, Capability) {
    match &question.llm {
        Some(llm) => (llm.id.clone(), Capability::Chat),
        None => (question.reranker.id.clone(), Capability::Rerank),
    }
}

/// Leaves so many characters.
fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}

/// A text's score, as most providers write it.
#[derive(Deserialize)]
struct Item {
    index: usize,
    #[serde(alias = "score")]
    relevance_score: f64,
}

/// Scores in the order of the texts, if there is one for each.
fn in_order(items: Vec<Item>, tokens: Option<u64>, count: usize) -> Result<Answer<Vec<f64>>, Unusable> {
    if items.len() != count {
        return Err(format!("{} scores came back for {count} texts", items.len()).into());
    }
    let mut scores: Vec<Option<f64>> = vec![None; count];
    for Item { index, relevance_score } in items {
        if let Some(place) = scores.get_mut(index) {
            *place = Some(relevance_score);
        }
    }
    let value: Option<Vec<f64>> = scores.into_iter().collect();
    let wrong = || format!("the indexes that came back are not 0 to {}, each once", count.saturating_sub(1));
    Ok(Answer { value: value.ok_or_else(wrong)?, tokens })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_put_in_the_order_of_the_texts_and_each_has_one() {
        let items = |list: &[(usize, f64)]| -> Vec<Item> {
            list.iter().map(|(index, score)| Item { index: *index, relevance_score: *score }).collect()
        };
        let read =
            |list: &[(usize, f64)], count| in_order(items(list), None, count).map(|answer| answer.value);
        assert_eq!(read(&[(2, 0.9), (0, 0.5), (1, 0.1)], 3).unwrap(), [0.5, 0.1, 0.9]);
        for (wrong, count) in [
            (&[(0, 0.9), (0, 0.1)][..], 2),
            (&[(0, 0.9), (2, 0.1)], 2),
            (&[(0, 0.9)], 2),
            (&[(0, 0.9), (1, 0.1)], 1),
        ] {
            assert!(matches!(read(wrong, count), Err(Unusable::Unreadable(_))), "{wrong:?}");
        }
        assert_eq!(read(&[], 0).unwrap(), [0.0; 0]);
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        for (most, left) in [(0, ""), (2, "dé"), (9, "déjà")] {
            let mut text = "déjà".to_string();
            cut(&mut text, most);
            assert_eq!(text, left);
        }
    }
}
