//! By what a page is known again: what its server said of it (RFC 9110, 8.8), and a hash of its bytes,
//! because servers may say nothing, or something else for the same bytes. Pure.

use super::fetching::Page;
use kb_gateway::protocol::Validators;
use serde_json::{Map, Value, json};

#[derive(Debug, Clone, PartialEq)]
pub struct Version {
    pub validators: Validators,
    hash: String,
}

impl Version {
    pub fn of(page: &Page) -> Version {
        let mut validators = page.validators.clone();
        // JSON in the database has no NUL, and a header no other control characters.
        for value in [&mut validators.etag, &mut validators.last_modified] {
            *value = value.take().filter(|value| !value.contains(char::is_control));
        }
        Version { validators, hash: blake3::hash(&page.bytes).to_hex()[..32].to_string() }
    }

    /// As it is kept. `asked`: the address of the page, which differs from that of its content after a
    /// redirect.
    pub fn text(&self, asked: &str) -> String {
        let Validators { url, etag, last_modified } = &self.validators;
        let mut json = Map::from_iter([("hash".to_string(), json!(self.hash))]);
        json.extend(etag.iter().map(|etag| ("etag".to_string(), json!(etag))));
        json.extend(last_modified.iter().map(|date| ("last_modified".to_string(), json!(date))));
        if url != asked {
            json.insert("url".into(), json!(url));
        }
        Value::Object(json).to_string()
    }

    /// None if it is not one.
    pub fn parse(text: &str, asked: &str) -> Option<Version> {
        let json: Map<String, Value> = serde_json::from_str(text).ok()?;
        let of = |key: &str| json.get(key).and_then(Value::as_str).map(str::to_string);
        let url = of("url").unwrap_or_else(|| asked.to_string());
        let validators = Validators { url, etag: of("etag"), last_modified: of("last_modified") };
        Some(Version { validators, hash: of("hash")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_was_kept() {
        let page = |url: &str, etag: Option<&str>, bytes: &str| Page {
            validators: Validators { url: url.into(), etag: etag.map(str::to_string), last_modified: None },
            bytes: bytes.into(),
            content_type: None,
        };
        for (url, etag) in [("http://a/", None), ("http://b/", Some("W/\"x'\\\""))] {
            let version = Version::of(&page(url, etag, "bytes"));
            assert_eq!(Version::parse(&version.text("http://a/"), "http://a/"), Some(version.clone()));
            assert_ne!(Version::of(&page(url, etag, "other bytes")), version);
        }
        for other in ["", "12 0.0 0.0", "[]", "{}"] {
            assert_eq!(Version::parse(other, "http://a/"), None, "{other}");
        }
    }
}
