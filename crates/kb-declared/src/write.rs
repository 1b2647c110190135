//! Writes what is declared as YAML that [`crate::read`] reads as the same.

use crate::declaration::{Identity, Kind};
use crate::names::{LISTS, properties};
use crate::tree::is_ambiguous;
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// The longest text that is written on one line though it has line breaks.
const ONE_LINE: usize = 40;

type Declared = [(Identity, Map<String, Value>)];

/// What is written, whose members are in the order in which a person reads them.
enum Text {
    Value(Value),
    Mapping(Vec<(String, Text)>),
    List(Vec<Text>),
}

/// A file that declares these things. Properties that are null are left out.
pub fn yaml(declared: &Declared) -> String {
    let mut top = Vec::new();
    for (list, kind) in LISTS {
        let items = declared
            .iter()
            .filter(|(identity, _)| identity.kind == *kind && scope_of(identity).is_none())
            .map(|(identity, properties)| item(declared, identity, &identity.id, properties));
        put_list(&mut top, list, items.collect());
    }
    put_list(&mut top, "knowledge", bindings(declared, "project"));
    for (list, level) in LEVELS {
        put_list(&mut top, list, scopes(declared, level));
    }
    if top.is_empty() {
        return "{}\n".into();
    }
    let mut out = String::new();
    write_mapping(&mut out, top, 0);
    out
}

/// The properties of one thing alone.
pub fn properties_yaml(identity: &Identity, given: &Map<String, Value>) -> String {
    let mut out = String::new();
    write_mapping(&mut out, ordered(identity.kind, given), 0);
    out
}

/// The scopes that have knowledge bases of their own: the list of a file, and the word in ids.
const LEVELS: [(&str, &str); 3] = [("workflows", "workflow"), ("tasks", "task"), ("agents", "agent")];

/// The workflow, task or agent whose own knowledge base this is (`workflow:NAME`), and the name that it has
/// there.
fn scope_of(identity: &Identity) -> Option<(&str, &str)> {
    let (scope, name) = identity.id.split_once('/').filter(|_| identity.kind == Kind::KnowledgeBase)?;
    let (word, of) = scope.split_once(':')?;
    let is_scope = LEVELS.iter().any(|(_, level)| *level == word) && !of.is_empty() && !name.is_empty();
    is_scope.then_some((scope, name))
}

/// Properties in the order of their table, or else of their names.
fn ordered(kind: Kind, given: &Map<String, Value>) -> Vec<(String, Text)> {
    let known = properties(kind).iter().map(|property| property.name);
    let rest = given
        .keys()
        .map(String::as_str)
        .filter(|name| properties(kind).iter().all(|known| known.name != *name));
    known
        .chain(rest)
        .filter_map(|name| {
            given.get(name).filter(|value| !value.is_null()).map(|value| (name.to_string(), text(value)))
        })
        .collect()
}

fn text(value: &Value) -> Text {
    match value {
        Value::Object(map) => {
            Text::Mapping(map.iter().map(|(name, value)| (name.clone(), text(value))).collect())
        }
        Value::Array(list) => Text::List(list.iter().map(text).collect()),
        value => Text::Value(value.clone()),
    }
}

fn named(name: &str, value: &str, more: Vec<(String, Text)>) -> Vec<(String, Text)> {
    std::iter::once((name.to_string(), Text::Value(json!(value)))).chain(more).collect()
}

fn item(declared: &Declared, identity: &Identity, name: &str, properties: &Map<String, Value>) -> Text {
    let of = |kind| declared.iter().filter(move |(inner, _)| inner.kind == kind && inner.of == identity.id);
    let key = if identity.kind == Kind::Quota { "tenant" } else { "id" };
    let mut item = named(key, name, ordered(identity.kind, properties));
    if matches!(identity.kind, Kind::KnowledgeBase | Kind::Memory) {
        let indexes = of(Kind::MetadataIndex).map(|(inner, given)| Text::Mapping(ordered(inner.kind, given)));
        put_list(&mut item, "metadata_indexes", indexes.collect());
        let sources = of(Kind::Source).map(|(inner, given)| {
            let source_type = given.get("type").and_then(Value::as_str).unwrap_or_default();
            let config = given.get("config").and_then(Value::as_object);
            let config = config.map_or_else(Vec::new, |config| {
                config.iter().map(|(name, value)| (name.clone(), text(value))).collect()
            });
            Text::Mapping(named("name", &inner.id, named("type", source_type, config)))
        });
        put_list(&mut item, "sources", sources.collect());
        let tables = of(Kind::Table)
            .map(|(inner, given)| Text::Mapping(named("table", &inner.id, ordered(inner.kind, given))));
        put_list(&mut item, "tables", tables.collect());
        put_list(
            &mut item,
            "shared_with",
            of(Kind::Share).map(|(inner, _)| Text::Value(json!(inner.id))).collect(),
        );
    }
    Text::Mapping(item)
}

fn bindings(declared: &Declared, scope: &str) -> Vec<Text> {
    let of_scope =
        declared.iter().filter(|(identity, _)| identity.kind == Kind::Binding && identity.of == scope);
    of_scope.map(|(identity, given)| item(declared, identity, &identity.id, given)).collect()
}

/// The workflows, tasks or agents that have bindings or knowledge bases of their own.
fn scopes(declared: &Declared, level: &str) -> Vec<Text> {
    let mut names: Vec<&str> = Vec::new();
    for (identity, _) in declared {
        let bound = identity.of.strip_prefix(level).and_then(|rest| rest.strip_prefix(':'));
        let name = match identity.kind {
            Kind::Binding => bound,
            Kind::KnowledgeBase => {
                scope_of(identity).and_then(|(scope, _)| scope.strip_prefix(level)?.strip_prefix(':'))
            }
            _ => None,
        };
        names.extend(name.filter(|name| !names.contains(name)));
    }
    let one = |name: &&str| {
        let mut scope = named("id", name, Vec::new());
        let this = format!("{level}:{name}");
        let own = declared.iter().filter_map(|(identity, given)| {
            let (_, id) = scope_of(identity).filter(|(scope, _)| *scope == this)?;
            Some(item(declared, identity, id, given))
        });
        put_list(&mut scope, "knowledge_bases", own.collect());
        put_list(&mut scope, "knowledge", bindings(declared, &this));
        Text::Mapping(scope)
    };
    names.iter().map(one).collect()
}

fn put_list(map: &mut Vec<(String, Text)>, name: &str, items: Vec<Text>) {
    if !items.is_empty() {
        map.push((name.into(), Text::List(items)));
    }
}

fn write_mapping(out: &mut String, members: Vec<(String, Text)>, depth: usize) {
    for (name, value) in members {
        // The first member of a mapping in a list stands behind the dash.
        if !out.ends_with("- ") {
            indent(out, depth);
        }
        out.push_str(&scalar(&name));
        out.push(':');
        write_value(out, value, depth + 1);
    }
}

/// Writes a value behind a colon or a dash, and ends its line.
fn write_value(out: &mut String, value: Text, depth: usize) {
    match value {
        Text::Mapping(members) if members.is_empty() => out.push_str(" {}\n"),
        Text::Mapping(members) => {
            out.push('\n');
            write_mapping(out, members, depth);
        }
        Text::List(list) if list.is_empty() => out.push_str(" []\n"),
        Text::List(list) => {
            out.push('\n');
            for value in list {
                indent(out, depth);
                match value {
                    Text::Mapping(members) if !members.is_empty() => {
                        out.push_str("- ");
                        write_mapping(out, members, depth + 1);
                    }
                    value => {
                        out.push('-');
                        write_value(out, value, depth + 1);
                    }
                }
            }
        }
        Text::Value(Value::String(text)) if is_block(&text) => {
            out.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
            for line in text.trim_end_matches('\n').split('\n') {
                if !line.is_empty() {
                    indent(out, depth);
                }
                out.push_str(line);
                out.push('\n');
            }
        }
        Text::Value(Value::String(text)) => {
            let _ = writeln!(out, " {}", scalar(&text));
        }
        Text::Value(value) => {
            let _ = writeln!(out, " {value}");
        }
    }
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// Whether a text is written as a literal block: it has lines, and nothing in them that a block would change.
fn is_block(text: &str) -> bool {
    text.len() > ONE_LINE
        && text.contains('\n')
        && !text.starts_with([' ', '\n', '\t'])
        && !text.ends_with("\n\n")
        && text.split('\n').all(|line| line.trim_end() == line && line.chars().all(is_printable))
}

/// A text on one line: plain where it is read as the same text, else in double quotes.
fn scalar(text: &str) -> String {
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || " _-./()+@=".contains(c))
        && !text.ends_with(' ')
        && !is_ambiguous(text);
    if is_plain {
        return text.into();
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            c if is_printable(c) => quoted.push(c),
            c => {
                let _ = write!(quoted, "\\U{:08x}", u32::from(c));
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Whether YAML allows a character outside of quotes, and no editor hides it.
fn is_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<bool>().prop_map(|b| json!(b)),
            any::<i64>().prop_map(|n| json!(n)),
            (-1e9..1e9f64).prop_map(|n| json!(n)),
            any::<String>().prop_map(|s| json!(s)),
            "[a-z:#&*!|>'\"%@`{}\\[\\], \n\t-]{0,60}".prop_map(|s| json!(s)),
            Just(json!(null)),
            Just(json!([])),
            Just(json!({})),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
                prop::collection::hash_map(any::<String>(), inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    fn object() -> impl Strategy<Value = Map<String, Value>> {
        prop::collection::hash_map(any::<String>(), value(), 0..5).prop_map(|map| map.into_iter().collect())
    }

    fn name() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z]{1,8}", "\\PC{1,12}", Just("true".to_string()), Just("12".to_string())]
    }

    prop_compose! {
        fn configuration()(
            kbs in prop::collection::btree_set(name(), 0..4),
            memories in prop::collection::btree_set("memory [a-z]{1,5}", 0..3),
            own in prop::collection::btree_set("(workflow|task|agent):[a-z ]{0,4}[a-z]/[a-z]{1,5}", 0..3),
            tables in prop::collection::btree_map("[a-z\"]{1,5}[.]\\PC{1,9}", (any::<bool>(), any::<String>()), 0..2),
            services in prop::collection::btree_map((0..5usize, name()), object(), 0..5),
            settings in object(),
            text in any::<String>(),
            sources in prop::collection::btree_map(name(), object(), 0..3),
            scopes in prop::collection::btree_map(
                (prop_oneof![Just("project".to_string()), "(workflow|task|agent):[a-z ]{0,4}[a-z]"], name()), 1..100i32, 0..6),
        ) -> Vec<(Identity, Map<String, Value>)> {
            let mut declared = Vec::new();
            let kinds = [Kind::VectorDb, Kind::Llm, Kind::Embedder, Kind::Reranker, Kind::Extractor];
            for ((kind, id), mut config) in services {
                for lifted in ["dimension", "metric", "dsn", "index", "consistency", "ensure_index"] {
                    config.remove(lifted);
                }
                let properties = Map::from_iter([("config".into(), Value::Object(config))]);
                declared.push((Identity::new(kinds[kind], "", id), properties));
            }
            let ids: Vec<String> = kbs.into_iter().chain(own).collect();
            for id in &ids {
                let properties = Map::from_iter([
                    ("description".into(), json!(text)),
                    ("retrieval".into(), Value::Object(settings.clone())),
                ]);
                declared.push((Identity::new(Kind::KnowledgeBase, "", id), properties));
            }
            for id in &ids {
                for (name, config) in &sources {
                    let mut config = config.clone();
                    for reserved in ["name", "id", "type"] {
                        config.remove(reserved);
                    }
                    let properties =
                        Map::from_iter([("type".into(), json!("url")), ("config".into(), Value::Object(config))]);
                    declared.push((Identity::new(Kind::Source, id, name), properties));
                }
                declared.push((Identity::new(Kind::Share, id, "other"), Map::new()));
                for (table, (is_list, text)) in &tables {
                    let content = if *is_list { json!([text, "body"]) } else { json!(text) };
                    let properties = Map::from_iter([("content".into(), content), ("replicated".into(), json!(is_list))]);
                    declared.push((Identity::new(Kind::Table, id, table), properties));
                }
            }
            for id in memories {
                declared.push((Identity::new(Kind::Memory, "", &id), Map::from_iter([("settings".into(), Value::Object(settings.clone()))])));
                declared.push((Identity::new(Kind::Share, id, "one"), Map::new()));
            }
            for ((scope, id), top_k) in scopes {
                let properties = Map::from_iter([("top_k".into(), json!(top_k))]);
                declared.push((Identity::new(Kind::Binding, scope, id), properties));
            }
            declared
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]
        #[test]
        fn what_is_written_is_read_as_the_same(mut declared in configuration()) {
            let text = yaml(&declared);
            let read = read::declarations(&text)
                .map_err(|problems| TestCaseError::fail(format!("{problems:?}\n{text}")))?;
            let mut read: Vec<_> = read.into_iter().map(|one| (one.identity, one.properties)).collect();
            let by_identity = |one: &(Identity, Map<String, Value>)| one.0.clone();
            read.sort_by_key(by_identity);
            declared.sort_by_key(by_identity);
            prop_assert_eq!(read, declared, "{}", text);
        }
    }

    #[test]
    fn a_file_reads_as_a_person_would_write_it() {
        let declared = [
            (
                Identity::new(Kind::KnowledgeBase, "", "docs"),
                Map::from_iter([
                    ("embedder".into(), json!("minilm")),
                    (
                        "description".into(),
                        json!("Two lines that a person reads,\nand a second one: here.\n"),
                    ),
                    ("chunking".into(), json!({"size": 800, "separators": ["\n\n", "yes"]})),
                    ("vector_db".into(), json!(null)),
                ]),
            ),
            (Identity::new(Kind::Share, "docs", "acme"), Map::new()),
            (
                Identity::new(Kind::Binding, "agent:helper", "docs"),
                Map::from_iter([("inject_as".into(), json!("{{ .vars.docs }}"))]),
            ),
        ];
        let expected = r#"knowledge_bases:
  - id: docs
    embedder: minilm
    description: |
      Two lines that a person reads,
      and a second one: here.
    chunking:
      separators:
        - "\n\n"
        - "yes"
      size: 800
    shared_with:
      - acme
agents:
  - id: helper
    knowledge:
      - id: docs
        inject_as: "{{ .vars.docs }}"
"#;
        assert_eq!(yaml(&declared), expected);
    }
}
