//! Reads tensors from a safetensors file, one at a time.
//!
//! The file is read and not mapped, because replacing or truncating a mapped file while the server runs would
//! kill the process by SIGBUS, and the pages would be copied into tensors anyway. Reading one tensor at a
//! time limits memory to the size of the model plus its largest tensor.

use half::{bf16, f16};
use kb_text::model_files::{open_weights, read_header};
use safetensors::tensor::{Dtype, Metadata};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

pub struct Weights {
    file: File,
    /// The offset of the tensors' data in the file.
    data: u64,
    pub metadata: Metadata,
    prefix: String,
    name: fn(&str) -> String,
}

/// A matrix, row by row, in the precision of its file if that saves memory.
pub enum Matrix {
    F16(Vec<f16>),
    F32(Vec<f32>),
}

impl Weights {
    pub fn open(path: &Path) -> Result<Weights, String> {
        let mut file = open_weights(path)?;
        let (data, metadata) = read_header(&mut file)?;
        Ok(Weights { file, data, metadata, prefix: String::new(), name: str::to_string })
    }

    /// Puts `prefix` before all names from now on (some files have "bert.").
    pub fn with_prefix(mut self, prefix: &str) -> Weights {
        self.prefix = prefix.to_string();
        self
    }

    /// Translates names by `name` from now on.
    pub fn named(mut self, name: fn(&str) -> String) -> Weights {
        self.name = name;
        self
    }

    fn full(&self, name: &str) -> String {
        format!("{}{}", self.prefix, (self.name)(name))
    }

    pub fn has(&self, name: &str) -> bool {
        self.metadata.info(&self.full(name)).is_some()
    }

    /// The numbers of a tensor as f32. Returns an error if it is missing or has another shape.
    pub fn numbers(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, String> {
        let (values, found) = self.f32s(name)?;
        if found != shape {
            return Err(format!("tensor \"{name}\" has shape {found:?}, config.json says {shape:?}"));
        }
        Ok(values)
    }

    pub fn matrix(&mut self, name: &str) -> Result<Matrix, String> {
        let (dtype, _, bytes) = self.bytes(name)?;
        match dtype {
            Dtype::F16 => {
                Ok(Matrix::F16(bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]])).collect()))
            }
            _ => Ok(Matrix::F32(self.f32s(name)?.0)),
        }
    }

    /// The numbers and the shape of a tensor.
    pub fn f32s(&mut self, name: &str) -> Result<(Vec<f32>, Vec<usize>), String> {
        let (dtype, shape, bytes) = self.bytes(name)?;
        let values = match dtype {
            Dtype::F32 => {
                bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
            Dtype::F64 => bytes
                .chunks_exact(8)
                .map(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f32)
                .collect(),
            Dtype::F16 => bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
            Dtype::BF16 => {
                bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
            }
            other => {
                return Err(format!("tensor \"{name}\" holds {other:?}; kb reads f16, bf16, f32 and f64"));
            }
        };
        Ok((values, shape))
    }

    /// A tensor of integers, such as model2vec's mapping from tokens to rows.
    pub fn indices(&mut self, name: &str) -> Result<Vec<usize>, String> {
        let (dtype, _, bytes) = self.bytes(name)?;
        match dtype {
            Dtype::I64 | Dtype::U64 => Ok(bytes
                .chunks_exact(8)
                .map(|b| u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as usize)
                .collect()),
            Dtype::I32 | Dtype::U32 => Ok(bytes
                .chunks_exact(4)
                .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
                .collect()),
            other => Err(format!("tensor \"{name}\" holds {other:?} instead of whole numbers")),
        }
    }

    fn bytes(&mut self, name: &str) -> Result<(Dtype, Vec<usize>, Vec<u8>), String> {
        let info = self
            .metadata
            .info(&self.full(name))
            .ok_or_else(|| format!("its weights lack the tensor \"{}\"", self.full(name)))?;
        let (start, end) = info.data_offsets;
        let (dtype, shape) = (info.dtype, info.shape.clone());
        let mut bytes = vec![0u8; end - start];
        self.file
            .seek(SeekFrom::Start(self.data + start as u64))
            .and_then(|_| self.file.read_exact(&mut bytes))
            .map_err(|e| format!("cannot read the tensor \"{name}\": {e}"))?;
        Ok((dtype, shape, bytes))
    }
}
