//! Paths to values in a JSON document: names, positions, wildcards and descendants of JSONPath (RFC 9535), as
//! in `$.title`, `$['a b'][0]`, `$.tags[*]` and `$..text`. Filters and slices are refused.
//!
//! Paths are parsed here, because kb-text follows them by its own code (`kb-text/src/json_text/tree.rs` says
//! why), and no crate offers the steps of a path together with errors that tell a user what to change:
//! serde_json_path keeps the steps to itself and says "at position 3, parser error"; jsonpath-rust adds a
//! parser generator of 20 crates.

use serde::{Deserialize, Serialize};

/// The most bytes and steps that a path may have.
const MAX_BYTES: usize = 1000;
const MAX_STEPS: usize = 16;

/// A path that has been parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JsonPath {
    source: String,
    steps: Vec<Step>,
}

/// Leads from values to some of the values in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Whether the selector applies at every depth below the values, too (`..`).
    pub descends: bool,
    pub selector: Selector,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// The member of an object.
    Name(String),
    /// The element of an array, counted from 0, or from the end where the index is negative.
    Index(i64),
    /// All members or elements.
    All,
}

impl JsonPath {
    pub fn parse(source: &str) -> Result<JsonPath, String> {
        let problem = |problem: String| format!("\"{source}\": {problem}");
        if source.len() > MAX_BYTES {
            return Err(format!("a path has {} bytes; at most {MAX_BYTES} are allowed", source.len()));
        }
        let Some(mut rest) = source.trim().strip_prefix('$') else {
            return Err(problem("a path begins with $".into()));
        };
        let mut steps = Vec::new();
        while !rest.is_empty() {
            let (step, after) = step(rest).map_err(problem)?;
            steps.push(step);
            rest = after;
        }
        if steps.len() > MAX_STEPS {
            return Err(problem(format!("it has {} steps; at most {MAX_STEPS} are allowed", steps.len())));
        }
        Ok(JsonPath { source: source.to_string(), steps })
    }

    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
}

impl TryFrom<String> for JsonPath {
    type Error = String;

    fn try_from(source: String) -> Result<JsonPath, String> {
        JsonPath::parse(&source)
    }
}

impl From<JsonPath> for String {
    fn from(path: JsonPath) -> String {
        path.source
    }
}

/// The first step of the rest of a path, and what follows it.
fn step(rest: &str) -> Result<(Step, &str), String> {
    let (descends, after) = match (rest.strip_prefix(".."), rest.strip_prefix('.')) {
        (Some(after), _) => (true, after),
        (None, Some(after)) if after.starts_with('[') => return Err("a name is missing after .".into()),
        (None, Some(after)) => (false, after),
        (None, None) => (false, rest),
    };
    let is_bare = after.len() == rest.len();
    let (selector, after) = match after.strip_prefix('[') {
        Some(inside) => in_brackets(inside)?,
        None if is_bare => return Err(format!("{rest} is not a step; a step begins with . or [")),
        None => match after.strip_prefix('*') {
            Some(after) => (Selector::All, after),
            None => {
                let end = after.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(after.len());
                let (name, after) = after.split_at(end);
                if name.is_empty() {
                    return Err(
                        "a name is missing after .; a name with other characters is written ['…']".into()
                    );
                }
                (Selector::Name(name.to_string()), after)
            }
        },
    };
    Ok((Step { descends, selector }, after))
}

/// The selector in brackets, and the rest of the path after them.
fn in_brackets(inside: &str) -> Result<(Selector, &str), String> {
    let inside = inside.trim_start();
    let (selector, after) = match inside.chars().next() {
        Some('*') => (Selector::All, &inside[1..]),
        Some(quote @ ('\'' | '"')) => {
            let (name, after) = quoted(inside, quote)?;
            (Selector::Name(name), after)
        }
        _ => {
            let end = inside.find(|c: char| !(c.is_ascii_digit() || c == '-')).unwrap_or(inside.len());
            let (number, after) = inside.split_at(end);
            let index = number.parse();
            let index = index.map_err(|_| {
                "[ ] must contain a name in quotes, a position or *; filters and slices are not supported"
                    .to_string()
            })?;
            (Selector::Index(index), after)
        }
    };
    let after = after.trim_start().strip_prefix(']').ok_or("a ] is missing")?;
    Ok((selector, after))
}

/// The quoted name at the beginning of a text, which may have the escapes of JSON, and what follows it.
fn quoted(text: &str, quote: char) -> Result<(String, &str), String> {
    let mut json = String::from("\"");
    let mut signs = text.char_indices().skip(1);
    while let Some((place, sign)) = signs.next() {
        match sign {
            _ if sign == quote => {
                json.push('"');
                let name =
                    serde_json::from_str(&json).map_err(|_| "a name in quotes is not a valid JSON string")?;
                return Ok((name, &text[place + 1..]));
            }
            '"' => json.push_str("\\\""),
            '\\' => match signs.next() {
                Some((_, '\'')) => json.push('\''),
                Some((_, escaped)) => json.extend(['\\', escaped]),
                None => break,
            },
            _ => json.push(sign),
        }
    }
    Err(format!("a {quote} is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_step_is_read() {
        let name = |name: &str| Selector::Name(name.into());
        for (path, steps) in [
            ("$", vec![]),
            ("$.title", vec![(false, name("title"))]),
            ("$.Größe.b_2", vec![(false, name("Größe")), (false, name("b_2"))]),
            ("$['a b'][\"c.d\"]", vec![(false, name("a b")), (false, name("c.d"))]),
            (r#"$['it\'s "so"\n']"#, vec![(false, name("it's \"so\"\n"))]),
            (
                "$[0][ -1 ][*].*",
                vec![
                    (false, Selector::Index(0)),
                    (false, Selector::Index(-1)),
                    (false, Selector::All),
                    (false, Selector::All),
                ],
            ),
            ("$..text..*..['x']", vec![(true, name("text")), (true, Selector::All), (true, name("x"))]),
        ] {
            let steps: Vec<Step> =
                steps.into_iter().map(|(descends, selector)| Step { descends, selector }).collect();
            assert_eq!(JsonPath::parse(path).unwrap().steps(), steps, "{path}");
        }
    }

    #[test]
    fn a_malformed_path_is_refused_with_the_reason() {
        for (path, says) in [
            ("", "begins with $"),
            ("title", "begins with $"),
            ("$title", "is not a step"),
            ("$.", "a name is missing"),
            ("$..", "a name is missing"),
            ("$.a-b", "is not a step"),
            ("$.[0]", "a name is missing"),
            ("$[", "[ ] must contain"),
            ("$[?(@.a)]", "filters and slices"),
            ("$[1:2]", "a ] is missing"),
            ("$['a]", "a ' is missing"),
            ("$[\"\\x\"]", "not a valid JSON string"),
            ("$[99999999999999999999]", "[ ] must contain"),
        ] {
            let problem = JsonPath::parse(path).unwrap_err();
            assert!(problem.contains(says), "{path}: {problem}");
        }
        assert!(JsonPath::parse(&format!("${}", ".a".repeat(MAX_STEPS))).is_ok());
        assert!(JsonPath::parse(&format!("${}", ".a".repeat(MAX_STEPS + 1))).unwrap_err().contains("steps"));
        assert!(JsonPath::parse(&format!("$.{}", "a".repeat(MAX_BYTES))).unwrap_err().contains("bytes"));
    }

    #[test]
    fn a_stored_path_reads_back_the_same() {
        let path = JsonPath::parse("$..['a']").unwrap();
        let stored = serde_json::to_value(&path).unwrap();
        assert_eq!(stored, "$..['a']");
        assert_eq!(serde_json::from_value::<JsonPath>(stored).unwrap(), path);
    }
}
