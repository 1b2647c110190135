//! The answers of providers are refused, or contain a vector for each text; a vector that is made of one has
//! a number in each place.

use super::{Target, choices};
use crate::memory::{Limits, measure};
use kb_gateway::provider::{find, names};
use kb_inference::finish;
use kb_types::ServiceKind;
use kb_types::embedder::{Embedder, EmbedderConfig};
use kb_types::extractor::{Extractor, ExtractorConfig};
use serde_json::json;

pub const TARGET: Target = Target {
    name: "answers",
    run,
    seeds: Vec::new,
    words: r##"
        "results": {"index":0,"relevance_score":0.5} {"index":1,"score":1e400} "choices": "message":
        "content": "data": "index": "embedding": "embeddings": "float": "values": "usage": "total_tokens":
        "prompt_tokens": "prompt_eval_count": "predictions": "statistics": "token_count": "truncated":
        "meta": "billed_units": "input_tokens": [0.5,-1.5] "AADAPw==" "AADAfw==" [1e39,1] [1e400] [0,0]
        "document": "md_content": "status": "success" "errors": "type": "Title" "text": "metadata": "page_number":
        <html> <div class="page"> "<!-- page of kb -->"
        null true { } [ ] , : {"embedding":[1,2]}
    "##,
};

const LIMITS: Limits = Limits { bytes: (1 << 16, 100), allocations: (200, 4) };

/// Answers of rerankers are refused, or contain a number for each text. Answers of chat models are refused,
/// or contain words.
fn read_scores_and_words(data: &[u8], count: usize) {
    for provider in names(ServiceKind::Reranker) {
        let (read, cost) =
            measure(|| find(ServiceKind::Reranker, provider).unwrap().rerank.unwrap().read(data, count));
        cost.within(&LIMITS, data.len());
        if let Ok(answer) = read {
            assert_eq!(answer.value.len(), count, "{provider}");
        }
    }
    for provider in names(ServiceKind::Llm) {
        let (_, cost) = measure(|| find(ServiceKind::Llm, provider).unwrap().chat.unwrap().read(data));
        cost.within(&LIMITS, data.len());
    }
}

/// Answers of extraction services are refused, or contain a text that is not much larger than they are.
fn read_text_of_files(data: &[u8]) {
    for provider in names(ServiceKind::Extractor) {
        let config = json!({"pages_pointer": "/data", "text_pointer": "/text"});
        let extractor = Extractor {
            id: "e".into(),
            provider: provider.into(),
            model: String::new(),
            base_url: None,
            config: ExtractorConfig::parse(&config).unwrap(),
        };
        let api = find(ServiceKind::Extractor, provider).unwrap().extract.unwrap();
        let (read, cost) = measure(|| api.read(&extractor, data));
        cost.within(&LIMITS, data.len());
        match read {
            Ok(text) => assert!(text.size() <= 16 * data.len(), "{provider}"),
            Err(problem) => assert!(problem.to_string().len() <= 1400, "{provider}: {problem:?}"),
        }
    }
}

fn run(data: &[u8]) {
    let mut random = choices(data);
    let count = 1 + random.usize(..3);
    read_scores_and_words(data, count);
    read_text_of_files(data);
    for provider in names(ServiceKind::Embedder) {
        let embedder = embedder(provider, random.usize(..2) == 0);
        let api = find(ServiceKind::Embedder, provider).unwrap().embed.unwrap();
        let (read, cost) = measure(|| api.read(&embedder, data, count));
        cost.within(&LIMITS, data.len());
        let answer = match read {
            Ok(answer) => answer,
            Err(problem) => {
                let problem = problem.to_string();
                assert!(!problem.is_empty() && problem.len() <= 400, "{provider}: {problem:?}");
                continue;
            }
        };
        assert_eq!(answer.value.len(), count, "{provider}");
        for item in answer.value {
            let vector = match item {
                Ok(vector) => vector,
                Err(problem) => {
                    assert!(problem.to_string().len() <= 400, "{provider}: {problem:?}");
                    continue;
                }
            };
            let size = vector.len();
            let Ok(finished) = finish(&embedder, vector) else { continue };
            assert_eq!(finished.len(), size, "{provider}");
            assert!(finished.iter().all(|number| number.is_finite()), "{provider}: {finished:?}");
            let norm = finished.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
            assert!(norm > 0.0, "{provider}: nothing but zeros");
            assert!(!embedder.config.normalize || (norm - 1.0).abs() < 1e-3, "{provider}: {norm}");
        }
    }
}

fn embedder(provider: &str, normalize: bool) -> Embedder {
    let mut config = json!({"normalize": normalize});
    if provider == "http" {
        config = json!({"normalize": normalize, "body": {"input": "{{texts}}"}, "items_pointer": "/data",
                        "vector_pointer": "/embedding", "tokens_pointer": "/usage/total_tokens"});
    }
    Embedder {
        id: "e".into(),
        provider: provider.into(),
        model: "m".into(),
        dimension: 2,
        base_url: Some("http://localhost:1".into()),
        config: EmbedderConfig::parse(&config).unwrap(),
    }
}
