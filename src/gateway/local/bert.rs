//! Sentence embeddings of BERT and models like it (MiniLM, BGE, E5 …), equal to sentence-transformers'.

use super::config::Config;
use super::encoder::Encoder;
use super::linear::Way;
use super::tokens::Tokens;
use super::weights::Weights;
use super::{LocalModel, finish};
use crate::error::{Error, Result};
use crate::kernels::InstructionSet;
use crate::model::{Compute, Embedder, Kind, Pooling};
use crate::model_files::ModelFiles;
use rayon::prelude::*;

pub struct Bert {
    embedder: Embedder,
    tokens: Tokens,
    encoder: Encoder,
    pooling: Pooling,
    dimension: usize,
}

/// Tokens a forward pass at most (more only for a single longer text), in f32 and in 8 bits. Enough for all threads; few enough
/// that a question waits for some hundredths of a second behind one.
const BATCH_TOKENS: [usize; 2] = [1024, 2048];

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

    fn embed_batch(&self, batch: &[&[u32]]) -> Result<Vec<Vec<f32>>> {
        let fail = |problem| Error::Embedding { embedder: self.embedder.id.clone(), problem };
        let hidden = self.encoder.forward(batch, None).map_err(fail)?;
        let mut starts = Vec::with_capacity(batch.len());
        let mut start = 0;
        for ids in batch {
            starts.push(start..start + ids.len() * self.dimension);
            start += ids.len() * self.dimension;
        }
        let text = |range| finish(&self.embedder, pool(self.pooling, &hidden[range], self.dimension));
        starts.into_par_iter().with_min_len(4).map(text).collect()
    }
}

/// One vector from a text's token vectors: their mean (all of them are real tokens: nothing is
/// padded) or the first.
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
    fn embed(&self, texts: &[String], kind: Kind, pause: &dyn Fn()) -> Result<Vec<Vec<f32>>> {
        let encoded = self.tokens.encode(&self.embedder, texts, kind)?;
        let mut vectors = Vec::with_capacity(texts.len());
        let mut batch: Vec<&[u32]> = Vec::new();
        let mut size = 0;
        let [f32, int8] = BATCH_TOKENS;
        let most = if self.embedder.config.compute == Compute::Int8 { int8 } else { f32 };
        for ids in &encoded {
            if !batch.is_empty() && size + ids.len() > most {
                vectors.extend(self.embed_batch(&batch)?);
                pause();
                batch.clear();
                size = 0;
            }
            size += ids.len();
            batch.push(ids);
        }
        if !batch.is_empty() {
            vectors.extend(self.embed_batch(&batch)?);
        }
        Ok(vectors)
    }

    fn max_input_tokens(&self) -> Option<usize> {
        self.tokens.limit
    }
}
