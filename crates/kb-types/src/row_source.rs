//! How the rows of a table become documents, as kb.attach_table was told.

use super::json_fields::RowJsonFields;
use super::template::Template;
use serde::{Deserialize, Serialize};

/// The parts of a row from which its document is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowSource {
    pub content: RowContent,
    /// The columns that hold JSON.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json_columns: Vec<String>,
    #[serde(default, skip_serializing_if = "RowJsonFields::is_empty")]
    pub json_fields: RowJsonFields,
    /// The columns that become metadata under their own names.
    #[serde(default)]
    pub metadata: Vec<String>,
    #[serde(default)]
    pub title: Option<String>,
    #[serde(default)]
    pub uri: Option<String>,
    #[serde(default)]
    pub content_type: Option<String>,
    /// The column that names the tenant of a row. None gives all rows to the knowledge base's tenant.
    #[serde(default)]
    pub tenant: Option<String>,
    /// A condition on the row, as PostgreSQL prints it, with all names qualified. None publishes all rows.
    #[serde(default)]
    pub published_when: Option<String>,
    /// The columns that the condition reads.
    #[serde(default)]
    pub published_columns: Vec<String>,
    /// Whether rows that logical replication brings become documents, too.
    #[serde(default)]
    pub replicated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<Adopt>,
}

/// Existing vectors of rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    pub column: String,
    /// The fingerprint of the embedder that made them.
    pub fingerprint: i64,
}

/// Where the text comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowContent {
    /// The values of these columns, separated by empty lines.
    Columns(Vec<String>),
    Template(Template),
}

/// Separates the values of two columns.
const BETWEEN: &str = "\n\n";

impl RowContent {
    /// Reads the argument `content`: a template, or else the given names of columns.
    pub fn parse(content: &str, columns: Vec<String>) -> Result<RowContent, String> {
        if Template::is_template(content) {
            return Template::parse(content).map(RowContent::Template);
        }
        if columns.is_empty() {
            Err("it does not name a column".into())
        } else {
            Ok(RowContent::Columns(columns))
        }
    }

    /// The columns whose values [`RowContent::text`] takes, in their order.
    pub fn columns(&self) -> Vec<&str> {
        match self {
            RowContent::Columns(columns) => columns.iter().map(String::as_str).collect(),
            RowContent::Template(template) => template.columns().collect(),
        }
    }

    /// The text of a row, without NULL and blank values. It is empty where there are no others.
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
    /// The columns that a document depends on besides the key and the tenant. A change of other columns does
    /// not change the document.
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
    fn columns_with_text_are_joined_by_empty_lines() {
        let content = RowContent::Columns(vec!["a".into(), "b".into(), "c".into(), "d".into()]);
        let values = [Some("one".into()), None, Some(" ".into()), Some("two".into())];
        assert_eq!(content.text(&values), "one\n\ntwo");
        assert_eq!(content.text(&[None]), "");
    }

    #[test]
    fn every_column_that_a_document_depends_on_is_watched_once() {
        let content = RowContent::parse("{{title}}: {{body}}", Vec::new()).unwrap();
        assert_eq!(source(content).watched(), ["body", "schema", "status", "tags", "title"]);
    }

    #[test]
    fn a_stored_source_reads_back_the_same() {
        for content in ["{{title}}\n\n{{body}}", "title"] {
            let content = RowContent::parse(content, vec![content.to_string()]).unwrap();
            let stored = serde_json::to_value(source(content.clone())).unwrap();
            assert_eq!(serde_json::from_value::<RowSource>(stored).unwrap(), source(content));
        }
    }
}
