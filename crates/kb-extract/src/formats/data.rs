//! JSON, lines of JSON, and YAML.

use super::Format;
use super::lines::Lines;
use super::yaml;
use crate::charset::{self, Decoded};
use actson::JsonEvent;
use kb_types::Json;
use kb_types::extraction::{Extraction, Fault, File};

pub const JSON: Format = Format {
    content_types: &["application/json", "text/json", "application/ld+json", "application/geo+json"],
    extensions: &["json", "jsonld", "geojson"],
    is_text: true,
    read: |file| {
        let decoded = charset::decode(file)?;
        let json = vec![Json::new(decoded.text.as_str())];
        extraction(file, &decoded, json, |_| "it is not JSON".into())
    },
};

pub const JSON_LINES: Format = Format {
    content_types: &[
        "application/x-ndjson",
        "application/jsonl",
        "application/x-jsonlines",
        "application/jsonlines",
    ],
    extensions: &["jsonl", "ndjson"],
    is_text: true,
    read: |file| {
        let decoded = charset::decode(file)?;
        if file.reading.lines_apart {
            return lines_apart(file, &decoded);
        }
        let records = decoded.text.lines().map(Json::new).collect();
        extraction(file, &decoded, records, |number| format!("line {number} is not JSON"))
    },
};

pub const YAML: Format = Format {
    content_types: &["application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml"],
    extensions: &["yaml", "yml"],
    is_text: true,
    read: |file| {
        let decoded = charset::decode(file)?;
        match yaml::documents(&decoded.text) {
            Ok(documents) => extraction(file, &decoded, documents, |number| {
                format!("its document {number} cannot be read")
            }),
            // Many files that other programs read, templates among them, break the rules of YAML. They are
            // texts that people can read.
            Err(problem) => {
                let mut metadata = decoded.metadata();
                metadata.insert("yaml_problem".into(), problem.into());
                let text_type = "text/plain".into();
                Ok(Extraction { text_type, metadata, text: decoded.text, ..Extraction::default() })
            }
        }
    },
};

/// A part for each line that is not blank. Its name is the value of the line's `id`, or the line's number.
fn lines_apart(file: &File, decoded: &Decoded) -> Result<Extraction, Fault> {
    let mut metadata = decoded.metadata();
    let mut parts = Vec::new();
    for (number, line) in (1..).zip(decoded.text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let record = Json::new(line);
        record.check().map_err(|_| Fault::Broken(format!("line {number} is not JSON")))?;
        let id = record
            .members()
            .and_then(|members| members.into_iter().find(|(key, id)| key == "id" && id.is_scalar()));
        let id = id.map(|(_, id)| id.text().unwrap_or_else(|| id.as_str().to_string()));
        parts.push(File {
            name: Some(id.unwrap_or_else(|| number.to_string())),
            content_type: Some(JSON.content_types[0].into()),
            bytes: line.into(),
            max_text: file.max_text,
            ..File::default()
        });
        if parts.len() > crate::PARTS {
            return Err(Fault::TooLarge(format!("it has more than {} lines", crate::PARTS)));
        }
    }
    metadata.insert("lines".into(), parts.len().into());
    Ok(Extraction { text_type: "text/plain".into(), metadata, parts, ..Extraction::default() })
}

/// How deep the values are in an array of records, which are set apart: directly in the document, or in one
/// of its members.
const RECORDS: usize = 2;

/// The text of records, and the title of the first. `problem` says what is wrong with the record of a number.
fn extraction(
    file: &File,
    decoded: &Decoded,
    records: Vec<Json>,
    problem: fn(usize) -> String,
) -> Result<Extraction, Fault> {
    let mut lines = Lines::new(file.max_text);
    let mut title = None;
    for (number, record) in (1..).zip(&records) {
        if record.as_str().trim().is_empty() {
            continue;
        }
        // Nesting is measured here, before anything recurses.
        record.check().map_err(|_| Fault::Broken(problem(number)))?;
        lines.set_apart();
        let found = add(record, &mut lines)?;
        if number == 1 && records.len() == 1 {
            title = found;
        }
    }
    Ok(Extraction {
        text_type: "text/plain".into(),
        metadata: decoded.metadata(),
        title,
        text: lines.finish(),
        ..Extraction::default()
    })
}

/// Adds the values of a document. Returns its member `title`.
fn add(json: &Json, lines: &mut Lines) -> Result<Option<String>, Fault> {
    let broken = || Fault::Broken("it cannot be read as JSON".into());
    let mut parser = json.parser();
    // For each object and array around the current value: whether it is an array, and the name before it.
    let mut around: Vec<(bool, String)> = Vec::new();
    let mut name = String::new();
    let mut title = None;
    while let Some(event) = parser.next_event().map_err(|_| broken())? {
        let is_element = around.last().is_some_and(|(is_array, _)| *is_array);
        match event {
            JsonEvent::StartObject | JsonEvent::StartArray => {
                if is_element && around.len() <= RECORDS {
                    lines.set_apart();
                }
                around.push((event == JsonEvent::StartArray, std::mem::take(&mut name)));
            }
            JsonEvent::EndObject | JsonEvent::EndArray => {
                around.pop();
                name.clear();
                let is_element = around.last().is_some_and(|(is_array, _)| *is_array);
                if is_element && around.len() <= RECORDS {
                    lines.set_apart();
                }
            }
            JsonEvent::FieldName => name = parser.current_str().map_err(|_| broken())?.to_string(),
            JsonEvent::ValueNull => name.clear(),
            JsonEvent::NeedMoreInput => return Err(broken()),
            _ => {
                let value = match event {
                    JsonEvent::ValueTrue => "true",
                    JsonEvent::ValueFalse => "false",
                    _ => parser.current_str().map_err(|_| broken())?,
                };
                if event == JsonEvent::ValueString && name == "title" && around.len() == 1 {
                    title = Some(value.trim().replace('\0', "")).filter(|title| !title.is_empty());
                }
                let names = around.iter().map(|(_, name)| name.as_str()).chain([name.as_str()]);
                lines.push(names, value)?;
                name.clear();
            }
        }
    }
    Ok(title)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, name: &str) -> Result<Extraction, Fault> {
        let file = File { name: Some(name.into()), bytes: text.into(), max_text: 100_000, ..File::default() };
        crate::extract(&file)
    }

    fn text(text: &str, name: &str) -> String {
        of(text, name).unwrap().text
    }

    #[test]
    fn each_value_comes_after_its_names_and_as_it_is_written() {
        let json = r#"{"title": "Prices", "z": {"deep": [1.50, "x", [true, null]], "n": 12345678901234567890123.50}, "a": "last\r\nline"}"#;
        let found = of(json, "a.json").unwrap();
        assert_eq!(found.title.as_deref(), Some("Prices"));
        assert_eq!(
            found.text,
            "title: Prices\nz.deep: 1.50\nz.deep: x\nz.deep: true\nz.n: 12345678901234567890123.50\na: last\nline"
        );
        assert_eq!(text("\"only\"", "a.json"), "only");
    }

    #[test]
    fn records_are_set_apart() {
        assert_eq!(text(r#"[{"a": 1, "b": 2}, {"a": 3}]"#, "a.json"), "a: 1\nb: 2\n\na: 3");
        assert_eq!(
            text(r#"{"n": 2, "items": [{"a": [{"b": 1}, {"b": 2}]}, {"a": 3}], "end": 1}"#, "a.json"),
            "n: 2\n\nitems.a.b: 1\nitems.a.b: 2\n\nitems.a: 3\n\nend: 1"
        );
        assert_eq!(text("{\"a\": 1}\n\n{\"a\": 2}\n[3]\n", "a.jsonl"), "a: 1\n\na: 2\n\n3");
        assert_eq!(text("a: 1\n---\na: 2\n", "a.yml"), "a: 1\n\na: 2");
    }

    #[test]
    fn each_line_is_a_part_on_request() {
        let reading = kb_types::extraction::Reading { lines_apart: true, ..Default::default() };
        let text = "{\"id\": 7, \"a\": \"x\"}\n\n{\"a\": \"y\"}\r\n{\"id\": \"k/1\"}\n[3]";
        let file = File {
            name: Some("a.jsonl".into()),
            bytes: text.into(),
            max_text: 1000,
            reading,
            ..File::default()
        };
        let found = crate::extract(&file).unwrap();
        let names: Vec<&str> = found.parts.iter().filter_map(|part| part.name.as_deref()).collect();
        assert_eq!(names, ["7", "3", "k/1", "5"]);
        assert_eq!((found.text.as_str(), &found.metadata["lines"]), ("", &4.into()));
        assert_eq!(crate::extract(&found.parts[1]).unwrap().text, "a: y");
        let broken = File { bytes: "{}\n{".into(), ..file.clone() };
        assert_eq!(crate::extract(&broken), Err(Fault::Broken("line 2 is not JSON".into())));
        let many = File { bytes: "1\n".repeat(crate::PARTS + 1).into(), ..file };
        assert!(matches!(crate::extract(&many), Err(Fault::TooLarge(_))));
    }

    #[test]
    fn yaml_has_the_text_of_its_json() {
        let yaml = "# comment\ntitle: 'Über'\nlist:\n- a\n- {b: 0012, c: 1.0}\ntext: |\n  one\n  two\nnothing: ~\nlong: 12345678901234567890123\nbase: &b {x: y}\nalso: *b\nword: &w once\nagain: *w\n";
        let found = of(yaml, "a.yaml").unwrap();
        assert_eq!(found.title.as_deref(), Some("Über"));
        assert_eq!(
            found.text,
            "title: Über\nlist: a\n\nlist.b: 0012\nlist.c: 1.0\n\ntext: one\ntwo\nlong: 12345678901234567890123\nbase.x: y\nword: once\nagain: once"
        );
    }

    #[test]
    fn what_is_broken_too_deep_or_too_long_is_refused() {
        let broken = |text: &str, name| match of(text, name) {
            Err(Fault::Broken(problem)) => problem,
            other => panic!("{other:?}"),
        };
        assert_eq!(broken("{\"a\":", "a.json"), "it is not JSON");
        assert_eq!(broken("{}\n{", "a.jsonl"), "line 2 is not JSON");
        broken(&"[".repeat(200_000), "a.json");
        let long = format!("{{\"{}\": [{}0]}}", "n".repeat(1000), "0,".repeat(1000));
        assert!(matches!(of(&long, "a.json"), Err(Fault::TooLarge(_))));
    }

    #[test]
    fn yaml_that_breaks_the_rules_or_is_nested_too_deep_stays_as_it_is() {
        let deep = ["[".repeat(2_000), "- ".repeat(2_000)];
        for yaml in ["a: {{ b }}\n", "a: [1\nb: 2", "{a: b}: c", &deep[0], &deep[1]] {
            let found = of(yaml, "a.yaml").unwrap();
            assert_eq!(found.text, yaml);
            assert!(found.metadata["yaml_problem"].is_string());
        }
    }

    #[test]
    fn aliases_do_not_multiply() {
        let mut yaml = String::from("a0: &a0 lol\n");
        for i in 1..40 {
            yaml.push_str(&format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 9].join(", ")));
        }
        assert!(text(&yaml, "a.yaml").len() < 200);
    }
}
