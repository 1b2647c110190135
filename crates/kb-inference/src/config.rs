//! The settings in the config.json of BERT and similar models, and the names of weights in each family.

use super::weights::Weights;
use kb_kernels::rows::Activation;
use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub enum HiddenAct {
    #[serde(rename = "gelu")]
    Gelu,
    #[serde(rename = "gelu_new", alias = "gelu_pytorch_tanh", alias = "gelu_fast")]
    GeluTanh,
    #[serde(rename = "relu")]
    Relu,
}

impl From<HiddenAct> for Activation {
    fn from(named: HiddenAct) -> Activation {
        match named {
            HiddenAct::Gelu => Activation::Gelu,
            HiddenAct::GeluTanh => Activation::GeluTanh,
            HiddenAct::Relu => Activation::Relu,
        }
    }
}

/// Families of models that compute the same as BERT, with other names of weights and other positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub enum Family {
    #[default]
    #[serde(rename = "bert")]
    Bert,
    /// Liu et al., "RoBERTa", 2019; Conneau et al., "Unsupervised Cross-lingual Representation Learning at
    /// Scale", 2020.
    #[serde(rename = "roberta", alias = "xlm-roberta")]
    Roberta,
    /// Sanh et al., "DistilBERT", 2019.
    #[serde(rename = "distilbert")]
    Distilbert,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    #[serde(default, rename = "model_type")]
    pub family: Family,
    pub vocab_size: usize,
    #[serde(alias = "dim")]
    pub hidden_size: usize,
    #[serde(alias = "n_layers")]
    pub num_hidden_layers: usize,
    #[serde(alias = "n_heads")]
    pub num_attention_heads: usize,
    #[serde(alias = "hidden_dim")]
    pub intermediate_size: usize,
    #[serde(alias = "activation")]
    pub hidden_act: HiddenAct,
    pub max_position_embeddings: usize,
    #[serde(default)]
    type_vocab_size: usize,
    #[serde(default = "usual_eps")]
    pub layer_norm_eps: f64,
    #[serde(default)]
    pad_token_id: Option<usize>,
    #[serde(default)]
    position_embedding_type: Option<String>,
}

fn usual_eps() -> f64 {
    1e-12
}

/// The position embeddings, in rows of the hidden size.
pub struct Places {
    /// Positions with the embedding of token type 0 added, because a single text has type 0 throughout.
    pub positions: Vec<f32>,
    /// The difference of token type 1, for the second text of a pair, from type 0.
    pub second: Option<Vec<f32>>,
}

impl Config {
    pub fn read(json: &[u8]) -> Result<Config, String> {
        serde_json::from_slice(json).map_err(|e| format!("config.json cannot be used: {e}"))
    }

    /// Returns an error if kb cannot run the model.
    pub fn check(&self) -> Result<(), String> {
        if self.num_attention_heads == 0
            || self.hidden_size == 0
            || !self.hidden_size.is_multiple_of(self.num_attention_heads)
        {
            return Err("config.json: hidden_size is not a multiple of num_attention_heads".into());
        }
        if self.position_embedding_type.as_deref().is_some_and(|t| t != "absolute") {
            return Err("config.json: kb supports only position_embedding_type \"absolute\"".into());
        }
        Ok(())
    }

    pub fn head_size(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    /// The weights by BERT's names. Some files put the name of the family before them.
    pub fn find(&self, weights: Weights) -> Weights {
        let (prefix, weights) = match self.family {
            Family::Bert => ("bert.", weights),
            Family::Roberta => ("roberta.", weights),
            Family::Distilbert => ("distilbert.", weights.named(distilbert_name)),
        };
        match weights.has("embeddings.word_embeddings.weight") {
            true => weights,
            false => weights.with_prefix(prefix),
        }
    }

    /// Reads the position embeddings.
    pub fn places(&self, weights: &mut Weights) -> Result<Places, String> {
        let hidden = self.hidden_size;
        let shape = [self.max_position_embeddings, hidden];
        let mut positions = weights.numbers("embeddings.position_embeddings.weight", &shape)?;
        // RoBERTa numbers positions from after the id of its padding token.
        let skipped = if self.family == Family::Roberta { self.pad_token_id.unwrap_or(1) + 1 } else { 0 };
        positions.drain(..(skipped * hidden).min(positions.len()));
        if self.type_vocab_size == 0 {
            return Ok(Places { positions, second: None });
        }
        let shape = [self.type_vocab_size, hidden];
        let types = weights.numbers("embeddings.token_type_embeddings.weight", &shape)?;
        let (first, others) = types.split_at(hidden);
        for row in positions.chunks_exact_mut(hidden) {
            row.iter_mut().zip(first).for_each(|(x, y)| *x += y);
        }
        let second = others.chunks_exact(hidden).next();
        Ok(Places {
            positions,
            second: second.map(|row| row.iter().zip(first).map(|(x, y)| x - y).collect()),
        })
    }

    /// The names of weight and bias of a norm, which files converted from TensorFlow call gamma and beta.
    pub fn norm_names(weights: &Weights, name: &str) -> [String; 2] {
        let names = match weights.has(&format!("{name}.gamma")) {
            true => ["gamma", "beta"],
            false => ["weight", "bias"],
        };
        names.map(|part| format!("{name}.{part}"))
    }
}

/// DistilBERT's name for a weight of BERT.
fn distilbert_name(name: &str) -> String {
    const PARTS: [(&str, &str); 8] = [
        ("attention.self.query", "attention.q_lin"),
        ("attention.self.key", "attention.k_lin"),
        ("attention.self.value", "attention.v_lin"),
        ("attention.output.dense", "attention.out_lin"),
        ("attention.output.LayerNorm", "sa_layer_norm"),
        ("intermediate.dense", "ffn.lin1"),
        ("output.dense", "ffn.lin2"),
        ("output.LayerNorm", "output_layer_norm"),
    ];
    let Some((layer, rest)) = name.strip_prefix("encoder.layer.").and_then(|rest| rest.split_once('.'))
    else {
        return name.to_string();
    };
    let part = PARTS.iter().find_map(|(from, to)| Some(format!("{to}{}", rest.strip_prefix(from)?)));
    format!("transformer.layer.{layer}.{}", part.unwrap_or_else(|| rest.to_string()))
}
