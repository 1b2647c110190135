//! Lists and reads the files of a commit of a Git repository beneath an allowed directory, by the program
//! kb-extract. The version of the source is the id of the commit: while it is the same, nothing is listed.
//! The version of a file is the id of its content, so that only what has changed is read.
//!
//! **Invariant:** no file outside of the repository's directory is opened. The directory is opened as
//! `folder.rs` opens directories, and the kernel refuses the program everything that is not in it.

use super::config::Allowed;
use super::folder::{open_directory, reason, shown};
use super::pattern::{beneath, fixed, glob, names};
use super::reader::{Content, Found, Item, Listing, READ_BYTES, Reader, Wanted};
use crate::extract::{Answer, Program, Repository};
use globset::GlobMatcher;
use kb_types::error::Result;
use kb_types::json_reader::Fields;
use kb_types::repository::{Blob, EntryKind};
use kb_types::sync::lock;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;

/// The configuration of a source of type git.
#[derive(Debug, Clone, PartialEq)]
pub struct GitConfig {
    /// Of the repository's directory.
    path: String,
    /// A branch, a tag, or the whole id of a commit.
    reference: String,
    globs: Vec<String>,
}

/// A repository beneath an allowed directory.
pub struct Git {
    config: GitConfig,
    /// The allowed directory, and the names below it.
    root: String,
    names: Vec<String>,
    matchers: Vec<GlobMatcher>,
    max_size: usize,
    program: Program,
    listed: Mutex<Option<Listed>>,
}

/// What was listed: the repository, and the ids of its files by their paths.
struct Listed {
    repository: Repository,
    ids: HashMap<String, String>,
}

impl GitConfig {
    pub fn parse(fields: &mut Fields, allowed: &Allowed) -> GitConfig {
        let before = fields.problems.len();
        let path = fields.required_text("path");
        let is_given = fields.problems.len() == before;
        if is_given && path.is_empty() {
            fields.problem("path", "names no directory");
        }
        let config = GitConfig {
            path,
            reference: fields.text("ref").unwrap_or_else(|| "HEAD".into()),
            globs: fields.texts("globs").unwrap_or_else(|| vec!["**/*".into()]),
        };
        if is_given && let Err(problem) = beneath(&config.path, &allowed.dirs) {
            fields.problem("path", problem);
        }
        if config.reference.is_empty() || config.reference.contains('\0') {
            fields.problem("ref", "is not the name of a branch, a tag or a commit");
        }
        if config.globs.is_empty() {
            fields.problem("globs", "names no files");
        }
        for text in &config.globs {
            if let Err(problem) = matcher(text) {
                fields.problem("globs", format!("\"{text}\": {problem}"));
            }
        }
        config
    }

    pub fn to_json(&self) -> Map<String, Value> {
        let fields =
            [("path", json!(self.path)), ("ref", json!(self.reference)), ("globs", json!(self.globs))];
        fields.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }

    /// Must be called on the main thread.
    pub fn reader(&self, allowed: &Allowed) -> Answer<Git> {
        let (root, names) =
            beneath(&self.path, &allowed.dirs).map_err(|problem| format!("config.path: {problem}"))?;
        Ok(Git {
            config: self.clone(),
            root: root.to_string(),
            names: names.into_iter().map(str::to_string).collect(),
            matchers: self.globs.iter().map(|text| matcher(text)).collect::<Answer<_>>()?,
            max_size: allowed.max_size,
            program: Program::from_settings(),
            listed: Mutex::new(None),
        })
    }

    /// The directories that have all files that the globs match, none of which is beneath another.
    fn directories(&self) -> Vec<String> {
        let mut all: Vec<String> =
            self.globs.iter().map(|text| fixed(&names(text)).collect::<Vec<_>>().join("/")).collect();
        all.sort();
        let mut kept: Vec<String> = Vec::new();
        for directory in all {
            let is_in = |outer: &String| {
                outer.is_empty()
                    || directory
                        .strip_prefix(outer.as_str())
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if !kept.iter().any(is_in) {
                kept.push(directory);
            }
        }
        kept
    }
}

fn matcher(text: &str) -> Answer<GlobMatcher> {
    match names(text) {
        names if names.is_empty() => Err("names no files".into()),
        names => glob(&names),
    }
}

impl Reader for Git {
    fn is_at(&self, version: &str) -> bool {
        let commit = self.open().and_then(|mut repository| repository.commit(&self.config.reference));
        commit.is_ok_and(|commit| commit == version)
    }

    fn list(&self) -> Result<Listing> {
        let failed = |problem| Listing { problem: Some(problem), ..Listing::default() };
        Ok(self.try_list().unwrap_or_else(failed))
    }

    fn read(&self, wanted: &[Wanted]) -> Result<Vec<Content>> {
        let mut listed = lock(&self.listed);
        let Some(Listed { repository, ids }) = &mut *listed else { return Ok(Vec::new()) };
        let (mut read, mut bytes) = (Vec::new(), 0);
        for item in wanted {
            if bytes >= READ_BYTES {
                break;
            }
            read.push(match ids.get(&item.path) {
                None => Content::Gone,
                Some(id) => match repository.read(id, self.max_size)? {
                    Ok(Blob::Content(content)) => {
                        bytes += content.len();
                        Content::Read(Found { bytes: content, version: id.clone(), ..Found::default() })
                    }
                    Ok(Blob::TooLarge(size)) => {
                        Content::TooLarge(usize::try_from(size).unwrap_or(usize::MAX))
                    }
                    Err(problem) => Content::Unreadable(problem),
                },
            });
        }
        Ok(read)
    }

    fn uri(&self, path: &str) -> String {
        path.to_string()
    }

    fn nothing(&self) -> String {
        format!("no file of \"{}\" matches {}", self.config.reference, json!(self.config.globs))
    }
}

impl Git {
    fn open(&self) -> Answer<Repository> {
        let path = &self.config.path;
        let directory =
            open_directory(&self.root, self.names.iter().map(|name| OsStr::new(name.as_str())))
                .map_err(|error| format!("the directory \"{path}\" cannot be opened: {}", reason(error)))?;
        Ok(Repository::new(self.program.clone(), directory))
    }

    fn try_list(&self) -> Answer<Listing> {
        let mut repository = self.open()?;
        let files = repository
            .list(&self.config.reference, self.config.directories())
            .map_err(|problem| format!("the repository \"{}\": {problem}", self.config.path))?;
        let mut listing =
            Listing { problem: files.problem, version: Some(files.commit), ..Listing::default() };
        let mut ids = HashMap::new();
        for entry in files.entries {
            let in_repository = Path::new(OsStr::from_bytes(&entry.path));
            if !self.matchers.iter().any(|matcher| matcher.is_match(in_repository)) {
                continue;
            }
            let problem = match (entry.kind, String::from_utf8(entry.path)) {
                (EntryKind::File, Ok(path)) => {
                    ids.insert(path.clone(), entry.id.clone());
                    listing.items.push(Item { path, version: Some(entry.id), size: 0 });
                    continue;
                }
                (EntryKind::File, Err(error)) => (shown(error.as_bytes()), "its name is not UTF-8"),
                (EntryKind::SymbolicLink, path) => {
                    (text(path), "it is a symbolic link, which is not followed")
                }
                (EntryKind::Submodule, path) => (text(path), "it is a submodule, whose files are not read"),
            };
            listing.failed.push((problem.0, problem.1.into()));
        }
        *lock(&self.listed) = Some(Listed { repository, ids });
        Ok(listing)
    }
}

fn text(path: std::result::Result<String, std::string::FromUtf8Error>) -> String {
    path.unwrap_or_else(|error| shown(error.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(config: &Value) -> std::result::Result<GitConfig, Vec<String>> {
        let allowed = Allowed { dirs: vec!["/srv/repos".into()], hosts: Default::default(), max_size: 1 };
        let mut fields = Fields::new("config", config);
        let config = GitConfig::parse(&mut fields, &allowed);
        let problems = fields.finish();
        if problems.is_empty() { Ok(config) } else { Err(problems) }
    }

    #[test]
    fn a_repository_is_in_an_allowed_directory_or_may_be_one() {
        for path in ["handbook", "/srv/repos/handbook", ".", "/srv/repos", "a*b"] {
            let config = parse(&json!({"path": path})).unwrap();
            assert_eq!(parse(&Value::Object(config.to_json())), Ok(config), "{path}");
        }
        for path in ["", "../x", "a/../../x", "/srv/repos2", "/etc"] {
            assert!(parse(&json!({"path": path})).is_err(), "{path}");
        }
        let wrong = json!({"path": "a", "ref": "", "globs": ["[", "", "*.md"]});
        assert_eq!(parse(&wrong).unwrap_err().len(), 3);
        assert!(parse(&json!({"path": "a", "globs": []})).is_err());
    }

    #[test]
    fn only_directories_that_can_have_matches_are_listed() {
        let directories =
            |globs: &[&str]| parse(&json!({"path": "a", "globs": globs})).unwrap().directories();
        assert_eq!(directories(&["docs/**/*.md", "docs/a/*.md", "docs-old/x.md", "docs"]), [""]);
        assert_eq!(directories(&["docs/**/*.md", "./docs/a//*.md", "docs-old/x.md"]), ["docs", "docs-old"]);
        assert_eq!(directories(&["a/b/*", "a/{b,c}/*"]), ["a"]);
    }
}
