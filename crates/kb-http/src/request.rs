//! What a client sent.

use crate::Problem;
use kb_types::Json;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use url::form_urlencoded;

/// The most segments of a path.
const SEGMENTS: usize = 32;

#[derive(Debug, Clone, Default)]
pub struct Request {
    pub method: String,
    /// The parts of the path between slashes, decoded.
    pub segments: Vec<String>,
    parameters: Vec<(String, String)>,
    headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    /// `path` and `query` as they are in the request line, `headers` with names in any case.
    pub fn new(
        method: &str,
        path: &str,
        query: &str,
        headers: impl IntoIterator<Item = (String, String)>,
        body: Vec<u8>,
    ) -> Result<Request, Problem> {
        let path =
            path.strip_prefix('/').ok_or_else(|| Problem::new(400, "the path must begin with a slash"))?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let decode = |segment: &str| {
            let decoded = percent_decode_str(segment).decode_utf8().ok()?.into_owned();
            (!decoded.contains('\0')).then_some(decoded)
        };
        let segments: Option<Vec<String>> = path.split('/').take(SEGMENTS + 1).map(decode).collect();
        let segments = segments.ok_or_else(|| Problem::new(400, "the path is not encoded as UTF-8"))?;
        if segments.len() > SEGMENTS {
            return Err(Problem::new(404, "there is no such path"));
        }
        let query = query.strip_prefix('?').unwrap_or(query);
        let parameters: Vec<(String, String)> =
            form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        if parameters.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
            return Err(Problem::new(400, "a parameter has a NUL character"));
        }
        let headers = headers.into_iter().map(|(name, value)| (name.to_ascii_lowercase(), value)).collect();
        Ok(Request { method: method.to_ascii_uppercase(), segments, parameters, headers, body })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// A parameter of the query string.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// All values of a parameter that may be repeated.
    pub fn parameters(&self, name: &str) -> Vec<String> {
        self.parameters.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone()).collect()
    }

    /// A parameter that is a whole number of this range.
    pub fn number(&self, name: &str, range: std::ops::RangeInclusive<i32>) -> Result<Option<i32>, Problem> {
        let Some(text) = self.parameter(name) else { return Ok(None) };
        match text.parse() {
            Ok(number) if range.contains(&number) => Ok(Some(number)),
            _ => Err(Problem::new(
                422,
                format!("{name}: must be a whole number from {} to {}", range.start(), range.end()),
            )),
        }
    }

    /// The body, which must be JSON of this form. An empty body is an empty object.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        let media_type =
            self.header("content-type").map(|value| value.split(';').next().unwrap_or("").trim());
        let is_json = |name: &str| name.eq_ignore_ascii_case("application/json") || name.ends_with("+json");
        if !self.body.is_empty() && media_type.is_some_and(|name| !is_json(name)) {
            return Err(Problem::new(415, "the body must be application/json"));
        }
        let body: &[u8] = if self.body.is_empty() { b"{}" } else { &self.body };
        let text = std::str::from_utf8(body).map_err(|_| Problem::new(400, "the body is not UTF-8"))?;
        // A number that would be rounded is refused, and so is deep nesting.
        let value =
            Json::new(text).value().map_err(|problem| Problem::new(422, format!("the body: {problem}")))?;
        if has_nul(&value) {
            return Err(Problem::new(422, "the body: a string has a NUL character"));
        }
        serde_json::from_value(value).map_err(|error| Problem::new(422, format!("the body: {error}")))
    }
}

/// Whether a string has a NUL character, which PostgreSQL's texts cannot have.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(values) => values.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(path: &str, query: &str, body: &str) -> Result<Request, Problem> {
        let headers = [("Content-Type".to_string(), "application/json; charset=utf-8".to_string())];
        Request::new("post", path, query, headers, body.into())
    }

    #[test]
    fn paths_and_parameters_are_decoded_once() {
        let request = request("/a%2Fb/%25/ü/", "?x=1+2&x=%26&y", "").unwrap();
        assert_eq!(request.segments, ["a/b", "%", "ü"]);
        assert_eq!(request.parameters("x"), ["1 2", "&"]);
        assert_eq!((request.parameter("y"), request.parameter("z")), (Some(""), None));
        assert_eq!(request.method, "POST");
        assert_eq!(request.header("content-type"), Some("application/json; charset=utf-8"));
    }

    #[test]
    fn what_is_no_request_is_a_problem_of_the_client() {
        for (path, query) in [("a", ""), ("/%ff", ""), ("/%00", ""), ("/a", "x=%00"), (&"/a".repeat(33), "")]
        {
            let problem = request(path, query, "").unwrap_err();
            assert!((400..500).contains(&problem.status), "{path} {query}");
        }
        let long = "/".to_string() + &"a/".repeat(1_000_000);
        assert_eq!(request(&long, "", "").unwrap_err().status, 404);
    }

    #[test]
    fn a_body_is_json_or_a_problem() {
        assert_eq!(request("/", "", "").unwrap().json::<Value>().unwrap(), serde_json::json!({}));
        for body in
            ["{", "{\"a\": 1} x", "[12345678901234567890123]", "{'a': 1}", r#"{"a": [{"\u0000": 1}]}"#]
        {
            assert_eq!(request("/", "", body).unwrap().json::<Value>().unwrap_err().status, 422, "{body}");
        }
        assert_eq!(request("/", "", "{\"a\": 1}").unwrap().json::<Vec<u8>>().unwrap_err().status, 422);
        assert_eq!(request("/", "", &"[".repeat(100_000)).unwrap().json::<Value>().unwrap_err().status, 422);
        let plain = [("content-type".to_string(), "text/plain".to_string())];
        let request = Request::new("POST", "/", "", plain, b"{}".to_vec()).unwrap();
        assert_eq!(request.json::<Value>().unwrap_err().status, 415);
    }

    #[test]
    fn a_number_is_of_its_range() {
        let request = request("/", "limit=7&many=0&text=x&huge=99999999999", "").unwrap();
        assert_eq!(request.number("limit", 1..=10), Ok(Some(7)));
        assert_eq!(request.number("none", 1..=10), Ok(None));
        for name in ["many", "text", "huge"] {
            assert_eq!(request.number(name, 1..=10).unwrap_err().status, 422);
        }
    }
}
