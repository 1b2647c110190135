//! Static embeddings: the mean of the token vectors of a text, without a network.
//!
//! Reads wordllama's files (github.com/dleemiller/WordLlama) and model2vec's
//! (github.com/MinishLab/model2vec), whose newer ones add a weight for each token and a token-to-row mapping.

use super::tokens::Tokens;
use super::weights::{Matrix, Weights};
use super::{LocalModel, Pause, finish, or_first_axis};
use kb_text::model_files::{ModelFiles, matrix_name};
use kb_types::error::{Error, Result};
use kb_types::{Embedder, Kind};

pub struct StaticModel {
    embedder: Embedder,
    tokens: Tokens,
    matrix: Matrix,
    dimension: usize,
    /// The factor of the vector of each token, by token id.
    weights: Option<Vec<f32>>,
    /// The row of each token, by token id. None if the id is the row.
    mapping: Option<Vec<usize>>,
    /// The unknown token, which model2vec leaves out of the mean and wordllama does not.
    unknown: Option<u32>,
}

impl StaticModel {
    pub fn load(embedder: &Embedder, files: &ModelFiles) -> Result<StaticModel> {
        let fail = |problem: String| Error::ModelFiles { model: embedder.model.clone(), problem };
        let tokens = Tokens::load(embedder, files)?;
        let mut file = Weights::open(&files.weights).map_err(fail)?;
        let name = matrix_name(&file.metadata)
            .ok_or_else(|| fail("its weights contain no matrix of token vectors".into()))?;
        let matrix = file.matrix(&name).map_err(fail)?;
        let weights = match file.has("weights") {
            true => Some(file.f32s("weights").map_err(fail)?.0),
            false => None,
        };
        let mapping = match file.has("mapping") {
            true => Some(file.indices("mapping").map_err(fail)?),
            false => None,
        };
        let unknown = match name == "embeddings" {
            true => unknown_token(files).map_err(fail)?.and_then(|token| tokens.id_of(&token)),
            false => None,
        };
        Ok(StaticModel {
            embedder: embedder.clone(),
            tokens,
            matrix,
            dimension: files.dimension,
            weights,
            mapping,
            unknown,
        })
    }

    /// The weighted mean of the vectors of known tokens. Weights scale the vectors, and the divisor is the
    /// number of tokens, as in model2vec.
    /// Single precision would lose the third digit over 600,000 tokens.
    fn mean(&self, ids: &[u32]) -> Vec<f32> {
        let mut sum = vec![0f64; self.dimension];
        let mut row = vec![0f32; self.dimension];
        let mut known = 0usize;
        for &id in ids.iter().filter(|id| Some(**id) != self.unknown) {
            if self.read_row(id, &mut row) {
                let weight = self.weights.as_ref().and_then(|w| w.get(id as usize)).copied().unwrap_or(1.0);
                sum.iter_mut().zip(&row).for_each(|(s, x)| *s += f64::from(weight * x));
                known += 1;
            }
        }
        or_first_axis(sum.iter().map(|s| (s / known.max(1) as f64) as f32).collect())
    }

    /// Returns false if the token has no row.
    fn read_row(&self, id: u32, row: &mut [f32]) -> bool {
        use half::slice::HalfFloatSliceExt;
        let place = match &self.mapping {
            Some(mapping) => mapping.get(id as usize).copied(),
            None => Some(id as usize),
        };
        let Some(range) = place.and_then(|p| {
            let start = p.checked_mul(self.dimension)?;
            Some(start..start.checked_add(self.dimension)?)
        }) else {
            return false;
        };
        match &self.matrix {
            Matrix::F16(values) => values.get(range).map(|r| r.convert_to_f32_slice(row)).is_some(),
            Matrix::F32(values) => values.get(range).map(|r| row.copy_from_slice(r)).is_some(),
        }
    }
}

/// The unknown token that tokenizer.json names.
fn unknown_token(files: &ModelFiles) -> Result<Option<String>, String> {
    let unusable = |e: &dyn std::fmt::Display| format!("tokenizer.json cannot be used: {e}");
    let bytes = std::fs::read(&files.tokenizer).map_err(|e| unusable(&e))?;
    let json: serde_json::Value = serde_json::from_slice(&bytes).map_err(|e| unusable(&e))?;
    let model = &json["model"];
    // A Unigram model gives the position in its vocabulary of [token, score] instead of the token.
    let by_place = model["unk_id"].as_u64().and_then(|i| model["vocab"][i as usize][0].as_str());
    Ok(model["unk_token"].as_str().or(by_place).map(str::to_string))
}

impl LocalModel for StaticModel {
    fn embed(&self, texts: &[String], kind: Kind, _pause: Pause) -> Result<Vec<Vec<f32>>> {
        let encoded = self.tokens.encode(&self.embedder, texts, kind)?;
        encoded.iter().map(|ids| finish(&self.embedder, self.mean(ids))).collect()
    }

    fn max_input_tokens(&self) -> Option<usize> {
        self.tokens.limit
    }
}
