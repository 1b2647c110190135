//! A reranker at an endpoint. Texts are sent in as many consecutive requests as the provider needs.

use super::super::endpoint::access::Access;
use super::super::endpoint::call::Operation;
use super::super::endpoint::classify::{Answer, Unusable};
use super::super::endpoint::transport::HttpRequest;
use super::super::endpoint::usage::Usage;
use super::super::provider::{self, RerankApi};
use super::super::services::{Caller, Service, Services, estimate};
use kb_types::error::Result;
use kb_types::{Reranker, ServiceKind};
use std::borrow::Cow;

/// The most bytes of a reply besides its scores, and of each score. Texts are not requested back.
const WRAPPING: usize = 256 * 1024;
const SCORE: usize = 256;
/// A text that no provider has reason to reject.
const PROBE: &str = "text";

/// The operation of scoring texts.
struct Scores<'a> {
    reranker: &'a Reranker,
    api: &'static dyn RerankApi,
    service: &'a Service,
    query: &'a str,
    texts: Cow<'a, [String]>,
}

impl Operation for Scores<'_> {
    type Output = Vec<f64>;

    fn request(&self) -> HttpRequest {
        HttpRequest::post(self.service.url(), self.api.body(self.reranker, self.query, &self.texts))
    }

    fn max_reply(&self) -> usize {
        WRAPPING + self.texts.len() * SCORE
    }

    fn read(&self, body: &[u8]) -> std::result::Result<Answer<Vec<f64>>, Unusable> {
        self.api.read(body, self.texts.len())
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
    let kind = ServiceKind::Reranker;
    let (provider, api) = provider::with_api(kind, &reranker.provider, |provider| provider.rerank)?;
    let facts = api.facts();
    let (base_url, remote) = (reranker.base_url.as_deref(), &reranker.config.remote);
    let service = Service::new(kind, &reranker.id, provider, base_url, remote, |_| facts.path);
    let endpoint = services.endpoint(&service, access)?;
    let most = reranker.config.batch_size.unwrap_or(usize::MAX).min(facts.max_batch).max(1);
    let mut all = Vec::with_capacity(texts.len());
    for part in texts.chunks(most) {
        let tokens = estimate(part.iter().map(String::as_str)) + estimate([query]) * part.len() as u64;
        let operation =
            Scores { reranker: &reranker, api, service: &service, query, texts: Cow::Borrowed(part) };
        all.extend(service.call(&endpoint, &operation, tokens, caller, usage).await?);
        usage.texts += part.len() as u64;
    }
    Ok(all)
}
