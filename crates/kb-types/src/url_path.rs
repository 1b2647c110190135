//! Checks what is appended to a provider's base_url. Names of models and paths must not lead out of the path
//! of base_url.

use std::fmt::Write;

/// Says why a name may not be the model of a provider that is reached over HTTP, if so. Some providers have
/// the model in the path.
pub fn model_problem(model: &str) -> Option<String> {
    let problem = if model.contains("://") {
        "is a URL; specify the provider's address as base_url"
    } else {
        problem(model)?
    };
    Some(format!("\"{}\" {problem}", model.escape_debug()))
}

/// Says why a text may not be appended to base_url as a path, if so.
pub fn path_problem(path: &str) -> Option<String> {
    let problem = match path {
        path if !path.starts_with('/') => "must begin with /",
        path => problem(path)?,
    };
    Some(format!("\"{}\" {problem}", path.escape_debug()))
}

/// Says what is wrong with a path, as it is written or with its escapes (%2e) decoded.
fn problem(path: &str) -> Option<&'static str> {
    let read = unescaped(path);
    let of = |path: &[u8]| {
        if path.iter().any(|byte| byte.is_ascii_control() || b"\\?# ".contains(byte)) {
            return Some("must not contain a space, a control character, \\, ? or #");
        }
        let mut segments = path.split(|byte| *byte == b'/');
        segments.any(|segment| matches!(segment, b"." | b"..")).then_some("must not have a segment . or ..")
    };
    of(path.as_bytes()).or_else(|| of(&read))
}

/// The bytes of a path with its escapes decoded, however many times they were escaped.
fn unescaped(path: &str) -> Vec<u8> {
    let mut bytes = path.as_bytes().to_vec();
    loop {
        let mut read = Vec::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        while let [first, after @ ..] = rest {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            match after {
                [high, low, after @ ..] if *first == b'%' => match (digit(*high), digit(*low)) {
                    (Some(high), Some(low)) => {
                        read.push((high * 16 + low) as u8);
                        rest = after;
                        continue;
                    }
                    _ => read.push(*first),
                },
                _ => read.push(*first),
            }
            rest = after;
        }
        if read.len() == bytes.len() {
            return read;
        }
        bytes = read;
    }
}

/// A name as segments of a path, in which characters with another meaning are escaped.
pub fn escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'@' => escaped.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => escaped.push(char::from(byte)),
            byte => drop(write!(escaped, "%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leads_out_is_refused_however_it_is_written() {
        for out in [
            "..",
            "../../../admin",
            "a/../../admin",
            "a/..",
            ".",
            "./a",
            "%2e%2e/admin",
            "%2E./admin",
            "a/%2e%2e%2fadmin",
            "a%2f..%2fadmin",
            "%252e%252e/admin",
            "..%5cadmin",
            "a\\..\\admin",
            "a?key=1",
            "a%3fkey=1",
            "a#b",
            "a%23b",
            "a\nb",
            "a%0ab",
            "a\0",
            "a b",
            "a%20b",
            "\u{7f}",
        ] {
            assert!(model_problem(out).is_some(), "{out}");
            assert!(path_problem(&format!("/{out}")).is_some(), "{out}");
        }
        for url in ["https://evil.example/", "http://a", "file:///etc/passwd"] {
            assert!(model_problem(url).is_some(), "{url}");
            assert!(path_problem(url).is_some(), "{url}");
        }
        assert!(path_problem("v1").is_some() && path_problem("").is_some());
    }

    #[test]
    fn names_and_paths_that_providers_use_are_accepted() {
        for model in [
            "",
            "text-embedding-3-small",
            "BAAI/bge-m3",
            "nomic-embed-text:v1.5",
            "hf.co/org/model-GGUF:Q4_K_M",
            "text-embedding-005@001",
            "models/gemini-embedding-001",
            "a..b",
            "...",
            "größe",
            "100%",
        ] {
            assert_eq!(model_problem(model), None, "{model}");
        }
        for path in ["/embed", "/v1/embeddings", "/a//b", "/openai/deployments/my-model/embeddings"] {
            assert_eq!(path_problem(path), None, "{path}");
        }
    }

    #[test]
    fn an_escaped_name_keeps_its_segments_and_adds_none() {
        assert_eq!(escaped("BAAI/bge-m3"), "BAAI/bge-m3");
        assert_eq!(escaped("m:embed?a#b %2e\\"), "m%3Aembed%3Fa%23b%20%252e%5C");
        assert_eq!(escaped("größe"), "gr%C3%B6%C3%9Fe");
    }
}
