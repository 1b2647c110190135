//! Tokenisers.
pub fn is_tiktoken(name: &str) -> bool {
    name.starts_with("text-embedding")
}
