//! Any other server that accepts and returns JSON. The config has a template for the body of the request, and
//! JSON pointers (RFC 6901) into the reply.

use super::http_extract::HttpExtract;
use super::read::{self, Vector};
use super::{Address, EmbedAnswer, EmbedApi, EmbedFacts, HttpRequest, Provider, Unusable, task, url};
use kb_types::{Embedder, Kind};
use serde::Deserialize;
use serde_json::{Value, json};

const METHODS: [&str; 3] = ["POST", "PUT", "PATCH"];
/// Placeholders that are replaced by a whole value, not by a part of a string.
const WHOLE: [&str; 3] = ["{{texts}}", "{{text}}", "{{dimension}}"];

pub const PROVIDER: Provider = Provider {
    name: "http",
    address: Address::Given("the URL to send texts or files to"),
    needs_secret: false,
    is_free_form: true,
    embed: Some(&Http),
    extract: Some(&HttpExtract),
    ..Provider::DEFAULT
};

struct Http;

impl EmbedApi for Http {
    fn facts(&self) -> EmbedFacts {
        EmbedFacts {
            model: Some(""),
            dimension: None,
            max_batch: 4096,
            keys: &[
                "method",
                "body",
                "items_pointer",
                "vector_pointer",
                "tokens_pointer",
                "document_task",
                "query_task",
            ],
        }
    }

    /// 1 if the template has a placeholder for one text. Otherwise batch_size is the only limit.
    fn max_batch(&self, embedder: &Embedder) -> usize {
        if any_string(&template(embedder), &|string: &str| string == "{{text}}") { 1 } else { 4096 }
    }

    fn problems(&self, embedder: &Embedder) -> Vec<String> {
        let mut problems = Vec::from_iter(method_problem(embedder.config.remote.method.as_deref()));
        let template = template(embedder);
        if !any_string(&template, &|string: &str| string == "{{texts}}" || string == "{{text}}") {
            problems.push(
                "config.body: must be given, with the string \"{{texts}}\" where the array of texts \
                 goes, or \"{{text}}\" where a single text goes"
                    .to_string(),
            );
        }
        let is_part = |string: &str| WHOLE.into_iter().any(|word| string.contains(word) && string != word);
        if any_string(&template, &is_part) {
            problems.push(format!("config.body: {} must each be a whole string", WHOLE.join(", ")));
        }
        problems
    }

    fn request(&self, embedder: &Embedder, kind: Kind, texts: &[String]) -> HttpRequest {
        let body = fill(template(embedder), embedder, kind, texts);
        let method = embedder.config.remote.method.clone().unwrap_or_else(|| "POST".into());
        HttpRequest { method, ..HttpRequest::post(url(embedder, "", ""), body) }
    }

    fn read(&self, embedder: &Embedder, body: &[u8], count: usize) -> Result<EmbedAnswer, Unusable> {
        let remote = &embedder.config.remote;
        let answer: Value = read::parse(body)?;
        let items_pointer = remote.items_pointer.as_deref().unwrap_or("/data");
        let vector_pointer = remote.vector_pointer.as_deref().unwrap_or("/embedding");
        let found = answer
            .pointer(items_pointer)
            .ok_or_else(|| format!("the answer has no value at items_pointer \"{items_pointer}\""))?;
        // A server that takes one text may return the item, or its numbers, without an array around it.
        let items = match found {
            Value::Array(items) if !items.first().is_some_and(Value::is_number) => items.as_slice(),
            item => std::slice::from_ref(item),
        };
        let vectors = items.iter().map(|item| vector(item, vector_pointer)).collect();
        let pointer = remote.tokens_pointer.as_deref();
        let tokens = pointer.and_then(|pointer| read::count(answer.pointer(pointer)?));
        read::answer(vectors, tokens, count)
    }
}

/// What is wrong with the method of the config, if it names one.
pub fn method_problem(method: Option<&str>) -> Option<String> {
    let method = method.filter(|method| !METHODS.contains(method))?;
    Some(format!("config.method: \"{method}\" is not one of {}", METHODS.join(", ")))
}

/// The template of the body, or null if there is none.
fn template(embedder: &Embedder) -> Value {
    let body = embedder.config.remote.body.as_deref();
    body.and_then(|body| serde_json::from_str(body).ok()).unwrap_or_default()
}

fn any_string(value: &Value, test: &dyn Fn(&str) -> bool) -> bool {
    match value {
        Value::String(string) => test(string),
        Value::Array(items) => items.iter().any(|item| any_string(item, test)),
        Value::Object(map) => map.values().any(|item| any_string(item, test)),
        _ => false,
    }
}

/// Replaces the placeholders of a template in one pass, so that a text that contains "{{model}}" is not
/// changed.
fn fill(template: Value, embedder: &Embedder, kind: Kind, texts: &[String]) -> Value {
    match template {
        Value::String(string) => match string.as_str() {
            "{{texts}}" => json!(texts),
            // There is only one text, see max_batch.
            "{{text}}" => json!(texts.first()),
            "{{dimension}}" => json!(embedder.dimension),
            other => {
                let task = task(embedder, kind, "document", "query");
                json!(other.replace("{{task}}", task).replace("{{model}}", &embedder.model))
            }
        },
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| fill(item, embedder, kind, texts)).collect())
        }
        Value::Object(map) => Value::Object(
            map.into_iter().map(|(key, item)| (key, fill(item, embedder, kind, texts))).collect(),
        ),
        other => other,
    }
}

fn vector(item: &Value, pointer: &str) -> Vector {
    let missing = || {
        let problem = format!("an item of the answer has no value at vector_pointer \"{pointer}\"");
        Vector(Err(Unusable::Unreadable(problem)))
    };
    // Every value can be deserialised in the place of a vector.
    item.pointer(pointer).map_or_else(missing, |found| Vector::deserialize(found).unwrap_or_default())
}
