//! kb.get_knowledge_base and its like: one resource, with its etag.

use super::resource::Resource;
use super::sql;
use kb_types::Json;
use kb_types::error::{Error, Result};

/// How many hexadecimal digits of its hash an etag has.
const DIGITS: usize = 16;

/// The resource as a JSON object, or None if it is still the one of this etag.
pub fn get(resource: Resource, id: &str, if_none_match: Option<&str>) -> Result<Option<Json>> {
    let found = sql::find(resource, id)?
        .ok_or_else(|| Error::NotFound { what: resource.object_kind(), id: id.into() })?;
    let etag = etag(&found.resource);
    Ok((!is_same(if_none_match, &etag)).then(|| tagged(&found.resource, &etag)))
}

/// The etag of a resource, in the quotes that it has in a header of HTTP.
pub fn etag(resource: &Json) -> String {
    // jsonb prints equal values alike.
    format!("\"{}\"", &blake3::hash(resource.as_str().as_bytes()).to_hex()[..DIGITS])
}

/// Whether a caller's etag, with or without its quotes, is this one.
pub fn is_same(given: Option<&str>, etag: &str) -> bool {
    given.is_some_and(|given| given == etag || given == etag.trim_matches('"'))
}

/// The resource with its etag as a member.
pub fn tagged(resource: &Json, etag: &str) -> Json {
    let members = resource.as_str().trim_start_matches('{');
    Json::new(format!("{{\"etag\": {}, {members}", serde_json::json!(etag)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_is_of_the_whole_resource_and_is_recognised_without_its_quotes() {
        let (one, other) = (Json::new(r#"{"id": "a"}"#), Json::new(r#"{"id": "b"}"#));
        let tag = etag(&one);
        assert_eq!(tag.len(), DIGITS + 2);
        assert_ne!(tag, etag(&other));
        assert!(is_same(Some(&tag), &tag) && is_same(Some(tag.trim_matches('"')), &tag));
        assert!(!is_same(Some(&etag(&other)), &tag) && !is_same(None, &tag) && !is_same(Some(""), &tag));
        assert_eq!(tagged(&one, "\"1f\"").value().unwrap(), serde_json::json!({"etag": "\"1f\"", "id": "a"}));
    }
}
