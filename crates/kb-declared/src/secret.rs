//! Keys of providers: a file names where a key is, never the key.

/// The reference to a key that stands in a file as `{{ .env.NAME }}`, `{{ .secrets.NAME }}` or already as a
/// reference (`env:NAME`, `kb:NAME`, `file:PATH`). The problem never repeats the text.
pub fn reference(text: &str) -> Result<String, String> {
    let template = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")).map(str::trim);
    let name = |rest: &str, prefix: &str| {
        let is_name = !rest.is_empty() && rest.chars().all(|c| c.is_alphanumeric() || "_-.".contains(c));
        is_name.then(|| format!("{prefix}:{rest}"))
    };
    let reference = match template {
        Some(template) => template
            .strip_prefix(".env.")
            .and_then(|rest| name(rest, "env"))
            .or_else(|| template.strip_prefix(".secrets.").and_then(|rest| name(rest, "kb"))),
        None => ["env:", "kb:", "file:"]
            .iter()
            .any(|prefix| text.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()))
            .then(|| text.to_string()),
    };
    reference.ok_or_else(|| {
        "is no reference to a key; write {{ .env.NAME }}, {{ .secrets.NAME }}, env:NAME or kb:NAME, never a key itself".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_become_references_and_keys_are_refused_without_being_repeated() {
        assert_eq!(reference("{{ .env.OPENAI_API_KEY }}").unwrap(), "env:OPENAI_API_KEY");
        assert_eq!(reference("{{.secrets.my-key}}").unwrap(), "kb:my-key");
        assert_eq!(reference("kb:a").unwrap(), "kb:a");
        for key in ["sk-abcdef", "{{ .workflow.x }}", "{{ .env. }}", "env:", "{{ .env.A B }}", ""] {
            let problem = reference(key).unwrap_err();
            assert!(!key.starts_with("sk-") || !problem.contains(key), "{key}");
        }
    }
}
