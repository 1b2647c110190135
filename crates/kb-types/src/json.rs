//! JSON as PostgreSQL prints it. It stays text where kb only hands it on, so that no number changes. It is
//! parsed where kb itself needs the values, and a text that cannot be parsed gives an error that says why.
//!
//! serde_json takes objects and arrays apart into texts (`RawValue`). Where the numbers in a text matter,
//! actson reads it: it shows each number as it is written, takes time in proportion to the text and does not
//! recurse, so that nesting can be measured before serde_json sees it.

use actson::feeder::SliceJsonFeeder;
use actson::options::JsonParserOptionsBuilder;
use actson::{JsonEvent, JsonParser};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Borrow;
use std::fmt;

/// The most levels to which objects and arrays may be nested. serde_json takes 127.
pub const MAX_DEPTH: usize = 100;

/// Valid JSON: the text that PostgreSQL prints of a jsonb value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(String);

/// What a reading of a whole JSON text counts.
#[derive(Default)]
struct Shape {
    depth: usize,
    /// Scalars and empty objects and arrays.
    leaves: usize,
    /// Whether some number cannot be read without a change.
    is_rounded: bool,
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Json {
    pub fn new(text: impl Into<String>) -> Json {
        Json(text.into())
    }

    /// A string.
    pub fn of_text(text: &str) -> Json {
        Json(Value::from(text).to_string())
    }

    /// {}.
    pub fn empty_object() -> Json {
        Json::new("{}")
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_object(&self) -> bool {
        self.0.trim_start().starts_with('{')
    }

    /// Whether it is neither an object nor an array.
    pub fn is_scalar(&self) -> bool {
        !self.0.trim_start().starts_with(['{', '['])
    }

    /// The events of a reading from the start to the end, for as long as the text is JSON. Members come as
    /// they are written, even two of the same name.
    pub fn parser(&self) -> JsonParser<SliceJsonFeeder<'_>> {
        let options = JsonParserOptionsBuilder::default().with_max_depth(usize::MAX).build();
        JsonParser::new_with_options(SliceJsonFeeder::new(self.0.as_bytes()), options)
    }

    /// None where the text is not JSON.
    fn shape(&self) -> Option<Shape> {
        let (mut shape, mut depth, mut is_opened) = (Shape::default(), 0usize, false);
        let mut parser = self.parser();
        while let Some(event) = parser.next_event().ok()? {
            match event {
                JsonEvent::StartObject | JsonEvent::StartArray => depth += 1,
                JsonEvent::EndObject | JsonEvent::EndArray => {
                    depth = depth.saturating_sub(1);
                    shape.leaves += usize::from(is_opened);
                }
                JsonEvent::FieldName => {}
                JsonEvent::ValueInt | JsonEvent::ValueFloat => {
                    shape.leaves += 1;
                    shape.is_rounded |= !is_kept(parser.current_str().ok()?);
                }
                _ => shape.leaves += 1,
            }
            is_opened = matches!(event, JsonEvent::StartObject | JsonEvent::StartArray);
            shape.depth = shape.depth.max(depth);
        }
        Some(shape)
    }

    /// How many scalars and empty objects and arrays it holds, at any depth. 0 where it is not JSON.
    pub fn leaves(&self) -> usize {
        self.shape().map_or(0, |shape| shape.leaves)
    }

    /// Whether it can be stored and read again. The error says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.checked().map(|_| ())
    }

    fn checked(&self) -> Result<Shape, String> {
        let shape = self.shape().ok_or(NOT_JSON)?;
        match shape.depth {
            ..=MAX_DEPTH => Ok(shape),
            depth => Err(format!("it is nested {depth} levels deep; at most {MAX_DEPTH} are allowed")),
        }
    }

    /// As a value, if that holds every number as it is. The error does not repeat the text, which may hold a
    /// key.
    pub fn value(&self) -> Result<Value, String> {
        if self.checked()?.is_rounded {
            return Err(
                "a number in it is too large, or has more digits than a double precision number keeps".into(),
            );
        }
        // The position of the error is no use to anybody: the text is PostgreSQL's, not the caller's.
        serde_json::from_str(&self.0).map_err(|_| NOT_JSON.to_string())
    }

    /// Removes a key from an object and returns its value, if the object had the key.
    pub fn take(&mut self, key: &str) -> Option<Json> {
        let mut members = self.members()?;
        let (_, taken) = members.remove(members.iter().position(|(name, _)| name == key)?);
        *self = Json::object(&members);
        Some(taken)
    }

    /// The keys of an object with their values, each as it is written; None where it is no object.
    pub fn members(&self) -> Option<Vec<(String, Json)>> {
        serde_json::from_str::<Members>(&self.0).ok().map(|members| members.0)
    }

    /// The elements of an array, each as it is written; None where it is no array.
    pub fn elements(&self) -> Option<Vec<Json>> {
        let elements: Vec<&RawValue> = serde_json::from_str(&self.0).ok()?;
        Some(elements.into_iter().map(|element| Json::new(element.get())).collect())
    }

    /// The text of a string; None where it is no string.
    pub fn text(&self) -> Option<String> {
        serde_json::from_str(&self.0).ok()
    }

    pub fn is_number(&self) -> bool {
        self.0.starts_with(|c: char| c == '-' || c.is_ascii_digit())
    }

    /// The array of these elements.
    pub fn array(elements: &[Json]) -> Json {
        Json(format!("[{}]", elements.iter().map(Json::as_str).collect::<Vec<_>>().join(", ")))
    }

    /// The object of these members, whose keys differ.
    pub fn object<K: AsRef<str>, V: Borrow<Json>>(members: &[(K, V)]) -> Json {
        let member = |(key, value): &(K, V)| format!("{}: {}", Value::from(key.as_ref()), value.borrow());
        Json(format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", ")))
    }
}

const NOT_JSON: &str = "it cannot be read as JSON";

/// The members of an object in their order, the values as they are written.
struct Members(Vec<(String, Json)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Members, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    members.push((key, Json::new(value.get())));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

/// Whether serde_json keeps a number as it is: in an i64, a u64 or an f64.
fn is_kept(number: &str) -> bool {
    number.parse::<i64>().is_ok()
        || number.parse::<u64>().is_ok()
        || number.parse::<f64>().is_ok_and(|float| decimal(number) == decimal(&format!("{float:e}")))
}

/// A decimal number as its sign, its digits without zeros at either end, and a power of ten.
fn decimal(text: &str) -> (bool, String, i64) {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (is_negative, mantissa) = mantissa.strip_prefix('-').map_or((false, mantissa), |rest| (true, rest));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    let digits = all.trim_end_matches('0');
    let dropped = all.len() as i64 - digits.len() as i64;
    let exponent =
        exponent.parse::<i64>().unwrap_or(0).saturating_sub(fraction.len() as i64).saturating_add(dropped);
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
    fn deep_nesting_is_refused_before_a_recursive_parser_sees_it() {
        assert!(nested(MAX_DEPTH).value().is_ok());
        for levels in [MAX_DEPTH + 1, 128, 100_000] {
            let problem = nested(levels).value().unwrap_err();
            assert!(problem.contains("levels deep"), "{problem}");
            assert!(nested(levels).check().is_err());
            assert!(nested(levels).elements().is_some());
        }
        // Brackets in strings do not count.
        assert!(Json::new(format!("{{\"a\": \"{}\\\"[[\"}}", "[{".repeat(200))).check().is_ok());
    }

    #[test]
    fn a_number_is_read_as_it_is_or_refused() {
        let largest = format!("1{}", "0".repeat(308));
        for number in [
            "0",
            "-1",
            "9223372036854775808",
            "0.1",
            "1.50",
            "-0.000001",
            "0.14285714285714285",
            "1.2345678901234567e31",
            &largest,
        ] {
            let value = Json::new(format!("{{\"a\": {number}}}")).value().unwrap();
            assert_eq!(decimal(&value["a"].to_string()), decimal(number), "{number}");
        }
        let beyond = format!("1{}", "0".repeat(400));
        let tiny = format!("0.{}1", "0".repeat(400));
        for number in ["12345678901234567890123", "0.1234567890123456789", "1e400", &beyond, &tiny] {
            let problem = Json::new(format!("[{number}]")).value().unwrap_err();
            assert!(problem.contains("number") && !problem.contains("12345"), "{problem}");
        }
        // Of any digits: what is taken prints the same number again.
        let mut random = fastrand::Rng::with_seed(1);
        let mut taken = 0;
        for _ in 0..20_000 {
            let fraction = 10u64.pow(random.u32(1..15));
            let number = format!("{}.{}", random.u32(..1000), random.u64(..fraction));
            if let Ok(value) = Json::new(number.as_str()).value() {
                taken += 1;
                assert_eq!(decimal(&value.to_string()), decimal(&number), "{number}");
            }
        }
        assert!(taken > 15_000, "{taken}");
        // Digits in a string are not a number.
        assert!(Json::new("[\"12345678901234567890123\"]").value().is_ok());
    }

    #[test]
    fn a_key_is_removed_with_its_value_and_the_rest_is_unchanged() {
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
    fn an_object_is_told_from_other_values_and_its_leaves_are_counted() {
        for (text, is_object, leaves) in [
            ("{}", true, 1),
            ("[]", false, 1),
            ("[1]", false, 1),
            ("\"{,\"", false, 1),
            ("null", false, 1),
            (r#"{"a": [1, "x", []], "b": {"c": {}}}"#, true, 4),
        ] {
            let json = Json::new(text);
            assert_eq!(json.is_scalar(), !text.starts_with(['{', '[']), "{text}");
            assert_eq!((json.is_object(), json.leaves()), (is_object, leaves), "{text}");
        }
    }

    #[test]
    fn an_object_is_made_of_its_members_again() {
        let text =
            r#"{"a": {"m": 1, "z": [{}]}, "q\"": 12345678901234567890123.50, "s": "\"m\": }", "": null}"#;
        let members = Json::new(text).members().unwrap();
        let keys: Vec<&str> = members.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["a", "q\"", "s", ""]);
        assert_eq!(Json::object(&members).as_str(), text);
        assert_eq!(Json::object::<&str, Json>(&[]), Json::empty_object());
        assert_eq!(Json::empty_object().members(), Some(vec![]));
        assert_eq!(Json::new(r#"[{"a": 1}]"#).members(), None);
    }
}
