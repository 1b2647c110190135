//! Local models, which embed texts inside this process.

#![forbid(unsafe_code)]

mod attention;
mod bert;
mod config;
mod cross_encoder;
mod encoder;
mod hash;
mod linear;
mod share;
mod static_model;
mod tokens;
mod weights;

pub use cross_encoder::CrossEncoder;

use kb_kernels as kernels;
use kb_kernels::InstructionSet;
use kb_text::model_files::{Architecture, ModelFiles};
use kb_types::error::{Error, Result};
use kb_types::{Embedder, Kind};
use std::path::Path;

/// A computing thread calls this between parts of its work, to let something more urgent go first.
pub type Pause<'a> = &'a (dyn Fn() + Sync);

/// Runs some work and keeps the threads that share a pass awake meanwhile.
pub fn all_awake<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    share::together(share::threads(), work)
}

/// Keeps the threads that share a pass awake as long as `is_wanted` returns true, while yielding their cores
/// to others.
pub fn stay_awake(is_wanted: impl Fn() -> bool + Sync) {
    share::while_waiting(share::threads(), || {
        while is_wanted() {
            std::thread::yield_now();
        }
    });
}

/// A loaded model with the settings of one embedder.
pub trait LocalModel: Send + Sync {
    /// Returns one vector for each text, in order. The embedder's prefix for `kind` is put before each text.
    ///
    /// Errors: `InputTooLong` if a text (with prefix and special tokens) is longer than the model reads and
    /// the embedder does not truncate, and `Embedding` if a vector is not finite.
    fn embed(&self, texts: &[String], kind: Kind, pause: Pause) -> Result<Vec<Vec<f32>>>;
    /// How many tokens the model reads, special tokens included. None means any number.
    fn max_input_tokens(&self) -> Option<usize>;
}

/// Loads the model of an embedder whose provider is `local` (files under `model_dir`) or `hash`.
///
/// Errors: `ModelFiles` for missing or unusable files, `Configuration` if the embedder does not match the
/// model or KB_INSTRUCTION_SET does not match this machine, and `ProviderUnavailable` for any other provider.
pub fn load(embedder: &Embedder, model_dir: &Path) -> Result<Box<dyn LocalModel>> {
    load_for(instruction_set()?, embedder, model_dir)
}

/// The instruction set to compute with. Errors: `Configuration` if KB_INSTRUCTION_SET names one that this
/// machine does not have.
fn instruction_set() -> Result<InstructionSet> {
    let object = format!("environment variable {}", kernels::VARIABLE);
    InstructionSet::chosen().map_err(|problem| Error::configuration(object, vec![problem]))
}

fn load_for(set: InstructionSet, embedder: &Embedder, model_dir: &Path) -> Result<Box<dyn LocalModel>> {
    match embedder.provider.as_str() {
        "hash" => {
            check(
                embedder,
                &[(embedder.dimension == 0).then(|| "dimension must be at least 1".to_string())],
            )?;
            Ok(Box::new(hash::Hash::new(embedder)))
        }
        "local" => {
            let files = ModelFiles::open(model_dir, &embedder.model)?;
            check(embedder, &[dimension_problem(embedder, &files), limit_problem(embedder, &files)])?;
            match files.architecture {
                Architecture::Bert => Ok(Box::new(bert::Bert::load(embedder, &files, set)?)),
                Architecture::Static => Ok(Box::new(static_model::StaticModel::load(embedder, &files)?)),
            }
        }
        other => Err(Error::ProviderUnavailable { provider: other.to_string(), available: String::new() }),
    }
}

fn dimension_problem(embedder: &Embedder, files: &ModelFiles) -> Option<String> {
    (embedder.dimension != files.dimension).then(|| {
        format!(
            "dimension is {}, but the vectors of model \"{}\" have {}",
            embedder.dimension, embedder.model, files.dimension
        )
    })
}

fn limit_problem(embedder: &Embedder, files: &ModelFiles) -> Option<String> {
    let given = embedder.config.max_input_tokens?;
    (given <= files.special_tokens).then(|| {
        format!(
            "config.max_input_tokens: {given} leaves no room beside the model's {} special tokens",
            files.special_tokens
        )
    })
}

/// Reports all problems at once, if any.
fn check(embedder: &Embedder, problems: &[Option<String>]) -> Result<()> {
    let problems: Vec<String> = problems.iter().flatten().cloned().collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Error::configuration(format!("embedder \"{}\"", embedder.id), problems))
}

/// The last step of every model, local or remote: normalises the vector if the embedder asks for that, and
/// checks that it is finite. A zero vector, which cosine distance cannot compare, is an error.
pub fn finish(embedder: &Embedder, mut vector: Vec<f32>) -> Result<Vec<f32>> {
    let fail =
        |problem: &str| Error::Embedding { embedder: embedder.id.clone(), problem: problem.to_string() };
    let norm = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if !norm.is_finite() {
        return Err(fail("the model's output is not a number"));
    }
    if norm == 0.0 {
        return Err(fail("the model's output is a zero vector"));
    }
    if embedder.config.normalize {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
    }
    Ok(vector)
}

/// Replaces the zero vector of a text without any known token by the first axis.
///
/// An error would fail a whole document because of one chunk of dashes, and a zero vector has no cosine
/// (pgvector's distance is NaN). The axis is a valid unit vector, the same on every machine, and far from the
/// vectors of real texts, so such a text is stored and counted but not found by similarity.
fn or_first_axis(mut vector: Vec<f32>) -> Vec<f32> {
    if vector.iter().all(|x| *x == 0.0)
        && let Some(first) = vector.first_mut()
    {
        *first = 1.0;
    }
    vector
}

#[cfg(test)]
mod reference_tests;
#[cfg(test)]
mod tests;
