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
use super::provider;
use super::services::{self, Caller, Services};
use super::turns::Urgency;
use kb_types::error::{Error, Object, Result};
use kb_types::{Llm, Reranker};
use serde::Deserialize;
use serde_json::Value;

/// The reranking API of a provider.
pub trait Dialect: Send + Sync {
    /// The default base_url. None if it must be given.
    fn base_url(&self) -> Option<&'static str>;
    /// The default model, or '' if the server has only one.
    fn model(&self) -> &'static str;
    /// Whether the default base_url answers only requests with a key.
    fn needs_secret(&self) -> bool {
        true
    }
    /// The path after base_url.
    fn path(&self) -> &'static str;
    /// The most texts of a request.
    fn max_batch(&self) -> usize;
    fn body(&self, reranker: &Reranker, query: &str, texts: &[String]) -> Value;
    /// Reads the reply for `count` texts. The error describes what is wrong without repeating the reply.
    fn read(&self, body: &[u8], count: usize) -> Result<Answer<Vec<f64>>, Unusable>;
}

/// The names of the providers with a reranking API of their own.
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

/// A request to score texts.
pub struct Question {
    pub reranker: Reranker,
    /// The chat model, for provider llm.
    pub llm: Option<Llm>,
    pub access: Access,
    pub query: String,
    pub texts: Vec<String>,
}

/// Scores texts, in order. Larger scores are better, and none is NaN or infinite. Adds the cost to `usage`,
/// even if it fails.
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
            // Parts that have not been computed when the client leaves are dropped.
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

/// The id and the capability for which usage is booked.
pub fn booked_as(question: &Question) -> (String, Capability) {
    match &question.llm {
        Some(llm) => (llm.id.clone(), Capability::Chat),
        None => (question.reranker.id.clone(), Capability::Rerank),
    }
}

/// Truncates a text to this many characters.
fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}

/// The score of a text, in the format of most providers.
#[derive(Default, Deserialize)]
struct Item {
    #[serde(default)]
    index: Value,
    #[serde(default, alias = "score")]
    relevance_score: Value,
}

/// The scores in the order of the texts. A text without a valid score comes last, because the scores of the
/// others are paid for and some servers omit irrelevant texts. Returns an error if no text has a score.
fn in_order(
    items: Vec<Option<Item>>,
    tokens: Option<u64>,
    count: usize,
) -> Result<Answer<Vec<f64>>, Unusable> {
    let items = items.into_iter().map(|item| {
        let Item { index, relevance_score } = item.unwrap_or_default();
        (index.as_u64().map(|index| index as usize), relevance_score.as_f64())
    });
    let scores: Vec<Option<f64>> = provider::in_order(items, count)?;
    if count > 0 && scores.iter().all(Option::is_none) {
        return Err(format!("no score came back for any of {count} texts").into());
    }
    let last = scores.iter().flatten().copied().fold(0.0, f64::min);
    Ok(Answer { value: scores.into_iter().map(|score| score.unwrap_or(last)).collect(), tokens })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scores_are_put_in_the_order_of_the_texts_and_each_has_one() {
        let read = |list: &[(usize, f64)], count| {
            let items: Value =
                list.iter().map(|(index, score)| json!({"index": index, "score": score})).collect();
            in_order(serde_json::from_value(items).unwrap(), None, count).map(|answer| answer.value)
        };
        assert_eq!(read(&[(2, 0.9), (0, 0.5), (1, 0.1)], 3).unwrap(), [0.5, 0.1, 0.9]);
        for (wrong, count) in
            [(&[(0, 0.9), (0, 0.1)][..], 2), (&[(0, 0.9), (2, 0.1)], 2), (&[(0, 0.9), (1, 0.1)], 1), (&[], 2)]
        {
            assert!(matches!(read(wrong, count), Err(Unusable::Unreadable(_))), "{wrong:?}");
        }
        assert_eq!(read(&[], 0).unwrap(), [0.0; 0]);
    }

    #[test]
    fn a_text_without_a_score_comes_last_and_others_keep_theirs() {
        for (items, scores) in [
            (json!([{"index": 0, "score": 0.9}]), [0.9, 0.0, 0.0]),
            (json!([{"index": 2, "score": 0.9}, {"index": 1, "score": -2.5}]), [-2.5, -2.5, 0.9]),
            (json!([{"index": 0, "score": null}, {"index": 1, "score": 0.5}, {"index": 2}]), [0.0, 0.5, 0.0]),
            (json!([{"index": 0, "score": "NaN"}, {"index": 1, "score": 0.5}, null]), [0.0, 0.5, 0.0]),
            (
                json!([{"index": 0, "score": 0.4}, {"index": 0, "score": 0.5}, {"index": 1, "score": 0.6}]),
                [0.0, 0.6, 0.0],
            ),
        ] {
            let read = in_order(serde_json::from_value(items.clone()).unwrap(), None, 3);
            assert_eq!(read.unwrap().value, scores, "{items}");
        }
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
