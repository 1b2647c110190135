//! Tests that models of other families give the same vectors as a BERT with the same weights. (tests/pairs.rs
//! compares a BERT with a plain computation.)

use super::super::CrossEncoder;
use super::pairs::{Plain, ids, read, reranker, write_cross_encoder};
use super::*;
use kb_kernels::InstructionSet;

type Named = Vec<(String, Vec<usize>, Vec<f32>)>;

/// The tensors of a BERT with a head for pairs, without a prefix.
fn of_bert(dir: &Path) -> Named {
    let plain = |name: String| name.strip_prefix("bert.").map(String::from).unwrap_or(name);
    let tensors = read(dir).into_iter();
    tensors
        .map(|(name, (shape, v))| (plain(name), shape, v.into_iter().map(|x| x as f32).collect()))
        .collect()
}

fn take(tensors: &mut Named, name: &str) -> (Vec<usize>, Vec<f32>) {
    let at = tensors.iter().position(|(other, ..)| other == name).unwrap();
    let (_, shape, values) = tensors.remove(at);
    (shape, values)
}

/// The position embeddings of the BERT with token type 0 added, and their number.
fn places(tensors: &mut Named) -> (usize, Vec<f32>) {
    let (_, types) = take(tensors, "embeddings.token_type_embeddings.weight");
    let (shape, mut positions) = take(tensors, "embeddings.position_embeddings.weight");
    for row in positions.chunks_exact_mut(HIDDEN) {
        row.iter_mut().zip(&types).for_each(|(x, y)| *x += y);
    }
    (shape[0], positions)
}

fn copy(models: &Path, name: &str) -> std::path::PathBuf {
    let dir = models.join(name);
    std::fs::create_dir_all(&dir).unwrap();
    write_tokenizer(&dir, true);
    dir
}

fn write_roberta(models: &Path, kind: &str) {
    let mut tensors = of_bert(&models.join("bert"));
    let dir = copy(models, kind);
    let (count, positions) = places(&mut tensors);
    // Two rows that no token uses.
    let shifted = [numbers(2 * HIDDEN, 77), positions].concat();
    tensors.push(("embeddings.position_embeddings.weight".into(), vec![count + 2, HIDDEN], shifted));
    tensors.push(("embeddings.token_type_embeddings.weight".into(), vec![1, HIDDEN], vec![0.0; HIDDEN]));
    let name = |name: String| match name.strip_prefix("pooler.dense") {
        Some(part) => format!("classifier.dense{part}"),
        None => match name.strip_prefix("classifier") {
            Some(part) => format!("classifier.out_proj{part}"),
            None => format!("roberta.{name}"),
        },
    };
    let tensors: Named = tensors.into_iter().map(|(n, shape, v)| (name(n), shape, v)).collect();
    write_tensors(&dir, &tensors);
    write_json(
        &dir,
        "config.json",
        &json!({
            "model_type": kind, "vocab_size": WORDS.len(), "hidden_size": HIDDEN, "num_hidden_layers": 2,
            "num_attention_heads": 2, "intermediate_size": 16, "hidden_act": "gelu", "pad_token_id": 1,
            "max_position_embeddings": count + 2, "type_vocab_size": 1, "layer_norm_eps": 1e-12
        }),
    );
}

fn write_distilbert(models: &Path) {
    let mut tensors = of_bert(&models.join("bert"));
    let dir = copy(models, "distilbert");
    let (count, positions) = places(&mut tensors);
    tensors.push(("embeddings.position_embeddings.weight".into(), vec![count, HIDDEN], positions));
    let renamed = [
        ("pooler.dense", "pre_classifier"),
        ("encoder.layer", "transformer.layer"),
        ("attention.self.query", "attention.q_lin"),
        ("attention.self.key", "attention.k_lin"),
        ("attention.self.value", "attention.v_lin"),
        ("attention.output.dense", "attention.out_lin"),
        ("attention.output.LayerNorm", "sa_layer_norm"),
        ("intermediate.dense", "ffn.lin1"),
        ("output.dense", "ffn.lin2"),
        ("output.LayerNorm", "output_layer_norm"),
    ];
    let name = |name: String| {
        let name = renamed.iter().fold(name, |name, (from, to)| name.replace(from, to));
        if name.contains("classifier") { name } else { format!("distilbert.{name}") }
    };
    let tensors: Named = tensors.into_iter().map(|(n, shape, v)| (name(n), shape, v)).collect();
    write_tensors(&dir, &tensors);
    write_json(
        &dir,
        "config.json",
        &json!({
            "model_type": "distilbert", "vocab_size": WORDS.len(), "dim": HIDDEN, "n_layers": 2, "n_heads": 2,
            "hidden_dim": 16, "activation": "gelu", "max_position_embeddings": count
        }),
    );
}

fn models() -> tempfile::TempDir {
    let models = tempfile::tempdir().unwrap();
    write_cross_encoder(models.path(), "bert", 1);
    write_roberta(models.path(), "roberta");
    write_roberta(models.path(), "xlm-roberta");
    write_distilbert(models.path());
    models
}

#[test]
fn roberta_and_distilbert_give_the_vectors_of_a_bert_with_their_weights() {
    let models = models();
    let texts = ["alpha beta gamma delta one two", "one", "", "two three"];
    let load_for = |name: &str, set| {
        super::super::load_for(set, &embedder(name, EmbedderConfig::default()), models.path()).unwrap()
    };
    let bert = load_for("bert", InstructionSet::Native);
    let expected = documents(bert.as_ref(), &texts).unwrap();
    for name in ["roberta", "xlm-roberta", "distilbert"] {
        for set in [InstructionSet::Native, InstructionSet::Portable] {
            let model = load_for(name, set);
            assert_eq!(model.max_input_tokens(), bert.max_input_tokens(), "{name}");
            for (a, b) in documents(model.as_ref(), &texts).unwrap().iter().zip(&expected) {
                assert!(distance(a, b) < 1e-5, "{name} {set:?}");
            }
        }
    }
}

#[test]
fn cross_encoders_of_other_families_give_the_score_of_a_plain_computation() {
    let models = models();
    let plain = Plain(read(&models.path().join("bert")));
    let (query, text) = ("alpha beta", "one two three");
    let score = |name: &str| {
        let model = CrossEncoder::load(&reranker(name), models.path()).unwrap();
        f64::from(model.scores("r", query, &strings(&[text]), &|| ()).unwrap()[0])
    };
    let (first, second) = ([&[2], &ids(query)[..], &[3]].concat(), [&ids(text)[..], &[3]].concat());
    let (single, double) = ([first.clone(), second.clone()].concat(), [first, vec![3], second].concat());
    // Neither family distinguishes the two texts by token types.
    for (name, ids, activation) in [
        ("roberta", &double, f64::tanh as fn(f64) -> f64),
        ("xlm-roberta", &double, f64::tanh),
        ("distilbert", &single, |x| x.max(0.0)),
    ] {
        let expected = plain.score(ids, &vec![0; ids.len()], activation);
        assert!((score(name) - expected).abs() < 1e-5, "{name}: {}, not {expected}", score(name));
    }
}
