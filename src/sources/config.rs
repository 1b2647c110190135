//! The configuration of a source. Pure.

use globset::{GlobBuilder, GlobMatcher};
use kb_types::json_reader::Fields;
use kb_types::named;
use serde_json::{Map, Value, json};

/// The types of sources that a run lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceType {
    /// Files of any format.
    Files,
    /// Files that are read as Markdown.
    MarkdownGlob,
}

named!(SourceType { Files => "files", MarkdownGlob => "markdown_glob" });

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
    pub path: String,
    /// An interval, as PostgreSQL reads it.
    pub every: Option<String>,
    pub cleanup: Cleanup,
    pub metadata: Value,
}

impl SourceConfig {
    /// The error lists every problem. `dirs`: the directories that are allowed.
    pub fn parse(value: &Value, dirs: &[String]) -> Result<SourceConfig, Vec<String>> {
        let mut fields = Fields::new("config", value);
        let config = SourceConfig {
            path: fields.required_text("path"),
            every: fields.text("every"),
            cleanup: fields.named("cleanup").unwrap_or(Cleanup::Incremental),
            metadata: fields.object("metadata").unwrap_or_else(|| json!({})),
        };
        if !config.path.is_empty()
            && let Err(problem) = Pattern::parse(&config.path, dirs)
        {
            fields.problem("path", problem);
        }
        let problems = fields.finish();
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    pub fn to_json(&self) -> Value {
        let mut json = Map::new();
        json.insert("path".into(), json!(self.path));
        json.insert("cleanup".into(), json!(self.cleanup.name()));
        json.extend(self.every.iter().map(|every| ("every".into(), json!(every))));
        if self.metadata != json!({}) {
            json.insert("metadata".into(), self.metadata.clone());
        }
        Value::Object(json)
    }
}

/// A pattern of files beneath an allowed directory.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// The allowed directory.
    pub root: String,
    /// The directories below it that the pattern names.
    pub fixed: Vec<String>,
    /// How many directories and the file it has below the root; None: any number.
    pub depth: Option<usize>,
    /// Matches a path relative to the root.
    pub matcher: GlobMatcher,
}

impl Pattern {
    /// A relative path is beneath the first of the directories.
    pub fn parse(path: &str, dirs: &[String]) -> Result<Pattern, String> {
        let Some(first) = dirs.first() else {
            return Err(
                "kb.source_dirs, which only the server's configuration file sets, allows no directory".into(),
            );
        };
        let is_beneath =
            |dir: &&String| path.strip_prefix(dir.as_str()).is_some_and(|rest| rest.starts_with('/'));
        let (root, relative) = match path.starts_with('/') {
            false => (first, path),
            true => match dirs.iter().filter(is_beneath).max_by_key(|dir| dir.len()) {
                Some(dir) => (dir, &path[dir.len()..]),
                None => return Err("it is not beneath a directory that kb.source_dirs allows".into()),
            },
        };
        let parts: Vec<&str> = relative.split('/').filter(|part| !["", "."].contains(part)).collect();
        if parts.contains(&"..") {
            return Err("it leads out of its directory (\"..\")".into());
        }
        if parts.is_empty() {
            return Err("it names no file; to read a whole directory, end it with /**/*".into());
        }
        let is_fixed = |part: &&&str| !part.contains(['*', '?', '[', ']', '{', '}', '\\']);
        let fixed: Vec<String> =
            parts[..parts.len() - 1].iter().take_while(is_fixed).map(|part| (*part).to_string()).collect();
        let has_any_depth = parts.iter().any(|part| part.contains("**") || part.contains(['{', '\\']));
        let glob = GlobBuilder::new(&parts.join("/")).literal_separator(true).build();
        let glob = glob.map_err(|error| error.kind().to_string())?;
        let depth = (!has_any_depth).then_some(parts.len());
        Ok(Pattern { root: root.clone(), fixed, depth, matcher: glob.compile_matcher() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs() -> Vec<String> {
        ["/srv/docs", "/srv/docs/inner", "/data"].map(str::to_string).to_vec()
    }

    #[test]
    fn a_pattern_is_beneath_an_allowed_directory_or_refused() {
        let parse = |path: &str| Pattern::parse(path, &dirs());
        let root = |path: &str| parse(path).map(|pattern| (pattern.root, pattern.fixed, pattern.depth));
        assert_eq!(root("a/b/*.md"), Ok(("/srv/docs".into(), vec!["a".into(), "b".into()], Some(3))));
        assert_eq!(root("./a/**/*.md"), Ok(("/srv/docs".into(), vec!["a".into()], None)));
        assert_eq!(root("/srv/docs/inner/x.md"), Ok(("/srv/docs/inner".into(), vec![], Some(1))));
        assert_eq!(root("/data/*"), Ok(("/data".into(), vec![], Some(1))));
        for outside in
            ["/srv/docs2/*", "/etc/passwd", "../x", "a/../../x", "/srv/docs/../x", "/srv/docs", "", "a/[.md"]
        {
            assert!(parse(outside).is_err(), "{outside}");
        }
        assert!(Pattern::parse("*.md", &[]).is_err());
    }

    #[test]
    fn a_star_matches_within_a_directory_and_two_stars_any_directories() {
        let matches =
            |pattern: &str, path: &str| Pattern::parse(pattern, &dirs()).unwrap().matcher.is_match(path);
        assert!(matches("a/*.md", "a/x.md") && !matches("a/*.md", "a/b/x.md"));
        assert!(matches("a/**/*.md", "a/x.md") && matches("a/**/*.md", "a/b/c/x.md"));
    }

    #[test]
    fn every_problem_is_reported_and_what_is_written_reads_back_the_same() {
        let wrong = json!({"path": "../x", "cleanup": "all", "metadata": 1, "unknown": 1});
        assert_eq!(SourceConfig::parse(&wrong, &dirs()).unwrap_err().len(), 4);
        let config = SourceConfig::parse(&json!({"path": "*.md", "every": "1 day"}), &dirs()).unwrap();
        assert_eq!(SourceConfig::parse(&config.to_json(), &dirs()).unwrap(), config);
    }
}
