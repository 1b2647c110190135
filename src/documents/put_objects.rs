//! kb.put_objects: stores JSON objects, such as the knowledge of an agent, each as a document.

use crate::documents::extract_text::text_of;
use crate::documents::new_document::{Content, GivenDocument};
use crate::documents::put_document::put_documents;
use kb_types::error::{Error, Result};
use kb_types::json_fields::JsonFields;
use kb_types::row_states::PutStatus;
use kb_types::{Json, id};
use serde_json::Value;
use std::collections::HashMap;

/// The members that may hold the external_id of an object. The first one that is a string or a number is
/// used.
const ID_MEMBERS: [&str; 2] = ["id", "external_id"];

/// How many hexadecimal digits of its hash name an object that has no id.
const HASH_DIGITS: usize = 32;

/// Text that is neither Markdown nor HTML, whatever it looks like.
const CONTENT_TYPE: &str = "text/plain";

/// Puts all objects or none. The text of a document is that of its object, and its metadata is the object.
/// Equal objects are one document. Returns the outcome for each document, in the order of the objects.
pub fn put_objects(kb_id: &str, objects: Vec<Json>, fields: &Value) -> Result<Vec<(String, PutStatus)>> {
    let fields =
        JsonFields::parse("fields", fields).map_err(|problems| Error::configuration("fields", problems))?;
    let mut documents = Vec::with_capacity(objects.len());
    let mut seen: HashMap<String, Json> = HashMap::with_capacity(objects.len());
    for (number, object) in (1..).zip(objects) {
        let wrong = |problem| Error::Argument {
            argument: "objects",
            problem: format!("element {number}: {problem}"),
        };
        if !object.is_object() {
            return Err(wrong("must be a JSON object".to_string()));
        }
        let external_id = external_id(&object).map_err(wrong)?;
        match seen.get(&external_id) {
            Some(equal) if *equal == object => continue,
            Some(_) => {
                return Err(wrong(format!("another object has the same external_id, \"{external_id}\"")));
            }
            None => drop(seen.insert(external_id.clone(), object.clone())),
        }
        documents.push(GivenDocument {
            content: Content::Text(
                text_of(&object, &fields).map_err(|error| error.of_document(&external_id))?,
            ),
            external_id,
            metadata: Some(object),
            title: None,
            content_type: Some(CONTENT_TYPE.to_string()),
            uri: None,
            chunking: None,
        });
    }
    put_documents(kb_id, documents)
}

/// The id of an object, or else a hash of it. jsonb prints equal objects alike.
fn external_id(object: &Json) -> std::result::Result<String, String> {
    object.check()?;
    let members = object.members().unwrap_or_default();
    let given = ID_MEMBERS.iter().find_map(|name| {
        let (_, value) = members.iter().find(|(member, _)| member == name)?;
        if value.is_number() { Some(value.as_str().to_string()) } else { value.text() }
    });
    match given {
        Some(given) => match id::problem(&given, id::MAX_EXTERNAL_BYTES) {
            Some(problem) => Err(format!("its id {problem}")),
            None => Ok(given),
        },
        None => Ok(blake3::hash(object.as_str().as_bytes()).to_hex()[..HASH_DIGITS].to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_object_is_a_member_that_is_a_word_or_else_a_hash_of_it() {
        let id = |object: &str| external_id(&Json::new(object)).unwrap();
        assert_eq!(id(r#"{"a": 1, "id": "x", "external_id": "y"}"#), "x");
        assert_eq!(id(r#"{"id": 12345678901234567890123, "external_id": "y"}"#), "12345678901234567890123");
        assert_eq!(id(r#"{"id": null, "external_id": "y"}"#), "y");
        for (one, other) in [(r#"{"a": 1}"#, r#"{"a": 2}"#), (r#"{"id": [1]}"#, r#"{"id": {}}"#)] {
            assert_eq!(id(one).len(), HASH_DIGITS);
            assert_ne!(id(one), id(other));
        }
        for wrong in [r#"{"id": " "}"#.to_string(), format!(r#"{{"id": "{}"}}"#, "x".repeat(1001))] {
            assert!(external_id(&Json::new(wrong)).unwrap_err().starts_with("its id "));
        }
    }
}
