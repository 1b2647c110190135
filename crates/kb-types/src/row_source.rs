//! How the rows of a table become documents: what kb.attach_table was asked for.

use super::json_fields::RowJsonFields;
use super::template::Template;
use serde::{Deserialize, Serialize};

/// What of a row is its document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowSource {
    pub content: RowContent,
    /// Those of its columns that hold JSON, and which of their values are text.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json_columns: Vec<String>,
    #[serde(default, skip_serializing_if = "RowJsonFields::is_empty")]
    pub json_fields: RowJsonFields,
    /// Columns that become metadata, by their names.
    #[serde(default)]
    pub metadata: Vec<String>,
    #[serde(default)]
    pub title: Option<String>,
    #[serde(default)]
    pub uri: Option<String>,
    #[serde(default)]
    pub content_type: Option<String>,
    /// The column that says whose the row is; None: all are the knowledge base's tenant's.
    #[serde(default)]
    pub tenant: Option<String>,
    /// A condition on the row, as PostgreSQL prints it, with all names qualified; None: all rows are published.
    #[serde(default)]
    pub published_when: Option<String>,
    /// The columns that the condition reads.
    #[serde(default)]
    pub published_columns: Vec<String>,
    /// Rows that logical replication brings are taken up, too.
    #[serde(default)]
    pub replicated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<Adopt>,
}

/// Vectors that rows have already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    pub column: String,
    /// Of the embedder whose model they are of.
    pub fingerprint: i64,
}

/// Where the text comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowContent {
    /// The values of these columns, with an empty line between them.
    Columns(Vec<String>),
    Template(Template),
}

/// Between the values of two columns.
const BETWEEN: &str = "\n\n";

impl RowContent {
    /// Reads the argument `content`: a template, or else these names of columns.
    pub fn parse(content: &str, columns: Vec<String>) -> Result<RowContent, String> {
        if Template::is_template(content) {
            return Template::parse(content).map(RowContent::Template);
        }
        if columns.is_empty() { Err("it names no column".into()) } else { Ok(RowContent::Columns(columns)) }
    }

    /// The columns whose values [`RowContent::text`] takes, in their order.
    pub fn columns(&self) -> Vec<&str> {
        match self {
            RowContent::Columns(columns) => columns.iter().map(String::as_str).collect(),
            RowContent::Template(template) => template.columns().collect(),
        }
    }

    /// The text of a row. NULL and blank values are left out; empty where there is no other.
    pub fn text(&self, values: &[Option<String>]) -> String {
        match self {
            RowContent::Columns(_) => {
                let values = values.iter().flatten().map(String::as_str);
                values.filter(|value| !value.trim().is_empty()).collect::<Vec<_>>().join(BETWEEN)
            }
            RowContent::Template(template) => template.render(values),
        }
    }
}

impl RowSource {
    /// The columns that a document depends on beside the key and the tenant: where none of them changes, nothing is to be
    /// done.
    pub fn watched(&self) -> Vec<&str> {
        let named = [&self.title, &self.uri, &self.content_type, &self.json_fields.type_column];
        let mut columns = self.content.columns();
        columns.extend(self.metadata.iter().map(String::as_str));
        columns.extend(named.into_iter().flatten().map(String::as_str));
        columns.extend(self.published_columns.iter().map(String::as_str));
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(content: RowContent) -> RowSource {
        RowSource {
            content,
            json_columns: vec!["body".into()],
            json_fields: RowJsonFields { type_column: Some("schema".into()), ..RowJsonFields::default() },
            metadata: vec!["tags".into()],
            title: Some("title".into()),
            uri: None,
            content_type: None,
            tenant: Some("domain_id".into()),
            published_when: Some("t.status = 'published'::text".into()),
            published_columns: vec!["status".into()],
            replicated: false,
            adopt: None,
        }
    }

    #[test]
    fn columns_are_joined_by_empty_lines_without_those_that_have_no_text() {
        let content = RowContent::Columns(vec!["a".into(), "b".into(), "c".into(), "d".into()]);
        let values = [Some("one".into()), None, Some(" ".into()), Some("two".into())];
        assert_eq!(content.text(&values), "one\n\ntwo");
        assert_eq!(content.text(&[None]), "");
    }

    #[test]
    fn all_columns_that_a_document_is_made_of_are_watched_once() {
        let content = RowContent::parse("{{title}}: {{body}}", Vec::new()).unwrap();
        assert_eq!(source(content).watched(), ["body", "schema", "status", "tags", "title"]);
    }

    #[test]
    fn what_is_stored_is_read_again() {
        for content in ["{{title}}\n\n{{body}}", "title"] {
            let content = RowContent::parse(content, vec![content.to_string()]).unwrap();
            let stored = serde_json::to_value(source(content.clone())).unwrap();
            assert_eq!(serde_json::from_value::<RowSource>(stored).unwrap(), source(content));
        }
    }
}
