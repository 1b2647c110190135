//! BERT's forward pass over several texts, one behind the other.
//!
//! Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019. The tokens of all
//! texts form one matrix, so that every linear layer is one product and no padding is ever computed;
//! only attention looks at the texts one by one. Without padding there is no mask to get wrong, and a
//! text's vector does not depend on the texts beside it. candle-transformers' BertModel pads, masks and
//! copies each head; this is the same arithmetic without those.

use super::weights::Weights;
use crate::kernels::{InstructionSet, Product};
use candle_core::{D, Device, Error, Tensor};
use candle_nn::ops::{layer_norm, softmax_last_dim};
use rayon::prelude::*;
use serde::Deserialize;

type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
enum Activation {
    #[serde(rename = "gelu")]
    Gelu,
    #[serde(rename = "gelu_new", alias = "gelu_pytorch_tanh", alias = "gelu_fast")]
    GeluTanh,
    #[serde(rename = "relu")]
    Relu,
}

/// What is used of config.json.
#[derive(Debug, Clone, Deserialize)]
pub struct Config {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    hidden_act: Activation,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    layer_norm_eps: f64,
    #[serde(default)]
    position_embedding_type: Option<String>,
}

pub struct Linear {
    /// (in, out)
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// The file has (out, in).
    pub fn load(weights: &mut Weights, name: &str, input: usize, output: usize) -> Result<Linear, String> {
        let weight = weights.tensor(&format!("{name}.weight"), &[output, input])?;
        let bias = weights.tensor(&format!("{name}.bias"), &[output])?;
        Ok(Linear { weight: weight.t().and_then(|w| w.contiguous()).map_err(|e| e.to_string())?, bias })
    }

    pub fn forward(&self, x: &Tensor, product: &Product) -> Result<Tensor> {
        product.of(x, &self.weight)?.broadcast_add(&self.bias)
    }
}

struct Norm {
    weight: Tensor,
    bias: Tensor,
    eps: f32,
}

impl Norm {
    fn load(weights: &mut Weights, name: &str, config: &Config) -> Result<Norm, String> {
        // Files converted from TensorFlow call them gamma and beta.
        let (weight, bias) = match weights.has(&format!("{name}.gamma")) {
            true => ("gamma", "beta"),
            false => ("weight", "bias"),
        };
        let shape = [config.hidden_size];
        Ok(Norm {
            weight: weights.tensor(&format!("{name}.{weight}"), &shape)?,
            bias: weights.tensor(&format!("{name}.{bias}"), &shape)?,
            eps: config.layer_norm_eps as f32,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        layer_norm(x, &self.weight, &self.bias, self.eps)
    }
}

struct Layer {
    /// (hidden, 3 · hidden): query (already divided by √ of the head's size), key, value.
    query_key_value: Linear,
    attention_output: Linear,
    attention_norm: Norm,
    intermediate: Linear,
    output: Linear,
    output_norm: Norm,
}

impl Layer {
    fn load(weights: &mut Weights, name: &str, config: &Config) -> Result<Layer, String> {
        let hidden = config.hidden_size;
        let head = (hidden / config.num_attention_heads) as f64;
        let mut part =
            |what: &str| Linear::load(weights, &format!("{name}.attention.self.{what}"), hidden, hidden);
        let (query, key, value) = (part("query")?, part("key")?, part("value")?);
        let joined = || -> Result<Linear> {
            let scale = 1.0 / head.sqrt();
            Ok(Linear {
                weight: Tensor::cat(&[&(query.weight * scale)?, &key.weight, &value.weight], 1)?,
                bias: Tensor::cat(&[&(query.bias * scale)?, &key.bias, &value.bias], 0)?,
            })
        };
        Ok(Layer {
            query_key_value: joined().map_err(|e| e.to_string())?,
            attention_output: Linear::load(
                weights,
                &format!("{name}.attention.output.dense"),
                hidden,
                hidden,
            )?,
            attention_norm: Norm::load(weights, &format!("{name}.attention.output.LayerNorm"), config)?,
            intermediate: Linear::load(
                weights,
                &format!("{name}.intermediate.dense"),
                hidden,
                config.intermediate_size,
            )?,
            output: Linear::load(weights, &format!("{name}.output.dense"), config.intermediate_size, hidden)?,
            output_norm: Norm::load(weights, &format!("{name}.output.LayerNorm"), config)?,
        })
    }
}

/// Scores of attention that one text has in memory at once: those of 512 tokens and 16 heads.
const SCORES: usize = 4 * 1024 * 1024;

/// Tokens of a text whose scores (a row for each token and head, as long as the text) are computed at once. Rows do not
/// depend on each other, so a long text takes memory in proportion to its length, not to the square of it.
fn rows_at_once(heads: usize, length: usize) -> usize {
    (SCORES / (heads * length).max(1)).clamp(1, length.max(1))
}

/// Attention of so many tokens at a time. `queries` and `values` are (heads, tokens, size), `keys` (heads, size,
/// tokens); the result is as `values`.
fn attend(
    queries: &Tensor,
    keys: &Tensor,
    values: &Tensor,
    rows: usize,
    product: &Product,
) -> Result<Tensor> {
    let length = queries.dim(1)?;
    let mut contexts = Vec::with_capacity(length.div_ceil(rows));
    for first in (0..length).step_by(rows) {
        let some = queries.narrow(1, first, rows.min(length - first))?;
        let scores = softmax_last_dim(&product.of(&some, keys)?)?;
        contexts.push(product.of(&scores, values)?);
    }
    match contexts.as_slice() {
        [all] => Ok(all.clone()),
        some => Tensor::cat(some, 1),
    }
}

pub struct Transformer {
    words: Tensor,
    /// Positions with token type 0 already added: a single text is all type 0.
    positions: Tensor,
    /// What a token of type 1, the second text of a pair, has more than one of type 0.
    second: Option<Tensor>,
    norm: Norm,
    layers: Vec<Layer>,
    config: Config,
    product: Product,
}

impl Transformer {
    pub fn load(mut weights: Weights, config: Config, set: InstructionSet) -> Result<Transformer, String> {
        let c = &config;
        if c.num_attention_heads == 0 || !c.hidden_size.is_multiple_of(c.num_attention_heads) {
            return Err("config.json: hidden_size is no multiple of num_attention_heads".into());
        }
        if c.position_embedding_type.as_deref().is_some_and(|t| t != "absolute") {
            return Err("config.json: kb runs position_embedding_type \"absolute\" only".into());
        }
        if !weights.has("embeddings.word_embeddings.weight") {
            weights = weights.with_prefix("bert.");
        }
        let words = weights.tensor("embeddings.word_embeddings.weight", &[c.vocab_size, c.hidden_size])?;
        let positions = weights
            .tensor("embeddings.position_embeddings.weight", &[c.max_position_embeddings, c.hidden_size])?;
        let types =
            weights.tensor("embeddings.token_type_embeddings.weight", &[c.type_vocab_size, c.hidden_size])?;
        let positions = types
            .narrow(0, 0, 1)
            .and_then(|first| positions.broadcast_add(&first))
            .map_err(|e| e.to_string())?;
        let row = |i| types.narrow(0, i, 1).map_err(|e: Error| e.to_string());
        let second = match c.type_vocab_size {
            0 | 1 => None,
            _ => Some((row(1)? - row(0)?).map_err(|e| e.to_string())?),
        };
        let norm = Norm::load(&mut weights, "embeddings.LayerNorm", c)?;
        let layers = (0..c.num_hidden_layers)
            .map(|i| Layer::load(&mut weights, &format!("encoder.layer.{i}"), c))
            .collect::<Result<_, String>>()?;
        Ok(Transformer { words, positions, second, norm, layers, config, product: Product(set) })
    }

    /// Hidden states (tokens of all texts, hidden) of the last layer, text after text. No text may be
    /// empty or longer than the model has positions.
    pub fn forward(&self, texts: &[&[u32]]) -> Result<Tensor> {
        self.encode(texts, self.embed(texts)?)
    }

    /// Whether it tells the two texts of a pair apart.
    pub fn has_second_type(&self) -> bool {
        self.second.is_some()
    }

    /// As [`Transformer::forward`], of pairs: of each the first so many tokens are of type 0, the others of type 1.
    pub fn forward_pairs(&self, pairs: &[&[u32]], firsts: &[usize]) -> Result<Tensor> {
        let mut x = self.embed(pairs)?;
        if let Some(second) = &self.second {
            let is_second = |(ids, first): (&&[u32], &usize)| {
                let first = *first;
                (0..ids.len()).map(move |place| if place < first { 0f32 } else { 1f32 })
            };
            let types: Vec<f32> = pairs.iter().zip(firsts).flat_map(is_second).collect();
            let types = Tensor::from_vec(types, (x.dim(0)?, 1), &Device::Cpu)?;
            x = (x + types.broadcast_mul(second)?)?;
        }
        self.encode(pairs, x)
    }

    /// What words and positions give, before the first norm.
    fn embed(&self, texts: &[&[u32]]) -> Result<Tensor> {
        let total = texts.iter().map(|ids| ids.len()).sum::<usize>();
        let ids = Tensor::from_vec(texts.concat(), total, &Device::Cpu)?;
        let places: Vec<u32> = texts.iter().flat_map(|ids| 0..ids.len() as u32).collect();
        let places = Tensor::from_vec(places, total, &Device::Cpu)?;
        self.words.index_select(&ids, 0)? + self.positions.index_select(&places, 0)?
    }

    fn encode(&self, texts: &[&[u32]], x: Tensor) -> Result<Tensor> {
        let product = &self.product;
        let mut x = self.norm.forward(&x)?;
        for layer in &self.layers {
            let attended = self.attention(&layer.query_key_value.forward(&x, product)?, texts)?;
            x = layer.attention_norm.forward(&(layer.attention_output.forward(&attended, product)? + x)?)?;
            let inner = layer.intermediate.forward(&x, product)?;
            let inner = match self.config.hidden_act {
                Activation::Gelu => inner.gelu_erf()?,
                Activation::GeluTanh => inner.gelu()?,
                Activation::Relu => inner.relu()?,
            };
            x = layer.output_norm.forward(&(layer.output.forward(&inner, product)? + x)?)?;
        }
        Ok(x)
    }

    /// Each text attends to itself. `joined` is (tokens, 3 · hidden); the result (tokens, hidden).
    fn attention(&self, joined: &Tensor, texts: &[&[u32]]) -> Result<Tensor> {
        let (heads, hidden) = (self.config.num_attention_heads, self.config.hidden_size);
        let mut start = 0;
        let spans: Vec<(usize, usize)> = texts
            .iter()
            .map(|ids| {
                start += ids.len();
                (start - ids.len(), ids.len())
            })
            .collect();
        let one = |&(start, length): &(usize, usize)| -> Result<Tensor> {
            let text = joined.narrow(0, start, length)?.reshape((length, 3, heads, hidden / heads))?;
            // Views: the product takes strides, so that no head is copied.
            let part = |i: usize| text.narrow(1, i, 1)?.squeeze(1)?.transpose(0, 1);
            let (queries, keys, values) = (part(0)?, part(1)?.transpose(1, 2)?, part(2)?);
            let context = attend(&queries, &keys, &values, rows_at_once(heads, length), &self.product)?;
            context.transpose(0, 1)?.contiguous()?.flatten_from(D::Minus2)
        };
        // One text's products are too small to share between threads; texts are shared instead.
        let parts: Vec<Tensor> = spans.par_iter().map(one).collect::<Result<_>>()?;
        Tensor::cat(&parts, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scores_of_a_text_take_memory_in_proportion_to_its_length() {
        for heads in [1, 12, 16] {
            assert_eq!(rows_at_once(heads, 512), 512, "what models usually read is computed at once");
            for length in [1, 513, 8192, 131_072] {
                let rows = rows_at_once(heads, length);
                assert!((1..=length).contains(&rows));
                assert!(rows == 1 || heads * length * rows <= SCORES, "{heads} heads, {length} tokens");
            }
        }
    }

    #[test]
    fn attention_in_parts_is_attention() {
        let tensor = |shape: (usize, usize, usize)| Tensor::randn(0f32, 1f32, shape, &Device::Cpu).unwrap();
        let (queries, keys, values) = (tensor((2, 7, 4)), tensor((2, 4, 7)), tensor((2, 7, 4)));
        let product = Product(InstructionSet::Portable);
        let numbers = |rows| {
            let context = attend(&queries, &keys, &values, rows, &product).unwrap();
            assert_eq!(context.dims(), [2, 7, 4]);
            context.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        let whole = numbers(7);
        for rows in 1..7 {
            let differ = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-5;
            assert!(!numbers(rows).iter().zip(&whole).any(differ), "{rows} rows at a time");
        }
    }
}
