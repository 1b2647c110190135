//! Markdown. Its text is kept as it is, because kb reads Markdown itself, except for front matter: YAML
//! between lines of ---, or TOML between lines of +++. Its values are metadata of the document.

use super::{Format, yaml};
use crate::charset;
use kb_types::extraction::{Extraction, Fault, File};
use serde_json::{Map, Value};

pub const MARKDOWN: Format = Format {
    content_types: &["text/markdown", "text/x-markdown"],
    extensions: &["md", "markdown", "mdx", "qmd"],
    is_text: true,
    read,
};

/// The most bytes of front matter. A longer beginning is text.
const LONGEST: usize = 64 * 1024;

fn read(file: &File) -> Result<Extraction, Fault> {
    let decoded = charset::decode(file)?;
    let mut extraction = Extraction {
        text_type: "text/markdown".into(),
        metadata: decoded.metadata(),
        ..Extraction::default()
    };
    let Some((values, text)) = front_matter(&decoded.text) else {
        extraction.text = decoded.text;
        return Ok(extraction);
    };
    extraction.text = text.to_string();
    for (key, value) in values {
        let key = known(key);
        match value {
            Value::String(title) if key == "title" && !title.trim().is_empty() => {
                extraction.title = Some(title.trim().to_string());
            }
            Value::Null => {}
            value => {
                extraction.metadata.insert(key, value);
            }
        }
    }
    Ok(extraction)
}

/// The key that kb has for what many programs call otherwise.
fn known(key: String) -> String {
    match key.to_ascii_lowercase().as_str() {
        "title" => "title".into(),
        "author" => "author".into(),
        "lang" | "language" => "language".into(),
        _ => key,
    }
}

/// The values in the front matter and the text after it. None where a text has no front matter, or where that
/// cannot be read: then it is text.
fn front_matter(text: &str) -> Option<(Map<String, Value>, &str)> {
    let (fence, is_yaml) = match text.get(..3)? {
        "---" => ("---", true),
        "+++" => ("+++", false),
        _ => return None,
    };
    let mut at = 0;
    let mut start = None;
    for line in text.split_inclusive('\n') {
        let end = line.trim_end();
        let closes = end == fence || is_yaml && end == "...";
        match start {
            None if end == fence => start = Some(line.len()),
            None => return None,
            Some(start) if closes => {
                let values =
                    if is_yaml { from_yaml(&text[start..at])? } else { from_toml(&text[start..at])? };
                return Some((values, text[at + line.len()..].trim_start_matches('\n')));
            }
            Some(_) if at > LONGEST => return None,
            Some(_) => {}
        }
        at += line.len();
    }
    None
}

fn from_yaml(text: &str) -> Option<Map<String, Value>> {
    let documents = yaml::documents(text).ok()?;
    let value = match &documents[..] {
        [] => return Some(Map::new()),
        [one] => one.value().ok()?,
        _ => return None,
    };
    match stored(value) {
        Value::Object(values) => Some(values),
        // A comment, or nothing.
        Value::Null => Some(Map::new()),
        _ => None,
    }
}

fn from_toml(text: &str) -> Option<Map<String, Value>> {
    // The library bounds how deep a table is nested.
    let table = toml::from_str::<toml::Table>(text).ok()?;
    Some(table.into_iter().map(|(key, value)| (key, stored(json(value)))).collect())
}

/// A value of TOML in JSON. Dates are texts, as RFC 3339 has them.
fn json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(number) => number.into(),
        toml::Value::Float(number) => {
            serde_json::Number::from_f64(number).map_or_else(|| number.to_string().into(), Value::Number)
        }
        toml::Value::Boolean(is_true) => is_true.into(),
        toml::Value::Datetime(time) => time.to_string().into(),
        toml::Value::Array(values) => values.into_iter().map(json).collect(),
        toml::Value::Table(table) => {
            Value::Object(table.into_iter().map(|(key, value)| (key, json(value))).collect())
        }
    }
}

/// A value without NUL, which cannot be stored.
fn stored(value: Value) -> Value {
    let clean = |text: String| if text.contains('\0') { text.replace('\0', "") } else { text };
    match value {
        Value::String(text) => Value::String(clean(text)),
        Value::Array(values) => values.into_iter().map(stored).collect(),
        Value::Object(values) => {
            Value::Object(values.into_iter().map(|(key, value)| (clean(key), stored(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(text: &str) -> Extraction {
        let file =
            File { name: Some("a.md".into()), bytes: text.into(), max_text: usize::MAX, ..File::default() };
        crate::extract(&file).unwrap()
    }

    #[test]
    fn front_matter_is_metadata_and_no_text() {
        let yaml = "---\ntitle: \"The: harbour\"\ndate: 2024-03-05\ntags: [a, b]\nweight: 3\nid: 12345678901234567890123\ndraft: false\nnothing:\n---\n\n# Text\n---\n";
        let found = of(yaml);
        assert_eq!((found.title.as_deref(), found.text.as_str()), (Some("The: harbour"), "# Text\n---\n"));
        let expected = json!({"date": "2024-03-05", "tags": ["a", "b"], "weight": 3,
            "id": "12345678901234567890123", "draft": false});
        assert_eq!(Value::Object(found.metadata), expected);

        let toml =
            "+++\r\ntitle = 'T'\ndate = 2024-03-05T10:00:00Z\nLang = \"de\"\n[params]\nn = 1.5\n+++\nText";
        let found = of(toml);
        assert_eq!((found.title.as_deref(), found.text.as_str()), (Some("T"), "Text"));
        let expected = json!({"date": "2024-03-05T10:00:00Z", "language": "de", "params": {"n": 1.5}});
        assert_eq!(Value::Object(found.metadata), expected);
    }

    #[test]
    fn what_is_no_front_matter_stays_text() {
        for text in [
            "---\n\nA rule\n",
            "----\na: 1\n---\n",
            "text\n---\na: 1\n---\n",
            "---\na: [1\n---\ntext",
            "+++\na = \n+++\ntext",
            "---\njust words\n---\ntext",
            "--",
            "---",
        ] {
            let found = of(text);
            assert_eq!((found.text.as_str(), found.metadata.len(), &found.title), (text, 0, &None), "{text}");
        }
        let long = format!("---\n{}---\n", "a: 1\n".repeat(LONGEST));
        assert_eq!(of(&long).text, long);
    }
}
