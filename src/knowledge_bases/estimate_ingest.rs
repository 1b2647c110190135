//! kb.estimate_ingest: what ingesting a knowledge base would cost, without sending anything.

use crate::builds::{builds, knowledge_bases};
use crate::documents::stored;
use crate::models::services;
use crate::pg::report;
use crate::settings;
use kb_gateway::provider;
use kb_text::chunk::chunk;
use kb_text::chunk_settings::Strategy;
use kb_text::parse::{ContentType, extract_bytes};
use kb_text::tokenizer::Tokenizer;
use kb_types::error::Result;
use kb_types::{Bounds, Embedder, ServiceKind};

/// The most documents that are cut for the estimate; a larger number is extrapolated from them.
const SAMPLE: i64 = 200;
/// The assumed seconds of a request, unless a limit makes it last longer.
const REQUEST_SECONDS: f64 = 0.5;
/// The tokens per second of a local model on two cores.
const LOCAL_TOKENS: f64 = 4_000.0;

/// The tokens that a chat model reads in addition to a chunk's own, and those of its answer.
const SITUATE_TOKENS: i64 = 800;

#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The documents that kb.ingest would process, and the chunks and tokens that it would have embedded.
    pub documents: i64,
    pub chunks: i64,
    pub tokens: i64,
    /// In the currency of price_per_million_tokens. None: the embedder has no price.
    pub cost: Option<f64>,
    pub seconds: f64,
}

/// Cuts a sample of the documents and scales it up.
pub fn estimate_ingest(kb_id: &str) -> Result<Estimate> {
    let kb = knowledge_bases::get(kb_id)?;
    let live = builds::live(kb.kb_no)?;
    let embedder = services::embedder(&kb.embedder)?;
    // As in kb.ingest: all documents under a new embedder, otherwise those that are not ready under these
    // settings.
    let all = embedder.fingerprint() != live.fingerprint;
    let chunking = kb.chunking()?;
    let settings = live.settings_under(embedder.fingerprint(), &chunking, &kb.preprocess);
    let (count, bytes) = stored::to_ingest(kb.kb_no, &settings, all)?;
    let sample = stored::sample(kb.kb_no, &settings, all, SAMPLE)?;
    let tokenizer = Tokenizer::for_chunking(&chunking, &embedder, &settings::model_dir())?;
    let (mut chunks, mut chunked, mut tokens, mut sampled) = (0i64, 0i64, 0i64, 0i64);
    for document_id in sample {
        // One text is in memory at a time; a cancellation takes effect between two.
        report::check_interrupts();
        let Some((content_type, original)) = stored::original_of(document_id)? else { continue };
        sampled += original.len() as i64;
        let Some(content_type) = ContentType::parse(&content_type) else { continue };
        // A document that cannot be cut costs nothing: it will be listed in kb.failures.
        let bounds = Bounds::begin(settings::limits(report::check_interrupts));
        let Ok(extracted) = extract_bytes(&original, content_type, &kb.preprocess, &bounds) else { continue };
        let Ok(pieces) = chunk(&extracted.text, &chunking, &tokenizer, &extracted.marks, &bounds) else {
            continue;
        };
        chunks += pieces.len() as i64;
        let context = chunking.context_tokens();
        chunked += pieces.iter().map(|piece| piece.token_count as i64).sum::<i64>();
        // Its sentences are embedded before its chunks.
        let times = if chunking.strategy == Strategy::Semantic { 2 } else { 1 };
        tokens += pieces.iter().map(|piece| (times * piece.token_count + context) as i64).sum::<i64>();
    }
    let scale = if sampled > 0 { bytes as f64 / sampled as f64 } else { 0.0 };
    let scaled = |n: i64| (n as f64 * scale).round() as i64;
    let (chunks, chunked, tokens) = (scaled(chunks), scaled(chunked), scaled(tokens));
    let llm =
        chunking.context_llm.as_deref().map(|id| services::get(ServiceKind::Llm, id)?.llm()).transpose()?;
    let chat_price = llm.and_then(|llm| llm.config.remote.price_micros).unwrap_or(0);
    let chat_tokens = match chunking.context_llm {
        Some(_) => chunks * SITUATE_TOKENS + chunked,
        None => 0,
    };
    let price = embedder.config.remote.price_micros.or((chat_price > 0).then_some(0));
    let cost =
        price.map(|price| (tokens as f64 * price as f64 + chat_tokens as f64 * chat_price as f64) / 1e12);
    Ok(Estimate { documents: count, chunks, tokens, cost, seconds: seconds(&embedder, chunks, tokens) })
}

/// The time that the tightest limit alone would impose.
fn seconds(embedder: &Embedder, chunks: i64, tokens: i64) -> f64 {
    match embedder.provider.as_str() {
        "hash" => return 0.0,
        "local" => return tokens as f64 / LOCAL_TOKENS,
        _ => {}
    }
    let remote = &embedder.config.remote;
    let provider = provider::find(ServiceKind::Embedder, &embedder.provider);
    let most = provider.and_then(|found| found.embed).map_or(usize::MAX, |api| api.max_batch(embedder));
    let by_count = chunks as f64 / embedder.config.batch_size.min(most).max(1) as f64;
    let by_tokens = remote.max_batch_tokens.map_or(0.0, |most| tokens as f64 / most as f64);
    let requests = by_count.max(by_tokens).ceil();
    // The part that exceeds a day's budget waits for the next day.
    let days = remote.daily_token_budget.map_or(1.0, |budget| (tokens as f64 / budget as f64).ceil());
    let at_rate = |n: f64, per_minute: Option<u32>| per_minute.map_or(0.0, |rate| n * 60.0 / f64::from(rate));
    let at_once = requests * REQUEST_SECONDS / remote.max_concurrency as f64;
    let at_limits = at_once.max(at_rate(requests, remote.rpm)).max(at_rate(tokens as f64, remote.tpm));
    at_limits.max((days - 1.0) * 86_400.0)
}
