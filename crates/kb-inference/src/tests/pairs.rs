//! Tests of cross-encoders: compares a tiny random model with a plain computation in f64 that follows the
//! paper step by step.

use super::super::CrossEncoder;
use super::*;
use kb_types::{Reranker, RerankerConfig};
use safetensors::SafeTensors;
use std::collections::HashMap;

/// Writes the model of [`write_bert`] with a pooler and a head for this many labels.
pub fn write_cross_encoder(models: &Path, name: &str, labels: usize) {
    write_bert(models, name, "bert.");
    let dir = models.join(name);
    let mut tensors: Vec<(String, Vec<usize>, Vec<f32>)> = read(&dir)
        .into_iter()
        .map(|(name, (shape, values))| (name, shape, values.into_iter().map(|x| x as f32).collect()))
        .collect();
    let head: [(&str, &[usize]); 4] = [
        ("bert.pooler.dense.weight", &[HIDDEN, HIDDEN]),
        ("bert.pooler.dense.bias", &[HIDDEN]),
        ("classifier.weight", &[labels, HIDDEN]),
        ("classifier.bias", &[labels]),
    ];
    for (seed, (name, shape)) in (900..).zip(head) {
        let values = numbers(shape.iter().product(), seed).iter().map(|x| x * 4.0).collect();
        tensors.push((name.to_string(), shape.to_vec(), values));
    }
    write_tensors(&dir, &tensors);
}

pub type Tensors = HashMap<String, (Vec<usize>, Vec<f64>)>;

pub fn read(dir: &Path) -> Tensors {
    let bytes = std::fs::read(dir.join("model.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let values = |data: &[u8]| {
        data.chunks(4).map(|four| f64::from(f32::from_le_bytes(four.try_into().unwrap()))).collect()
    };
    file.tensors().into_iter().map(|(name, t)| (name, (t.shape().to_vec(), values(t.data())))).collect()
}

/// A plain computation of the score.
pub struct Plain(pub Tensors);

impl Plain {
    fn of(&self, name: &str) -> &[f64] {
        &self.0.get(name).or_else(|| self.0.get(&format!("bert.{name}"))).unwrap().1
    }

    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let (weight, bias) = (self.of(&format!("{name}.weight")), self.of(&format!("{name}.bias")));
        let row = |(row, bias): (&[f64], &f64)| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + bias;
        weight.chunks(x.len()).zip(bias).map(row).collect()
    }

    fn norm(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().sum::<f64>() / x.len() as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
        let (weight, bias) = (self.of(&format!("{name}.weight")), self.of(&format!("{name}.bias")));
        let one = |(x, (w, b)): (&f64, (&f64, &f64))| (x - mean) / (variance + 1e-12).sqrt() * w + b;
        x.iter().zip(weight.iter().zip(bias)).map(one).collect()
    }

    fn row(&self, name: &str, row: usize) -> &[f64] {
        &self.of(name)[row * HIDDEN..(row + 1) * HIDDEN]
    }

    pub fn score(&self, ids: &[u32], types: &[usize], activation: fn(f64) -> f64) -> f64 {
        let sum = |(place, (id, kind)): (usize, (&u32, &usize))| -> Vec<f64> {
            let parts = [("word", *id as usize), ("position", place), ("token_type", *kind)];
            let rows =
                parts.map(|(what, row)| self.row(&format!("embeddings.{what}_embeddings.weight"), row));
            (0..HIDDEN).map(|i| rows.iter().map(|row| row[i]).sum()).collect()
        };
        let mut x: Vec<Vec<f64>> = ids
            .iter()
            .zip(types)
            .enumerate()
            .map(sum)
            .map(|row| self.norm("embeddings.LayerNorm", &row))
            .collect();
        for layer in 0..2 {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            let all = |part: &str| -> Vec<Vec<f64>> {
                x.iter().map(|row| self.linear(&name(&format!("attention.self.{part}")), row)).collect()
            };
            let (queries, keys, values) = (all("query"), all("key"), all("value"));
            let size = HIDDEN / 2;
            let next = x.iter().enumerate().map(|(place, before)| {
                let mut context = vec![0.0; HIDDEN];
                for head in 0..2 {
                    let part = head * size..(head + 1) * size;
                    let dot = |key: &Vec<f64>| -> f64 {
                        queries[place][part.clone()].iter().zip(&key[part.clone()]).map(|(a, b)| a * b).sum()
                    };
                    let weights: Vec<f64> =
                        keys.iter().map(|key| (dot(key) / (size as f64).sqrt()).exp()).collect();
                    let total: f64 = weights.iter().sum();
                    for (weight, value) in weights.iter().zip(&values) {
                        for i in part.clone() {
                            context[i] += weight / total * value[i];
                        }
                    }
                }
                let attended = self.linear(&name("attention.output.dense"), &context);
                let added: Vec<f64> = attended.iter().zip(before).map(|(a, b)| a + b).collect();
                let middle = self.norm(&name("attention.output.LayerNorm"), &added);
                let inner: Vec<f64> =
                    self.linear(&name("intermediate.dense"), &middle).into_iter().map(gelu).collect();
                let out = self.linear(&name("output.dense"), &inner);
                let added: Vec<f64> = out.iter().zip(&middle).map(|(a, b)| a + b).collect();
                self.norm(&name("output.LayerNorm"), &added)
            });
            x = next.collect();
        }
        let pooled: Vec<f64> = self.linear("pooler.dense", &x[0]).into_iter().map(activation).collect();
        let logit = self.linear("classifier", &pooled)[0];
        1.0 / (1.0 + (-logit).exp())
    }
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x / 2f64.sqrt()))
}

pub fn reranker(model: &str) -> Reranker {
    Reranker {
        id: "r".into(),
        provider: "local".into(),
        model: model.into(),
        base_url: None,
        config: RerankerConfig::default(),
    }
}

pub fn ids(text: &str) -> Vec<u32> {
    text.split_whitespace().map(|word| WORDS.iter().position(|w| *w == word).unwrap_or(1) as u32).collect()
}

#[test]
fn a_pair_has_the_score_that_a_plain_computation_gives_alone_and_in_a_batch() {
    let models = tempfile::tempdir().unwrap();
    write_cross_encoder(models.path(), "cross", 1);
    let plain = Plain(read(&models.path().join("cross")));
    let model = CrossEncoder::load(&reranker("cross"), models.path()).unwrap();
    let query = "alpha beta";
    let texts = ["one two three", "alpha", "", "gamma unknown four", "beta alpha beta alpha beta"];
    let many: Vec<String> = texts.iter().cycle().take(500).map(|text| text.to_string()).collect();
    let pauses = std::sync::atomic::AtomicUsize::new(0);
    let pause = || {
        pauses.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let scores = model.scores("r", query, &many, &pause).unwrap();
    assert!(pauses.into_inner() > 1, "questions may go ahead between groups");
    for (i, (text, score)) in many.iter().zip(&scores).enumerate() {
        let (first, second) = ([&[2], &ids(query)[..], &[3]].concat(), [&ids(text)[..], &[3]].concat());
        let types = [vec![0; first.len()], vec![1; second.len()]].concat();
        let expected = plain.score(&[first, second].concat(), &types, f64::tanh);
        assert!((f64::from(*score) - expected).abs() < 1e-5, "{i} {text:?}: {score}, not {expected}");
    }
    // The scores differ, and so does that of the reversed pair.
    assert!((scores[0] - scores[1]).abs() > 1e-3, "{scores:?}");
    let swapped = model.scores("r", texts[0], &strings(&[query]), &|| ()).unwrap();
    assert!((scores[0] - swapped[0]).abs() > 1e-4);
}

#[test]
fn a_pair_that_is_too_long_is_truncated_in_its_longer_part() {
    let models = tempfile::tempdir().unwrap();
    write_cross_encoder(models.path(), "cross", 1);
    let model = CrossEncoder::load(&reranker("cross"), models.path()).unwrap();
    // 12 positions, of which three are special tokens.
    let score = |query: &str, text: &str| model.scores("r", query, &strings(&[text]), &|| ()).unwrap()[0];
    let long = "one two three four alpha beta ".repeat(50_000);
    assert_eq!(score("alpha beta", &long), score("alpha beta", "one two three four alpha beta one"));
    assert_eq!(score(&long, "alpha"), score("one two three four alpha beta one two", "alpha"));
    assert_eq!(score(&long, &long), score("one two three four", "one two three four alpha"));
}

#[test]
fn models_other_than_cross_encoders_with_one_score_are_refused() {
    let models = tempfile::tempdir().unwrap();
    write_cross_encoder(models.path(), "two", 2);
    write_bert(models.path(), "plain", "");
    write_static(models.path(), "static", &[]);
    for (model, reason) in [
        ("two", "distinguishes 2 classes"),
        ("plain", "classifier.weight"),
        ("static", "BERT"),
        ("none", "no such"),
        ("../two", "plain name"),
    ] {
        let error = CrossEncoder::check(models.path(), model).unwrap_err();
        assert!(error.to_string().contains(reason), "{model}: {error}");
        assert!(CrossEncoder::load(&reranker(model), models.path()).is_err());
    }
}
