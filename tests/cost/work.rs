//! The work that is done with an input, and the part of it that is counted.

use super::inputs::{self, Input};
use kb_gateway::frame::{Envelope, Head, decode, encode_request};
use kb_gateway::protocol::Request;
use kb_text::chunk::{Outline, Sentences, chunk, semantic_chunk};
use kb_text::chunk_settings::{Chunk, Chunking, Strategy, Unit};
use kb_text::diff::{Identity, diff};
use kb_text::parse::{ContentType, extract};
use kb_text::rechunk::{PreviousChunk, rechunk};
use kb_text::tokenizer::Tokenizer;
use kb_types::embedder::{Embedder, EmbedderConfig};
use kb_types::error::Result;
use kb_types::extraction::File;
use kb_types::marks::Marked;
use kb_types::preprocess::Preprocess;
use kb_types::{Bounds, Limits};

/// The default limits of the settings, except for time.
pub fn bounds() -> Bounds {
    Bounds::begin(Limits { time: None, chunks: 100_000, bytes: 64 << 20, interrupt: || {} })
}

/// Something that reads a text.
pub struct Work {
    pub name: String,
    pub inputs: Vec<Input>,
    pub run: Box<dyn Fn(&str, &Bounds) -> Result<()>>,
}

fn work(name: &str, inputs: Vec<Input>, run: impl Fn(&str, &Bounds) -> Result<()> + 'static) -> Work {
    Work { name: name.into(), inputs, run: Box::new(run) }
}

pub fn all() -> Vec<Work> {
    let mut all = vec![
        work("HTML", inputs::html(), |text, bounds| {
            extract(text, ContentType::Html, &Preprocess::default(), bounds).map(drop)
        }),
        work("Markdown", inputs::markdown(), |text, bounds| {
            extract(text, ContentType::Markdown, &Preprocess::default(), bounds).map(drop)
        }),
        work("plain text", inputs::plain(), |text, bounds| {
            extract(text, ContentType::Plain, &Preprocess::default(), bounds).map(drop)
        }),
    ];
    for (name, tokenizer) in tokenizers() {
        all.push(work(&format!("tokens: {name}"), inputs::plain(), move |text, bounds| {
            tokenizer.count(text, bounds).map(drop)
        }));
    }
    for (strategy, size, overlap, unit) in SETTINGS {
        let setting = Chunking {
            strategy,
            size,
            overlap,
            unit,
            tokenizer: None,
            percentile: None,
            context: None,
            context_llm: None,
        };
        let name = name_of(&setting);
        let markdown = strategy == Strategy::Markdown;
        let texts = if markdown { inputs::markdown() } else { inputs::plain() };
        all.push(work(&format!("cut {name}"), texts, move |text, bounds| {
            chunk(text, &setting, &Tokenizer::words(), &marks(text, markdown, bounds)?, bounds).map(drop)
        }));
    }
    for strategy in [Strategy::Recursive, Strategy::Markdown, Strategy::Fixed] {
        let setting = Chunking {
            strategy,
            size: 50,
            overlap: 25,
            unit: Unit::Tokens,
            tokenizer: None,
            percentile: None,
            context: None,
            context_llm: None,
        };
        let markdown = strategy == Strategy::Markdown;
        let texts = if markdown { inputs::markdown() } else { inputs::plain() };
        all.push(work(&format!("cut again {}", name_of(&setting)), texts, move |text, bounds| {
            cut_again(text, &setting, markdown, bounds)
        }));
    }
    let setting = Chunking {
        strategy: Strategy::Recursive,
        size: 100,
        overlap: 50,
        unit: Unit::Tokens,
        tokenizer: None,
        percentile: None,
        context: None,
        context_llm: None,
    };
    for (name, tokenizer) in tokenizers() {
        let setting = setting.clone();
        all.push(work(&format!("cut by {name}"), inputs::plain(), move |text, bounds| {
            chunk(text, &setting, &tokenizer, &[], bounds).map(drop)
        }));
    }
    // At percentile 1 nearly every sentence is a group that may be joined to a neighbour.
    for (size, percentile, unit) in
        [(10, 95, Unit::Tokens), (800, 95, Unit::Tokens), (254, 1, Unit::Tokens), (200, 95, Unit::Characters)]
    {
        let settings = serde_json::json!({"strategy": "semantic", "size": size, "percentile": percentile,
            "unit": if unit == Unit::Tokens { "tokens" } else { "characters" }});
        let setting = Chunking::parse(&settings, None).unwrap();
        // This one does not treat Markdown specially, so such texts are cut once.
        let mut texts = inputs::plain();
        texts.extend(if size == 800 { inputs::markdown() } else { Vec::new() });
        let name = format!("cut {}", name_of(&setting));
        all.push(work(&name, texts, move |text, bounds| cut_semantic(text, &setting, bounds)));
    }
    for (extension, texts) in inputs::files() {
        all.push(work(&format!("file {extension}"), texts, move |text, bounds| {
            file(extension, text, bounds)
        }));
    }
    all.push(work("the gateway's frames", inputs::plain(), |text, _| frame(text)));
    all
}

const SETTINGS: [(Strategy, usize, usize, Unit); 15] = [
    (Strategy::Recursive, 254, 38, Unit::Tokens),
    (Strategy::Recursive, 254, 127, Unit::Tokens),
    (Strategy::Recursive, 10, 5, Unit::Tokens),
    (Strategy::Recursive, 1, 0, Unit::Tokens),
    (Strategy::Recursive, 800, 400, Unit::Characters),
    (Strategy::Recursive, 100_000, 50_000, Unit::Tokens),
    (Strategy::Markdown, 254, 127, Unit::Tokens),
    (Strategy::Markdown, 1, 0, Unit::Tokens),
    (Strategy::Markdown, 100_000, 50_000, Unit::Tokens),
    (Strategy::Fixed, 254, 127, Unit::Tokens),
    (Strategy::Fixed, 1, 0, Unit::Tokens),
    (Strategy::Fixed, 800, 400, Unit::Characters),
    (Strategy::Rows, 254, 0, Unit::Tokens),
    (Strategy::Rows, 1, 0, Unit::Rows),
    (Strategy::None, 800, 0, Unit::Tokens),
];

fn name_of(setting: &Chunking) -> String {
    let unit = match setting.unit {
        Unit::Tokens => "",
        Unit::Characters => " characters",
        Unit::Rows => " rows",
    };
    format!("{} {}/{}{unit}", setting.strategy.name(), setting.size, setting.overlap)
}

/// A tokeniser of each kind: kb's words, tiktoken, and those of tokenizer.json files.
fn tokenizers() -> Vec<(&'static str, Tokenizer)> {
    let mut all = vec![("words", Tokenizer::words())];
    for (name, model) in [("WordPiece", wordpiece()), ("BPE", bpe()), ("Unigram", unigram())] {
        all.push((name, from_json(model)));
    }
    if let Ok(tiktoken) = Tokenizer::tiktoken("cl100k_base") {
        all.push(("tiktoken", tiktoken));
    }
    all
}

fn from_json(json: serde_json::Value) -> Tokenizer {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokenizer.json");
    std::fs::write(&path, json.to_string()).unwrap();
    Tokenizer::from_file(&path, "m").unwrap()
}

fn letters() -> impl Iterator<Item = String> {
    ('!'..='~').map(String::from).chain(["é".into(), "漢".into()])
}

fn wordpiece() -> serde_json::Value {
    let vocab = ["[UNK]".to_string()].into_iter().chain(letters()).chain(letters().map(|l| format!("##{l}")));
    let vocab: serde_json::Map<_, _> = vocab.enumerate().map(|(i, w)| (w, i.into())).collect();
    serde_json::json!({
        "version": "1.0", "added_tokens": [], "post_processor": null, "decoder": null,
        "truncation": null, "padding": null,
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                       "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": vocab}
    })
}

fn bpe() -> serde_json::Value {
    let mut words: Vec<String> = letters().collect();
    let mut merges = Vec::new();
    for (a, b) in [("x", "x"), ("xx", "xx"), ("xxxx", "xxxx"), ("1", "1"), (".", "."), ("a", "."), ("_", "_")]
    {
        merges.push(format!("{a} {b}"));
        words.push(format!("{a}{b}"));
    }
    let vocab: serde_json::Map<_, _> = words.into_iter().enumerate().map(|(i, w)| (w, i.into())).collect();
    serde_json::json!({
        "version": "1.0", "added_tokens": [], "post_processor": null, "decoder": null, "normalizer": null,
        "truncation": null, "padding": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                  "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                  "vocab": vocab, "merges": merges}
    })
}

fn unigram() -> serde_json::Value {
    let words = letters().chain(["xx".into(), "xxxx".into(), "11".into(), "▁".into(), "▁a".into()]);
    let vocab: Vec<_> = [("<unk>".to_string(), 0.0)].into_iter().chain(words.map(|w| (w, -2.5))).collect();
    serde_json::json!({
        "version": "1.0", "added_tokens": [], "post_processor": null, "decoder": null, "normalizer": null,
        "truncation": null, "padding": null,
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": false}
    })
}

/// An edit in the middle: the text is cut, compared with the previous chunks, and compared with itself.
fn cut_again(text: &str, setting: &Chunking, markdown: bool, bounds: &Bounds) -> Result<()> {
    let words = Tokenizer::words();
    let chunks = chunk(text, setting, &words, &marks(text, markdown, bounds)?, bounds)?;
    let previous: Vec<PreviousChunk> = chunks.iter().map(previous_of).collect();
    let document = Identity { kb_no: 1, other_tenant: None, external_id: "d" };
    let known = diff(document, &[], chunks).insert;
    let known: Vec<_> = known.iter().map(|(id, _, chunk)| (*id, chunk.hash())).collect();
    let middle = text.floor_char_boundary(text.len() / 2);
    let edited = format!("{} an edit {}", &text[..middle], &text[middle..]);
    let again = rechunk(&edited, setting, &words, &marks(&edited, markdown, bounds)?, &previous, bounds)?;
    diff(document, &known, again);
    Ok(())
}

/// In the form that extraction gives them.
fn marks(text: &str, markdown: bool, bounds: &Bounds) -> Result<Vec<Marked>> {
    if markdown { Ok(Outline::read(text, bounds)?.marks) } else { Ok(Vec::new()) }
}

fn previous_of(chunk: &Chunk) -> PreviousChunk {
    PreviousChunk {
        content: chunk.content.clone(),
        start: chunk.span.start,
        end: chunk.span.end,
        token_count: chunk.token_count,
    }
}

/// A request with as many texts as the text has kilobytes, encoded and decoded.
fn frame(text: &str) -> Result<()> {
    let embedder = Embedder {
        id: "e".into(),
        provider: "hash".into(),
        model: "m".into(),
        dimension: 4,
        base_url: None,
        config: EmbedderConfig::default(),
    };
    let texts = text.as_bytes().chunks(1024).map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    let frame = encode_request(1, &Request::CountTokens { embedder, texts })?;
    let _: Envelope<Request> = decode(&frame[Head::SIZE..])?;
    Ok(())
}

/// With distances that rise and fall.
fn cut_semantic(text: &str, setting: &Chunking, bounds: &Bounds) -> Result<()> {
    let tokenizer = Tokenizer::words();
    let sentences = Sentences::of(text, setting, &tokenizer, bounds)?;
    let count = sentences.texts().len();
    let distances: Vec<f32> = (1..count).map(|i| (i * 7919 % 1000) as f32 / 1000.0).collect();
    semantic_chunk(&sentences, &distances, setting, &tokenizer, &[], bounds).map(drop)
}

/// Reads a file as kb-extract does, and cuts its text. A file that is refused costs what was read until then.
fn file(extension: &str, text: &str, bounds: &Bounds) -> Result<()> {
    let file = File {
        name: Some(format!("a.{extension}")),
        bytes: text.as_bytes().to_vec(),
        max_text: 64 << 20,
        ..File::default()
    };
    let Ok(found) = kb_extract::extract(&file) else { return Ok(()) };
    let setting = Chunking::parse(&serde_json::json!({"size": 800}), None)
        .map_err(|problems| kb_types::error::Error::configuration("chunking", problems))?;
    chunk(&found.text, &setting, &Tokenizer::words(), &found.marks, bounds).map(drop)
}
