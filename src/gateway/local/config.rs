//! What is used of a BERT's config.json.

use super::weights::Weights;
use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub enum Activation {
    #[serde(rename = "gelu")]
    Gelu,
    #[serde(rename = "gelu_new", alias = "gelu_pytorch_tanh", alias = "gelu_fast")]
    GeluTanh,
    #[serde(rename = "relu")]
    Relu,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    pub vocab_size: usize,
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub intermediate_size: usize,
    pub hidden_act: Activation,
    pub max_position_embeddings: usize,
    pub type_vocab_size: usize,
    pub layer_norm_eps: f64,
    #[serde(default)]
    position_embedding_type: Option<String>,
}

impl Config {
    /// An error where kb cannot run such a model.
    pub fn check(&self) -> Result<(), String> {
        if self.num_attention_heads == 0
            || self.hidden_size == 0
            || !self.hidden_size.is_multiple_of(self.num_attention_heads)
        {
            return Err("config.json: hidden_size is no multiple of num_attention_heads".into());
        }
        if self.position_embedding_type.as_deref().is_some_and(|t| t != "absolute") {
            return Err("config.json: kb runs position_embedding_type \"absolute\" only".into());
        }
        Ok(())
    }

    pub fn head_size(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }

    /// The weights by the names that are used here: some files put "bert." before them.
    pub fn find(&self, weights: Weights) -> Weights {
        match weights.has("embeddings.word_embeddings.weight") {
            true => weights,
            false => weights.with_prefix("bert."),
        }
    }

    /// Names of a norm's weight and bias. Files converted from TensorFlow call them gamma and beta.
    pub fn norm_names(weights: &Weights, name: &str) -> [String; 2] {
        let names = match weights.has(&format!("{name}.gamma")) {
            true => ["gamma", "beta"],
            false => ["weight", "bias"],
        };
        names.map(|part| format!("{name}.{part}"))
    }
}
