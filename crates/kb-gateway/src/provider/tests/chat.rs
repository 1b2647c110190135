//! Tests of what each chat model is asked, and of the replies that are read.

use super::*;
use kb_types::{FinishReason, LlmConfig};

fn chat(provider: &str) -> &'static dyn ChatApi {
    find(ServiceKind::Llm, provider).and_then(|provider| provider.chat).unwrap()
}

fn llm(provider: &str, config: Value) -> Llm {
    let config = LlmConfig::parse(&config).unwrap();
    Llm { id: "l".into(), provider: provider.into(), model: "m".into(), base_url: None, config }
}

fn dialogue() -> Dialogue {
    let earlier = [(Speaker::User, "a"), (Speaker::Assistant, "b")];
    let earlier = earlier.map(|(speaker, text)| kb_types::Message { speaker, text: text.into() });
    Dialogue::new("s".into(), earlier.to_vec(), "c".into(), None)
}

fn read(provider: &str, body: Value) -> Result<Answer<ChatReply>, Unusable> {
    chat(provider).read(body.to_string().as_bytes())
}

#[test]
fn a_request_is_what_the_provider_documents() {
    let body = |provider: &str, config| chat(provider).body(&llm(provider, config), &dialogue());
    let messages = json!([
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}
    ]);
    let expected = json!({"model": "m", "max_tokens": 4096, "system": "s", "messages": messages});
    assert_eq!(body("anthropic", json!({})), expected);
    let expected =
        json!({"model": "m", "max_tokens": 9, "system": "s", "messages": messages, "temperature": 0.5});
    assert_eq!(body("anthropic", json!({"max_output_tokens": 9, "temperature": 0.5})), expected);
    let contents = json!([
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"text": "b"}]},
        {"role": "user", "parts": [{"text": "c"}]},
    ]);
    let mut expected = json!({"systemInstruction": {"parts": [{"text": "s"}]}, "contents": contents});
    assert_eq!(body("gemini", json!({})), expected);
    expected["generationConfig"] = json!({"maxOutputTokens": 9, "temperature": 0.5});
    assert_eq!(body("gemini", json!({"max_output_tokens": 9, "temperature": 0.5})), expected);
}

#[test]
fn a_path_has_the_version_once_and_the_model_whatever_it_holds() {
    for (base_url, path) in [
        ("https://api.anthropic.com", "/v1/messages"),
        ("https://api.anthropic.com/v1", "/messages"),
        ("http://proxy/anthropic/v1/", "/messages"),
    ] {
        assert_eq!(chat("anthropic").path(base_url, "m"), path, "{base_url}");
    }
    assert_eq!(chat("anthropic").headers(), [("anthropic-version", "2023-06-01".to_string())]);
    for (model, path) in [
        ("m", "/models/m:generateContent"),
        ("models/m", "/models/m:generateContent"),
        ("m?key=1#x", "/models/m%3Fkey=1%23x:generateContent"),
    ] {
        let got = chat("gemini").path("https://h/v1beta", model);
        assert_eq!(got.replace("%3D", "="), path);
    }
}

#[test]
fn anthropics_models_take_no_temperature_above_1() {
    let problems = |provider: &str, temperature| {
        chat(provider).problems(&LlmConfig::parse(&json!({ "temperature": temperature })).unwrap()).len()
    };
    assert_eq!(
        [problems("anthropic", 1.0), problems("anthropic", 1.001), problems("gemini", 2.0)],
        [0, 1, 0]
    );
}

#[test]
fn every_reply_has_its_text_its_tokens_and_why_it_ends() {
    let openai = |content: Value, refusal: Value, reason: Value| {
        json!({
            "choices": [{"message": {"content": content, "refusal": refusal}, "finish_reason": reason}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        })
    };
    let ollama = |reason: Value| json!({"message": {"content": "x"}, "done_reason": reason, "prompt_eval_count": 5, "eval_count": 2});
    let anthropic = |reason: Value| {
        let blocks = [json!({"type": "thinking", "thinking": "hm"}), json!({"type": "text", "text": "x"})];
        json!({
            "content": blocks, "stop_reason": reason,
            "usage": {"input_tokens": 2, "cache_creation_input_tokens": 1, "cache_read_input_tokens": 2,
                      "output_tokens": 2},
        })
    };
    let gemini = |reason: Value| {
        let parts = [json!({"text": "hm", "thought": true}), json!({"text": "x"}), json!({"inlineData": {}})];
        json!({
            "candidates": [{"content": {"parts": parts}, "finishReason": reason}],
            "usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 1, "thoughtsTokenCount": 1,
                              "totalTokenCount": 7},
        })
    };
    let x = || json!("x");
    let null = Value::Null;
    let mut cases = vec![
        ("openai", openai(null.clone(), x(), json!("stop")), FinishReason::ContentFilter),
        ("openai", openai(x(), null.clone(), json!("length")), FinishReason::Length),
        ("openai", openai(x(), null.clone(), json!("content_filter")), FinishReason::ContentFilter),
        ("openai", openai(x(), null.clone(), json!("tool_calls")), FinishReason::ToolCalls),
        ("openai", openai(x(), null.clone(), json!("stop")), FinishReason::Stop),
        ("openai", openai(x(), null.clone(), null.clone()), FinishReason::Stop),
    ];
    for (reason, finish) in [("stop", FinishReason::Stop), ("length", FinishReason::Length)] {
        cases.push(("ollama", ollama(json!(reason)), finish));
    }
    for (reason, finish) in [
        ("end_turn", FinishReason::Stop),
        ("stop_sequence", FinishReason::Stop),
        ("max_tokens", FinishReason::Length),
        ("model_context_window_exceeded", FinishReason::Length),
        ("refusal", FinishReason::ContentFilter),
        ("tool_use", FinishReason::ToolCalls),
        ("pause_turn", FinishReason::Other),
    ] {
        cases.push(("anthropic", anthropic(json!(reason)), finish));
    }
    for (reason, finish) in [
        ("STOP", FinishReason::Stop),
        ("MAX_TOKENS", FinishReason::Length),
        ("SAFETY", FinishReason::ContentFilter),
        ("RECITATION", FinishReason::ContentFilter),
        ("PROHIBITED_CONTENT", FinishReason::ContentFilter),
        ("MALFORMED_FUNCTION_CALL", FinishReason::Other),
    ] {
        cases.push(("gemini", gemini(json!(reason)), finish));
    }
    for (provider, body, finish) in cases {
        let value = ChatReply { text: "x".into(), finish, input_tokens: Some(5), output_tokens: Some(2) };
        assert_eq!(read(provider, body.clone()), Ok(Answer { value, tokens: Some(7) }), "{provider}: {body}");
    }
}

#[test]
fn a_refused_prompt_is_an_answer_and_a_reply_without_one_is_a_fault() {
    let blocked =
        json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 5}});
    let Answer { value, .. } = read("gemini", blocked).unwrap();
    assert_eq!((value.text.as_str(), value.finish), ("", FinishReason::ContentFilter));
    let refused = json!({"candidates": [{"finishReason": "SAFETY"}]});
    assert_eq!(read("gemini", refused).unwrap().value.finish, FinishReason::ContentFilter);
    for (provider, body) in [
        ("gemini", json!({})),
        ("gemini", json!({"candidates": [], "promptFeedback": {}})),
        ("gemini", json!({"candidates": [{"content": {"parts": [{"text": null}]}}]})),
        ("anthropic", json!({})),
        ("anthropic", json!({"content": "x"})),
        ("anthropic", json!({"content": [{"type": "text", "text": 1}]})),
        (
            "anthropic",
            json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        ),
    ] {
        let got = read(provider, body.clone());
        assert!(matches!(got, Err(Unusable::Unreadable(_))), "{provider}: {body}: {got:?}");
    }
}
