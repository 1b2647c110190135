//! The directory of a local model: its files, and what they say about the model.

use kb_types::Pooling;
use kb_types::error::{Error, Result};
use safetensors::tensor::Metadata;
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// BERT, or a model that computes the same: RoBERTa, XLM-RoBERTa, DistilBERT.
    Bert,
    Static,
}

#[derive(Debug, Clone)]
pub struct ModelFiles {
    pub architecture: Architecture,
    pub tokenizer: PathBuf,
    pub weights: PathBuf,
    pub config: Option<PathBuf>,
    /// How many tokens the model reads, special tokens included. None means any number.
    pub max_tokens: Option<usize>,
    /// How many special tokens are put around every text (2 for BERT).
    pub special_tokens: usize,
    pub pooling: Pooling,
    pub dimension: usize,
}

/// Larger values of `model_max_length` are ignored. It is 1e30 in files of models whose tokeniser knows no
/// limit.
const SANE_MAX_LENGTH: u64 = 1_000_000;
/// The most bytes of a header. It names tensors, for which hundreds of kilobytes are a lot. Prevents a
/// corrupt length from being allocated.
const MAX_HEADER: u64 = 16 << 20;
/// Names of the matrix of a static model: model2vec's, wordllama's, and a plain one.
pub const MATRIX_NAMES: [&str; 3] = ["embeddings", "embedding.weight", "embedding"];

impl ModelFiles {
    /// Reads what the files in `model_dir/model` say about the model. Of the weights it reads only the
    /// header.
    ///
    /// Errors: `ModelFiles` where the name is not a plain name of a directory, a file is missing or
    /// unreadable, or kb cannot run models of this kind.
    pub fn open(model_dir: &Path, model: &str) -> Result<ModelFiles> {
        let fail = |problem: String| Error::ModelFiles { model: model.to_string(), problem };
        if !is_plain_name(model) {
            // A user chooses the name, which must not lead out of the model directory.
            return Err(fail("is not the plain name of a directory under kb.model_dir".into()));
        }
        let dir = model_dir.join(model);
        if !dir.is_dir() {
            return Err(fail("there is no such directory under kb.model_dir".to_string()));
        }
        Self::read(&dir).map_err(fail)
    }

    fn read(dir: &Path) -> Result<ModelFiles, String> {
        let tokenizer = dir.join("tokenizer.json");
        if !tokenizer.is_file() {
            return Err("tokenizer.json is missing".into());
        }
        let weights = find_weights(dir)?;
        let config = read_json(dir, "config.json")?;
        let architecture = match config.as_ref().map(|c| c["model_type"].as_str().unwrap_or("")) {
            None | Some("model2vec") => Architecture::Static,
            Some("bert" | "roberta" | "xlm-roberta" | "distilbert") => Architecture::Bert,
            Some(other) => {
                return Err(format!(
                    "config.json has model_type \"{other}\"; supported are bert, roberta, xlm-roberta, distilbert and \
                     model2vec (or a bare matrix of token vectors, without config.json)"
                ));
            }
        };
        check_modules(dir)?;
        let config_path = config.is_some().then(|| dir.join("config.json"));
        match (architecture, config) {
            (Architecture::Bert, Some(config)) => Ok(ModelFiles {
                architecture,
                tokenizer,
                weights,
                config: config_path,
                max_tokens: Some(max_tokens(dir, &config)?),
                special_tokens: 2,
                pooling: pooling(dir)?,
                dimension: positive(
                    &config,
                    "config.json",
                    if config["dim"].is_null() { "hidden_size" } else { "dim" },
                )?,
            }),
            _ => Ok(ModelFiles {
                architecture,
                dimension: matrix_dimension(&weights)?,
                tokenizer,
                weights,
                config: config_path,
                max_tokens: None,
                special_tokens: 0,
                pooling: Pooling::Mean,
            }),
        }
    }
}

fn is_plain_name(model: &str) -> bool {
    let mut components = Path::new(model).components();
    matches!(components.next(), Some(Component::Normal(name)) if name == model)
        && components.next().is_none()
        && !model.starts_with('.')
        && !model.contains(|c: char| c == '/' || c == '\\' || c.is_control())
}

/// `model.safetensors`, or else the only `*.safetensors`.
fn find_weights(dir: &Path) -> Result<PathBuf, String> {
    let usual = dir.join("model.safetensors");
    if usual.is_file() {
        return Ok(usual);
    }
    let entries = std::fs::read_dir(dir).map_err(|e| format!("cannot list its directory: {e}"))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|e| e.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "safetensors") && path.is_file())
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(path), true) => Ok(path),
        (Some(_), false) => Err("has several *.safetensors files, but no model.safetensors".into()),
        (None, _) => Err("model.safetensors is missing".into()),
    }
}

/// A JSON file of the model, or None where it does not exist.
fn read_json(dir: &Path, name: &str) -> Result<Option<Value>, String> {
    match std::fs::read(dir.join(name)) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|e| format!("{name} is not JSON: {e}")),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(format!("cannot read {name}: {e}")),
    }
}

fn positive(config: &Value, file: &str, key: &str) -> Result<usize, String> {
    match config[key].as_u64() {
        Some(n @ 1..) => Ok(n as usize),
        _ => Err(format!("{file} has no usable {key}")),
    }
}

/// The smaller of the limit that sentence-transformers sets and the number of positions that the model has.
fn max_tokens(dir: &Path, config: &Value) -> Result<usize, String> {
    let mut positions = positive(config, "config.json", "max_position_embeddings")?;
    if config["model_type"].as_str().is_some_and(|kind| kind.ends_with("roberta")) {
        // The model numbers its positions from after the id of its padding token.
        let padding = config["pad_token_id"].as_u64().unwrap_or(1) as usize;
        positions = positions.saturating_sub(padding.saturating_add(1));
    }
    let sentence = read_json(dir, "sentence_bert_config.json")?.and_then(|c| c["max_seq_length"].as_u64());
    let given = match sentence {
        Some(n) => Some(n),
        None => read_json(dir, "tokenizer_config.json")?
            .and_then(|c| c["model_max_length"].as_u64())
            .filter(|n| *n <= SANE_MAX_LENGTH),
    };
    Ok(given.map_or(positions, |n| (n as usize).min(positions)))
}

fn pooling(dir: &Path) -> Result<Pooling, String> {
    let Some(config) = read_json(dir, "1_Pooling/config.json")? else { return Ok(Pooling::Mean) };
    let Some(map) = config.as_object() else { return Err("1_Pooling/config.json is not an object".into()) };
    let mut modes: Vec<&str> = map
        .iter()
        .filter(|(_, value)| **value == Value::Bool(true))
        .filter_map(|(key, _)| key.strip_prefix("pooling_mode_"))
        .collect();
    // Newer files name the mode instead of setting one flag of many.
    modes.extend(map.get("pooling_mode").and_then(Value::as_str));
    match modes.as_slice() {
        [] | ["mean_tokens" | "mean"] => Ok(Pooling::Mean),
        ["cls_token" | "cls"] => Ok(Pooling::Cls),
        other => Err(format!(
            "1_Pooling/config.json requires pooling by {}; supported are mean and cls",
            other.join(" and ")
        )),
    }
}

/// Checks the layers that sentence-transformers lists after the encoder. Leaving one out would give vectors
/// that look right and mean nothing.
fn check_modules(dir: &Path) -> Result<(), String> {
    let Some(modules) = read_json(dir, "modules.json")? else { return Ok(()) };
    for module in modules.as_array().into_iter().flatten() {
        let kind = module["type"].as_str().unwrap_or("").rsplit('.').next().unwrap_or("");
        if !["Transformer", "Pooling", "Normalize", "StaticEmbedding"].contains(&kind) {
            return Err(format!("modules.json names a layer \"{kind}\", which is not supported"));
        }
    }
    Ok(())
}

fn matrix_dimension(weights: &Path) -> Result<usize, String> {
    let mut file = open_weights(weights)?;
    let (_, metadata) = read_header(&mut file)?;
    match matrix_name(&metadata).and_then(|name| metadata.info(&name)).map(|info| info.shape.as_slice()) {
        Some(&[rows, dimension]) if rows > 0 && dimension > 0 => Ok(dimension),
        _ => Err("its weights contain no matrix of token vectors (a tensor \"embeddings\" or \"embedding.weight\" of two axes)".into()),
    }
}

/// The tensor with the token vectors of a static model: the one with a usual name, or else the only one with
/// two axes.
pub fn matrix_name(metadata: &Metadata) -> Option<String> {
    if let Some(name) = MATRIX_NAMES.iter().find(|name| metadata.info(name).is_some()) {
        return Some(name.to_string());
    }
    let mut matrices = metadata.tensors().into_iter().filter(|(_, info)| info.shape.len() == 2);
    matrices.next().filter(|_| matrices.next().is_none()).map(|(name, _)| name)
}

pub fn open_weights(path: &Path) -> Result<File, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    File::open(path).map_err(|e| format!("cannot read {name}: {e}"))
}

/// Where the data of a safetensors file starts, and which tensors it has.
pub fn read_header(file: &mut File) -> Result<(u64, Metadata), String> {
    let bad = |e: &dyn std::fmt::Display| format!("its weights are not a safetensors file: {e}");
    let mut length = [0u8; 8];
    file.read_exact(&mut length).map_err(|e| bad(&e))?;
    let header = u64::from_le_bytes(length);
    if header > MAX_HEADER {
        return Err(bad(&format_args!("its header has {header} bytes")));
    }
    let mut buffer = Vec::new();
    file.take(header).read_to_end(&mut buffer).map_err(|e| bad(&e))?;
    let metadata: Metadata = serde_json::from_slice(&buffer).map_err(|e| bad(&e))?;
    let data = 8 + header;
    let end = metadata.tensors().values().map(|info| info.data_offsets.1 as u64).max().unwrap_or(0);
    let size = file.metadata().map_err(|e| bad(&e))?.len();
    let promised = data.saturating_add(end);
    if size < promised {
        // The download was interrupted.
        return Err(bad(&format_args!("it has {size} bytes, but its header requires {promised}")));
    }
    Ok((data, metadata))
}

#[cfg(test)]
#[path = "model_files_tests.rs"]
mod tests;
