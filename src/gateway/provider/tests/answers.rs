//! What each dialect accepts as an answer, and what it refuses.

use super::*;

fn read(provider: &str, body: &str, count: usize) -> Result<Answer, Unusable> {
    of(provider).read(&plain(provider), body.as_bytes(), count)
}

/// An answer for two texts as the provider writes it, seven tokens where it counts them.
fn written(provider: &str, first: &str, second: &str) -> String {
    match provider {
        "ollama" => format!(r#"{{"embeddings":[{first},{second}],"prompt_eval_count":7}}"#),
        "huggingface" => format!("[{first},{second}]"),
        "gemini" => format!(
            r#"{{"embeddings":[{{"values":{first}}},{{"values":{second}}}],
                "usageMetadata":{{"promptTokenCount":7}}}}"#
        ),
        "vertex" => format!(
            r#"{{"predictions":[
                {{"embeddings":{{"values":{first},"statistics":{{"token_count":3,"truncated":false}}}}}},
                {{"embeddings":{{"values":{second},"statistics":{{"token_count":4.0}}}}}}]}}"#
        ),
        "cohere" => format!(
            r#"{{"id":"x","embeddings":{{"float":[{first},{second}]}},
                "meta":{{"billed_units":{{"input_tokens":7}}}}}}"#
        ),
        _ => format!(
            r#"{{"object":"list","data":[{{"index":0,"embedding":{first}}},{{"index":1,"embedding":{second}}}],
                "usage":{{"prompt_tokens":7,"total_tokens":7}}}}"#
        ),
    }
}

#[test]
fn every_answer_gives_its_vectors_and_tokens() {
    for provider in NAMES {
        let tokens = if ["huggingface", "http"].contains(&provider) { None } else { Some(7) };
        let expected = Answer { value: vec![vec![1.5, -2.0], vec![0.0, 3.0]], tokens };
        let body = written(provider, "[1.5, -2]", "[0, 3e0]");
        assert_eq!(read(provider, &body, 2), Ok(expected), "{provider}");
    }
}

#[test]
fn what_is_no_number_is_never_a_number() {
    for provider in NAMES {
        for vector in [
            "[1.5, NaN]",
            "[1.5, Infinity]",
            "[1.5, null]",
            "[1.5, 1e999]",
            "[1.5, \"2\"]",
            "[1.5, true]",
            "[[1.5, 2]]",
            "null",
            "1.5",
            "{}",
        ] {
            let answer = read(provider, &written(provider, vector, "[3, 4]"), 2);
            assert!(answer.is_err(), "{provider}: {vector}: {answer:?}");
        }
        let beyond_f32 = read(provider, &written(provider, "[1.5, 1e39]", "[3, 4]"), 2);
        assert!(beyond_f32.is_err() || !beyond_f32.unwrap().value[0][1].is_finite(), "{provider}");
    }
}

#[test]
fn an_answer_cut_anywhere_is_refused() {
    for provider in NAMES {
        let body = written(provider, "[1.5, 2]", "[3, 4]");
        for end in 0..body.len() {
            let problem = read(provider, &body[..end], 2).unwrap_err().to_string();
            assert!(problem.starts_with("the answer is not the JSON expected: "), "{provider}: {problem}");
        }
    }
}

#[test]
fn an_error_repeats_nothing_of_the_answer() {
    for provider in NAMES {
        for vector in ["\"a, expected secret\"", "[\"a, expected secret\"]", "{\"secret\": 1}"] {
            let problem = read(provider, &written(provider, vector, "[3]"), 2).unwrap_err().to_string();
            assert!(!problem.contains("secret"), "{provider}: {problem}");
        }
    }
}

#[test]
fn a_wrong_number_of_vectors_is_refused() {
    for provider in NAMES {
        for count in [1, 3] {
            let problem = read(provider, &written(provider, "[1]", "[2]"), count).unwrap_err().to_string();
            assert_eq!(problem, format!("2 vectors came back for {count} texts"), "{provider}");
        }
    }
}

/// Those whose items carry an index.
const INDEXED: [&str; 5] = ["openai", "azure_openai", "voyage", "jina", "mistral"];

#[test]
fn vectors_are_put_in_the_order_of_the_texts() {
    let body =
        r#"{"data":[{"index":2,"embedding":[2]},{"embedding":[0],"index":0},{"index":1,"embedding":[1]}]}"#;
    for provider in INDEXED {
        let vectors = read(provider, body, 3).unwrap().value;
        assert_eq!(vectors, [[0.0f32], [1.0], [2.0]], "{provider}");
    }
}

#[test]
fn without_any_index_vectors_stay_as_they_came() {
    let body = r#"{"data":[{"embedding":[5]},{"embedding":[4]}],"usage":null}"#;
    for provider in INDEXED {
        let expected = Answer { value: vec![vec![5.0], vec![4.0]], tokens: None };
        assert_eq!(read(provider, body, 2), Ok(expected), "{provider}");
    }
}

#[test]
fn an_index_that_is_doubled_missing_or_out_of_range_is_refused() {
    for (first, second) in [("0", "0"), ("1", "1"), ("0", "2"), ("1", "2"), ("0", "null"), ("-1", "0")] {
        let body = format!(
            r#"{{"data":[{{"index":{first},"embedding":[1]}},{{"index":{second},"embedding":[2]}}]}}"#
        );
        for provider in INDEXED {
            assert!(read(provider, &body, 2).is_err(), "{provider}: {first}, {second}");
        }
    }
}

#[test]
fn base64_is_little_endian_f32_and_nothing_less() {
    for provider in INDEXED {
        let body = written(provider, "\"AADAPwAAAMA=\"", "\"AADAPw==\"");
        assert_eq!(read(provider, &body, 2).unwrap().value, [vec![1.5f32, -2.0], vec![1.5]], "{provider}");
        for broken in ["\"AADA\"", "\"AADAPwA=\"", "\"AADAPw\"", "\"1.5, 2\""] {
            assert!(read(provider, &written(provider, broken, "[1]"), 2).is_err(), "{provider}: {broken}");
        }
    }
}

#[test]
fn vectors_of_tokens_are_told_from_vectors_of_texts() {
    let problem = read("huggingface", "[ [[1, 2], [3, 4]] ]", 1).unwrap_err().to_string();
    assert!(problem.contains("each token"), "{problem}");
}

#[test]
fn a_text_that_vertex_cut_is_an_error_unless_that_was_asked_for() {
    let body =
        r#"{"predictions":[{"embeddings":{"values":[1],"statistics":{"token_count":9,"truncated":true}}}]}"#;
    let mut embedder = plain("vertex");
    let cut = of("vertex").read(&embedder, body.as_bytes(), 1);
    assert!(matches!(cut, Err(Unusable::Truncated(_))), "{cut:?}");
    embedder.config.truncate = true;
    let expected = Answer { value: vec![vec![1.0]], tokens: Some(9) };
    assert_eq!(of("vertex").read(&embedder, body.as_bytes(), 1), Ok(expected));
}

#[test]
fn pointers_lead_to_the_vectors_and_the_tokens() {
    let rows = r#"{"out":{"rows":[{"v":{"x":[1]}},{"v":{"x":[2]}}]},"used":{"n":9}}"#;
    for (items, vector, tokens, body, count, expected) in [
        ("/out/rows", "/v/x", "/used/n", rows, 2, Ok((vec![vec![1.0], vec![2.0]], Some(9)))),
        ("", "", "/used/n", "[[1],[2]]", 2, Ok((vec![vec![1.0], vec![2.0]], None))),
        ("/embedding", "", "/n", r#"{"embedding":[1,2],"n":3}"#, 1, Ok((vec![vec![1.0, 2.0]], Some(3)))),
        ("", "/embedding", "/n", r#"{"embedding":[1,2]}"#, 1, Ok((vec![vec![1.0, 2.0]], None))),
        ("/out", "/v", "/n", rows, 2, Err("an item of the answer has nothing at vector_pointer \"/v\"")),
        ("/data", "/v", "/n", rows, 2, Err("the answer has nothing at items_pointer \"/data\"")),
        ("/embedding", "", "/n", r#"{"embedding":[1,2]}"#, 2, Err("1 vectors came back for 2 texts")),
        ("/embedding", "", "/n", r#"{"embedding":[]}"#, 1, Err("0 vectors came back for 1 texts")),
    ] {
        let remote = Remote {
            items_pointer: Some(items.into()),
            vector_pointer: Some(vector.into()),
            tokens_pointer: Some(tokens.into()),
            ..Remote::default()
        };
        let answer = of("http").read(&embedder("http", None, remote), body.as_bytes(), count);
        let expected = expected
            .map(|(value, tokens)| Answer { value, tokens })
            .map_err(|problem| Unusable::Unreadable(problem.to_string()));
        assert_eq!(answer, expected, "{items} {vector} {body}");
    }
}
