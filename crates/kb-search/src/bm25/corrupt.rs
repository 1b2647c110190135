//! The error for stored bytes that no version of this module has written.

use kb_types::error::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the keyword index is corrupt: {0}")]
pub struct Corrupt(pub &'static str);

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Error {
        Error::Internal(corrupt.to_string())
    }
}
