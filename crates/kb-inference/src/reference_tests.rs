//! Compares real models with vectors of independent implementations, and measures their speed.

use super::{LocalModel, load, load_for};
use kb_kernels::InstructionSet;
use kb_text::tokenizer::Tokenizer;
use kb_types::{Bounds, Compute, Embedder, EmbedderConfig, Kind};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[derive(Deserialize)]
struct Reference {
    model: String,
    texts: Vec<ReferenceText>,
}

#[derive(Deserialize)]
struct ReferenceText {
    text: String,
    /// The number of tokens that the model reads: after truncation, special tokens included.
    tokens: usize,
    truncated: bool,
    vector: Vec<f32>,
}

/// None without KB_MODEL_DIR, which is reported. With it, missing files fail the test.
fn model_dir(test: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("KB_MODEL_DIR").map(PathBuf::from);
    if dir.is_none() {
        eprintln!("SKIPPED {test}: KB_MODEL_DIR is not set");
    }
    dir
}

fn reference(file: &str) -> Reference {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data")).join(file);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn embedder(model: &str, dimension: usize, truncate: bool) -> Embedder {
    Embedder {
        id: "reference".into(),
        provider: "local".into(),
        model: model.into(),
        dimension,
        base_url: None,
        config: EmbedderConfig { truncate, ..EmbedderConfig::default() },
    }
}

fn compare_with(file: &str, test: &str) {
    let Some(dir) = model_dir(test) else { return };
    let reference = reference(file);
    let dimension = reference.texts[0].vector.len();
    let embedder = embedder(&reference.model, dimension, true);
    let tokenizer = Tokenizer::for_embedder(&embedder, &dir).unwrap();
    for set in InstructionSet::available() {
        let model = load_for(set, &embedder, &dir).unwrap();
        compare(&reference, model.as_ref(), &tokenizer, set);
    }
}

/// Each number must agree within 1e-4, because the order of sums, which depends on the processor, changes the
/// seventh digit.
fn compare(reference: &Reference, model: &dyn LocalModel, tokenizer: &Tokenizer, set: InstructionSet) {
    let texts: Vec<String> = reference.texts.iter().map(|t| t.text.clone()).collect();
    let vectors = model.embed(&texts, Kind::Document, &|| ()).unwrap();
    assert_eq!(vectors.len(), texts.len());
    let special = if model.max_input_tokens().is_some() { 2 } else { 0 };
    for (text, vector) in reference.texts.iter().zip(&vectors) {
        let worst = text.vector.iter().zip(vector).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(worst < 1e-4, "{set:?}, {:?}: off by {worst}", text.text);
        let counted = tokenizer.count(&text.text, &Bounds::none()).unwrap() + special;
        assert!(
            if text.truncated { counted > text.tokens } else { counted == text.tokens },
            "{:?}",
            text.text
        );
    }
}

#[test]
fn minilm_gives_the_vectors_of_an_independent_implementation() {
    compare_with("minilm_reference.json", "minilm");
}

#[test]
fn minilm_in_int8_stays_near_the_vectors_of_f32() {
    let Some(dir) = model_dir("minilm in int8") else { return };
    let reference = reference("minilm_reference.json");
    let mut embedder = embedder(&reference.model, reference.texts[0].vector.len(), true);
    embedder.config.compute = Compute::Int8;
    let texts: Vec<String> = reference.texts.iter().map(|t| t.text.clone()).collect();
    let cosine =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    for set in InstructionSet::available() {
        let model = load_for(set, &embedder, &dir).unwrap();
        let vectors = model.embed(&texts, Kind::Document, &|| ()).unwrap();
        let cosines: Vec<f64> =
            vectors.iter().zip(&reference.texts).map(|(v, text)| cosine(v, &text.vector)).collect();
        let least = cosines.iter().copied().fold(1.0, f64::min);
        let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
        println!("{set:?}: cosine {least:.5} at least, {mean:.5} in the mean");
        // For 7 bits, and for 8.
        let expected = match set.int8().name() {
            "avx2" => (0.99, 0.997),
            "avx512" => (0.996, 0.9985),
            _ => (0.997, 0.999),
        };
        assert!(least > expected.0 && mean > expected.1, "{set:?}: {least} at least, {mean} in the mean");
        assert!(least < 1.0 - 1e-6, "{set:?} does not round");
        // A single text is shared between threads and must get the same vector.
        for (text, vector) in texts.iter().zip(&vectors).take(3) {
            let alone = model.embed(std::slice::from_ref(text), Kind::Document, &|| ()).unwrap();
            assert!(cosine(&alone[0], vector) > 1.0 - 1e-5, "{set:?}: {text:?} alone has another vector");
        }
    }
}

#[test]
fn wordllama_gives_the_vectors_of_its_own_package() {
    compare_with("wordllama_reference.json", "wordllama");
}

/// A text of exactly this many tokens of MiniLM, special tokens included.
fn text_of(tokens: usize, seed: usize) -> String {
    const WORDS: [&str; 12] = [
        "boundary",
        "layer",
        "of",
        "the",
        "heat",
        "transfer",
        "and",
        "pressure",
        "model",
        "experiment",
        "wing",
        "flow",
    ];
    let words: Vec<&str> = (0..tokens - 2).map(|i| WORDS[(i * 7 + seed * 5 + i / 3) % WORDS.len()]).collect();
    words.join(" ")
}

fn resident_megabytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmHWM"));
    line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// `cargo test --no-default-features --lib speed_of_minilm -- --ignored --nocapture`
#[test]
#[ignore = "measures; needs KB_MODEL_DIR"]
fn speed_of_minilm() {
    let Some(dir) = model_dir("speed_of_minilm") else { return };
    for compute in [Compute::F32, Compute::Int8] {
        speed(compute, &dir);
    }
}

fn speed(compute: Compute, dir: &Path) {
    let started = Instant::now();
    let mut embedder = embedder("all-MiniLM-L6-v2", 384, false);
    embedder.config.compute = compute;
    let model = load(&embedder, dir).unwrap();
    println!("{compute:?}, load: {:?}", started.elapsed());
    for (tokens, count) in [(128, 32), (256, 16)] {
        let texts: Vec<String> = (0..count).map(|seed| text_of(tokens, seed)).collect();
        model.embed(&texts[..8], Kind::Document, &|| ()).unwrap();
        let mut times: Vec<Duration> = Vec::new();
        for _ in 0..3 {
            let started = Instant::now();
            model.embed(&texts, Kind::Document, &|| ()).unwrap();
            times.push(started.elapsed());
        }
        times.sort();
        let chunks = count as f64 / times[1].as_secs_f64();
        println!("{tokens}-token chunks: {chunks:.1} chunks/s, {:.0} tokens/s", chunks * tokens as f64);
    }
    let query = ["how many days off do I get in my first year?".to_string()];
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..60 {
        let started = Instant::now();
        model.embed(&query, Kind::Query, &|| ()).unwrap();
        times.push(started.elapsed());
    }
    times.sort();
    println!("a query: p50 {:?}, p95 {:?}; peak memory {} MB", times[30], times[57], resident_megabytes());
}
