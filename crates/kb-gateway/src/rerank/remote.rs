//! A reranker at an endpoint. Texts are sent in as many consecutive requests as the provider needs.

use super::super::endpoint::access::Access;
use super::super::endpoint::call::Operation;
use super::super::endpoint::classify::{Answer, Unusable};
use super::super::endpoint::transport::HttpRequest;
use super::super::endpoint::usage::Usage;
use super::super::services::{Caller, Service, Services, estimate};
use super::{Dialect, find};
use kb_types::Reranker;
use kb_types::error::{Error, Object, Result};
use std::borrow::Cow;

/// The most bytes of a reply besides its scores, and of each score. Texts are not requested back.
const WRAPPING: usize = 256 * 1024;
const SCORE: usize = 256;
/// A text that no provider has reason to reject.
const PROBE: &str = "text";

/// The operation of scoring texts.
struct Scores<'a> {
    reranker: &'a Reranker,
    dialect: &'static dyn Dialect,
    service: &'a Service,
    query: &'a str,
    texts: Cow<'a, [String]>,
}

impl Operation for Scores<'_> {
    type Output = Vec<f64>;

    fn request(&self) -> HttpRequest {
        HttpRequest {
            method: "POST".to_string(),
            url: self.service.url(),
            body: self.dialect.body(self.reranker, self.query, &self.texts),
        }
    }

    fn max_reply(&self) -> usize {
        WRAPPING + self.texts.len() * SCORE
    }

    fn read(&self, body: &[u8]) -> std::result::Result<Answer<Vec<f64>>, Unusable> {
        self.dialect.read(body, self.texts.len())
    }

    fn probe(&self) -> Self {
        Scores { query: PROBE, texts: Cow::Owned(vec![PROBE.to_string()]), ..*self }
    }
}

/// A score for each text.
pub async fn scores(
    services: &Services,
    reranker: Reranker,
    access: &Access,
    query: &str,
    texts: &[String],
    caller: &Caller,
    usage: &mut Usage,
) -> Result<Vec<f64>> {
    let dialect = find(&reranker.provider)
        .ok_or_else(|| Error::ProviderUnavailable { provider: reranker.provider.clone() })?;
    let remote = reranker.config.remote.clone();
    let service = Service {
        what: Object::Reranker,
        id: reranker.id.clone(),
        base_url: reranker.base_url.as_deref().or(dialect.base_url()).unwrap_or_default().to_string(),
        path: remote.path.clone().unwrap_or_else(|| dialect.path().to_string()),
        remote,
    };
    let endpoint = services.endpoint(&service, access)?;
    let most = reranker.config.batch_size.unwrap_or(usize::MAX).min(dialect.max_batch()).max(1);
    let mut all = Vec::with_capacity(texts.len());
    for part in texts.chunks(most) {
        let tokens = estimate(part.iter().map(String::as_str)) + estimate([query]) * part.len() as u64;
        let operation =
            Scores { reranker: &reranker, dialect, service: &service, query, texts: Cow::Borrowed(part) };
        all.extend(service.call(&endpoint, &operation, tokens, caller, usage).await?);
        usage.texts += part.len() as u64;
    }
    Ok(all)
}
