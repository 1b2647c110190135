//! A text that contains the values of columns: `{{title}}\n\n{{body}}`.

use serde::{Deserialize, Serialize};

/// A parsed template: its literal parts, and the columns between them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template {
    source: String,
    parts: Vec<TemplatePart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Column(String),
}

impl Template {
    /// Whether a text is meant as a template.
    pub fn is_template(text: &str) -> bool {
        text.contains("{{")
    }

    /// Parses a template. A column is named between `{{` and `}}`, exactly as it is in the table. Blanks
    /// around the name are ignored.
    pub fn parse(source: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        let mut rest = source;
        while let Some((text, after)) = rest.split_once("{{") {
            let Some((name, after)) = after.split_once("}}") else {
                return Err(format!("\"{{{{{after}\" has no }}}}"));
            };
            let name = name.trim();
            if name.is_empty() || name.contains('{') {
                return Err(format!("\"{{{{{name}}}}}\" does not name a column"));
            }
            if !text.is_empty() {
                parts.push(TemplatePart::Text(text.to_string()));
            }
            parts.push(TemplatePart::Column(name.to_string()));
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(TemplatePart::Text(rest.to_string()));
        }
        if !parts.iter().any(|part| matches!(part, TemplatePart::Column(_))) {
            return Err("it does not name a column".into());
        }
        Ok(Template { source: source.to_string(), parts })
    }

    /// The columns that the template names, in their order, each as often as it is named.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Column(name) => Some(name.as_str()),
            TemplatePart::Text(_) => None,
        })
    }

    /// The text for the given values of [`Template::columns`]. NULL is empty. Where all values are blank the
    /// result is empty, so that literal parts alone make no document.
    pub fn render(&self, values: &[Option<String>]) -> String {
        let mut values = values.iter();
        let mut text = String::new();
        let mut is_blank = true;
        for part in &self.parts {
            match part {
                TemplatePart::Text(literal) => text.push_str(literal),
                TemplatePart::Column(_) => {
                    if let Some(value) = values.next().and_then(Option::as_deref) {
                        is_blank &= value.trim().is_empty();
                        text.push_str(value);
                    }
                }
            }
        }
        if is_blank { String::new() } else { text }
    }
}

impl TryFrom<String> for Template {
    type Error = String;

    fn try_from(source: String) -> Result<Template, String> {
        Template::parse(&source)
    }
}

impl From<Template> for String {
    fn from(template: Template) -> String {
        template.source
    }
}

#[cfg(test)]
mod tests {
    use super::Template;

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|text| Some((*text).to_string())).collect()
    }

    #[test]
    fn values_stand_where_their_columns_are_named() {
        let template = Template::parse("# {{ title }}\n\n{{body}} ({{title}})").unwrap();
        assert_eq!(template.columns().collect::<Vec<_>>(), ["title", "body", "title"]);
        assert_eq!(template.render(&some(&["A", "{{b}}", "A"])), "# A\n\n{{b}} (A)");
        assert_eq!(template.render(&[None, Some("b".into()), None]), "# \n\nb ()");
    }

    #[test]
    fn a_row_without_any_value_makes_no_text() {
        let template = Template::parse("Title: {{title}}").unwrap();
        assert_eq!(template.render(&[None]), "");
        assert_eq!(template.render(&some(&[" \n"])), "");
    }

    #[test]
    fn a_template_that_cannot_be_parsed_is_refused_with_the_reason() {
        for (source, problem) in [
            ("{{title", "no }}"),
            ("{{}}", "does not name a column"),
            ("{{ {{a}} }}", "does not name a column"),
            ("plain", "does not name a column"),
            ("", "does not name a column"),
        ] {
            let error = Template::parse(source).unwrap_err();
            assert!(error.contains(problem), "{source}: {error}");
        }
    }
}
