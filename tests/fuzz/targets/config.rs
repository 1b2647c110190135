//! Configurations: refused with every problem named, or kept as they are.

use super::Target;
use crate::memory::{Limits, measure};
use kb_gateway::endpoint::secret_reference::Reference;
use kb_types::embedder::EmbedderConfig;
use kb_types::preprocess::Preprocess;
use kb_types::retrieval::Retrieval;
use kb_types::vector_db::VectorDbConfig;
use serde_json::Value;

pub const TARGET: Target = Target {
    name: "config",
    run,
    seeds: Vec::new,
    words: r##"
        "normalize": "pooling": "mean" "query_prefix": "truncate": "batch_size": "max_input_tokens":
        "max_batch_tokens": "dimensions": "timeout_ms": "retry": {"max_attempts":1,"base_ms":1,"max_ms":1}
        "rpm": "tpm": "daily_token_budget": "price_per_million_tokens": "max_concurrency": "path": "/v1"
        "headers": {"User-Agent":"b"} {"Authorization":"SECRETVALUE"} "encoding_format": "base64" "body":
        {"a":"{{texts}}"} "items_pointer": "/data" "" "dedupe": "remove_html": "main_content": "jsonl": "documents" "language": "top_k":
        "min_score": "max_tokens": "ef_search": "on_error": "keyword" "table": "m": "ef_construction":
        "min_rows": "element": "halfvec" null true false { } [ ] , : \u0000 env:A kb: file:..
    "##,
};

const LIMITS: Limits = Limits { bytes: (1 << 16, 60), allocations: (500, 4) };

fn run(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data)
        && let Err(problem) = Reference::parse(text)
        && text.len() > 12
    {
        assert!(!problem.contains(text), "a key was repeated");
    }
    let (value, cost) = measure(|| serde_json::from_slice::<Value>(data));
    cost.within(&LIMITS, data.len());
    let Ok(value) = value else { return };
    kept(&value, "preprocess", Preprocess::parse, Preprocess::to_json);
    kept(&value, "retrieval", Retrieval::parse, Retrieval::to_json);
    named("config", VectorDbConfig::parse(&value));
    let (config, cost) = measure(|| EmbedderConfig::parse(&value));
    cost.within(&LIMITS, data.len());
    let Some(config) = named("config", config) else { return };
    for (name, text) in &config.remote.headers {
        assert!(!name.eq_ignore_ascii_case("authorization"), "a header with a key was taken");
        assert!(text.bytes().all(|b| b == b'\t' || (b' '..=b'~').contains(&b)), "{text:?}");
    }
    let sent = rmp_serde::to_vec(&config).unwrap();
    assert_eq!(rmp_serde::from_slice::<EmbedderConfig>(&sent).unwrap(), config, "not what is sent");
}

/// Returns the setting if the value is one; otherwise every problem must begin with its name.
fn named<T>(name: &str, parsed: Result<T, Vec<String>>) -> Option<T> {
    if let Err(problems) = &parsed {
        assert!(
            !problems.is_empty() && problems.iter().all(|problem| problem.starts_with(name)),
            "{problems:?}"
        );
        assert!(problems.iter().all(|problem| !problem.contains("SECRETVALUE")), "{problems:?}");
    }
    parsed.ok()
}

/// A setting that is accepted prints as one that reads as the same setting.
fn kept<T: PartialEq + std::fmt::Debug>(
    value: &Value,
    name: &str,
    parse: fn(&Value) -> Result<T, Vec<String>>,
    print: fn(&T) -> Value,
) {
    if let Some(parsed) = named(name, parse(value)) {
        let printed = print(&parsed);
        assert_eq!(parse(&printed).as_ref(), Ok(&parsed), "{printed}");
    }
}
