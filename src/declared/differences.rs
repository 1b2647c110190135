//! What differs between two states of one thing, property by property, as lines of YAML.

use kb_declared::declaration::Identity;
use kb_declared::write::properties_yaml;
use serde_json::{Map, Value};

/// Lines that begin with `-` are of the state before, and those with `+` of the state after. Properties that
/// are equal are left out.
pub fn lines(
    identity: &Identity,
    before: Option<&Map<String, Value>>,
    after: Option<&Map<String, Value>>,
) -> String {
    let none = Map::new();
    let (before, after) = (before.unwrap_or(&none), after.unwrap_or(&none));
    let differing = |of: &Map<String, Value>, other: &Map<String, Value>| -> Map<String, Value> {
        of.iter()
            .filter(|(name, value)| other.get(*name) != Some(value))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect()
    };
    let mut out = Vec::new();
    for (sign, of, other) in [('-', before, after), ('+', after, before)] {
        let yaml = properties_yaml(identity, &differing(of, other));
        out.extend(yaml.lines().map(|line| format!("{sign} {line}")));
    }
    out.join("\n")
}
