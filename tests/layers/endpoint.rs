//! What an endpoint of a provider is called for, it does not know.

use super::files;
use super::source::{imports, source};

/// Words that endpoints do not know, and folders of their crate that they do not import.
const NOT_OF_ENDPOINTS: &[&str] = &["embed", "vector", "dimension"];
const NOT_IMPORTED_BY_ENDPOINTS: &[&str] = &["chat", "embed", "provider", "rerank"];

#[test]
fn a_call_of_an_endpoint_knows_nothing_of_vectors() {
    let files = files::under("crates/kb-gateway/src/endpoint");
    assert!(files.len() > 10);
    for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
        let text = std::fs::read_to_string(file).unwrap().to_lowercase();
        let endpoint = source(file, &text);
        let imported =
            imports(&endpoint.tokens).find(|name| NOT_IMPORTED_BY_ENDPOINTS.contains(&name.as_str()));
        assert_eq!(imported, None, "{}", file.display());
        for token in endpoint.tokens.iter().filter(|token| !token.starts_with('"')) {
            let named = NOT_OF_ENDPOINTS.iter().find(|part| token.contains(*part));
            assert_eq!(named, None, "{} names {token}", file.display());
        }
    }
}
