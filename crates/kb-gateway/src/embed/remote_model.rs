//! A model at an endpoint. A batch of texts is sent in one call, and halved until a rejected text is alone.
//!
//! A probe is a text that no provider has reason to reject. It is sent before the first halving, unless the
//! provider rejected the batch because of its size. If the probe is rejected, too, or meets a transient
//! fault, no text is to blame and all get that error.

use super::super::cancellation::CancellationToken;
use super::super::endpoint::budget::Spent;
use super::super::endpoint::call::{CallError, CallOptions, Endpoint, Operation};
use super::super::endpoint::classify::{Answer, Unusable};
use super::super::endpoint::transport::HttpRequest;
use super::super::endpoint::usage::Usage;
use super::super::provider::{EmbedApi, VectorResult};
use super::super::turns::{Urgency, Whose};
use kb_inference::finish;
use kb_types::error::{Error, Result};
use kb_types::{Embedder, Kind};
use std::borrow::Cow;

/// The most bytes of the vectors in a reply as JSON, because it is read as a whole.
const MAX_REPLY: usize = 16 * 1024 * 1024;
/// The most characters of a number in JSON.
const NUMBER: usize = 32;
/// The most bytes of a reply besides its vectors.
const WRAPPING: usize = 1024 * 1024;
/// A text that no provider has reason to reject.
const PROBE: &str = "text";

/// An embedder with its API and endpoint.
pub struct RemoteModel {
    pub embedder: Embedder,
    pub kind: Kind,
    pub api: &'static dyn EmbedApi,
    pub endpoint: Endpoint,
}

/// The texts of a call.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    pub texts: &'a [String],
    /// The tokens of each text.
    pub tokens: &'a [u32],
    /// The tokens of the day that the requesting database knows of.
    pub spent: Spent,
    /// Set if the rate has already admitted the first request, with this many of its tokens.
    pub admitted: Option<u32>,
    /// Whether all texts belong to one request.
    pub is_of_one: bool,
    pub urgency: Urgency,
    pub whose: &'a Whose,
    /// Once it is cancelled, nothing more is sent.
    pub cancellation: &'a CancellationToken,
}

/// The operation of embedding texts.
struct Texts<'a> {
    model: &'a RemoteModel,
    texts: Cow<'a, [String]>,
}

impl Operation for Texts<'_> {
    type Output = Vec<VectorResult>;

    fn request(&self) -> HttpRequest {
        let RemoteModel { embedder, kind, api, .. } = self.model;
        api.request(embedder, *kind, &self.texts)
    }

    fn max_reply(&self) -> usize {
        WRAPPING + self.texts.len() * self.model.embedder.dimension * NUMBER
    }

    fn read(&self, body: &[u8]) -> std::result::Result<Answer<Self::Output>, Unusable> {
        let embedder = &self.model.embedder;
        let answer = self.model.api.read(embedder, body, self.texts.len())?;
        Ok(Answer { value: of_dimension(embedder.dimension, answer.value)?, ..answer })
    }

    fn probe(&self) -> Self {
        Texts { model: self.model, texts: Cow::Owned(vec![PROBE.to_string()]) }
    }
}

/// Checks that every vector has this dimension. If some vectors are right, the others fail alone. If all are
/// wrong, the endpoint is to blame, and the whole answer is an error.
fn of_dimension(
    dimension: usize,
    items: Vec<VectorResult>,
) -> std::result::Result<Vec<VectorResult>, Unusable> {
    let wrong = |length: usize| match length {
        0 => "the provider returned an empty vector".to_string(),
        _ => format!("the provider returned vectors of dimension {length} instead of {dimension}"),
    };
    let check = |item: VectorResult| match item {
        Ok(vector) if vector.len() != dimension => Err(Unusable::Unexpected(wrong(vector.len()))),
        item => item,
    };
    let other = items.iter().flatten().map(Vec::len).find(|length| *length > 0 && *length != dimension);
    let items: Vec<VectorResult> = items.into_iter().map(check).collect();
    match items.iter().find_map(|item| item.as_ref().err()) {
        Some(first) if items.iter().all(Result::is_err) => Err(match (other, first) {
            (Some(length), _) => Unusable::Unexpected(wrong(length)),
            (None, Unusable::Truncated(problem)) => Unusable::Truncated(problem.clone()),
            // Without other texts it is unknown whether the text or the endpoint is to blame.
            (None, first) => Unusable::Unreadable(first.to_string()),
        }),
        _ => Ok(items),
    }
}

impl RemoteModel {
    /// The most texts of a request.
    pub fn max_batch(&self) -> usize {
        let embedder = &self.embedder;
        let by_reply = MAX_REPLY / (embedder.dimension.max(1) * NUMBER);
        embedder.config.batch_size.min(self.api.max_batch(embedder)).min(by_reply).max(1)
    }

    /// A vector or an error for each text, in order.
    pub async fn embed(&self, batch: &Batch<'_>) -> (Vec<Result<Vec<f32>>>, Usage) {
        let Batch { texts, tokens, .. } = *batch;
        let mut usage = Usage::default();
        let mut results: Vec<Option<Result<Vec<f32>>>> = texts.iter().map(|_| None).collect();
        let mut ranges = Vec::new();
        ranges.push(0..texts.len());
        let mut admitted = batch.admitted;
        // Whether it is known that texts are to blame and not the endpoint.
        let mut is_of_texts = false;
        while let Some(range) = ranges.pop() {
            let options = CallOptions {
                estimate: tokens[range.clone()].iter().map(|n| u64::from(*n)).sum(),
                admitted: std::mem::take(&mut admitted),
                // A provider's message may repeat a text, which other clients must not see.
                quote: batch.is_of_one || range.len() == 1,
                // While a bad text is searched for, nothing is retried, and the endpoint is not blamed.
                attempts: if is_of_texts { 1 } else { self.endpoint.configuration.retry.max_attempts },
                blames_endpoint: !is_of_texts,
                is_probe: false,
                ..probe_options(batch)
            };
            let part = Texts { model: self, texts: Cow::Borrowed(&texts[range.clone()]) };
            let error = match self.endpoint.call(&part, &options, &mut usage).await {
                Ok(vectors) => {
                    for (i, vector) in range.zip(vectors) {
                        results[i] = Some(match vector {
                            Ok(vector) => finish(&self.embedder, vector),
                            Err(problem) => Err(self.error(of_text(problem))),
                        });
                    }
                    continue;
                }
                Err(error) => error,
            };
            if range.len() == 1 && (is_of_texts || texts.len() == 1) {
                results[range.start] = Some(Err(self.error(error)));
                continue;
            }
            let by_size = matches!(error, CallError::Rejected { by_size: true, .. });
            let may_be_of_texts = matches!(error, CallError::Rejected { .. } | CallError::Fault(_));
            let mut error = self.error(error);
            is_of_texts |= by_size;
            if may_be_of_texts && !is_of_texts {
                match self.answers_probe(batch, &mut usage).await {
                    Ok(()) => is_of_texts = true,
                    // It is unknown what is to blame, so no text fails for good.
                    Err(passing) if passing.is_transient() => error = passing,
                    Err(_) => {}
                }
            }
            if may_be_of_texts && is_of_texts {
                let middle = range.start + range.len() / 2;
                ranges.push(middle..range.end);
                ranges.push(range.start..middle);
                continue;
            }
            // An error that affects every text is not tried again with the others.
            for i in std::iter::once(range).chain(ranges.drain(..)).flatten() {
                results[i] = Some(Err(error.clone()));
            }
        }
        let lost = || Err(Error::Internal("a text was not answered".into()));
        let results: Vec<_> = results.into_iter().map(|result| result.unwrap_or_else(lost)).collect();
        usage.texts = results.iter().filter(|result| result.is_ok()).count() as u64;
        (results, usage)
    }

    /// Checks whether the provider answers the probe, in which case a text of the batch is to blame.
    async fn answers_probe(&self, batch: &Batch<'_>, usage: &mut Usage) -> Result<()> {
        let probe = Texts { model: self, texts: Cow::Borrowed(&[]) }.probe();
        match self.endpoint.call(&probe, &probe_options(batch), usage).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Converts an error for clients.
    pub fn error(&self, error: CallError) -> Error {
        let embedder = self.embedder.id.clone();
        match error {
            CallError::Paused { throttled, of_tenant } => Error::Paused {
                embedder,
                problem: throttled.reason,
                retry_after_ms: u64::try_from(throttled.wait.as_millis()).unwrap_or(u64::MAX),
                of_tenant,
            },
            CallError::Cancelled => cancelled(),
            CallError::Fault(problem) => Error::Provider { embedder, problem, passing: true },
            CallError::Rejected { problem, .. } | CallError::Refused(problem) => {
                Error::Provider { embedder, problem, passing: false }
            }
        }
    }
}

/// The error of a text in an answer that has vectors for others.
fn of_text(problem: Unusable) -> CallError {
    match problem {
        // The provider may have omitted it by mistake.
        Unusable::Unreadable(problem) => CallError::Fault(problem),
        Unusable::Unexpected(problem) => CallError::Rejected { problem, by_size: false },
        Unusable::Truncated(problem) => CallError::Rejected { problem, by_size: true },
        Unusable::Rejected(problem) => CallError::Rejected { problem, by_size: false },
    }
}

/// The error of texts for which nobody waits any more.
pub fn cancelled() -> Error {
    Error::Gateway { problem: "dropped a text whose client has left".into() }
}

fn probe_options<'a>(batch: &Batch<'a>) -> CallOptions<'a> {
    CallOptions {
        estimate: 1,
        spent: batch.spent,
        admitted: None,
        quote: false,
        attempts: 1,
        blames_endpoint: true,
        is_probe: true,
        urgency: batch.urgency,
        whose: batch.whose,
        cancellation: batch.cancellation,
    }
}
