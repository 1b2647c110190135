//! Tests of the replies that each provider accepts and refuses.

use super::*;

fn read(provider: &str, body: &str, count: usize) -> Result<EmbedAnswer, Unusable> {
    of(provider).read(&plain(provider), body.as_bytes(), count)
}

/// The vectors of a reply that has one for each text.
fn vectors(provider: &str, body: &str, count: usize) -> Vec<Vec<f32>> {
    read(provider, body, count).unwrap().value.into_iter().map(Result::unwrap).collect()
}

/// A reply for two texts in the provider's format, with seven tokens if it counts them.
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
    for provider in embedders() {
        let tokens = if ["huggingface", "http"].contains(&provider) { None } else { Some(7) };
        let expected = Answer { value: vec![Ok(vec![1.5, -2.0]), Ok(vec![0.0, 3.0])], tokens };
        let body = written(provider, "[1.5, -2]", "[0, 3e0]");
        assert_eq!(read(provider, &body, 2), Ok(expected), "{provider}");
    }
}

#[test]
fn values_that_are_not_numbers_are_never_read_as_numbers() {
    for provider in embedders() {
        // These are not JSON, or cannot be parsed.
        for vector in ["[1.5, NaN]", "[1.5, Infinity]", "[1.5, 1e999]"] {
            let answer = read(provider, &written(provider, vector, "[3, 4]"), 2);
            assert!(answer.is_err(), "{provider}: {vector}: {answer:?}");
        }
        let beyond_f32 = vectors(provider, &written(provider, "[1.5, 1e39]", "[3, 4]"), 2);
        assert!(!beyond_f32[0][1].is_finite(), "{provider}");
    }
}

#[test]
fn an_item_that_is_not_a_vector_fails_only_its_text() {
    for provider in embedders() {
        for odd in [
            "[1.5, null]",
            "[1.5, \"2\"]",
            "[1.5, \"NaN\"]",
            "[1.5, true]",
            "[1.5, {\"a\": [1]}]",
            "[[1.5, 2]]",
            "null",
            "true",
            "1.5",
            "-1",
            "1",
            "\"no base64!\"",
            "{\"a\": [1]}",
        ] {
            for (first, second, wrong) in [(odd, "[3, 4]", 0), ("[3, 4]", odd, 1)] {
                let body = written(provider, first, second);
                let items =
                    read(provider, &body, 2).unwrap_or_else(|e| panic!("{provider}: {body}: {e}")).value;
                assert!(items[wrong].is_err(), "{provider}: {body}: {items:?}");
                assert_eq!(items[1 - wrong], Ok(vec![3.0, 4.0]), "{provider}: {body}");
            }
        }
    }
}

#[test]
fn a_missing_item_fails_only_its_text() {
    let missing = |answer: Result<EmbedAnswer, Unusable>| {
        let items = answer.unwrap().value;
        assert_eq!(items[0], Ok(vec![3.0]));
        assert!(matches!(&items[1], Err(Unusable::Unreadable(_))), "{items:?}");
    };
    for provider in INDEXED {
        let second = |item: &str| format!(r#"{{"data":[{{"index":0,"embedding":[3]}}{item}]}}"#);
        for item in [
            "",
            ",null",
            ",{}",
            r#",{"index":1}"#,
            r#",{"index":null,"embedding":[4]}"#,
            r#",{"embedding":[4]}"#,
            r#",{"index":-1,"embedding":[4]}"#,
            r#",{"index":1,"embedding":[4]},{"index":1,"embedding":[5]}"#,
        ] {
            missing(read(provider, &second(item), 2));
        }
    }
    missing(read("gemini", r#"{"embeddings":[{"values":[3]},{}]}"#, 2));
    missing(read("gemini", r#"{"embeddings":[{"values":[3]},null]}"#, 2));
    missing(read("vertex", r#"{"predictions":[{"embeddings":{"values":[3]}},{"embeddings":{}}]}"#, 2));
    missing(read("vertex", r#"{"predictions":[{"embeddings":{"values":[3]}},null]}"#, 2));
    missing(read("http", r#"{"data":[{"embedding":[3]},{"other":1}]}"#, 2));
}

#[test]
fn an_odd_token_count_costs_no_vectors_and_is_read_if_numeric() {
    for (odd, tokens) in [
        ("12.0", Some(12)),
        ("\"12\"", Some(12)),
        ("0", Some(0)),
        ("-1", None),
        ("[]", None),
        ("{}", None),
        ("true", None),
        ("null", None),
        ("\"many\"", None),
        ("1e300", Some(u64::MAX)),
    ] {
        for provider in embedders().into_iter().filter(|provider| *provider != "huggingface") {
            let expected = Answer { value: vec![Ok(vec![1.0])], tokens };
            let bodies = match provider {
                "ollama" => vec![format!(r#"{{"embeddings":[[1]],"prompt_eval_count":{odd}}}"#)],
                "gemini" => vec![format!(
                    r#"{{"embeddings":[{{"values":[1]}}],"usageMetadata":{{"promptTokenCount":{odd}}}}}"#
                )],
                "vertex" => vec![format!(
                    r#"{{"predictions":[{{"embeddings":{{"values":[1],"statistics":{{"token_count":{odd}}}}}}}]}}"#
                )],
                "cohere" => vec![format!(
                    r#"{{"embeddings":{{"float":[[1]]}},"meta":{{"billed_units":{{"input_tokens":{odd}}}}}}}"#
                )],
                "http" => vec![format!(r#"{{"data":[{{"embedding":[1]}}],"n":{odd}}}"#)],
                _ => ["total_tokens", "prompt_tokens"]
                    .map(|field| format!(r#"{{"data":[{{"embedding":[1]}}],"usage":{{"{field}":{odd}}}}}"#))
                    .to_vec(),
            };
            let remote = Remote { tokens_pointer: Some("/n".into()), ..Remote::default() };
            for body in bodies {
                let answer = of(provider).read(&embedder(provider, None, remote.clone()), body.as_bytes(), 1);
                assert_eq!(answer, Ok(expected.clone()), "{provider}: {body}");
            }
        }
        // The whole object in the place of the number.
        if tokens.is_some() {
            continue;
        }
        for body in [
            format!(r#"{{"data":[{{"embedding":[1]}}],"usage":{odd}}}"#),
            r#"{"data":[{"embedding":[1]}]}"#.to_string(),
        ] {
            let expected = Answer { value: vec![Ok(vec![1.0])], tokens: None };
            assert_eq!(read("openai", &body, 1), Ok(expected), "{body}");
        }
        for (provider, body) in [
            ("cohere", format!(r#"{{"embeddings":{{"float":[[1]]}},"meta":{odd}}}"#)),
            ("cohere", format!(r#"{{"embeddings":{{"float":[[1]]}},"meta":{{"billed_units":{odd}}}}}"#)),
            ("gemini", format!(r#"{{"embeddings":[{{"values":[1]}}],"usageMetadata":{odd}}}"#)),
            (
                "vertex",
                format!(r#"{{"predictions":[{{"embeddings":{{"values":[1],"statistics":{odd}}}}}]}}"#),
            ),
        ] {
            let expected = Answer { value: vec![Ok(vec![1.0])], tokens: None };
            assert_eq!(read(provider, &body, 1), Ok(expected), "{body}");
        }
    }
}

#[test]
fn a_truncated_reply_is_refused() {
    for provider in embedders() {
        let body = written(provider, "[1.5, 2]", "[3, 4]");
        for end in 0..body.len() {
            let problem = read(provider, &body[..end], 2).unwrap_err().to_string();
            assert!(problem.starts_with("the answer is not the JSON expected: "), "{provider}: {problem}");
        }
    }
}

#[test]
fn an_error_repeats_nothing_of_the_answer() {
    for provider in embedders() {
        for vector in ["\"a, expected secret\"", "[\"a, expected secret\"]", "{\"secret\": 1}"] {
            let items = read(provider, &written(provider, vector, "[3]"), 2).unwrap().value;
            let problem = items[0].clone().unwrap_err().to_string();
            assert!(!problem.contains("secret"), "{provider}: {problem}");
        }
    }
}

#[test]
fn a_wrong_number_of_vectors_is_refused() {
    for provider in embedders() {
        // Indexes tell which vector is missing.
        for count in [1, 3].into_iter().filter(|_| !INDEXED.contains(&provider)) {
            let problem = read(provider, &written(provider, "[1]", "[2]"), count).unwrap_err().to_string();
            assert_eq!(problem, format!("the provider returned 2 vectors for {count} texts"), "{provider}");
        }
    }
}

/// The providers whose items have an index.
const INDEXED: [&str; 5] = ["openai", "azure_openai", "voyage", "jina", "mistral"];

#[test]
fn vectors_are_put_in_the_order_of_the_texts() {
    let body =
        r#"{"data":[{"index":2,"embedding":[2]},{"embedding":[0],"index":0},{"index":1,"embedding":[1]}]}"#;
    for provider in INDEXED {
        assert_eq!(vectors(provider, body, 3), [[0.0f32], [1.0], [2.0]], "{provider}");
    }
}

#[test]
fn without_any_index_vectors_stay_as_they_came() {
    let body = r#"{"data":[{"embedding":[5]},{"embedding":[4]}],"usage":null}"#;
    for provider in INDEXED {
        let expected = Answer { value: vec![Ok(vec![5.0]), Ok(vec![4.0])], tokens: None };
        assert_eq!(read(provider, body, 2), Ok(expected), "{provider}");
    }
}

#[test]
fn an_index_out_of_range_voids_all_indexes_and_a_duplicate_only_its_own() {
    for (first, second, is_of_all) in
        [("0", "2", true), ("1", "2", true), ("0", "0", false), ("1", "1", false)]
    {
        let body = format!(
            r#"{{"data":[{{"index":{first},"embedding":[1]}},{{"index":{second},"embedding":[2]}}]}}"#
        );
        for provider in INDEXED {
            let answer = read(provider, &body, 2);
            assert_eq!(answer.is_err(), is_of_all, "{provider}: {first}, {second}");
            assert!(answer.is_err() || answer.unwrap().value.iter().all(Result::is_err), "{provider}");
        }
    }
}

#[test]
fn base64_must_be_whole_little_endian_f32() {
    for provider in INDEXED {
        let body = written(provider, "\"AADAPwAAAMA=\"", "\"AADAPw==\"");
        assert_eq!(vectors(provider, &body, 2), [vec![1.5f32, -2.0], vec![1.5]], "{provider}");
        for broken in ["\"AADA\"", "\"AADAPwA=\"", "\"AADAPw\"", "\"1.5, 2\""] {
            let items = read(provider, &written(provider, broken, "[1]"), 2).unwrap().value;
            assert!(items[0].is_err() && items[1] == Ok(vec![1.0]), "{provider}: {broken}");
        }
    }
}

#[test]
fn vectors_of_tokens_are_told_from_vectors_of_texts() {
    let problem = read("huggingface", "[ [[1, 2], [3, 4]] ]", 1).unwrap_err().to_string();
    assert!(problem.contains("each token"), "{problem}");
}

#[test]
fn a_text_that_vertex_truncated_is_an_error_unless_truncate_is_set() {
    let body =
        r#"{"predictions":[{"embeddings":{"values":[1],"statistics":{"token_count":9,"truncated":true}}}]}"#;
    let mut embedder = plain("vertex");
    let cut = of("vertex").read(&embedder, body.as_bytes(), 1).unwrap().value;
    assert!(matches!(cut[..], [Err(Unusable::Truncated(_))]), "{cut:?}");
    embedder.config.truncate = true;
    let expected = Answer { value: vec![Ok(vec![1.0])], tokens: Some(9) };
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
        ("/out", "/v", "/n", rows, 2, Err("the provider returned 1 vectors for 2 texts")),
        ("/data", "/v", "/n", rows, 2, Err("the answer has no value at items_pointer \"/data\"")),
        (
            "/embedding",
            "",
            "/n",
            r#"{"embedding":[1,2]}"#,
            2,
            Err("the provider returned 1 vectors for 2 texts"),
        ),
        (
            "/embedding",
            "",
            "/n",
            r#"{"embedding":[]}"#,
            1,
            Err("the provider returned 0 vectors for 1 texts"),
        ),
    ] {
        let remote = Remote {
            items_pointer: Some(items.into()),
            vector_pointer: Some(vector.into()),
            tokens_pointer: Some(tokens.into()),
            ..Remote::default()
        };
        let answer = of("http").read(&embedder("http", None, remote), body.as_bytes(), count);
        let expected = expected
            .map(|(value, tokens)| Answer { value: value.into_iter().map(Ok).collect(), tokens })
            .map_err(|problem| Unusable::Unreadable(problem.to_string()));
        assert_eq!(answer, expected, "{items} {vector} {body}");
    }
}
