//! candle-rate MODEL THREADS SIZE: the tokens a second that candle computes of some texts, which it reads as a JSON array from standard
//! input, with the BERT in a directory, on so many threads that each take SIZE texts at a time. RAYON_NUM_THREADS says how many compute
//! one product.

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};
use std::error::Error;
use std::fs::{read, read_to_string};
use std::sync::Mutex;
use std::time::Instant;
use tokenizers::{PaddingParams, Tokenizer};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, threads, size] = arguments.as_slice() else {
        return Err("usage: candle-rate MODEL THREADS SIZE".into());
    };
    let (threads, size): (usize, usize) = (threads.parse()?, size.parse()?);
    let mut texts: Vec<String> = serde_json::from_reader(std::io::stdin())?;
    // Texts of about one length together: all are filled up to the longest.
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    let config: Config = serde_json::from_str(&read_to_string(format!("{directory}/config.json"))?)?;
    let mut tokenizer = Tokenizer::from_file(format!("{directory}/tokenizer.json"))?;
    tokenizer.with_padding(Some(PaddingParams::default())).with_truncation(None)?;
    let weights = read(format!("{directory}/model.safetensors"))?;
    let weights = VarBuilder::from_buffered_safetensors(weights, DType::F32, &Device::Cpu)?;
    let model = BertModel::load(weights, &config)?;
    embed(&model, &tokenizer, &texts[..texts.len().min(size)])?;
    let (begun, waiting) = (Instant::now(), Mutex::new(texts.chunks(size)));
    let work = || -> Result<usize> {
        let mut tokens = 0;
        while let Some(texts) = { waiting.lock().map_err(|_| "a thread panicked")?.next() } {
            tokens += embed(&model, &tokenizer, texts)?;
        }
        Ok(tokens)
    };
    let tokens: Result<usize> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().map(|thread| thread.join().map_err(|_| "a thread panicked")?).sum()
    });
    println!("{:.0}", tokens? as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}

/// Computes the texts' vectors, the mean of their tokens', and says how many tokens they have.
fn embed(model: &BertModel, tokenizer: &Tokenizer, texts: &[String]) -> Result<usize> {
    let encoded = tokenizer.encode_batch(texts.to_vec(), true)?;
    let shape = (encoded.len(), encoded.first().map_or(0, |one| one.get_ids().len()));
    let ids: Vec<u32> = encoded.iter().flat_map(|one| one.get_ids().to_vec()).collect();
    let mask: Vec<u32> = encoded.iter().flat_map(|one| one.get_attention_mask().to_vec()).collect();
    let tokens = mask.iter().sum::<u32>() as usize;
    let ids = Tensor::from_vec(ids, shape, &Device::Cpu)?;
    let mask = Tensor::from_vec(mask, shape, &Device::Cpu)?;
    let states = model.forward(&ids, &ids.zeros_like()?, Some(&mask))?;
    let mask = mask.to_dtype(DType::F32)?.unsqueeze(2)?;
    let means = states.broadcast_mul(&mask)?.sum(1)?.broadcast_div(&mask.sum(1)?)?;
    means.to_vec2::<f32>()?;
    Ok(tokens)
}
