//! A BERT's forward pass: by [`Encoder`], or under an instruction set that the server's environment names by [`Transformer`],
//! which computes in f32 only; with 8 bits that instruction set is the products' alone.

use super::config::Config;
use super::encoder::Encoder;
use super::linear::Way;
use super::transformer::Transformer;
use super::weights::Weights;
use crate::kernels::InstructionSet;
use crate::model::Compute;

pub enum Pass {
    Native(Box<Encoder>),
    Forced(Box<Transformer>),
}

impl Pass {
    pub fn load(weights: Weights, config: Config, way: Way) -> Result<Pass, String> {
        Ok(match (way.set, way.compute) {
            (InstructionSet::Native, _) | (_, Compute::Int8) => {
                Pass::Native(Box::new(Encoder::load(weights, config, way)?))
            }
            (forced, Compute::F32) => Pass::Forced(Box::new(Transformer::load(weights, config, forced)?)),
        })
    }

    /// Whether it tells the two texts of a pair apart.
    pub fn has_second_type(&self) -> bool {
        match self {
            Pass::Native(encoder) => encoder.has_second_type(),
            Pass::Forced(transformer) => transformer.has_second_type(),
        }
    }

    /// Hidden states (tokens of all texts, hidden) of the last layer, text after text. No text may be empty or longer than the
    /// model has positions. Of pairs the first so many tokens each (`firsts`) are of type 0, the others of type 1.
    pub fn forward(&self, texts: &[&[u32]], firsts: Option<&[usize]>) -> Result<Vec<f32>, String> {
        match self {
            Pass::Native(encoder) => encoder.forward(texts, firsts),
            Pass::Forced(transformer) => transformer.forward(texts, firsts).map_err(|e| e.to_string()),
        }
    }
}
