//! BERT's forward pass over several texts, by crate rten's matrix products and vector functions, which choose among AVX-512,
//! AVX2 with FMA, NEON and portable code at run time.
//!
//! Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019. Weights are packed once, as the products read
//! them. Nothing is padded: the tokens of some texts form one matrix, and only attention looks at the texts one by one. Texts
//! are shared between threads rather than operations, in groups small enough that what a layer makes stays in the
//! processor's cache.

use super::config::{Activation, Config, Places};
use super::linear::{Linear, Scratch, Way, gemm, problem};
use super::weights::Weights;
use rayon::prelude::*;
use rten_gemm::{GemmInputA, GemmInputB, GemmOptions};
use rten_simd::{SimdOp, SimdUnaryOp};
use rten_tensor::NdTensorView;
use rten_vecmath::{ApproxGelu, Gelu, Normalize, NormalizeOptions, Softmax, Sum, SumSquareSub};

type Result<T, E = String> = std::result::Result<T, E>;

/// Tokens that one thread computes together, about (more only of a single longer text).
const GROUP: usize = 256;
/// And at least, where there are others.
const LEAST: usize = 32;
/// Tokens that go through the two layers behind attention together: what the first makes stays in a core's own cache.
const FEED_FORWARD: usize = 96;
/// Scores of attention that one thread has in memory at once: a row for each token, as long as the text. Rows do not depend on
/// each other, so a long text takes memory in proportion to its length.
const SCORES: usize = 256 * 1024;

struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
    eps: f32,
}

impl Norm {
    fn load(weights: &mut Weights, name: &str, config: &Config) -> Result<Norm> {
        let [weight, bias] = Config::norm_names(weights, name);
        let shape = [config.hidden_size];
        Ok(Norm {
            weight: weights.numbers(&weight, &shape)?,
            bias: weights.numbers(&bias, &shape)?,
            eps: config.layer_norm_eps as f32,
        })
    }

    fn apply(&self, rows: &mut [f32]) {
        let size = self.weight.len();
        for row in rows.chunks_exact_mut(size) {
            let mean = Sum::new(row).dispatch() / size as f32;
            let variance = SumSquareSub::new(row, mean).dispatch() / size as f32;
            let options = NormalizeOptions {
                pre_scale_bias: mean,
                scale: 1.0 / (variance + self.eps).sqrt(),
                element_scale: Some(&self.weight),
                element_bias: Some(&self.bias),
                ..NormalizeOptions::default()
            };
            Normalize::new_mut(row, options).dispatch();
        }
    }

    /// x becomes the norm of x + y.
    fn apply_to_sum(&self, x: &mut [f32], y: &[f32]) {
        x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
        self.apply(x);
    }
}

struct Layer {
    /// Query (divided by √ of the head's size), key and value, side by side.
    query_key_value: Linear,
    attention_output: Linear,
    attention_norm: Norm,
    intermediate: Linear,
    output: Linear,
    output_norm: Norm,
}

impl Layer {
    fn load(weights: &mut Weights, name: &str, config: &Config, way: Way) -> Result<Layer> {
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let scale = 1.0 / (config.head_size() as f32).sqrt();
        let (mut joined, mut biases) = (Vec::new(), Vec::new());
        for (what, factor) in [("query", scale), ("key", 1.0), ("value", 1.0)] {
            let name = format!("{name}.attention.self.{what}");
            let weight = weights.numbers(&format!("{name}.weight"), &[hidden, hidden])?;
            joined.extend(weight.iter().map(|x| x * factor));
            biases.extend(weights.numbers(&format!("{name}.bias"), &[hidden])?.iter().map(|x| x * factor));
        }
        let mut linear = |what: &str, inputs, outputs| {
            Linear::load(weights, &format!("{name}.{what}"), inputs, outputs, way)
        };
        Ok(Layer {
            query_key_value: Linear::new(&joined, biases, hidden, way)?,
            attention_output: linear("attention.output.dense", hidden, hidden)?,
            intermediate: linear("intermediate.dense", hidden, intermediate)?,
            output: linear("output.dense", intermediate, hidden)?,
            attention_norm: Norm::load(weights, &format!("{name}.attention.output.LayerNorm"), config)?,
            output_norm: Norm::load(weights, &format!("{name}.output.LayerNorm"), config)?,
        })
    }
}

pub struct Encoder {
    words: Vec<f32>,
    /// See [`Places`].
    positions: Vec<f32>,
    second: Option<Vec<f32>>,
    norm: Norm,
    layers: Vec<Layer>,
    config: Config,
}

/// Texts that one thread computes together.
struct Group<'a> {
    texts: &'a [&'a [u32]],
    /// As for [`Encoder::forward`].
    firsts: Option<&'a [usize]>,
    /// Rows for their tokens.
    x: &'a mut [f32],
}

/// What a group's layers are computed in.
struct Space {
    joined: Vec<f32>,
    attended: Vec<f32>,
    inner: Vec<f32>,
    out: Vec<f32>,
    scores: Vec<f32>,
    context: Vec<f32>,
    scratch: Scratch,
}

impl Space {
    fn new(config: &Config, tokens: usize, longest: usize) -> Space {
        let hidden = config.hidden_size;
        let rows = rows_at_once(longest);
        let zeros = |count: usize| vec![0f32; count];
        Space {
            joined: zeros(tokens * 3 * hidden),
            attended: zeros(tokens * hidden),
            inner: zeros(tokens.min(FEED_FORWARD) * config.intermediate_size),
            out: zeros(tokens * hidden),
            scores: zeros(rows * longest),
            context: zeros(rows * config.head_size()),
            scratch: Scratch::default(),
        }
    }
}

fn rows_at_once(length: usize) -> usize {
    (SCORES / length.max(1)).clamp(1, length.max(1))
}

impl Encoder {
    pub fn load(mut weights: Weights, config: Config, way: Way) -> Result<Encoder> {
        config.check()?;
        weights = config.find(weights);
        let c = &config;
        let hidden = c.hidden_size;
        let words = weights.numbers("embeddings.word_embeddings.weight", &[c.vocab_size, hidden])?;
        let Places { positions, second } = c.places(&mut weights)?;
        let norm = Norm::load(&mut weights, "embeddings.LayerNorm", c)?;
        let layers = (0..c.num_hidden_layers)
            .map(|i| Layer::load(&mut weights, &format!("encoder.layer.{i}"), c, way))
            .collect::<Result<_>>()?;
        Ok(Encoder { words, positions, second, norm, layers, config })
    }

    /// Whether it tells the two texts of a pair apart.
    pub fn has_second_type(&self) -> bool {
        self.second.is_some()
    }

    /// Hidden states (tokens of all texts, hidden) of the last layer, text after text. No text may be empty or longer than the
    /// model has positions. Of each the first `firsts` tokens are of type 0, the others of type 1; None: all of type 0.
    pub fn forward(&self, texts: &[&[u32]], firsts: Option<&[usize]>) -> Result<Vec<f32>> {
        let hidden = self.config.hidden_size;
        let tokens = texts.iter().map(|ids| ids.len()).sum::<usize>();
        let mut x = vec![0f32; tokens * hidden];
        // Some short texts are shared, too.
        let share = tokens.div_ceil(rayon::current_num_threads());
        let most = share.clamp(LEAST, GROUP);
        let mut groups: Vec<Group> = Vec::new();
        let (mut left, mut rows, mut lefts) = (texts, x.as_mut_slice(), firsts);
        while !left.is_empty() {
            let mut size = 0;
            let more = |ids: &&&[u32]| {
                size += ids.len();
                size <= most
            };
            let count = left.iter().take_while(more).count().max(1);
            let (texts, others) = left.split_at(count);
            let firsts = lefts.map(|lefts| lefts.split_at(count));
            let tokens = texts.iter().map(|ids| ids.len()).sum::<usize>();
            let (own, rest) = std::mem::take(&mut rows).split_at_mut(tokens * hidden);
            groups.push(Group { texts, firsts: firsts.map(|(own, _)| own), x: own });
            (left, rows, lefts) = (others, rest, firsts.map(|(_, rest)| rest));
        }
        let is_alone = groups.len() == 1;
        groups.into_par_iter().with_max_len(1).try_for_each(|group| self.encode(group, is_alone))?;
        Ok(x)
    }

    /// What words and positions give, before the first norm.
    fn embed(&self, ids: &[u32], first: usize, x: &mut [f32]) -> Result<()> {
        let hidden = self.config.hidden_size;
        let row = |table: &'_ [f32], i: usize| -> Option<std::ops::Range<usize>> {
            let range = i * hidden..(i + 1) * hidden;
            (range.end <= table.len()).then_some(range)
        };
        for (place, (id, x)) in ids.iter().zip(x.chunks_exact_mut(hidden)).enumerate() {
            let (Some(word), Some(position)) = (row(&self.words, *id as usize), row(&self.positions, place))
            else {
                return Err("a token or position is beyond the model's tables".into());
            };
            x.copy_from_slice(&self.words[word]);
            x.iter_mut().zip(&self.positions[position]).for_each(|(x, y)| *x += y);
            if let Some(second) = self.second.as_ref().filter(|_| place >= first) {
                x.iter_mut().zip(second).for_each(|(x, y)| *x += y);
            }
        }
        Ok(())
    }

    fn encode(&self, Group { texts, firsts, x }: Group, is_alone: bool) -> Result<()> {
        let hidden = self.config.hidden_size;
        let tokens = x.len() / hidden;
        let mut start = 0;
        for (i, ids) in texts.iter().enumerate() {
            let first = firsts.and_then(|firsts| firsts.get(i).copied()).unwrap_or(ids.len());
            let end = start + ids.len() * hidden;
            self.embed(ids, first, &mut x[start..end])?;
            start = end;
        }
        let longest = texts.iter().map(|ids| ids.len()).max().unwrap_or(0);
        let mut space = Space::new(&self.config, tokens, longest);
        space.scratch.is_alone = is_alone;
        self.norm.apply(x);
        for layer in &self.layers {
            layer.query_key_value.apply(x, &mut space.joined, &mut space.scratch)?;
            let mut start = 0;
            for ids in texts {
                (0..self.config.num_attention_heads)
                    .try_for_each(|head| self.attend(start, ids.len(), head, &mut space))?;
                start += ids.len();
            }
            layer.attention_output.apply(&space.attended, &mut space.out, &mut space.scratch)?;
            layer.attention_norm.apply_to_sum(x, &space.out);
            for x in x.chunks_mut(FEED_FORWARD * hidden) {
                let rows = x.len() / hidden;
                let inner = &mut space.inner[..rows * self.config.intermediate_size];
                let out = &mut space.out[..rows * hidden];
                layer.intermediate.apply(x, inner, &mut space.scratch)?;
                match self.config.hidden_act {
                    Activation::Gelu => Gelu {}.map_mut(inner),
                    Activation::GeluTanh => ApproxGelu {}.map_mut(inner),
                    Activation::Relu => inner.iter_mut().for_each(|x| *x = x.max(0.0)),
                }
                layer.output.apply(inner, out, &mut space.scratch)?;
                layer.output_norm.apply_to_sum(x, out);
            }
        }
        Ok(())
    }

    /// One head of one text, whose tokens attend to each other.
    fn attend(&self, start: usize, length: usize, head: usize, space: &mut Space) -> Result<()> {
        let (hidden, size) = (self.config.hidden_size, self.config.head_size());
        let Space { joined, attended, scores, context, .. } = space;
        let part = |which: usize, row: usize, rows: usize, shape: [usize; 2], strides: [usize; 2]| {
            let first = (start + row) * 3 * hidden + which * hidden + head * size;
            let numbers = &joined[first..first + (rows - 1) * 3 * hidden + size];
            NdTensorView::from_data_with_strides(shape, numbers, strides).map_err(problem)
        };
        let keys = part(1, 0, length, [size, length], [1, 3 * hidden])?;
        let values = part(2, 0, length, [length, size], [3 * hidden, 1])?;
        let at_once = rows_at_once(length);
        for first in (0..length).step_by(at_once) {
            let rows = at_once.min(length - first);
            let queries = part(0, first, rows, [rows, size], [3 * hidden, 1])?;
            let scores = &mut scores[..rows * length];
            let options = GemmOptions::default();
            gemm()
                .gemm(scores, GemmInputA::Unpacked(queries), GemmInputB::Unpacked(keys), options)
                .map_err(problem)?;
            for row in scores.chunks_exact_mut(length) {
                Softmax::new_mut(row).dispatch();
            }
            let scores = NdTensorView::from_data([rows, length], &scores[..]);
            let context = &mut context[..rows * size];
            let options = GemmOptions::default();
            gemm()
                .gemm(context, GemmInputA::Unpacked(scores), GemmInputB::Unpacked(values), options)
                .map_err(problem)?;
            for (row, numbers) in context.chunks_exact(size).enumerate() {
                let at = (start + first + row) * hidden + head * size;
                attended[at..at + size].copy_from_slice(numbers);
            }
        }
        Ok(())
    }
}
