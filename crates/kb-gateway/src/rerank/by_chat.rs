//! Reranking by a chat model, with one call for all texts or one for each.

use super::super::chat::Chat;
use super::super::endpoint::usage::Usage;
use super::super::services::Caller;
use super::prompt;
use kb_types::error::{Error, Result};
use kb_types::{Reranker, Scoring, ServiceKind};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Scores from 0 to 10. A text whose score the model omits gets 0.
pub async fn scores(
    chat: Chat,
    reranker: &Reranker,
    query: &str,
    texts: &[String],
    caller: &Caller,
    usage: &mut Usage,
) -> Result<Vec<f64>> {
    if reranker.config.scoring == Scoring::Single {
        return one_by_one(Arc::new(chat), query, texts, caller, usage).await;
    }
    let mut all = Vec::with_capacity(texts.len());
    for part in texts.chunks(reranker.config.batch_size.unwrap_or(usize::MAX)) {
        let answer = chat.ask(prompt::of_many(query, part), caller, usage).await?;
        let read = prompt::read_many(&answer.text, part.len()).map_err(|problem| Error::Service {
            kind: ServiceKind::Reranker,
            id: reranker.id.clone(),
            problem,
            passing: true,
        })?;
        all.extend(read);
    }
    Ok(all)
}

/// Makes as many calls at a time as the chat model accepts. After a fault it makes no more calls, but waits
/// for those in flight, because they are paid for.
async fn one_by_one(
    chat: Arc<Chat>,
    query: &str,
    texts: &[String],
    caller: &Caller,
    usage: &mut Usage,
) -> Result<Vec<f64>> {
    let mut scores = vec![0.0; texts.len()];
    let (mut asked, mut failed) = (JoinSet::new(), None);
    let mut left = texts.iter().enumerate();
    loop {
        while failed.is_none() && asked.len() < chat.concurrency() {
            let Some((place, text)) = left.next() else { break };
            let (chat, caller, prompt) = (Arc::clone(&chat), caller.clone(), prompt::of_one(query, text));
            asked.spawn(async move {
                let mut usage = Usage::default();
                let answer = chat.ask(prompt, &caller, &mut usage).await;
                (place, answer, usage)
            });
        }
        match asked.join_next().await {
            None => break,
            Some(Ok((place, answer, part))) => {
                usage.add(&part);
                match answer {
                    Ok(answer) => scores[place] = prompt::read_one(&answer.text),
                    Err(error) => failed = failed.or(Some(error)),
                }
            }
            Some(Err(_)) => failed = Some(Error::Internal("asking a chat model failed".into())),
        }
    }
    failed.map_or(Ok(scores), Err)
}
