//! Sentence embeddings by BERT and similar models (MiniLM, BGE, E5 …), equal to those of
//! sentence-transformers.

use super::config::Config;
use super::encoder::Encoder;
use super::linear::Way;
use super::tokens::Tokens;
use super::weights::Weights;
use super::{LocalModel, Pause, finish};
use kb_kernels::InstructionSet;
use kb_text::model_files::ModelFiles;
use kb_types::error::{Error, Result};
use kb_types::{Embedder, Kind, Pooling};

pub struct Bert {
    embedder: Embedder,
    tokens: Tokens,
    encoder: Encoder,
    pooling: Pooling,
    dimension: usize,
}

impl Bert {
    pub fn load(embedder: &Embedder, files: &ModelFiles, set: InstructionSet) -> Result<Bert> {
        let fail = |problem: String| Error::ModelFiles { model: embedder.model.clone(), problem };
        let path = files.config.as_ref().ok_or_else(|| fail("config.json is missing".into()))?;
        let json = std::fs::read(path).map_err(|e| fail(format!("cannot read config.json: {e}")))?;
        let config = Config::read(&json).map_err(fail)?;
        let way = Way::new(embedder.config.compute, set);
        let weights = Weights::open(&files.weights).map_err(fail)?;
        Ok(Bert {
            tokens: Tokens::load(embedder, files)?,
            encoder: Encoder::load(weights, config, way).map_err(fail)?,
            pooling: embedder.config.pooling.unwrap_or(files.pooling),
            dimension: files.dimension,
            embedder: embedder.clone(),
        })
    }
}

/// The vector of a text: the mean of its token vectors, none of which is padding, or the first one.
fn pool(pooling: Pooling, rows: &[f32], dimension: usize) -> Vec<f32> {
    let rows = match pooling {
        Pooling::Mean => rows,
        Pooling::Cls => &rows[..dimension],
    };
    let mut sum = vec![0f32; dimension];
    for row in rows.chunks_exact(dimension) {
        sum.iter_mut().zip(row).for_each(|(s, x)| *s += x);
    }
    sum.iter_mut().for_each(|s| *s /= (rows.len() / dimension) as f32);
    sum
}

impl LocalModel for Bert {
    fn embed(&self, texts: &[String], kind: Kind, pause: Pause) -> Result<Vec<Vec<f32>>> {
        let fail = |problem| Error::Embedding { embedder: self.embedder.id.clone(), problem };
        let encoded = self.tokens.encode(&self.embedder, texts, kind)?;
        let ids: Vec<&[u32]> = encoded.iter().map(Vec::as_slice).collect();
        let vector = |rows: &[f32]| finish(&self.embedder, pool(self.pooling, rows, self.dimension));
        self.encoder.forward(&ids, None, vector, pause).map_err(fail)?.into_iter().collect()
    }

    fn max_input_tokens(&self) -> Option<usize> {
        self.tokens.limit
    }
}
