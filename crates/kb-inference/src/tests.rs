//! Tests of the guarantees of every local model, with tiny models that the tests write themselves.

use super::{LocalModel, load};
use kb_text::model_files::ModelFiles;
use kb_types::error::{Error, Result};
use kb_types::{Compute, Embedder, EmbedderConfig, Kind, Pooling};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use std::path::Path;

const HIDDEN: usize = 8;
const WORDS: [&str; 12] =
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "alpha", "beta", "gamma", "delta", "one", "two", "three", "four"];

mod families;
mod long;
mod pairs;

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|t| t.to_string()).collect()
}

/// Pseudorandom numbers in -0.5..0.5 that are the same on every machine.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..count).map(|_| random.f32() - 0.5).collect()
}

fn write_tensors(dir: &Path, tensors: &[(String, Vec<usize>, Vec<f32>)]) {
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(_, _, v)| v.iter().flat_map(|x| x.to_le_bytes()).collect()).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    std::fs::write(dir.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
}

fn write_json(dir: &Path, name: &str, value: &Value) {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, value.to_string()).unwrap();
}

/// Writes a tokeniser with truncation at 4 and padding to 16, as real files have.
fn write_tokenizer(dir: &Path, special: bool) {
    let vocabulary: serde_json::Map<String, Value> =
        WORDS.iter().enumerate().map(|(i, w)| (w.to_string(), json!(i))).collect();
    let token = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let processor = json!({
        "type": "TemplateProcessing",
        "single": [token("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, token("[SEP]")],
        "pair": [token("[CLS]"), {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
            "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}
        }
    });
    write_json(
        dir,
        "tokenizer.json",
        &json!({
            "version": "1.0",
            "truncation": {"max_length": 4, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
            "padding": {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": null,
                        "pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"},
            "added_tokens": [], "normalizer": null,
            "pre_tokenizer": {"type": "Whitespace"},
            "post_processor": if special { processor } else { Value::Null },
            "decoder": null,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
        }),
    );
}

/// Writes a model with two layers, two heads, 12 positions, and weights under `prefix`.
fn write_bert(models: &Path, name: &str, prefix: &str) {
    let dir = models.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    write_tokenizer(&dir, true);
    write_json(
        &dir,
        "config.json",
        &json!({
            "model_type": "bert", "vocab_size": WORDS.len(), "hidden_size": HIDDEN, "num_hidden_layers": 2,
            "num_attention_heads": 2, "intermediate_size": 16, "hidden_act": "gelu",
            "max_position_embeddings": 12, "type_vocab_size": 2, "layer_norm_eps": 1e-12
        }),
    );
    let mut tensors: Vec<(String, Vec<usize>, Vec<f32>)> = Vec::new();
    let mut add = |name: String, shape: &[usize], shift: f32| {
        let seed = tensors.len() as u64 + 1;
        let values = numbers(shape.iter().product(), seed).iter().map(|x| x + shift).collect();
        tensors.push((format!("{prefix}{name}"), shape.to_vec(), values));
    };
    add("embeddings.word_embeddings.weight".into(), &[WORDS.len(), HIDDEN], 0.0);
    add("embeddings.position_embeddings.weight".into(), &[12, HIDDEN], 0.0);
    add("embeddings.token_type_embeddings.weight".into(), &[2, HIDDEN], 0.0);
    add("embeddings.LayerNorm.weight".into(), &[HIDDEN], 1.0);
    add("embeddings.LayerNorm.bias".into(), &[HIDDEN], 0.0);
    for layer in 0..2 {
        let mut linear = |name: &str, output: usize, input: usize| {
            add(format!("encoder.layer.{layer}.{name}.weight"), &[output, input], 0.0);
            add(format!("encoder.layer.{layer}.{name}.bias"), &[output], 0.0);
        };
        for part in ["query", "key", "value"] {
            linear(&format!("attention.self.{part}"), HIDDEN, HIDDEN);
        }
        linear("attention.output.dense", HIDDEN, HIDDEN);
        linear("intermediate.dense", 16, HIDDEN);
        linear("output.dense", HIDDEN, 16);
        for norm in ["attention.output.LayerNorm", "output.LayerNorm"] {
            add(format!("encoder.layer.{layer}.{norm}.weight"), &[HIDDEN], 1.0);
            add(format!("encoder.layer.{layer}.{norm}.bias"), &[HIDDEN], 0.0);
        }
    }
    write_tensors(&dir, &tensors);
}

fn write_static(models: &Path, name: &str, extra: &[(String, Vec<usize>, Vec<f32>)]) {
    let dir = models.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    write_tokenizer(&dir, false);
    let mut tensors =
        vec![("embeddings".to_string(), vec![WORDS.len(), HIDDEN], numbers(WORDS.len() * HIDDEN, 7))];
    tensors.extend_from_slice(extra);
    write_tensors(&dir, &tensors);
}

fn embedder(model: &str, config: EmbedderConfig) -> Embedder {
    Embedder {
        id: "e".into(),
        provider: "local".into(),
        model: model.into(),
        dimension: HIDDEN,
        base_url: None,
        config,
    }
}

fn bert_with(config: EmbedderConfig) -> Box<dyn LocalModel> {
    let models = tempfile::tempdir().unwrap();
    write_bert(models.path(), "tiny", "");
    load(&embedder("tiny", config), models.path()).unwrap()
}

fn documents(model: &dyn LocalModel, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
    model.embed(&strings(texts), Kind::Document, &|| ())
}

fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

fn norm(vector: &[f32]) -> f32 {
    vector.iter().map(|x| x * x).sum::<f32>().sqrt()
}

#[test]
fn a_text_has_the_same_vector_alone_and_in_any_batch() {
    let model = bert_with(EmbedderConfig::default());
    let texts = [
        "alpha beta gamma delta one two",
        "one",
        "",
        "two three",
        "alpha beta gamma delta one two three four",
    ];
    let together = documents(model.as_ref(), &texts).unwrap();
    for (text, vector) in texts.iter().zip(&together) {
        let alone = documents(model.as_ref(), &[text]).unwrap();
        assert!(distance(&alone[0], vector) < 1e-6, "{text}");
        assert!((norm(vector) - 1.0).abs() < 1e-6);
    }
    assert!(distance(&together[0], &together[1]) > 1e-2);
}

#[test]
fn vectors_come_back_in_the_order_of_the_texts_over_many_groups() {
    let model = bert_with(EmbedderConfig::default());
    let texts: Vec<String> = (0..600).map(|i| WORDS[4 + i % 8..].join(" ")).collect();
    let vectors = model.embed(&texts, Kind::Document, &|| ()).unwrap();
    assert_eq!(vectors.len(), texts.len());
    for (i, vector) in vectors.iter().enumerate() {
        assert!(distance(vector, &vectors[i % 8]) < 1e-6, "text {i}");
    }
    assert!(distance(&vectors[0], &vectors[7]) > 1e-2);
    assert!(model.embed(&[], Kind::Document, &|| ()).unwrap().is_empty());
}

#[test]
fn the_tokenizer_files_own_truncation_and_padding_are_not_used() {
    let model = bert_with(EmbedderConfig::default());
    let vectors = documents(model.as_ref(), &["alpha beta gamma", "alpha beta gamma delta"]).unwrap();
    assert!(distance(&vectors[0], &vectors[1]) > 1e-3);
}

#[test]
fn a_text_longer_than_the_model_reads_is_an_error() {
    let model = bert_with(EmbedderConfig::default());
    let fits = "one two three four one two three four one two";
    assert!(documents(model.as_ref(), &[fits]).is_ok());
    let error = documents(model.as_ref(), &["one", &format!("{fits} three")]).unwrap_err();
    assert_eq!(error, Error::InputTooLong { model: "tiny".into(), tokens: 13, limit: 12 });
}

#[test]
fn truncation_keeps_the_closing_special_token() {
    let config = EmbedderConfig {
        truncate: true,
        max_input_tokens: Some(5),
        pooling: None,
        ..EmbedderConfig::default()
    };
    let model = bert_with(config);
    assert_eq!(model.max_input_tokens(), Some(5));
    let vectors = documents(model.as_ref(), &["one two three", "one two three four alpha"]).unwrap();
    assert!(distance(&vectors[0], &vectors[1]) < 1e-6);
}

#[test]
fn the_prefix_of_the_kind_is_part_of_the_text() {
    let config = EmbedderConfig {
        query_prefix: "alpha ".into(),
        document_prefix: "beta ".into(),
        ..EmbedderConfig::default()
    };
    let prefixed = bert_with(config);
    let plain = bert_with(EmbedderConfig::default());
    let expected = documents(plain.as_ref(), &["alpha one", "beta one"]).unwrap();
    let query = prefixed.embed(&strings(&["one"]), Kind::Query, &|| ()).unwrap();
    assert!(distance(&query[0], &expected[0]) < 1e-6);
    assert!(distance(&documents(prefixed.as_ref(), &["one"]).unwrap()[0], &expected[1]) < 1e-6);
}

#[test]
fn cls_pooling_and_unnormalised_vectors_follow_the_config() {
    let raw = |pooling| {
        let config = EmbedderConfig { pooling: Some(pooling), normalize: false, ..EmbedderConfig::default() };
        documents(bert_with(config).as_ref(), &["one two three"]).unwrap().remove(0)
    };
    let (cls, mean) = (raw(Pooling::Cls), raw(Pooling::Mean));
    assert!(distance(&cls, &mean) > 1e-2);
    assert!((norm(&mean) - 1.0).abs() > 1e-3);
    // The mean covers all tokens, so that the vector of CLS alone cannot equal it.
    let models = tempfile::tempdir().unwrap();
    write_bert(models.path(), "cls", "");
    write_json(
        &models.path().join("cls"),
        "1_Pooling/config.json",
        &json!({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}),
    );
    let config = EmbedderConfig { normalize: false, ..EmbedderConfig::default() };
    let from_file = load(&embedder("cls", config), models.path()).unwrap();
    assert!(distance(&documents(from_file.as_ref(), &["one two three"]).unwrap()[0], &cls) < 1e-6);
}

#[test]
fn a_model_in_int8_gives_nearly_the_vectors_of_f32() {
    // The sizes are not multiples of a block.
    let texts = ["one two three", "alpha", "one two three four one two three four one two"];
    let exact = documents(bert_with(EmbedderConfig::default()).as_ref(), &texts).unwrap();
    let config = EmbedderConfig { compute: Compute::Int8, ..EmbedderConfig::default() };
    let rounded = documents(bert_with(config).as_ref(), &texts).unwrap();
    for (exact, rounded) in exact.iter().zip(&rounded) {
        let distance = distance(exact, rounded);
        assert!(distance < 0.05 && distance > 0.0, "{distance}");
    }
}

#[test]
fn weights_under_a_prefix_are_the_same_model() {
    let models = tempfile::tempdir().unwrap();
    write_bert(models.path(), "prefixed", "bert.");
    let prefixed = load(&embedder("prefixed", EmbedderConfig::default()), models.path()).unwrap();
    let plain = bert_with(EmbedderConfig::default());
    let both = [prefixed, plain].map(|m| documents(m.as_ref(), &["one two"]).unwrap().remove(0));
    assert!(distance(&both[0], &both[1]) < 1e-6);
}

#[test]
fn an_embedder_that_does_not_fit_its_model_names_every_problem() {
    let models = tempfile::tempdir().unwrap();
    write_bert(models.path(), "tiny", "");
    let config = EmbedderConfig { max_input_tokens: Some(2), ..EmbedderConfig::default() };
    let wrong = Embedder { dimension: 7, ..embedder("tiny", config) };
    let Err(Error::Configuration { object, problems, .. }) = load(&wrong, models.path()) else {
        panic!("loaded");
    };
    assert_eq!((object.as_str(), problems.len()), ("embedder \"e\"", 2));
    assert!(problems[0].contains("dimension is 7") && problems[0].contains('8'), "{problems:?}");
}

#[test]
fn damaged_weights_are_an_error_and_no_vector() {
    let models = tempfile::tempdir().unwrap();
    write_static(models.path(), "nan", &[("weights".into(), vec![WORDS.len()], vec![f32::NAN; WORDS.len()])]);
    let model = load(&embedder("nan", EmbedderConfig::default()), models.path()).unwrap();
    assert!(matches!(documents(model.as_ref(), &["one"]), Err(Error::Embedding { .. })));
}

#[test]
fn a_static_vector_is_the_mean_of_its_known_tokens() {
    let models = tempfile::tempdir().unwrap();
    write_static(models.path(), "static", &[]);
    let config = EmbedderConfig { normalize: false, ..EmbedderConfig::default() };
    let model = load(&embedder("static", config), models.path()).unwrap();
    assert_eq!(model.max_input_tokens(), None);
    let matrix = numbers(WORDS.len() * HIDDEN, 7);
    let expected: Vec<f32> =
        (0..HIDDEN).map(|i| (matrix[8 * HIDDEN + i] + matrix[9 * HIDDEN + i]) / 2.0).collect();
    assert!(distance(&documents(model.as_ref(), &["one two unheard"]).unwrap()[0], &expected) < 1e-6);
}

#[test]
fn a_static_models_token_weights_scale_its_tokens() {
    let models = tempfile::tempdir().unwrap();
    let mut weights = vec![1.0; WORDS.len()];
    weights[8] = 3.0;
    write_static(models.path(), "weighted", &[("weights".into(), vec![WORDS.len()], weights)]);
    let config = EmbedderConfig { normalize: false, ..EmbedderConfig::default() };
    let model = load(&embedder("weighted", config), models.path()).unwrap();
    let matrix = numbers(WORDS.len() * HIDDEN, 7);
    let expected: Vec<f32> =
        (0..HIDDEN).map(|i| (3.0 * matrix[8 * HIDDEN + i] + matrix[9 * HIDDEN + i]) / 2.0).collect();
    assert!(distance(&documents(model.as_ref(), &["one two"]).unwrap()[0], &expected) < 1e-6);
}

#[test]
fn a_text_without_known_tokens_still_has_a_unit_vector() {
    let models = tempfile::tempdir().unwrap();
    write_static(models.path(), "static", &[]);
    let model = load(&embedder("static", EmbedderConfig::default()), models.path()).unwrap();
    let hash = load(&hash_embedder(HIDDEN), models.path()).unwrap();
    for model in [model, hash] {
        for vector in documents(model.as_ref(), &["", "?! -- …"]).unwrap() {
            assert!((norm(&vector) - 1.0).abs() < 1e-6);
        }
    }
}

fn hash_embedder(dimension: usize) -> Embedder {
    Embedder { provider: "hash".into(), dimension, ..embedder("hash", EmbedderConfig::default()) }
}

#[test]
fn hashed_vectors_are_the_same_on_every_platform() {
    let model = load(&hash_embedder(8), Path::new("/nonexistent")).unwrap();
    let vector = documents(model.as_ref(), &["Leave policy: 25 days, LEAVE policy"]).unwrap().remove(0);
    assert_eq!(vector, documents(model.as_ref(), &["leave POLICY 25 days leave policy"]).unwrap()[0]);
    // Computed independently, in Python with the blake3 package.
    let expected = [0.2494627, 0.0, 0.0, 0.0, -0.1081398, 0.7323866, 0.0, 0.6242468];
    assert!(distance(&vector, &expected) < 1e-6, "{vector:?}");
}

#[test]
fn hashing_puts_texts_that_share_words_nearer_and_sees_word_order() {
    let model = load(&hash_embedder(384), Path::new("/nonexistent")).unwrap();
    let v = documents(
        model.as_ref(),
        &[
            "annual leave policy",
            "the policy on annual leave",
            "heat transfer at mach five",
            "policy leave annual",
        ],
    )
    .unwrap();
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    assert!(dot(&v[0], &v[1]) > 0.5 && dot(&v[0], &v[2]).abs() < 0.3);
    assert!(dot(&v[0], &v[3]) < 0.999);
}

#[test]
fn a_model_without_its_special_tokens_is_refused() {
    let models = tempfile::tempdir().unwrap();
    write_bert(models.path(), "bare", "");
    write_tokenizer(&models.path().join("bare"), false);
    let error = load(&embedder("bare", EmbedderConfig::default()), models.path()).err().unwrap();
    assert!(matches!(error, Error::ModelFiles { .. }), "{error:?}");
    assert!(ModelFiles::open(models.path(), "bare").is_ok());
}
