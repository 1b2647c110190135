//! The configuration of a source: what all types have, and the type's own part, which the type reads. Pure.

use super::folder::FolderConfig;
use super::git::GitConfig;
use super::reader::Reader;
use kb_types::json_reader::Fields;
use kb_types::named;
use serde_json::{Value, json};
use std::sync::Arc;

/// The types of sources that a run lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceType {
    /// Files of any format.
    Files,
    /// Files that are read as Markdown.
    MarkdownGlob,
    /// Files of a commit of a Git repository.
    Git,
}

named!(SourceType { Files => "files", MarkdownGlob => "markdown_glob", Git => "git" });

/// Which documents a run deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleanup {
    None,
    /// Those that a complete listing no longer has.
    Incremental,
    /// The same, and everything is read again, however old it is.
    Full,
}

named!(Cleanup { None => "none", Incremental => "incremental", Full => "full" });

#[derive(Debug, Clone, PartialEq)]
pub struct SourceConfig {
    pub origin: Origin,
    /// An interval, as PostgreSQL reads it.
    pub every: Option<String>,
    pub cleanup: Cleanup,
    pub metadata: Value,
}

/// What is listed and read.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin {
    Folder(FolderConfig),
    Git(GitConfig),
}

/// What the settings of the server say that a configuration is checked against.
pub struct Allowed {
    /// The directories whose files may be read.
    pub dirs: Vec<String>,
    /// The size in bytes that a document may have.
    pub max_size: usize,
}

impl SourceConfig {
    /// The error lists every problem.
    pub fn parse(kind: SourceType, value: &Value, allowed: &Allowed) -> Result<SourceConfig, Vec<String>> {
        let mut fields = Fields::new("config", value);
        let config = SourceConfig {
            origin: match kind {
                SourceType::Files | SourceType::MarkdownGlob => {
                    Origin::Folder(FolderConfig::parse(kind, &mut fields, allowed))
                }
                SourceType::Git => Origin::Git(GitConfig::parse(&mut fields, allowed)),
            },
            every: fields.text("every"),
            cleanup: fields.named("cleanup").unwrap_or(Cleanup::Incremental),
            metadata: fields.object("metadata").unwrap_or_else(|| json!({})),
        };
        let problems = fields.finish();
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    pub fn to_json(&self) -> Value {
        let mut json = match &self.origin {
            Origin::Folder(folder) => folder.to_json(),
            Origin::Git(git) => git.to_json(),
        };
        json.insert("cleanup".into(), json!(self.cleanup.name()));
        json.extend(self.every.iter().map(|every| ("every".into(), json!(every))));
        if self.metadata != json!({}) {
            json.insert("metadata".into(), self.metadata.clone());
        }
        Value::Object(json)
    }

    /// Lists and reads it. The error says why that is not allowed any more.
    pub fn reader(&self, allowed: &Allowed) -> Result<Arc<dyn Reader>, String> {
        match &self.origin {
            Origin::Folder(folder) => Ok(Arc::new(folder.reader(allowed)?)),
            Origin::Git(git) => Ok(Arc::new(git.reader(allowed)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_reported_and_what_is_written_reads_back_the_same() {
        let allowed = Allowed { dirs: vec!["/srv/docs".into()], max_size: 1 };
        let parse = |value: &Value| SourceConfig::parse(SourceType::Files, value, &allowed);
        let wrong = json!({"path": "../x", "cleanup": "all", "metadata": 1, "unknown": 1});
        assert_eq!(parse(&wrong).unwrap_err().len(), 4);
        let config = parse(&json!({"path": "*.md", "every": "1 day"})).unwrap();
        assert_eq!(parse(&config.to_json()).unwrap(), config);
    }
}
