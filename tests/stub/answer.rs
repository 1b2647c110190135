//! Writes vectors in the form of each dialect. This is done by hand, because a benchmark needs millions of
//! numbers a second.

use super::dialect::Dialect;
use super::fault::Fault;
use super::request::Parsed;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::collections::HashSet;
use std::io::Write;

/// Numbers have seven decimals: few enough for every f32 made of one to be written and read back exactly.
const SCALE: f64 = 1e7;

/// The text's vector: a unit vector (to about 1e-6) of numbers from -1 to 1, made of its BLAKE3 hash.
pub fn vector(text: &str, dimension: usize) -> Vec<f32> {
    let mut bytes = vec![0u8; dimension * 4];
    blake3::Hasher::new().update(text.as_bytes()).finalize_xof().fill(&mut bytes);
    let numbers: Vec<f64> =
        bytes.as_chunks::<4>().0.iter().map(|chunk| f64::from(i32::from_le_bytes(*chunk))).collect();
    let norm = numbers.iter().map(|x| x * x).sum::<f64>().sqrt();
    numbers.iter().map(|x| ((x / norm * SCALE).round() / SCALE) as f32).collect()
}

/// How well a text answers a question, from 0 to 1: the share of the question's words that it has, and a
/// little of its hash, so that no two texts have the same.
pub fn score(query: &str, text: &str) -> f32 {
    let (query, lower) = (query.to_lowercase(), text.to_lowercase());
    let words: Vec<&str> =
        query.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let has = |word: &&&str| lower.split(|c: char| !c.is_alphanumeric()).any(|other| other == **word);
    let share = words.iter().filter(has).count() as f64 / words.len().max(1) as f64;
    let hash =
        f64::from(u16::from_le_bytes(*blake3::hash(text.as_bytes()).as_bytes().first_chunk().unwrap()));
    (((share * 0.9 + hash / 65_536.0 * 0.09) * SCALE).round() / SCALE) as f32
}

/// The answer of a chat model if no other is set: the sentence of the documents that answers the question
/// best, with a citation; ratings if it is asked for such; a sentence with the first word of a part of a
/// document; an earlier summary with the first and the last turn after it; or otherwise "yes".
pub fn words(prompt: &str) -> String {
    if let Some(answer) = cited_sentence(prompt) {
        return answer;
    }
    let asked: serde_json::Value = serde_json::from_str(prompt).unwrap_or_default();
    let query = asked["question"].as_str().unwrap_or_default();
    let rating = |text: &serde_json::Value| score(query, text.as_str().unwrap_or_default()) * 10.0;
    if let Some(passages) = asked["passages"].as_array() {
        let scores: serde_json::Map<String, serde_json::Value> = passages
            .iter()
            .map(|passage| (passage["number"].to_string(), rating(&passage["text"]).into()))
            .collect();
        return serde_json::json!({"scores": scores}).to_string();
    }
    if let Some(part) = asked["part"].as_str() {
        let first = part.split_whitespace().next().unwrap_or_default();
        return format!("Situated{first} by number {}.", &blake3::hash(prompt.as_bytes()).to_hex()[..8]);
    }
    if let Some(turns) = asked["turns"].as_array() {
        let of = |turn: Option<&serde_json::Value>| {
            turn.and_then(|turn| turn["content"].as_str()).unwrap_or_default().to_string()
        };
        let earlier = asked["summary"].as_str().unwrap_or_default();
        return format!("{earlier}({}..{})", of(turns.first()), of(turns.last()));
    }
    match asked.get("passage") {
        Some(text) => format!("I say {}.", rating(text)),
        None => "yes".to_string(),
    }
}

/// The sentence of the documents in a prompt of kb.answer whose words are most like those of the question,
/// with the index of its document. None if there is no document.
fn cited_sentence(prompt: &str) -> Option<String> {
    let (documents, question) = prompt.rsplit_once("<question>\n")?;
    let sentences = documents.split("<document index=\"").skip(1).flat_map(|document| {
        let (head, rest) = document.split_once(">\n").unwrap_or_default();
        let index = head.split('"').next().unwrap_or_default();
        let text = rest.split("\n</document>").next().unwrap_or_default();
        // Not headings and fences.
        let lines = text.lines().filter(|line| !line.starts_with(['#', '`']));
        let sentences = lines.flat_map(|line| line.split(". ")).filter(|sentence| !sentence.ends_with(':'));
        sentences.map(move |sentence| (index, sentence.trim_end_matches('.')))
    });
    let asked = stems(question);
    let rating = |sentence: &str| {
        let said = stems(sentence);
        asked.intersection(&said).count() as f64 / (asked.len() + said.len()).max(1) as f64
    };
    let rated = sentences.map(|(index, sentence)| (rating(sentence), index, sentence));
    let (_, index, sentence) = rated.max_by(|(a, ..), (b, ..)| a.total_cmp(b))?;
    let sentence =
        sentence.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&");
    Some(format!("{sentence} [{index}]."))
}

/// The first letters of the longer words, by which words of one stem are taken for the same.
fn stems(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() >= 4);
    words.map(|word| word.to_lowercase().chars().take(5).collect()).collect()
}

/// The body of a chat model's answer.
pub fn write_words(dialect: Dialect, request: &Parsed, words: &str, fault: Option<&Fault>) -> Vec<u8> {
    let tokens = tokens(&request.texts);
    let words = (fault != Some(&Fault::Null)).then_some(words);
    let message = serde_json::json!({"role": "assistant", "content": words});
    let message = (fault != Some(&Fault::WrongCount)).then_some(message);
    let body = match dialect {
        Dialect::OllamaChat => serde_json::json!({
            "model": request.model, "message": message, "done": true, "done_reason": "stop",
            "prompt_eval_count": tokens, "eval_count": 1
        }),
        Dialect::AnthropicChat => {
            let mut reply = serde_json::json!({
                "id": "stub", "type": "message", "role": "assistant", "model": request.model,
                "stop_reason": "end_turn", "stop_sequence": null,
                "usage": {"input_tokens": tokens, "cache_read_input_tokens": 0, "output_tokens": 1},
            });
            if message.is_some() {
                let thought = serde_json::json!({"type": "thinking", "thinking": "Hm.", "signature": "stub"});
                reply["content"] = serde_json::json!([thought, {"type": "text", "text": words}]);
            }
            reply
        }
        Dialect::GeminiChat => {
            let parts = serde_json::json!([{"text": "Hm.", "thought": true}, {"text": words}]);
            let candidate = serde_json::json!({
                "content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0
            });
            serde_json::json!({
                "candidates": message.map(|_| candidate).into_iter().collect::<Vec<_>>(),
                "usageMetadata": {
                    "promptTokenCount": tokens, "candidatesTokenCount": 1, "totalTokenCount": tokens + 1
                },
                "modelVersion": request.model,
            })
        }
        _ => {
            let choice =
                |message| serde_json::json!({"index": 0, "message": message, "finish_reason": "stop"});
            serde_json::json!({
                "id": "stub", "object": "chat.completion", "model": request.model,
                "choices": message.map(choice).into_iter().collect::<Vec<_>>(),
                "usage": {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1},
            })
        }
    };
    body.to_string().into_bytes()
}

/// Scores, the best first, as `[{"index": 1, "relevance_score": 0.9}, …]`. One that was given a second number
/// has an index that no text has.
fn list_scores(out: &mut Vec<u8>, name: &str, scores: &[Vec<f32>], is_reversed: bool) {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|a, b| scores[*b][0].total_cmp(&scores[*a][0]));
    if is_reversed {
        order.reverse();
    }
    out.push(b'[');
    for (turn, place) in order.into_iter().enumerate() {
        let index = if scores[place].len() > 1 { place + 1000 } else { place };
        put(out, &format!(r#"{}{{"index":{index},"{name}":"#, if turn > 0 { "," } else { "" }));
        write_number(out, scores[place][0]);
        out.push(b'}');
    }
    out.push(b']');
}

/// Words between white space count as tokens.
pub fn tokens(texts: &[&str]) -> usize {
    texts.iter().map(|text| tokens_of(text)).sum()
}

fn tokens_of(text: &str) -> usize {
    text.split_whitespace().count()
}

/// The body of an answer.
pub fn write(dialect: Dialect, request: &Parsed, vectors: &[Vec<f32>], is_reversed: bool) -> Vec<u8> {
    let tokens = tokens(&request.texts);
    let size: usize = vectors.iter().map(|vector| vector.len() * 11 + 128).sum();
    let mut out = Vec::with_capacity(size + 256);
    match dialect {
        Dialect::OpenAi | Dialect::AzureOpenAi | Dialect::Voyage | Dialect::Jina | Dialect::Mistral => {
            put(&mut out, r#"{"object":"list","data":"#);
            list(&mut out, vectors, is_reversed, |out, i, vector| {
                put(out, r#"{"object":"embedding","index":"#);
                put(out, &i.to_string());
                put(out, r#","embedding":"#);
                if request.is_base64 {
                    write_base64(out, vector)
                } else {
                    write_numbers(out, vector)
                }
                put(out, "}");
            });
            put(&mut out, r#","model":"#);
            put(&mut out, &quoted(request.model));
            put(&mut out, r#","usage":{"#);
            match dialect {
                Dialect::Voyage => {}
                Dialect::Mistral => put(&mut out, r#""completion_tokens":0,"prompt_tokens":"#),
                _ => put(&mut out, r#""prompt_tokens":"#),
            }
            if dialect != Dialect::Voyage {
                put(&mut out, &format!("{tokens},"));
            }
            put(&mut out, &format!(r#""total_tokens":{tokens}}}}}"#));
        }
        Dialect::Ollama => {
            put(&mut out, r#"{"model":"#);
            put(&mut out, &quoted(request.model));
            put(&mut out, r#","embeddings":"#);
            list(&mut out, vectors, false, |out, _, vector| write_numbers(out, vector));
            put(&mut out, &format!(r#","total_duration":1,"prompt_eval_count":{tokens}}}"#));
        }
        Dialect::HuggingFace => list(&mut out, vectors, false, |out, _, vector| write_numbers(out, vector)),
        Dialect::Gemini => {
            put(&mut out, r#"{"embeddings":"#);
            list_keyed(&mut out, "values", vectors);
            put(&mut out, "}");
        }
        Dialect::Vertex => {
            put(&mut out, r#"{"predictions":"#);
            list(&mut out, vectors, false, |out, i, vector| {
                let tokens = request.texts.get(i).map_or(0, |text| tokens_of(text));
                put(out, r#"{"embeddings":{"statistics":{"truncated":false,"token_count":"#);
                put(out, &tokens.to_string());
                put(out, r#"},"values":"#);
                write_numbers(out, vector);
                put(out, "}}");
            });
            put(&mut out, "}");
        }
        Dialect::Cohere => {
            put(&mut out, r#"{"id":"stub","embeddings":{"float":"#);
            list(&mut out, vectors, false, |out, _, vector| write_numbers(out, vector));
            put(&mut out, r#"},"response_type":"embeddings_by_type","meta":{"api_version":{"version":"2"},"#);
            put(&mut out, &format!(r#""billed_units":{{"input_tokens":{tokens}}}}}}}"#));
        }
        Dialect::CohereRerank => {
            put(&mut out, r#"{"id":"stub","results":"#);
            list_scores(&mut out, "relevance_score", vectors, is_reversed);
            put(&mut out, r#","meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1}}}"#);
        }
        Dialect::JinaRerank => {
            put(&mut out, &format!(r#"{{"model":{},"results":"#, quoted(request.model)));
            list_scores(&mut out, "relevance_score", vectors, is_reversed);
            put(&mut out, &format!(r#","usage":{{"total_tokens":{tokens}}}}}"#));
        }
        Dialect::VoyageRerank => {
            put(&mut out, r#"{"object":"list","data":"#);
            list_scores(&mut out, "relevance_score", vectors, is_reversed);
            put(
                &mut out,
                &format!(r#","model":{},"usage":{{"total_tokens":{tokens}}}}}"#, quoted(request.model)),
            );
        }
        Dialect::TeiRerank => list_scores(&mut out, "score", vectors, is_reversed),
        Dialect::OpenAiChat | Dialect::OllamaChat | Dialect::AnthropicChat | Dialect::GeminiChat => {
            out = write_words(dialect, request, "yes", None);
        }
        Dialect::Http => {
            put(&mut out, r#"{"out":"#);
            list_keyed(&mut out, "v", vectors);
            put(&mut out, &format!(r#","n":{tokens}}}"#));
        }
    }
    out
}

fn put(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An array of what `item` writes for each vector and its place.
fn list(
    out: &mut Vec<u8>,
    vectors: &[Vec<f32>],
    is_reversed: bool,
    mut item: impl FnMut(&mut Vec<u8>, usize, &[f32]),
) {
    out.push(b'[');
    for turn in 0..vectors.len() {
        if turn > 0 {
            out.push(b',');
        }
        let place = if is_reversed { vectors.len() - 1 - turn } else { turn };
        item(out, place, &vectors[place]);
    }
    out.push(b']');
}

/// An array of objects that have a vector under this key.
fn list_keyed(out: &mut Vec<u8>, key: &str, vectors: &[Vec<f32>]) {
    list(out, vectors, false, |out, _, vector| {
        put(out, &format!(r#"{{"{key}":"#));
        write_numbers(out, vector);
        put(out, "}");
    });
}

fn write_numbers(out: &mut Vec<u8>, vector: &[f32]) {
    out.push(b'[');
    for (i, number) in vector.iter().enumerate() {
        if i > 0 {
            out.push(b',');
        }
        write_number(out, *number);
    }
    out.push(b']');
}

/// A number from -1 to 1; an infinite one is written as null.
fn write_number(out: &mut Vec<u8>, number: f32) {
    if !number.is_finite() {
        return put(out, if number.is_nan() { "NaN" } else { "null" });
    }
    let scaled = (f64::from(number.abs()) * SCALE + 0.5) as u32;
    if number < 0.0 && scaled > 0 {
        out.push(b'-');
    }
    let mut rest = scaled % SCALE as u32;
    let mut digits = [b'0'; 9];
    digits[0] += (scaled / SCALE as u32) as u8;
    digits[1] = b'.';
    for digit in digits[2..].iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits);
}

fn write_base64(out: &mut Vec<u8>, vector: &[f32]) {
    if vector.contains(&f32::INFINITY) {
        return put(out, "null");
    }
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    put(out, "\"");
    put(out, &STANDARD.encode(bytes));
    put(out, "\"");
}

/// `bytes`, gzipped.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
