//! The error of stored bytes that no version of this module has written.

use thiserror::Error;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the keyword index is corrupt: {0}")]
pub struct Corrupt(pub &'static str);
