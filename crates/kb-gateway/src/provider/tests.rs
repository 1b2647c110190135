//! Tests of the requests of each provider.

mod answers;
mod chat;
mod extract;

use super::*;
use kb_types::EmbedderConfig;
use kb_types::json_reader::Fields;
use kb_types::remote_settings::{EncodingFormat, Remote};
use serde_json::{Value, json};

fn of(name: &str) -> &'static dyn EmbedApi {
    find(ServiceKind::Embedder, name).unwrap().embed.unwrap()
}

fn embedders() -> Vec<&'static str> {
    names(ServiceKind::Embedder)
}

fn embedder(provider: &str, base_url: Option<&str>, remote: Remote) -> Embedder {
    Embedder {
        id: "e".into(),
        provider: provider.into(),
        model: "m".into(),
        dimension: 4,
        base_url: base_url.map(String::from),
        config: EmbedderConfig { remote, ..EmbedderConfig::default() },
    }
}

fn plain(provider: &str) -> Embedder {
    embedder(provider, None, Remote::default())
}

fn request_of(embedder: &Embedder, kind: Kind) -> HttpRequest {
    of(&embedder.provider).request(embedder, kind, &["a".to_string(), "b".to_string()])
}

fn json_of(request: HttpRequest) -> Value {
    match request.body {
        Body::Json(value) => value,
        Body::Bytes { .. } => panic!("the body is not JSON"),
    }
}

#[test]
fn a_provider_is_found_by_its_name_for_what_it_offers_only() {
    for kind in [ServiceKind::Embedder, ServiceKind::Reranker, ServiceKind::Llm, ServiceKind::Extractor] {
        for provider in PROVIDERS {
            let found = find(kind, provider.name).map(|found| found.name);
            assert_eq!(found, provider.offers(kind).then_some(provider.name), "{kind}: {}", provider.name);
        }
        for name in ["", "OpenAI", "hash", "local", "llm", "openai "] {
            assert!(find(kind, name).is_none(), "{kind}: {name}");
        }
    }
    let distinct: std::collections::BTreeSet<&str> = PROVIDERS.iter().map(|provider| provider.name).collect();
    assert_eq!(distinct.len(), PROVIDERS.len());
}

#[test]
fn the_hint_for_an_unknown_provider_lists_those_of_its_kind() {
    let hint = |kind| unavailable(kind, "nope").hint().unwrap();
    assert_eq!(
        hint(ServiceKind::Llm),
        "Available are openai (and whatever speaks its protocol, by base_url), ollama, anthropic and gemini."
    );
    assert!(hint(ServiceKind::Reranker).starts_with("Available are local, llm, cohere, "));
}

#[test]
fn every_key_is_one_that_the_configuration_knows() {
    for name in embedders() {
        for key in of(name).facts().keys {
            let value = json!({ (*key): null });
            let mut fields = Fields::new("config", &value);
            Remote::parse(&mut fields);
            let problems = fields.finish();
            assert!(problems.is_empty(), "{name}: {problems:?}");
        }
    }
}

struct ExpectedRequest {
    provider: &'static str,
    base_url: Option<&'static str>,
    url: &'static str,
    /// The provider's names for a document and for a query.
    tasks: [&'static str; 2],
    body: fn(&str) -> Value,
}

const REQUESTS: [ExpectedRequest; 10] = [
    ExpectedRequest {
        provider: "openai",
        base_url: None,
        url: "https://api.openai.com/v1/embeddings",
        tasks: ["", ""],
        body: |_| json!({"model": "m", "input": ["a", "b"], "encoding_format": "base64", "dimensions": 4}),
    },
    ExpectedRequest {
        provider: "azure_openai",
        base_url: Some("https://r.openai.azure.com/openai/deployments/d/"),
        url: "https://r.openai.azure.com/openai/deployments/d/embeddings?api-version=2024-10-21",
        tasks: ["", ""],
        body: |_| json!({"input": ["a", "b"], "encoding_format": "float", "dimensions": 4}),
    },
    ExpectedRequest {
        provider: "ollama",
        base_url: None,
        url: "http://localhost:11434/api/embed",
        tasks: ["", ""],
        body: |_| json!({"model": "m", "input": ["a", "b"], "truncate": false, "dimensions": 4}),
    },
    ExpectedRequest {
        provider: "huggingface",
        base_url: Some("http://tei:8080"),
        url: "http://tei:8080/embed",
        tasks: ["", ""],
        body: |_| json!({"inputs": ["a", "b"], "normalize": true, "truncate": false, "dimensions": 4}),
    },
    ExpectedRequest {
        provider: "gemini",
        base_url: None,
        url: "https://generativelanguage.googleapis.com/v1beta/models/m:batchEmbedContents",
        tasks: ["RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"],
        body: |task| {
            json!({"requests": [
                {"model": "models/m", "content": {"parts": [{"text": "a"}]}, "taskType": task,
                 "outputDimensionality": 4},
                {"model": "models/m", "content": {"parts": [{"text": "b"}]}, "taskType": task,
                 "outputDimensionality": 4},
            ]})
        },
    },
    ExpectedRequest {
        provider: "vertex",
        base_url: Some(
            "https://r-aiplatform.googleapis.com/v1/projects/p/locations/r/publishers/google/models",
        ),
        url: "https://r-aiplatform.googleapis.com/v1/projects/p/locations/r/publishers/google/models/m:predict",
        tasks: ["RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"],
        body: |task| {
            json!({
                "instances": [{"content": "a", "task_type": task}, {"content": "b", "task_type": task}],
                "parameters": {"outputDimensionality": 4, "autoTruncate": false},
            })
        },
    },
    ExpectedRequest {
        provider: "cohere",
        base_url: None,
        url: "https://api.cohere.com/v2/embed",
        tasks: ["search_document", "search_query"],
        body: |task| {
            json!({"model": "m", "texts": ["a", "b"], "input_type": task, "embedding_types": ["float"],
                   "truncate": "NONE", "output_dimension": 4})
        },
    },
    ExpectedRequest {
        provider: "voyage",
        base_url: None,
        url: "https://api.voyageai.com/v1/embeddings",
        tasks: ["document", "query"],
        body: |task| {
            json!({"model": "m", "input": ["a", "b"], "input_type": task, "truncation": false,
                   "output_dimension": 4})
        },
    },
    ExpectedRequest {
        provider: "jina",
        base_url: None,
        url: "https://api.jina.ai/v1/embeddings",
        tasks: ["retrieval.passage", "retrieval.query"],
        body: |task| {
            json!({"model": "m", "input": ["a", "b"], "task": task, "late_chunking": false,
                   "truncate": false, "embedding_type": "float", "dimensions": 4})
        },
    },
    ExpectedRequest {
        provider: "mistral",
        base_url: None,
        url: "https://api.mistral.ai/v1/embeddings",
        tasks: ["", ""],
        body: |_| json!({"model": "m", "input": ["a", "b"], "output_dimension": 4}),
    },
];

#[test]
fn every_request_is_what_the_provider_documents() {
    for request in REQUESTS {
        let remote = Remote { dimensions: Some(4), ..Remote::default() };
        let embedder = embedder(request.provider, request.base_url, remote);
        for (kind, task) in [Kind::Document, Kind::Query].into_iter().zip(request.tasks) {
            let expected = HttpRequest::post(request.url.into(), (request.body)(task));
            assert_eq!(request_of(&embedder, kind), expected, "{}", request.provider);
        }
    }
}

#[test]
fn settings_that_were_not_given_are_not_sent() {
    for request in REQUESTS {
        let embedder = embedder(request.provider, request.base_url, Remote::default());
        let body = json_of(request_of(&embedder, Kind::Document)).to_string();
        assert!(!body.contains("imension"), "{body}");
        assert!(!body.contains("null"), "{body}");
    }
}

#[test]
fn task_names_of_the_config_replace_the_defaults() {
    for request in REQUESTS.into_iter().filter(|request| !request.tasks[0].is_empty()) {
        let remote = Remote {
            dimensions: Some(4),
            document_task: Some("passage".into()),
            query_task: Some("question".into()),
            ..Remote::default()
        };
        let embedder = embedder(request.provider, request.base_url, remote);
        assert_eq!(
            json_of(request_of(&embedder, Kind::Document)),
            (request.body)("passage"),
            "{}",
            request.provider
        );
        assert_eq!(
            json_of(request_of(&embedder, Kind::Query)),
            (request.body)("question"),
            "{}",
            request.provider
        );
    }
}

#[test]
fn openais_base_url_is_taken_with_and_without_v1() {
    for (base_url, path, url) in [
        ("http://h:1", None, "http://h:1/v1/embeddings"),
        ("http://h:1/", None, "http://h:1/v1/embeddings"),
        ("http://h:1/v1", None, "http://h:1/v1/embeddings"),
        ("http://h:1/v1/", None, "http://h:1/v1/embeddings"),
        ("http://h:1/proxy/openai", None, "http://h:1/proxy/openai/embeddings"),
        ("http://h:1", Some("/vectors"), "http://h:1/vectors"),
    ] {
        let remote = Remote { path: path.map(String::from), ..Remote::default() };
        assert_eq!(request_of(&embedder("openai", Some(base_url), remote), Kind::Query).url, url);
    }
}

#[test]
fn base64_is_the_default_only_for_openai_itself() {
    for (base_url, given, sent) in [
        (None, None, "base64"),
        (None, Some(EncodingFormat::Float), "float"),
        (Some("https://api.openai.com/v1"), None, "base64"),
        (Some("http://localhost:8000/v1"), None, "float"),
        (Some("http://localhost:8000/v1"), Some(EncodingFormat::Base64), "base64"),
    ] {
        let remote = Remote { encoding_format: given, ..Remote::default() };
        assert_eq!(
            json_of(request_of(&embedder("openai", base_url, remote), Kind::Query))["encoding_format"],
            sent
        );
    }
}

#[test]
fn azures_api_version_is_the_configured_one() {
    let remote = Remote { api_version: Some("2025-01-01-preview".into()), ..Remote::default() };
    let url =
        request_of(&embedder("azure_openai", Some("http://a/openai/deployments/d"), remote), Kind::Query).url;
    assert_eq!(url, "http://a/openai/deployments/d/embeddings?api-version=2025-01-01-preview");
}

#[test]
fn huggingface_without_a_server_is_the_hosted_api() {
    let mut embedder = plain("huggingface");
    embedder.model = "BAAI/bge-m3".into();
    let expected = HttpRequest::post(
        "https://router.huggingface.co/hf-inference/models/BAAI/bge-m3/pipeline/feature-extraction".into(),
        json!({"inputs": ["a", "b"], "normalize": true, "truncate": false}),
    );
    assert_eq!(request_of(&embedder, Kind::Query), expected);
    assert!(of("huggingface").problems(&embedder).is_empty());
    embedder.config.remote.dimensions = Some(4);
    assert_eq!(of("huggingface").problems(&embedder).len(), 1);
}

#[test]
fn huggingfaces_prompt_has_the_configs_name() {
    let remote = Remote { query_task: Some("query".into()), ..Remote::default() };
    let embedder = embedder("huggingface", Some("http://tei"), remote);
    assert_eq!(json_of(request_of(&embedder, Kind::Query))["prompt_name"], "query");
    assert_eq!(json_of(request_of(&embedder, Kind::Document)).get("prompt_name"), None);
}

#[test]
fn a_model_of_gemini_is_taken_with_and_without_its_prefix() {
    let mut prefixed = plain("gemini");
    prefixed.model = "models/m".into();
    assert_eq!(request_of(&prefixed, Kind::Query), request_of(&plain("gemini"), Kind::Query));
}

#[test]
fn truncate_is_the_users_choice() {
    for (provider, pointer, value) in [
        ("ollama", "/truncate", json!(true)),
        ("huggingface", "/truncate", json!(true)),
        ("vertex", "/parameters/autoTruncate", json!(true)),
        ("cohere", "/truncate", json!("END")),
        ("voyage", "/truncation", json!(true)),
        ("jina", "/truncate", json!(true)),
    ] {
        let mut embedder = plain(provider);
        embedder.config.truncate = true;
        assert_eq!(
            json_of(request_of(&embedder, Kind::Document)).pointer(pointer),
            Some(&value),
            "{provider}"
        );
    }
}

#[test]
fn gemini_models_of_vertex_take_one_text_a_request() {
    let mut embedder = plain("vertex");
    embedder.model = "text-embedding-005".into();
    assert_eq!(of("vertex").max_batch(&embedder), 250);
    embedder.model = "gemini-embedding-001".into();
    assert_eq!(of("vertex").max_batch(&embedder), 1);
}

#[test]
fn a_text_goes_through_the_template_unchanged() {
    let text = "{{model}} \"quoted\" \n {{texts}} {{task}}".to_string();
    let template = json!({
        "docs": ["{{texts}}"], "one": "{{text}}", "name": "{{model}}", "label": "{{model}} for {{task}}",
        "size": "{{dimension}}", "kind": "{{task}}", "as it is": [true, 1, null, "{{other}}"],
    });
    let remote = Remote {
        method: Some("PUT".into()),
        path: Some("/x".into()),
        body: Some(template.to_string()),
        ..Remote::default()
    };
    let embedder = embedder("http", Some("http://h/"), remote);
    assert!(of("http").problems(&embedder).is_empty());
    let expected = HttpRequest {
        method: "PUT".into(),
        ..HttpRequest::post(
            "http://h/x".into(),
            json!({
                "docs": [[text]], "one": text, "name": "m", "label": "m for query",
                "size": 4, "kind": "query", "as it is": [true, 1, null, "{{other}}"],
            }),
        )
    };
    assert_eq!(of("http").request(&embedder, Kind::Query, std::slice::from_ref(&text)), expected);
}

#[test]
fn a_template_for_one_text_takes_one_text_a_request() {
    for (body, most) in [(json!({"a": ["{{text}}"]}), 1), (json!({"a": "{{texts}}"}), 4096)] {
        let remote = Remote { body: Some(body.to_string()), ..Remote::default() };
        assert_eq!(of("http").max_batch(&embedder("http", None, remote)), most);
    }
}

#[test]
fn every_problem_of_a_template_is_reported() {
    let problems = |body: Option<Value>, method: &str| {
        let body = body.map(|body| body.to_string());
        let remote = Remote { body, method: Some(method.into()), ..Remote::default() };
        of("http").problems(&embedder("http", Some("http://h"), remote))
    };
    assert_eq!(problems(Some(json!({"a": "{{texts}}"})), "PATCH"), Vec::<String>::new());
    assert_eq!(problems(None, "POST").len(), 1);
    assert_eq!(problems(Some(json!({"a": "{{model}}"})), "GET").len(), 2);
    let inside = problems(Some(json!({"a": "{{texts}}", "b": ["size {{dimension}}"]})), "POST");
    assert_eq!(inside.len(), 1);
    assert!(inside[0].starts_with("config.body: "), "{inside:?}");
}

#[test]
fn a_provider_has_an_address_or_says_what_is_to_be_given() {
    for provider in PROVIDERS {
        match provider.address {
            Address::Default(url) => assert!(url.starts_with("http"), "{}", provider.name),
            Address::Given(what) => assert!(!what.is_empty(), "{}", provider.name),
        }
    }
}

#[test]
fn a_models_name_is_a_part_of_the_path_whatever_it_holds() {
    let base = "https://provider.example/v1/models";
    for provider in ["gemini", "vertex", "huggingface"] {
        let base_url = if provider == "huggingface" { None } else { Some(base) };
        let mut embedder = embedder(provider, base_url, Remote::default());
        for model in ["m?key=1", "m#x", "org/m:x", "a b\\c", "%2e%2e/m"] {
            embedder.model = model.into();
            let url = url::Url::parse(&request_of(&embedder, Kind::Query).url).unwrap();
            let is_whole = url.path().contains("models") && !url.path().ends_with('m');
            assert!(
                is_whole && url.query().is_none() && url.fragment().is_none(),
                "{provider} {model}: {url}"
            );
            assert!(base_url.is_none_or(|base| url.as_str().starts_with(base)), "{provider} {model}: {url}");
        }
    }
}
