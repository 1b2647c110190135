//! The usage of endpoints.

use serde::{Deserialize, Serialize};

/// The cost of a request. It is zero for local models.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The number of HTTP requests, retries included.
    pub requests: u64,
    /// How many of these repeated a request after a fault or throttling.
    pub retries: u64,
    /// The number of texts with a result.
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
