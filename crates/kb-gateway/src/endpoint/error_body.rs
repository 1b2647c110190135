//! Reads errors in the body of a reply: the message, and the HTTP status that would mean the same.
//!
//! Servers put an error in many places: `{"error": {"message": …}}` (OpenAI, LiteLLM, OpenRouter, Google),
//! `{"error": "…"}` (Ollama, Text Embeddings Inference), `{"statusCode": 429, "message": …}` (Azure API
//! Management), `{"message": …}` (Cohere, Mistral), `{"detail": …}` (Voyage, FastAPI),
//! `{"errors": [{"message": …}]}` (Cloudflare), `{"choices": [{"error": …}]}` (OpenRouter).

use serde_json::Value;

/// The most characters of an endpoint's own message that are passed on.
const MESSAGE: usize = 300;

/// The places of an error, of which the first that is set counts.
const PLACES: [&str; 8] =
    ["/error", "/errors/0", "/0/error", "/choices/0/error", "/detail/0", "/detail", "/errors", ""];
/// The fields of an error that may contain its message.
const WORDS: [&str; 5] = ["message", "msg", "error", "detail", "error_description"];
/// The fields of an error that may contain its kind, as a status or a name.
const KINDS: [&str; 7] = ["code", "status", "statusCode", "status_code", "http_status", "type", "error_type"];

/// Names of kinds, and words in messages, by the equivalent status. The first match counts.
const NAMES: [(u16, &[&str]); 4] = [
    (
        429,
        &[
            "rate limit",
            "ratelimit",
            "too many requests",
            "quota",
            "resource exhausted",
            "throttl",
            "overloaded",
            "budget",
            "insufficient credit",
            "tokens per m",
            "requests per m",
        ],
    ),
    (
        413,
        &[
            "too long",
            "context length",
            "maximum context",
            "too large",
            "too many tokens",
            "string above max",
        ],
    ),
    (
        401,
        &[
            "unauthorized",
            "unauthorised",
            "unauthenticated",
            "authentication",
            "api key",
            "apikey",
            "permission",
            "forbidden",
            "access denied",
            "credential",
            "not found",
            "does not exist",
            "billing",
            "payment",
        ],
    ),
    (
        400,
        &[
            "invalid request",
            "invalid argument",
            "bad request",
            "validation",
            "unprocessable",
            "invalid input",
            "invalid value",
            "unsupported",
        ],
    ),
];

/// The message of an error, printable and short.
pub fn message(body: &[u8]) -> Option<String> {
    let parsed: Option<Value> = serde_json::from_slice(body).ok();
    let text = match &parsed {
        Some(json) => words(find(json)?)?.to_string(),
        // A page of HTML does not help a database user.
        None if body.trim_ascii_start().starts_with(b"<") => return None,
        None => String::from_utf8_lossy(body).into_owned(),
    };
    Some(line(&text)).filter(|line| !line.is_empty())
}

/// The beginning of a text, printable and in one line.
pub fn line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if let Some((end, _)) = line.char_indices().nth(MESSAGE) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// The HTTP status that means the same as the error in the body. None if the body is not an error. An error
/// of unknown kind counts as a transient fault of the server.
pub fn status(body: &[u8]) -> Option<u16> {
    let json: Value = serde_json::from_slice(body).ok()?;
    let error = find(&json)?;
    let kinds = || [error, &json].into_iter().flat_map(|of| KINDS.iter().filter_map(|kind| of.get(*kind)));
    let number = |kind: &Value| kind.as_u64().or_else(|| kind.as_str()?.parse().ok());
    let code = kinds().filter_map(number).find(|code| (400..600).contains(code));
    let of_name = |name: &str| {
        let name = name.to_lowercase().replace(['_', '-'], " ");
        let is_in = |(_, names): &&(u16, &[&str])| names.iter().any(|known| name.contains(known));
        NAMES.iter().find(is_in).map(|(status, _)| *status)
    };
    let code = code.and_then(|code| u16::try_from(code).ok());
    let by_kind = || kinds().filter_map(Value::as_str).find_map(of_name);
    // The message comes last, because it may repeat a text.
    let by_words = || words(error).and_then(of_name);
    Some(code.or_else(by_kind).or_else(by_words).unwrap_or(500))
}

/// The error in a body.
fn find(json: &Value) -> Option<&Value> {
    PLACES.iter().filter_map(|place| json.pointer(place)).find(|error| words(error).is_some())
}

fn words(error: &Value) -> Option<&str> {
    let words = error.as_str().or_else(|| WORDS.iter().find_map(|field| error.get(*field)?.as_str()));
    words.filter(|words| !words.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_found_in_each_place_and_made_one_short_line() {
        let of = |body: &str| message(body.as_bytes());
        assert_eq!(of(r#"{"error": {"message": "bad\nkey"}}"#).as_deref(), Some("bad key"));
        assert_eq!(of(r#"{"error": "model not found"}"#).as_deref(), Some("model not found"));
        assert_eq!(of(r#"{"message": "too long"}"#).as_deref(), Some("too long"));
        assert_eq!(of(r#"{"detail": [{"loc": ["body"], "msg": "required"}]}"#).as_deref(), Some("required"));
        assert_eq!(of(r#"{"error": null, "detail": "no"}"#).as_deref(), Some("no"));
        assert_eq!(of("<html><body>502</body></html>"), None);
        assert_eq!(of("{}"), None);
        assert_eq!(of("upstream gone").as_deref(), Some("upstream gone"));
        assert!(of(&"x".repeat(5000)).unwrap().chars().count() <= MESSAGE + 1);
    }

    #[test]
    fn an_error_of_each_shape_means_what_its_own_status_would() {
        for (body, meant) in [
            // OpenAI and LiteLLM.
            (
                r#"{"error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}}"#,
                429,
            ),
            (r#"{"error": {"message": "slow down", "type": null, "param": null, "code": "429"}}"#, 429),
            (
                r#"{"error": {"message": "Incorrect API key provided", "type": "invalid_request_error", "code": "invalid_api_key"}}"#,
                401,
            ),
            (
                r#"{"error": {"message": "'input' is wrong", "type": "invalid_request_error", "code": null}}"#,
                400,
            ),
            // OpenRouter.
            (r#"{"error": {"code": 402, "message": "Insufficient credits"}}"#, 402),
            (r#"{"error": {"code": 502, "message": "Provider returned error"}, "user_id": "u"}"#, 502),
            (
                r#"{"choices": [{"error": {"code": 429, "message": "upstream"}, "finish_reason": "error"}]}"#,
                429,
            ),
            // Azure API Management, and Azure OpenAI.
            (r#"{"statusCode": 429, "message": "Try again in 4 seconds."}"#, 429),
            (r#"{"statusCode": 401, "message": "Access denied due to missing subscription key."}"#, 401),
            (
                r#"{"error": {"code": "DeploymentNotFound", "message": "The API deployment does not exist."}}"#,
                401,
            ),
            // Google.
            (r#"[{"error": {"code": 8, "message": "no", "status": "RESOURCE_EXHAUSTED"}}]"#, 429),
            (r#"{"error": {"message": "no", "status": "UNAUTHENTICATED"}}"#, 401),
            // Ollama and Text Embeddings Inference.
            (r#"{"error": "model \"m\" not found, try pulling it first"}"#, 401),
            (r#"{"error": "llama runner process has terminated"}"#, 500),
            (r#"{"error": "the input length exceeds the context length"}"#, 413),
            (r#"{"error": "Model is overloaded", "error_type": "overloaded"}"#, 429),
            (r#"{"error": "`inputs` must have less than 512 tokens", "error_type": "Validation"}"#, 400),
            // Others.
            (r#"{"message": "slow", "code": 429}"#, 429),
            (r#"{"detail": "Provided API key is invalid."}"#, 401),
            (r#"{"detail": [{"loc": ["body"], "msg": "Field required", "type": "validation_error"}]}"#, 400),
            (r#"{"success": false, "errors": [{"code": 10000, "message": "Authentication error"}]}"#, 401),
            (r#"{"error": {"message": "quota of the gateway is used up"}}"#, 429),
        ] {
            assert_eq!(status(body.as_bytes()), Some(meant), "{body}");
        }
        for body in ["{}", "[]", r#"{"data": []}"#, r#"{"error": null}"#, r#"{"error": {}}"#, "quota", ""] {
            assert_eq!(status(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn text_that_an_error_repeats_does_not_change_its_kind() {
        let body =
            r#"{"error": {"message": "bad input: the quota of fish", "type": "invalid_request_error"}}"#;
        assert_eq!(status(body.as_bytes()), Some(400));
    }
}
