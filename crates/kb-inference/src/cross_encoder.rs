//! Cross-encoders (ms-marco-MiniLM, bge-reranker and similar models), which read question and text together
//! and give one score.
//!
//! Nogueira, Cho: "Passage Re-ranking with BERT", 2019. The head is that of transformers'
//! BertForSequenceClassification with one label, or of its counterparts for RoBERTa and DistilBERT. The score
//! is the logistic function of the logit, from 0 to 1, which is the default of sentence-transformers'
//! CrossEncoder.

use super::Pause;
use super::config::{Config, Family};
use super::encoder::Encoder;
use super::linear::{Linear, Scratch, Way};
use super::tokens::{around, least, limited, open_tokenizer};
use super::weights::Weights;
use kb_kernels::InstructionSet;
use kb_kernels::memory::Memory;
use kb_text::model_files::{Architecture, ModelFiles, open_weights, read_header};
use kb_types::error::{Error, Result};
use kb_types::{Compute, Reranker, ServiceKind};
use std::path::Path;
use tokenizers::Tokenizer;

/// The name of the head in each family.
const HEADS: [&str; 2] = ["classifier.weight", "classifier.out_proj.weight"];

pub struct CrossEncoder {
    tokenizer: Tokenizer,
    opening: Vec<u32>,
    closing: Vec<u32>,
    /// The most tokens, special tokens included.
    limit: usize,
    encoder: Encoder,
    pooler: Linear,
    classifier: Linear,
    hidden: usize,
    family: Family,
}

/// The tokens of a pair, and how many of them belong to the question.
struct Pair {
    ids: Vec<u32>,
    first: usize,
}

impl CrossEncoder {
    /// Checks that a directory contains a cross-encoder. Of the weights it reads only the header. Errors:
    /// `ModelFiles`.
    pub fn check(model_dir: &Path, model: &str) -> Result<ModelFiles> {
        let fail = |problem: String| Error::ModelFiles { model: model.to_string(), problem };
        let files = ModelFiles::open(model_dir, model)?;
        if files.architecture != Architecture::Bert {
            return Err(fail(
                "is not a cross-encoder of a supported architecture (BERT or a similar model)".into(),
            ));
        }
        let (_, metadata) =
            open_weights(&files.weights).and_then(|mut file| read_header(&mut file)).map_err(fail)?;
        match HEADS.iter().find_map(|head| metadata.info(head)).map(|info| info.shape.as_slice()) {
            Some([1, _]) => Ok(files),
            Some(shape) => {
                let labels = shape.first().copied().unwrap_or(0);
                Err(fail(format!(
                    "is not a cross-encoder with a single score; it distinguishes {labels} classes"
                )))
            }
            None => {
                Err(fail(format!("is not a cross-encoder: its weights lack the tensor \"{}\"", HEADS[0])))
            }
        }
    }

    pub fn load(reranker: &Reranker, model_dir: &Path) -> Result<CrossEncoder> {
        Self::load_for(super::instruction_set()?, reranker, model_dir)
    }

    pub(super) fn load_for(
        set: InstructionSet,
        reranker: &Reranker,
        model_dir: &Path,
    ) -> Result<CrossEncoder> {
        let fail = |problem: String| Error::ModelFiles { model: reranker.model.clone(), problem };
        let files = Self::check(model_dir, &reranker.model)?;
        let path = files.config.as_ref().ok_or_else(|| fail("config.json is missing".into()))?;
        let json = std::fs::read(path).map_err(|e| fail(format!("cannot read config.json: {e}")))?;
        let config = Config::read(&json).map_err(fail)?;
        let (hidden, family) = (files.dimension, config.family);
        let head = Weights::open(&files.weights).map_err(fail)?;
        let (first, last, mut head) = match family {
            Family::Bert if head.has("bert.pooler.dense.weight") => ("bert.pooler.dense", "classifier", head),
            Family::Bert => ("pooler.dense", "classifier", head),
            Family::Roberta => ("classifier.dense", "classifier.out_proj", head),
            Family::Distilbert => ("pre_classifier", "classifier", head),
        };
        let way = Way::new(Compute::F32, set);
        let mut memory = Memory::default();
        let classifier = Linear::load(&mut head, last, hidden, 1, way, &mut memory).map_err(fail)?;
        let pooler = Linear::load(&mut head, first, hidden, hidden, way, &mut memory).map_err(fail)?;
        let weights = Weights::open(&files.weights).map_err(fail)?;
        let encoder = Encoder::load(weights, config, way).map_err(fail)?;
        if family == Family::Bert && !encoder.has_second_type() {
            return Err(fail("config.json: a cross-encoder needs a type_vocab_size of 2".into()));
        }
        let tokenizer = open_tokenizer(&files.tokenizer).map_err(fail)?;
        let (opening, closing) = around(&tokenizer);
        if (opening.len(), closing.len()) != (1, 1) {
            return Err(fail("tokenizer.json must add one token before and one after a text".into()));
        }
        let limit = least(files.max_tokens, reranker.config.max_input_tokens).unwrap_or(usize::MAX);
        Ok(CrossEncoder { tokenizer, opening, closing, limit, encoder, pooler, classifier, hidden, family })
    }

    /// A score from 0 to 1 for each text. A pair that is too long for the model is truncated, the longer of
    /// question and text first.
    pub fn scores(&self, id: &str, query: &str, texts: &[String], pause: Pause) -> Result<Vec<f32>> {
        let fail = |problem: String| Error::Service {
            kind: ServiceKind::Reranker,
            id: id.to_string(),
            problem,
            passing: false,
        };
        let most = self.limit.saturating_sub(if self.family == Family::Roberta { 4 } else { 3 });
        let ids = |text: &str| limited(&self.tokenizer, text, most).map_err(|e| fail(e.to_string()));
        let question = ids(query)?;
        let pairs = texts
            .iter()
            .map(|text| Ok(self.pair(&question, &ids(text)?, most)))
            .collect::<Result<Vec<_>>>()?;
        self.score(&pairs, pause).map_err(fail)
    }

    fn pair(&self, question: &[u32], text: &[u32], most: usize) -> Pair {
        let (of_question, of_text) = longest_first(question.len(), text.len(), most);
        let first = [&self.opening, &question[..of_question], &self.closing].concat();
        // RoBERTa, which has no token types, has one more token between the two.
        let between = if self.family == Family::Roberta { self.closing.as_slice() } else { &[] };
        Pair { ids: [&first, between, &text[..of_text], &self.closing].concat(), first: first.len() }
    }

    fn score(&self, batch: &[Pair], pause: Pause) -> Result<Vec<f32>, String> {
        let texts: Vec<&[u32]> = batch.iter().map(|pair| pair.ids.as_slice()).collect();
        let firsts: Vec<usize> = batch.iter().map(|pair| pair.first).collect();
        let opening = |rows: &[f32]| rows[..self.hidden].to_vec();
        let opening = self.encoder.forward(&texts, Some(&firsts), opening, pause)?.concat();
        let mut scratch = Scratch::new(1);
        let mut pooled = vec![0f32; opening.len()];
        self.pooler.apply(&opening, &mut pooled, &mut scratch, None);
        match self.family {
            Family::Distilbert => pooled.iter_mut().for_each(|x| *x = kb_kernels::rows::relu(*x)),
            _ => pooled.iter_mut().for_each(|x| *x = x.tanh()),
        }
        let mut logits = vec![0f32; batch.len()];
        self.classifier.apply(&pooled, &mut logits, &mut scratch, None);
        Ok(logits.into_iter().map(|logit| (1.0 / (1.0 + f64::from(-logit).exp())) as f32).collect())
    }
}

/// How many tokens of the first and second are kept, with at most `most` together. The longer one is
/// truncated first, and if that is not enough, both are truncated to half (strategy longest_first of crate
/// tokenizers and of transformers).
fn longest_first(first: usize, second: usize, most: usize) -> (usize, usize) {
    if first + second <= most {
        return (first, second);
    }
    let (short, long) = (first.min(second), first.max(second));
    let (short, long) = match short <= most / 2 {
        true => (short, long.min(most - short)),
        false => (most / 2, most - most / 2),
    };
    if first > second { (long, short) } else { (short, long) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_pair_loses_the_end_of_its_longer_part_first() {
        assert_eq!(longest_first(5, 7, 12), (5, 7));
        assert_eq!(longest_first(5, 70, 12), (5, 7));
        assert_eq!(longest_first(70, 5, 12), (7, 5));
        assert_eq!(longest_first(70, 80, 13), (6, 7));
        assert_eq!(longest_first(80, 70, 13), (7, 6));
        assert_eq!(longest_first(3, 3, 0), (0, 0));
    }
}
