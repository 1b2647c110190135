//! BERT's forward pass over several texts, by the kernels of kb-kernels.
//!
//! Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers", 2019. Weights are packed once, in
//! the order in which products read them. Nothing is padded: the tokens of several texts form one matrix, and
//! only attention treats texts separately. Many texts are distributed over threads in groups small enough
//! that the output of a layer stays in the processor's cache. For a few short texts each thread computes some
//! columns of every layer, so that it reads only its part of the weights.

use super::Pause;
use super::attention::Head;
use super::config::{Config, Places};
use super::linear::{Linear, Scratch, Way};
use super::share;
use super::weights::Weights;
use kb_kernels::memory::Memory;
use kb_kernels::product::Rows;
use kb_kernels::{Simd, rows};
use std::cell::RefCell;
use std::ops::Range;

type Result<T, E = String> = std::result::Result<T, E>;

/// About how many tokens a thread computes together.
const GROUP: usize = 128;
/// Up to this many tokens form one group that all threads share, unless each thread can have its own texts.
const FEW: usize = 128;
/// How many tokens pass through the two layers after attention together, so that the output of the first
/// stays in a core's own cache.
const FEED_FORWARD: usize = 96;
struct Norm {
    weight: Vec<f32>,
    bias: Vec<f32>,
    eps: f32,
    simd: Simd,
}

impl Norm {
    fn load(weights: &mut Weights, name: &str, config: &Config, simd: Simd) -> Result<Norm> {
        let [weight, bias] = Config::norm_names(weights, name);
        let shape = [config.hidden_size];
        Ok(Norm {
            weight: weights.numbers(&weight, &shape)?,
            bias: weights.numbers(&bias, &shape)?,
            eps: config.layer_norm_eps as f32,
            simd,
        })
    }

    fn apply(&self, rows: &mut [f32]) {
        rows::norm(self.simd, rows, &self.weight, &self.bias, self.eps);
    }

    /// Replaces x by the norm of x + y.
    fn apply_to_sum(&self, x: &mut [f32], y: &[f32]) {
        rows::add(self.simd, x, y);
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
    fn load(
        weights: &mut Weights,
        name: &str,
        config: &Config,
        way: Way,
        memory: &mut Memory,
    ) -> Result<Layer> {
        let (hidden, intermediate) = (config.hidden_size, config.intermediate_size);
        let scale = 1.0 / (config.head_size() as f32).sqrt();
        let (mut joined, mut biases) = (Vec::new(), Vec::new());
        for (what, factor) in [("query", scale), ("key", 1.0), ("value", 1.0)] {
            let name = format!("{name}.attention.self.{what}");
            let weight = weights.numbers(&format!("{name}.weight"), &[hidden, hidden])?;
            joined.extend(weight.iter().map(|x| x * factor));
            biases.extend(weights.numbers(&format!("{name}.bias"), &[hidden])?.iter().map(|x| x * factor));
        }
        let query_key_value = Linear::new(&joined, biases, hidden, way, memory)?;
        let mut linear = |what: &str, inputs, outputs| {
            Linear::load(weights, &format!("{name}.{what}"), inputs, outputs, way, memory)
        };
        let attention_output = linear("attention.output.dense", hidden, hidden)?;
        let feed_forward = linear("intermediate.dense", hidden, intermediate)?;
        let output = linear("output.dense", intermediate, hidden)?;
        let mut norm = |what: &str| Norm::load(weights, &format!("{name}.{what}"), config, way.simd);
        Ok(Layer {
            query_key_value,
            attention_output,
            intermediate: feed_forward,
            output,
            attention_norm: norm("attention.output.LayerNorm")?,
            output_norm: norm("output.LayerNorm")?,
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
    way: Way,
}

/// A text in a pass.
#[derive(Clone, Copy)]
struct Text<'a> {
    ids: &'a [u32],
    /// How many tokens have type 0. The others have type 1.
    first: usize,
    /// The index among the texts of the pass.
    place: usize,
}

/// The buffers in which the layers of a group are computed.
struct Space {
    joined: Vec<f32>,
    attended: Vec<f32>,
    inner: Vec<f32>,
    out: Vec<f32>,
    scratch: Scratch,
}

impl Space {
    fn new(config: &Config, tokens: usize, threads: usize) -> Space {
        let hidden = config.hidden_size;
        let zeros = |count: usize| vec![0f32; count];
        Space {
            joined: zeros(tokens * 3 * hidden),
            attended: zeros(tokens * hidden),
            inner: zeros(tokens.min(FEED_FORWARD) * config.intermediate_size),
            out: zeros(tokens * hidden),
            scratch: Scratch::new(threads),
        }
    }
}

thread_local! {
    static HEAD: RefCell<Head> = RefCell::default();
}

impl Encoder {
    pub fn load(mut weights: Weights, config: Config, way: Way) -> Result<Encoder> {
        config.check()?;
        weights = config.find(weights);
        let c = &config;
        let hidden = c.hidden_size;
        let words = weights.numbers("embeddings.word_embeddings.weight", &[c.vocab_size, hidden])?;
        let Places { positions, second } = c.places(&mut weights)?;
        let norm = Norm::load(&mut weights, "embeddings.LayerNorm", c, way.simd)?;
        let mut memory = Memory::default();
        let layers = (0..c.num_hidden_layers)
            .map(|i| Layer::load(&mut weights, &format!("encoder.layer.{i}"), c, way, &mut memory))
            .collect::<Result<_>>()?;
        Ok(Encoder { words, positions, second, norm, layers, config, way })
    }

    /// Whether the model distinguishes the two texts of a pair.
    pub fn has_second_type(&self) -> bool {
        self.second.is_some()
    }

    /// Applies `read` to the hidden states (tokens, hidden) of the last layer of each text, and returns the
    /// results in the order of the texts. No text may be empty or exceed the positions of the model. The
    /// first `firsts` tokens of each have type 0 and the others type 1, or all have type 0 with None. A
    /// thread calls `pause` before each group except its first.
    pub fn forward<'a, T: Send>(
        &self,
        texts: &[&'a [u32]],
        firsts: Option<&[usize]>,
        read: impl Fn(&[f32]) -> T + Sync,
        pause: Pause,
    ) -> Result<Vec<T>> {
        let text = |(place, ids): (usize, &&'a [u32])| {
            let first = firsts.and_then(|firsts| firsts.get(place).copied()).unwrap_or(ids.len());
            Text { ids, first, place }
        };
        let texts: Vec<Text> = texts.iter().enumerate().map(text).collect();
        let tokens = texts.iter().map(|text| text.ids.len()).sum::<usize>();
        let threads = rayon::current_num_threads();
        let together = |texts: &[Text]| {
            let threads = share::threads();
            share::together(threads, || self.encode(texts, threads, &read))
        };
        let cost = |text: &Text| self.cost(text.ids.len());
        let are_few = tokens <= FEW || texts.len() < threads;
        // Threads get equally many groups of about the same cost, so that none waits long for another at the
        // end.
        let count = if are_few { threads } else { threads * tokens.div_ceil(threads * GROUP) };
        let groups = share::evenly(texts, count, cost);
        let costs = groups.iter().map(|texts| texts.iter().map(cost).sum());
        let mut found: Vec<(usize, T)> = if are_few && !share::is_even(costs, share::threads()) {
            together(&groups.concat())?
        } else {
            // The last groups are fewer than threads, so threads share them.
            let left = groups.len() % threads;
            let left = if left < share::threads() { left } else { 0 };
            let (first, last) = groups.split_at(groups.len() - left);
            let mut parts = share::one_by_one(first, threads, |texts| self.encode(texts, 1, &read), pause);
            for texts in last {
                pause();
                parts.push(together(texts));
            }
            parts.into_iter().collect::<Result<Vec<_>>>()?.into_iter().flatten().collect()
        };
        found.sort_by_key(|(place, _)| *place);
        Ok(found.into_iter().map(|(_, read)| read).collect())
    }

    /// The cost of a text with this many tokens, in multiplications of a layer per number of a token.
    fn cost(&self, tokens: usize) -> usize {
        let Config { hidden_size, intermediate_size, .. } = self.config;
        tokens * (2 * hidden_size + intermediate_size + tokens)
    }

    /// The sum of word and position embeddings, before the first norm.
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

    /// Applies `read` to some texts, and returns the results with the indexes of the texts.
    fn encode<T>(
        &self,
        texts: &[Text],
        threads: usize,
        read: impl Fn(&[f32]) -> T,
    ) -> Result<Vec<(usize, T)>> {
        let hidden = self.config.hidden_size;
        let tokens = texts.iter().map(|text| text.ids.len()).sum::<usize>();
        let mut all = vec![0f32; tokens * hidden];
        let x = all.as_mut_slice();
        let mut start = 0;
        for Text { ids, first, .. } in texts {
            let end = start + ids.len() * hidden;
            self.embed(ids, *first, &mut x[start..end])?;
            start = end;
        }
        let Space { mut joined, mut attended, mut inner, mut out, mut scratch } =
            Space::new(&self.config, tokens, threads);
        self.norm.apply(x);
        for layer in &self.layers {
            layer.query_key_value.apply(x, &mut joined, &mut scratch, None);
            share::columns(&mut attended, hidden, self.config.head_size(), threads, |columns, rows| {
                HEAD.with_borrow_mut(|head| self.attend(texts, &joined, columns, rows, head));
            });
            layer.attention_output.apply(&attended, &mut out, &mut scratch, None);
            layer.attention_norm.apply_to_sum(x, &out);
            for x in x.chunks_mut(FEED_FORWARD * hidden) {
                let rows = x.len() / hidden;
                let inner = &mut inner[..rows * self.config.intermediate_size];
                let out = &mut out[..rows * hidden];
                layer.intermediate.apply(x, inner, &mut scratch, Some(self.config.hidden_act.into()));
                layer.output.apply(inner, out, &mut scratch, None);
                layer.output_norm.apply_to_sum(x, out);
            }
        }
        let mut rest = &*x;
        let mut found = Vec::with_capacity(texts.len());
        for text in texts {
            let (own, others) = rest.split_at(text.ids.len() * hidden);
            found.push((text.place, read(own)));
            rest = others;
        }
        Ok(found)
    }

    /// Computes some heads of attention, which give these columns of the result, for each text.
    fn attend(
        &self,
        texts: &[Text],
        joined: &[f32],
        columns: Range<usize>,
        mut out: &mut [&mut [f32]],
        head: &mut Head,
    ) {
        let (hidden, size) = (self.config.hidden_size, self.config.head_size());
        let mut joined = Rows { numbers: joined, stride: 3 * hidden };
        for text in texts {
            let (own, rest) = std::mem::take(&mut out).split_at_mut(text.ids.len());
            for first in columns.clone().step_by(size) {
                head.attend(self.way, joined, [hidden, first, size], first - columns.start, own);
            }
            joined.numbers = &joined.numbers[own.len() * joined.stride..];
            out = rest;
        }
    }
}
