//! Reranking: a model scores how well each text answers a question.

mod by_chat;
mod prompt;
mod remote;

use super::chat::Chat;
use super::endpoint::access::Access;
use super::endpoint::usage::Usage;
use super::services::{self, Caller, Services};
use super::turns::Urgency;
use crate::local_models::Models;
use kb_types::error::{Error, Result};
use kb_types::{Llm, Reranker, ServiceKind};

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
            let left = || services::left(ServiceKind::Reranker, &reranker.id);
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
        return Err(Error::Service { kind: ServiceKind::Reranker, id, problem, passing: false });
    }
    Ok(scores)
}

/// The id and the capability for which usage is booked.
pub fn booked_as(question: &Question) -> (String, ServiceKind) {
    match &question.llm {
        Some(llm) => (llm.id.clone(), ServiceKind::Llm),
        None => (question.reranker.id.clone(), ServiceKind::Reranker),
    }
}

/// Truncates a text to this many characters.
fn cut(text: &mut String, most: usize) {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (most, left) in [(0, ""), (2, "dé"), (9, "déjà")] {
            let mut text = "déjà".to_string();
            cut(&mut text, most);
            assert_eq!(text, left);
        }
    }
}
