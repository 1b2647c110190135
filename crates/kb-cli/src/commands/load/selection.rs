//! Which files of this machine a load takes, and the path of each below the root, of which its external_id is
//! made.

use globset::{GlobBuilder, GlobMatcher};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use walkdir::WalkDir;

/// What the arguments select. Paths are relative to the root, with `/` between their names.
#[derive(Debug)]
pub struct Selection {
    root: PathBuf,
    parts: Vec<Part>,
    follows_links: bool,
    takes_hidden: bool,
}

/// What one argument selects.
#[derive(Debug)]
struct Part {
    /// The argument.
    given: String,
    /// The file or folder, or the folder in which a pattern begins.
    path: PathBuf,
    pattern: Option<Pattern>,
}

/// A pattern of paths below a folder.
#[derive(Debug)]
struct Pattern {
    matcher: GlobMatcher,
    /// How many folders deep a file can be that it matches. None: any number.
    depth: Option<usize>,
    takes_hidden: bool,
}

/// A file that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The path below the root.
    pub path: String,
    pub stamp: Stamp,
    /// Whether an argument names it, or a pattern matches it. Otherwise it is just in a folder.
    pub is_named: bool,
}

/// What shows whether a file has changed since it was last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    pub size: u64,
    modified: (i64, i64),
    inode: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            inode: metadata.ino(),
        }
    }
}

/// A file or folder that cannot be taken, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub path: String,
    pub problem: String,
}

#[derive(Debug, Default)]
pub struct Listing {
    /// In the order of their paths, each of them once.
    pub files: Vec<Found>,
    pub problems: Vec<Problem>,
    /// The arguments that have no file: they do not exist, or are empty, or match nothing.
    pub empty: Vec<String>,
    /// The number of symbolic links that were not followed.
    pub links: u64,
}

impl Selection {
    /// The error says which arguments are wrong, and what to do.
    pub fn new(
        root: Option<&Path>,
        arguments: &[PathBuf],
        follows_links: bool,
        takes_hidden: bool,
    ) -> Result<Selection, String> {
        let root = match root {
            Some(root) => absolute(root)?,
            None => absolute(Path::new("."))?,
        };
        let parts = arguments.iter().map(|argument| part(&root, argument)).collect::<Result<_, _>>()?;
        Ok(Selection { root, parts, follows_links, takes_hidden })
    }

    pub fn follows_links(&self) -> bool {
        self.follows_links
    }

    /// Where a file is.
    pub fn place(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The path below the root. None: it is not below it, or not UTF-8.
    pub fn path_of(&self, place: &Path) -> Option<String> {
        below(&self.root, place)
    }

    /// The files and folders whose changes concern the selection, and whether all below them does.
    pub fn watched(&self) -> Vec<(PathBuf, bool)> {
        let mut watched: Vec<(PathBuf, bool)> = (self.parts.iter())
            .map(|part| {
                let is_folder = part.path.is_dir();
                // An editor replaces a file by another one: only its folder sees that.
                match part.path.parent().filter(|_| !is_folder) {
                    Some(folder) => (folder.to_path_buf(), false),
                    None => (part.path.clone(), true),
                }
            })
            .collect();
        watched.sort();
        watched.dedup();
        watched
    }

    /// Whether a path is one that the arguments select, if there is such a file.
    pub fn covers(&self, path: &str) -> bool {
        let place = self.place(path);
        self.parts.iter().any(|part| match (place.strip_prefix(&part.path), &part.pattern) {
            (Err(_), _) => false,
            (Ok(_), None) => true,
            (Ok(below), Some(pattern)) => pattern.matcher.is_match(below),
        })
    }

    /// The longest path that all paths begin with that [`Selection::covers`].
    pub fn common_prefix(&self) -> String {
        let paths = self.parts.iter().map(|part| below(&self.root, &part.path).unwrap_or_default());
        let common = paths.reduce(|a, b| {
            let length = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
            a[..a.floor_char_boundary(length)].to_string()
        });
        common.unwrap_or_default()
    }

    /// Whether a file is no longer there, for certain: what cannot be looked at may be.
    pub fn is_gone(&self, path: &str) -> bool {
        let gone = [ErrorKind::NotFound, ErrorKind::NotADirectory];
        std::fs::symlink_metadata(self.place(path)).is_err_and(|error| gone.contains(&error.kind()))
    }

    /// Looks for the files.
    pub fn list(&self) -> Listing {
        let mut listing = Listing::default();
        for part in &self.parts {
            let before = listing.files.len();
            self.list_part(part, &mut listing);
            if listing.files.len() == before {
                listing.empty.push(part.given.clone());
            }
        }
        // A file that is named comes before the same file that is not.
        listing.files.sort_by(|a, b| a.path.cmp(&b.path).then(b.is_named.cmp(&a.is_named)));
        listing.files.dedup_by(|a, b| a.path == b.path);
        listing
    }

    fn list_part(&self, part: &Part, listing: &mut Listing) {
        match (std::fs::metadata(&part.path), &part.pattern) {
            (Err(_), Some(_)) => listing.problem(&part.given, "no file matches"),
            (Err(error), None) => listing.problem(&part.given, error),
            (Ok(metadata), None) if metadata.is_file() => self.add(&part.path, &metadata, true, listing),
            (Ok(metadata), None) if !metadata.is_dir() => {
                listing.problem(&part.given, "it is neither a file nor a folder");
            }
            (Ok(_), pattern) => {
                let before = listing.files.len();
                self.walk(&part.path, pattern.as_ref(), listing);
                if pattern.is_some() && listing.files.len() == before {
                    listing.problem(&part.given, "no file matches");
                }
            }
        }
    }

    fn walk(&self, folder: &Path, pattern: Option<&Pattern>, listing: &mut Listing) {
        let takes_hidden = self.takes_hidden || pattern.is_some_and(|pattern| pattern.takes_hidden);
        let mut walk = WalkDir::new(folder).follow_links(self.follows_links);
        if let Some(depth) = pattern.and_then(|pattern| pattern.depth) {
            walk = walk.max_depth(depth);
        }
        let is_taken = |name: &OsStr| takes_hidden || !name.as_encoded_bytes().starts_with(b".");
        for entry in walk.into_iter().filter_entry(|entry| entry.depth() == 0 || is_taken(entry.file_name()))
        {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    // What has just been removed is not missed.
                    let kind = error.io_error().map(std::io::Error::kind);
                    if kind != Some(ErrorKind::NotFound) || self.follows_links {
                        let path = error.path().unwrap_or(folder).display().to_string();
                        listing.problem(&path, reason(&error));
                    }
                    continue;
                }
            };
            let below = entry.path().strip_prefix(folder).unwrap_or(entry.path());
            if pattern.is_some_and(|pattern| !pattern.matcher.is_match(below)) {
                continue;
            }
            if entry.file_type().is_symlink() {
                listing.links += 1;
            } else if entry.file_type().is_file() {
                match entry.metadata() {
                    Ok(metadata) => self.add(entry.path(), &metadata, pattern.is_some(), listing),
                    Err(error) if error.io_error().is_some_and(|e| e.kind() == ErrorKind::NotFound) => {}
                    Err(error) => listing.problem(&entry.path().display().to_string(), reason(&error)),
                }
            }
        }
    }

    fn add(&self, place: &Path, metadata: &Metadata, is_named: bool, listing: &mut Listing) {
        match below(&self.root, place) {
            Some(path) => listing.files.push(Found { path, stamp: Stamp::of(metadata), is_named }),
            None => listing.problem(&place.display().to_string(), "its name is not UTF-8"),
        }
    }
}

impl Listing {
    fn problem(&mut self, path: &str, problem: impl ToString) {
        self.problems.push(Problem { path: path.to_string(), problem: problem.to_string() });
    }
}

/// What the operating system said, without the path, which is reported beside it.
fn reason(error: &walkdir::Error) -> String {
    match (error.io_error(), error.loop_ancestor()) {
        (_, Some(ancestor)) => format!("the link leads back to {}", ancestor.display()),
        (Some(error), _) => error.to_string(),
        (None, None) => error.to_string(),
    }
}

/// A path without `.` and `..`, from the root of the file system on. Links are left as they are written.
fn absolute(path: &Path) -> Result<PathBuf, String> {
    let path = std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut absolute = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                absolute.pop();
            }
            Component::CurDir => {}
            other => absolute.push(other),
        }
    }
    Ok(absolute)
}

/// The path below a folder, with `/` between its names. None: it is not below it, or not UTF-8.
fn below(folder: &Path, path: &Path) -> Option<String> {
    let below = path.strip_prefix(folder).ok()?;
    let names: Option<Vec<&str>> = below.iter().map(OsStr::to_str).collect();
    Some(names?.join("/"))
}

fn part(root: &Path, argument: &Path) -> Result<Part, String> {
    let given = argument.display().to_string();
    let is_special = |name: &str| name.contains(['*', '?', '[', '{']);
    let exists = std::fs::symlink_metadata(argument).is_ok();
    let (path, pattern) = match argument.to_str().filter(|text| !exists && is_special(text)) {
        None => (absolute(argument)?, None),
        Some(text) => {
            let at = text.split_inclusive('/').take_while(|name| !is_special(name)).map(str::len).sum();
            let (folder, pattern) = text.split_at(at);
            let folder = if folder.is_empty() { "." } else { folder };
            (absolute(Path::new(folder))?, Some(self::pattern(&given, pattern)?))
        }
    };
    if !path.starts_with(root) {
        return Err(format!(
            "{given} is not in {}; add --root with the folder from which external_ids are to count, such as --root {}",
            root.display(),
            path.parent().unwrap_or(&path).display()
        ));
    }
    Ok(Part { given, path, pattern })
}

fn pattern(given: &str, pattern: &str) -> Result<Pattern, String> {
    let names: Vec<&str> = pattern.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
    if names.contains(&"..") {
        return Err(format!("{given}: a pattern cannot contain \"..\" after its first special character"));
    }
    let glob = GlobBuilder::new(&names.join("/")).literal_separator(true).backslash_escape(true).build();
    let matcher = glob.map_err(|error| format!("{given}: {}", error.kind()))?.compile_matcher();
    let is_bounded = !pattern.contains("**") && !pattern.contains('{');
    Ok(Pattern {
        matcher,
        depth: is_bounded.then_some(names.len()),
        takes_hidden: names.iter().any(|name| name.starts_with('.')),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use tempfile::TempDir;

    fn folder(files: &[&str]) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let place = folder.path().join(file);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, file).unwrap();
        }
        folder
    }

    fn selection(root: &TempDir, arguments: &[&str]) -> Selection {
        let arguments: Vec<PathBuf> = arguments.iter().map(|path| root.path().join(path)).collect();
        Selection::new(Some(root.path()), &arguments, false, false).unwrap()
    }

    fn listed(root: &TempDir, arguments: &[&str]) -> Vec<String> {
        selection(root, arguments).list().files.into_iter().map(|found| found.path).collect()
    }

    #[test]
    fn folders_files_and_patterns_select_files_once_by_their_path_below_the_root() {
        let root =
            folder(&["a/x.md", "a/b/y.md", "a/b/z.txt", "b/x.md", "c.md", "a/.git/HEAD", "a/.hidden.md"]);
        assert_eq!(listed(&root, &["a"]), ["a/b/y.md", "a/b/z.txt", "a/x.md"]);
        assert_eq!(listed(&root, &["a", "b", "a/x.md"]), ["a/b/y.md", "a/b/z.txt", "a/x.md", "b/x.md"]);
        assert_eq!(listed(&root, &["**/*.md"]), ["a/b/y.md", "a/x.md", "b/x.md", "c.md"]);
        assert_eq!(listed(&root, &["*/x.md"]), ["a/x.md", "b/x.md"]);
        assert_eq!(listed(&root, &["*.md"]), ["c.md"]);
        assert_eq!(listed(&root, &["a/{b/y,x}.md"]), ["a/b/y.md", "a/x.md"]);
        assert_eq!(listed(&root, &["a/**"]), ["a/b/y.md", "a/b/z.txt", "a/x.md"]);
        assert_eq!(listed(&root, &["a/.*"]), ["a/.hidden.md"]);
        assert_eq!(listed(&root, &["a/.git/HEAD", "a/../c.md"]), ["a/.git/HEAD", "c.md"]);
        let all = Selection::new(Some(root.path()), &[root.path().into()], false, true).unwrap().list();
        assert_eq!(all.files.len(), 7);
        assert!(all.problems.is_empty() && all.empty.is_empty());
    }

    #[test]
    fn a_name_with_special_characters_that_exists_is_no_pattern() {
        let root = folder(&["a[1].md", "a1.md"]);
        assert_eq!(listed(&root, &["a[1].md"]), ["a[1].md"]);
        assert_eq!(listed(&root, &["a[1-2].md"]), ["a1.md"]);
    }

    #[test]
    fn what_is_outside_of_the_root_is_refused_with_what_to_do() {
        let (root, other) = (folder(&["a.md"]), folder(&["a.md"]));
        let refused = Selection::new(Some(root.path()), &[other.path().into()], false, false).unwrap_err();
        assert!(refused.contains("--root"), "{refused}");
        let up = root.path().join("../x");
        assert!(Selection::new(Some(root.path()), &[up], false, false).is_err());
    }

    #[test]
    fn what_is_missing_empty_or_of_no_text_is_reported_and_the_rest_is_taken() {
        let root = folder(&["a/x.md"]);
        fs::create_dir(root.path().join("void")).unwrap();
        let name = OsStr::from_bytes(b"a/\xff.md");
        fs::write(root.path().join(name), "").unwrap();
        std::os::unix::fs::symlink("x.md", root.path().join("a/link.md")).unwrap();
        let listing = selection(&root, &["a", "missing", "void", "*.pdf"]).list();
        assert_eq!(listing.files.len(), 1);
        assert_eq!(listing.links, 1);
        assert_eq!(listing.empty.len(), 3);
        let problems: Vec<&str> = listing.problems.iter().map(|p| p.problem.as_str()).collect();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems.contains(&"its name is not UTF-8") && problems.contains(&"no file matches"));
    }

    #[test]
    fn links_are_followed_if_asked_for_and_circles_are_reported() {
        let root = folder(&["a/x.md", "b/y.md"]);
        std::os::unix::fs::symlink("../b", root.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("..", root.path().join("b/up")).unwrap();
        let found = Selection::new(Some(root.path()), &[root.path().join("a")], true, false).unwrap().list();
        let paths: Vec<&str> = found.files.iter().map(|found| found.path.as_str()).collect();
        // A file is found by each path that has no circle.
        assert!(paths.contains(&"a/b/y.md") && paths.contains(&"a/x.md") && paths.len() < 10, "{paths:?}");
        assert!(!found.problems.is_empty());
        // An argument is followed in any case.
        assert_eq!(listed(&root, &["a/b"]), ["a/b/y.md"]);
    }

    #[test]
    fn what_an_argument_covers_includes_what_is_gone() {
        let root = folder(&["a/x.md", "c.md"]);
        let selection = selection(&root, &["a", "**/*.pdf", "c.md", "gone"]);
        for path in ["a/x.md", "a/y/z", "b/c/d.pdf", "c.md", "gone", "gone/x"] {
            assert!(selection.covers(path), "{path}");
        }
        for path in ["ab", "b/c/d.md", "c.md2", "gon"] {
            assert!(!selection.covers(path), "{path}");
        }
        assert_eq!(selection.common_prefix(), "");
        assert_eq!(super::tests::selection(&root, &["a/b", "a/c"]).common_prefix(), "a/");
        assert!(selection.is_gone("a/y") && selection.is_gone("c.md/x") && !selection.is_gone("c.md"));
    }
}
