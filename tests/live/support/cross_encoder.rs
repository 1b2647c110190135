//! A cross-encoder of random weights, small enough to be written by a test: two layers, two heads, twelve
//! positions.

use crate::support::random::Rng;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Map, Value, json};
use std::path::Path;

/// The words that it distinguishes.
pub const WORDS: [&str; 8] = ["alpha", "beta", "gamma", "delta", "one", "two", "three", "four"];

const SPECIAL: [&str; 4] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"];
const HIDDEN: usize = 8;

/// Writes its files into a directory, which is created.
pub fn write(dir: &Path) {
    std::fs::create_dir_all(dir).unwrap();
    let all = SPECIAL.iter().chain(&WORDS);
    let vocabulary: Map<String, Value> =
        all.enumerate().map(|(id, word)| (word.to_string(), json!(id))).collect();
    let size = vocabulary.len();
    let special = |name: &str| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let sequence = |name: &str, kind: i32| json!({"Sequence": {"id": name, "type_id": kind}});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special("[CLS]"), sequence("A", 0), special("[SEP]")],
            "pair": [special("[CLS]"), sequence("A", 0), sequence("B", 1)],
            "special_tokens": {
                "[CLS]": {"id": "[CLS]", "ids": [2], "tokens": ["[CLS]"]},
                "[SEP]": {"id": "[SEP]", "ids": [3], "tokens": ["[SEP]"]}
            }
        },
        "decoder": null,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    });
    std::fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let config = json!({
        "model_type": "bert", "vocab_size": size, "hidden_size": HIDDEN, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 16, "hidden_act": "gelu",
        "max_position_embeddings": 12, "type_vocab_size": 2, "layer_norm_eps": 1e-12
    });
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    let tensors = tensors(size);
    let views = tensors.iter().map(|(name, shape, bytes)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    std::fs::write(dir.join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
}

/// The names, shapes and bytes of random numbers; those of norms are about 1, as in real models.
fn tensors(words: usize) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let mut shapes: Vec<(String, Vec<usize>)> = Vec::new();
    for (name, rows) in [("word", words), ("position", 12), ("token_type", 2)] {
        shapes.push((format!("bert.embeddings.{name}_embeddings.weight"), vec![rows, HIDDEN]));
    }
    let mut norms = vec!["bert.embeddings.LayerNorm".to_string()];
    let mut linears =
        vec![("bert.pooler.dense".to_string(), HIDDEN, HIDDEN), ("classifier".into(), 1, HIDDEN)];
    for layer in 0..2 {
        let name = |part: &str| format!("bert.encoder.layer.{layer}.{part}");
        for part in ["query", "key", "value"] {
            linears.push((name(&format!("attention.self.{part}")), HIDDEN, HIDDEN));
        }
        linears.push((name("attention.output.dense"), HIDDEN, HIDDEN));
        linears.push((name("intermediate.dense"), 16, HIDDEN));
        linears.push((name("output.dense"), HIDDEN, 16));
        norms.extend(["attention.output.LayerNorm", "output.LayerNorm"].map(name));
    }
    for (name, outputs, inputs) in linears {
        shapes.push((format!("{name}.weight"), vec![outputs, inputs]));
        shapes.push((format!("{name}.bias"), vec![outputs]));
    }
    for name in norms {
        shapes.push((format!("{name}.weight"), vec![HIDDEN]));
        shapes.push((format!("{name}.bias"), vec![HIDDEN]));
    }
    let mut random = Rng::with_seed(1);
    let bytes = |(name, shape): (String, Vec<usize>)| {
        let about: f32 = if name.ends_with("LayerNorm.weight") { 1.0 } else { 0.0 };
        let number = |_| (about + random.usize(..1_000) as f32 / 500.0 - 1.0).to_le_bytes();
        let bytes: Vec<u8> = (0..shape.iter().product::<usize>()).flat_map(number).collect();
        (name, shape, bytes)
    };
    shapes.into_iter().map(bytes).collect()
}
