//! BERT's forward pass by candle, for an instruction set that the server's environment names; see encoder.rs for the usual one.
//!
//! Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019. The tokens of all
//! texts form one matrix, so that every linear layer is one product and no padding is ever computed;
//! only attention looks at the texts one by one. Without padding there is no mask to get wrong, and a
//! text's vector does not depend on the texts beside it. candle-transformers' BertModel pads, masks and
//! copies each head; this is the same arithmetic without those.

use super::config::{Activation, Config, Places};
use super::weights::Weights;
use crate::kernels::{InstructionSet, Product};
use candle_core::{D, Device, Error, Tensor};
use candle_nn::ops::{layer_norm, softmax_last_dim};
use rayon::prelude::*;

type Result<T, E = Error> = std::result::Result<T, E>;

struct Linear {
    /// (in, out)
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// The file has (out, in).
    fn load(weights: &mut Weights, name: &str, input: usize, output: usize) -> Result<Linear, String> {
        let weight = weights.tensor(&format!("{name}.weight"), &[output, input])?;
        let bias = weights.tensor(&format!("{name}.bias"), &[output])?;
        Ok(Linear { weight: weight.t().and_then(|w| w.contiguous()).map_err(|e| e.to_string())?, bias })
    }

    fn forward(&self, x: &Tensor, product: &Product) -> Result<Tensor> {
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
        let [weight, bias] = Config::norm_names(weights, name);
        let shape = [config.hidden_size];
        Ok(Norm {
            weight: weights.tensor(&weight, &shape)?,
            bias: weights.tensor(&bias, &shape)?,
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
    /// See [`Places`].
    positions: Tensor,
    second: Option<Tensor>,
    norm: Norm,
    layers: Vec<Layer>,
    config: Config,
    product: Product,
}

impl Transformer {
    pub fn load(mut weights: Weights, config: Config, set: InstructionSet) -> Result<Transformer, String> {
        let c = &config;
        c.check()?;
        weights = c.find(weights);
        let words = weights.tensor("embeddings.word_embeddings.weight", &[c.vocab_size, c.hidden_size])?;
        let Places { positions, second } = c.places(&mut weights)?;
        let rows = |numbers: Vec<f32>| {
            let shape = (numbers.len() / c.hidden_size, c.hidden_size);
            Tensor::from_vec(numbers, shape, &Device::Cpu).map_err(|e| e.to_string())
        };
        let (positions, second) = (rows(positions)?, second.map(rows).transpose()?);
        let norm = Norm::load(&mut weights, "embeddings.LayerNorm", c)?;
        let layers = (0..c.num_hidden_layers)
            .map(|i| Layer::load(&mut weights, &format!("encoder.layer.{i}"), c))
            .collect::<Result<_, String>>()?;
        Ok(Transformer { words, positions, second, norm, layers, config, product: Product(set) })
    }

    /// Whether it tells the two texts of a pair apart.
    pub fn has_second_type(&self) -> bool {
        self.second.is_some()
    }

    /// See [`super::pass::Pass::forward`].
    pub fn forward(&self, texts: &[&[u32]], firsts: Option<&[usize]>) -> Result<Vec<f32>> {
        let mut x = self.embed(texts)?;
        if let (Some(second), Some(firsts)) = (&self.second, firsts) {
            let is_second = |(ids, first): (&&[u32], &usize)| {
                let first = *first;
                (0..ids.len()).map(move |place| if place < first { 0f32 } else { 1f32 })
            };
            let types: Vec<f32> = texts.iter().zip(firsts).flat_map(is_second).collect();
            let types = Tensor::from_vec(types, (x.dim(0)?, 1), &Device::Cpu)?;
            x = (x + types.broadcast_mul(second)?)?;
        }
        self.encode(texts, x)?.flatten_all()?.to_vec1::<f32>()
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
