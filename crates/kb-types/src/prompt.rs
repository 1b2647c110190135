//! A request to a chat model.

use serde::{Deserialize, Serialize};

/// What a chat model is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Instructions, which never contain text of a user.
    pub system: String,
    pub user: String,
}
