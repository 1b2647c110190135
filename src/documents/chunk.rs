//! kb.chunk: what a chunking setting does to a text.

use crate::models::embed;
use crate::models::{default_embedder, services};
use crate::pg::report;
use crate::settings;
use kb_text as ingest;
use kb_text::chunk::{Sentences, semantic_chunk};
use kb_text::chunk_settings::Chunk;
use kb_text::chunk_settings::{Chunking, Span, Strategy};
use kb_text::model_answers::distance;
use kb_text::parse::{ContentType, Places};
use kb_text::tokenizer::{Tokenizer, max_content_tokens};
use kb_types::error::{Error, Result};
use kb_types::{Bounds, Embedder, Kind, Preprocess};
use serde_json::Value;

/// The chunks of a text that an embedder (the default one for None) would be given.
pub fn chunk(text: &str, chunking: &Value, embedder: Option<&str>, content_type: &str) -> Result<Vec<Chunk>> {
    let embedder = services::embedder(&embedder.map_or_else(default_embedder, |id| Ok(id.to_string()))?)?;
    let dir = settings::model_dir();
    let chunking = Chunking::parse(chunking, max_content_tokens(&embedder, &dir)?)
        .map_err(|problems| Error::configuration("chunking", problems))?;
    let content_type = ContentType::parse(content_type).ok_or_else(|| Error::Argument {
        argument: "content_type",
        problem: format!("\"{content_type}\" is not one of text/plain, text/markdown, text/html, text/csv"),
    })?;
    let tokenizer = Tokenizer::for_chunking(&chunking, &embedder, &dir)?;
    // The limit is that of a document.
    let most = settings::max_document_size();
    if text.len() > most {
        return Err(Error::Limit {
            object: "the text".into(),
            problem: format!("it has {} bytes; at most {most} are allowed", text.len()),
            setting: "kb.max_document_size",
        });
    }
    // A cancellation of the statement stops the work.
    let bounds = Bounds::begin(settings::limits(report::check_interrupts));
    let extracted = ingest::parse::extract(text, content_type, &Preprocess::default(), &bounds)?;
    if chunking.strategy != Strategy::Semantic {
        let chunks = ingest::chunk::chunk(&extracted.text, &chunking, &tokenizer, &extracted.marks, &bounds)?;
        return Ok(placed(chunks, text, content_type));
    }
    let sentences = Sentences::of(&extracted.text, &chunking, &tokenizer, &bounds)?;
    let distances = distances(&embedder, &sentences.texts())?;
    // The time of the models does not count as time that the text takes.
    let bounds = Bounds::begin(settings::limits(report::check_interrupts));
    let chunks = semantic_chunk(&sentences, &distances, &chunking, &tokenizer, &extracted.marks, &bounds)?;
    Ok(placed(chunks, text, content_type))
}

/// Finds the chunks in the text that was given, which may have other line ends. Chunks of HTML are slices of
/// the Markdown that was made of it.
fn placed(mut chunks: Vec<Chunk>, given: &str, content_type: ContentType) -> Vec<Chunk> {
    if content_type != ContentType::Html && given.contains(['\r', '\u{feff}']) {
        let places = Places::of(given);
        for span in chunks.iter_mut().map(|chunk| &mut chunk.span) {
            *span = Span { start: places.as_given(span.start), end: places.as_given(span.end) };
        }
    }
    chunks
}

/// The distance of each sentence from the next one.
fn distances(embedder: &Embedder, sentences: &[&str]) -> Result<Vec<f32>> {
    let mut distances = Vec::with_capacity(sentences.len().saturating_sub(1));
    let mut before: Option<Vec<f32>> = None;
    for part in sentences.chunks(PART) {
        let texts: Vec<String> = part.iter().map(|sentence| sentence.to_string()).collect();
        for vector in embed(&embedder.id, &texts, Kind::Document)? {
            distances.extend(before.map(|before| distance(&before, &vector)));
            before = Some(vector);
        }
    }
    Ok(distances)
}

/// The number of sentences that are embedded at a time.
const PART: usize = 1_000;
