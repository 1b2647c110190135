//! A question to a chat model.

use serde::{Deserialize, Serialize};

/// What a chat model is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Instructions, which no text of a user is part of.
    pub system: String,
    pub user: String,
}
