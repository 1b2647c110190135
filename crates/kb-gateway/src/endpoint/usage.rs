//! What calls of an endpoint cost.

use serde::{Deserialize, Serialize};

/// Local models cost nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// HTTP requests, retries included.
    pub requests: u64,
    /// Of these, those that repeated a request after a fault or a refusal for now.
    pub retries: u64,
    /// Texts with a result.
    pub texts: u64,
    pub tokens: u64,
}

impl Usage {
    pub fn add(&mut self, more: &Usage) {
        self.requests += more.requests;
        self.retries += more.retries;
        self.texts += more.texts;
        self.tokens += more.tokens;
    }
}
