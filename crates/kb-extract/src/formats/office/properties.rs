//! Reads what a file says of itself: its title, author and dates. Office Open XML, OpenDocument and EPUB name
//! them by Dublin Core.

use super::package::Package;
use super::xml::Xml;
use kb_types::extraction::Fault;
use serde_json::{Map, Value};

/// The properties of a file.
#[derive(Debug, Default)]
pub struct Properties {
    pub title: Option<String>,
    pub metadata: Map<String, Value>,
}

impl Properties {
    /// The properties of a file of Office Open XML.
    pub fn of_office(package: &mut Package) -> Result<Properties, Fault> {
        let part = package.related("", "core-properties")?;
        let part = part.unwrap_or_else(|| "docProps/core.xml".into());
        let text = package.text(&part)?.unwrap_or_default();
        Properties::read(&text, |name| match name {
            "creator" => Some("author"),
            "created" => Some("created"),
            "modified" => Some("modified"),
            "keywords" => Some("keywords"),
            name => common(name),
        })
    }

    /// The properties of a file of OpenDocument.
    pub fn of_open_document(package: &mut Package) -> Result<Properties, Fault> {
        let text = package.text("meta.xml")?.unwrap_or_default();
        let mut properties = Properties::read(&text, |name| match name {
            "initial-creator" => Some("author"),
            "creator" => Some("last_author"),
            "creation-date" => Some("created"),
            "date" => Some("modified"),
            "keyword" => Some("keywords"),
            name => common(name),
        })?;
        // Who changed the file last is its author where nobody else is named.
        if let Some(last) = properties.metadata.remove("last_author") {
            properties.metadata.entry("author").or_insert(last);
        }
        Ok(properties)
    }

    /// Reads the elements whose name has a key. Several of one name are joined by commas.
    pub fn read(text: &str, key: impl Fn(&str) -> Option<&'static str>) -> Result<Properties, Fault> {
        let mut properties = Properties::default();
        let mut xml = Xml::new(text);
        // How many elements around the properties are open.
        let mut open = 0_usize;
        loop {
            let Some(element) = xml.child()? else {
                if open == 0 {
                    return Ok(properties);
                }
                open -= 1;
                continue;
            };
            match key(element.name()) {
                Some(key) => properties.add(key, &xml.text()?),
                None => open += 1,
            }
        }
    }

    pub fn add(&mut self, key: &str, value: &str) {
        let value = clean(value);
        if value.is_empty() {
            return;
        }
        if key == "title" {
            self.title.get_or_insert(value);
            return;
        }
        match self.metadata.get_mut(key) {
            Some(Value::String(earlier)) if matches!(key, "author" | "keywords" | "subject") => {
                earlier.push_str(", ");
                earlier.push_str(&value);
            }
            Some(_) => {}
            None => drop(self.metadata.insert(key.into(), value.into())),
        }
    }
}

fn common(name: &str) -> Option<&'static str> {
    match name {
        "title" => Some("title"),
        "subject" => Some("subject"),
        "description" => Some("description"),
        "language" => Some("language"),
        _ => None,
    }
}

/// A text on one line, without characters that cannot be stored.
pub fn clean(text: &str) -> String {
    let text = text.replace(['\0', '\u{feff}'], "");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
