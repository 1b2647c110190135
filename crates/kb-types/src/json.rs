//! JSON as PostgreSQL prints it: kept as text where it is only handed on, so that no number changes; parsed where kb
//! itself needs it, with an error in words where it cannot be.

use serde_json::Value;
use std::fmt;

/// Levels of objects and arrays in each other at most; serde_json takes 127.
pub const MAX_DEPTH: usize = 100;

/// Valid JSON: the text that PostgreSQL prints of a jsonb value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(String);

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Json {
    pub fn new(text: impl Into<String>) -> Json {
        Json(text.into())
    }

    /// {}.
    pub fn empty_object() -> Json {
        Json::new("{}")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_object(&self) -> bool {
        tokens(&self.0).next().is_some_and(|(_, token)| token == "{")
    }

    /// Whether it is an object or array without anything in it.
    pub fn is_empty(&self) -> bool {
        tokens(&self.0).nth(1).is_some_and(|(_, token)| matches!(token, "}" | "]"))
    }

    /// Whether it is neither an object nor an array.
    pub fn is_scalar(&self) -> bool {
        self.depth() == 0
    }

    fn depth(&self) -> usize {
        let (mut depth, mut deepest) = (0usize, 0);
        for (_, token) in tokens(&self.0) {
            match token {
                "{" | "[" => depth += 1,
                "}" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            deepest = deepest.max(depth);
        }
        deepest
    }

    /// How many values it holds at most, nested ones too, objects and arrays not counted unless they are empty.
    pub fn values(&self) -> usize {
        1 + tokens(&self.0).filter(|(_, token)| *token == ",").count()
    }

    /// Strings with their quotes, punctuation, and words (numbers, true, false, null), in their order.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        tokens(&self.0).map(|(_, token)| token)
    }

    /// Whether it can be stored and read again; the error says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        match self.depth() {
            ..=MAX_DEPTH => Ok(()),
            depth => Err(format!("it is nested {depth} levels deep; at most {MAX_DEPTH} are taken")),
        }
    }

    /// As a value, if that holds every number as it is. The error does not repeat what it is about: that may be a key.
    pub fn value(&self) -> Result<Value, String> {
        self.check()?;
        if !tokens(&self.0).all(|(_, token)| is_kept(token)) {
            return Err(
                "a number in it is too large, or has more digits than a double precision number keeps".into(),
            );
        }
        // The position is no use to anybody: the text is PostgreSQL's, not the caller's.
        serde_json::from_str(&self.0).map_err(|_| "it cannot be read as JSON".to_string())
    }

    /// Takes a key out of an object; its value, if it was there.
    pub fn take(&mut self, key: &str) -> Option<Json> {
        let (from, value, end) = self.member(key)?;
        let taken = Json::new(self.0.get(value..end)?.trim());
        let (before, after) = (self.0.get(..from)?, self.0.get(end..)?);
        self.0 = match after.strip_prefix(',') {
            Some(after) => format!("{before}{}", after.trim_start()),
            None => format!("{}{after}", before.trim_end().trim_end_matches(',')),
        };
        Some(taken)
    }

    /// The keys of an object with their values, each as it is written; None where it is no object.
    pub fn members(&self) -> Option<Vec<(String, Json)>> {
        let member = |(_, key, value, end): (usize, &str, usize, usize)| {
            Some((serde_json::from_str(key).ok()?, Json::new(self.0.get(value..end)?.trim())))
        };
        if self.is_object() { self.places().map(member).collect() } else { None }
    }

    /// The elements of an array, each as it is written; None where it is no array.
    pub fn elements(&self) -> Option<Vec<Json>> {
        let mut all = tokens(&self.0);
        let mut from = all.next().filter(|(_, token)| *token == "[").map(|(at, _)| at + 1)?;
        let (mut depth, mut elements) = (1usize, Vec::new());
        for (at, token) in all {
            match token {
                "{" | "[" => depth += 1,
                "}" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            if (token == "," && depth == 1) || depth == 0 {
                let element = self.0.get(from..at)?.trim();
                if !element.is_empty() {
                    elements.push(Json::new(element));
                }
                from = at + 1;
            }
        }
        Some(elements)
    }

    /// The text of a string; None where it is no string.
    pub fn text(&self) -> Option<String> {
        if self.0.starts_with('"') { serde_json::from_str(&self.0).ok() } else { None }
    }

    pub fn is_number(&self) -> bool {
        self.0.starts_with(|c: char| c == '-' || c.is_ascii_digit())
    }

    /// The array of these elements.
    pub fn array(elements: &[Json]) -> Json {
        Json(format!("[{}]", elements.iter().map(Json::as_str).collect::<Vec<_>>().join(", ")))
    }

    /// The object of these members, whose keys differ.
    pub fn object(members: &[(&str, &Json)]) -> Json {
        let member = |(key, value): &(&str, &Json)| format!("{}: {value}", Value::from(*key));
        Json(format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", ")))
    }

    /// Where a key of this object, its value, and what follows that begin.
    fn member(&self, key: &str) -> Option<(usize, usize, usize)> {
        let quoted = Value::from(key).to_string();
        self.places().find(|place| place.1 == quoted).map(|(from, _, value, end)| (from, value, end))
    }

    /// Of each member of this object: where it begins, its key in quotes, where its value begins, and what follows.
    fn places(&self) -> impl Iterator<Item = (usize, &str, usize, usize)> {
        let (mut depth, mut last, mut found) = (0usize, (0, ""), None);
        tokens(&self.0).filter_map(move |(at, token)| {
            let mut place = None;
            match (token, depth) {
                (":", 1) if found.is_none() => found = Some((last.0, last.1, at + 1)),
                ("," | "}", 1) => place = found.take().map(|(from, key, value)| (from, key, value, at)),
                _ => {}
            }
            match token {
                "{" | "[" => depth += 1,
                "}" | "]" => depth = depth.saturating_sub(1),
                _ => {}
            }
            last = (at, token);
            place
        })
    }
}

/// The tokens of a JSON text with their places: strings, punctuation, and words (numbers, true, false, null).
fn tokens(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = text.get(at..)?.trim_start();
        let start = text.len() - rest.len();
        let length = match rest.bytes().next()? {
            b'"' => string_length(rest),
            b'{' | b'}' | b'[' | b']' | b',' | b':' => 1,
            _ => rest.find([' ', '\t', '\n', '\r', '{', '}', '[', ']', ',', ':', '"']).unwrap_or(rest.len()),
        };
        at = start + length;
        Some((start, rest.get(..length)?))
    })
}

/// Bytes of the string that a text begins with, quotes included.
fn string_length(text: &str) -> usize {
    let mut bytes = text.bytes().enumerate().skip(1);
    while let Some((i, byte)) = bytes.next() {
        match byte {
            b'"' => return i + 1,
            b'\\' => drop(bytes.next()),
            _ => {}
        }
    }
    text.len()
}

/// Whether a token is no number, or one that serde_json keeps as it is: in an i64 or u64, or an f64, which it does not
/// always round to the nearest.
fn is_kept(token: &str) -> bool {
    let is_number = token.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    if !is_number || token.parse::<i64>().is_ok() || token.parse::<u64>().is_ok() {
        return true;
    }
    // By serde_json's own reading, which differs in the last digit from the standard library's for some.
    serde_json::from_str::<f64>(token).is_ok_and(|float| decimal(token) == decimal(&format!("{float:e}")))
}

/// A decimal number as its sign, its digits without zeros at either end, and a power of ten.
fn decimal(text: &str) -> (bool, String, i64) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (is_negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_end_matches('0');
    let dropped = all.len() as i64 - digits.len() as i64;
    let exponent = exponent.parse::<i64>().unwrap_or(0) - fraction.len() as i64 + dropped;
    match digits.trim_start_matches('0') {
        "" => (false, String::new(), 0),
        digits => (is_negative, digits.to_string(), exponent),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn nested(levels: usize) -> Json {
        Json::new(format!("{}1{}", "[".repeat(levels), "]".repeat(levels)))
    }

    #[test]
    fn nesting_beyond_the_limit_is_refused_before_the_parser_sees_it() {
        assert!(nested(MAX_DEPTH).value().is_ok());
        for levels in [MAX_DEPTH + 1, 128, 100_000] {
            let problem = nested(levels).value().unwrap_err();
            assert!(problem.contains("levels deep"), "{problem}");
            assert!(nested(levels).check().is_err());
        }
        // Brackets in strings are none.
        assert!(Json::new(format!("{{\"a\": \"{}\\\"[[\"}}", "[{".repeat(200))).check().is_ok());
    }

    #[test]
    fn a_number_is_read_as_it_is_or_refused() {
        let largest = format!("1{}", "0".repeat(308));
        for number in
            ["0", "-1", "9223372036854775808", "0.1", "1.50", "-0.000001", "3.141592653589793", &largest]
        {
            let value = Json::new(format!("{{\"a\": {number}}}")).value().unwrap();
            assert_eq!(decimal(&value["a"].to_string()), decimal(number), "{number}");
        }
        let beyond = format!("1{}", "0".repeat(400));
        let tiny = format!("0.{}1", "0".repeat(400));
        // The last is one that serde_json reads as another.
        let misread = "1.2345678901234567e31";
        for number in ["12345678901234567890123", "0.1234567890123456789", "1e400", &beyond, &tiny, misread] {
            let problem = Json::new(format!("[{number}]")).value().unwrap_err();
            assert!(problem.contains("number") && !problem.contains("12345"), "{problem}");
        }
        // Of any digits: what is taken prints the same number again.
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            state >> 20
        };
        let mut taken = 0;
        for _ in 0..20_000 {
            let number = format!("{}.{}", next() % 1000, next() % 10u64.pow((next() % 14) as u32 + 1));
            if let Ok(value) = Json::new(number.as_str()).value() {
                taken += 1;
                assert_eq!(decimal(&value.to_string()), decimal(&number), "{number}");
            }
        }
        assert!(taken > 15_000, "{taken}");
        // Digits in a string are no number.
        assert!(Json::new("[\"12345678901234567890123\"]").value().is_ok());
    }

    #[test]
    fn a_key_is_taken_out_as_it_is_written_and_the_rest_stays() {
        let text = r#"{"a": {"m": 1}, "m": {"n": 12345678901234567890123.50, "s": "\"m\": }"}, "z": "m"}"#;
        let mut json = Json::new(text);
        assert_eq!(json.take("m").unwrap().as_str(), r#"{"n": 12345678901234567890123.50, "s": "\"m\": }"}"#);
        assert_eq!(json.as_str(), r#"{"a": {"m": 1}, "z": "m"}"#);
        assert_eq!(json.take("m"), None);
        assert_eq!(json.take("z").unwrap().as_str(), "\"m\"");
        assert_eq!(json.take("a").unwrap().as_str(), r#"{"m": 1}"#);
        assert_eq!(json.value().unwrap(), json!({}));
        assert_eq!(Json::new("[\"m\", 1]").take("m"), None);
        assert_eq!(Json::new("\"m\"").take("m"), None);
    }

    #[test]
    fn shapes_are_told_apart() {
        assert!(Json::new("{}").is_object() && Json::new("{}").is_empty());
        assert!(Json::new("\"[\"").is_scalar() && !Json::new("[]").is_scalar());
        assert!(!Json::new("[1]").is_object() && !Json::new("\"{\"").is_object());
        assert!(Json::new("null").is_scalar() && !Json::new(r#"{"a": 1}"#).is_empty());
    }

    #[test]
    fn an_object_is_made_of_its_members_again() {
        let text =
            r#"{"a": {"m": 1, "z": [{}]}, "q\"": 12345678901234567890123.50, "s": "\"m\": }", "": null}"#;
        let members = Json::new(text).members().unwrap();
        let keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["a", "q\"", "s", ""]);
        let borrowed: Vec<(&str, &Json)> = members.iter().map(|(key, value)| (key.as_str(), value)).collect();
        assert_eq!(Json::object(&borrowed).as_str(), text);
        assert_eq!(Json::empty_object().members(), Some(vec![]));
        assert_eq!(Json::new(r#"[{"a": 1}]"#).members(), None);
    }
}
