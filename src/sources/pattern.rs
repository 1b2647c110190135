//! Patterns of files. Pure.

use globset::{GlobBuilder, GlobMatcher};

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
        let (root, parts) = beneath(path, dirs)?;
        if parts.is_empty() {
            return Err("it names no file; to read a whole directory, end it with /**/*".into());
        }
        let fixed = fixed(&parts).map(str::to_string).collect();
        let has_any_depth = parts.iter().any(|part| part.contains("**") || part.contains(['{', '\\']));
        let depth = (!has_any_depth).then_some(parts.len());
        Ok(Pattern { root: root.into(), fixed, depth, matcher: glob(&parts)? })
    }
}

/// The allowed directory that a path is in, and its names below it. A relative path is beneath the first of
/// the directories.
pub fn beneath<'a>(path: &'a str, dirs: &'a [String]) -> Result<(&'a str, Vec<&'a str>), String> {
    let Some(first) = dirs.first() else {
        return Err(
            "kb.source_dirs, which only the server's configuration file sets, allows no directory".into()
        );
    };
    let has_it = |dir: &&String| {
        path.strip_prefix(dir.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let (root, relative) = match path.starts_with('/') {
        false => (first, path),
        true => match dirs.iter().filter(has_it).max_by_key(|dir| dir.len()) {
            Some(dir) => (dir, &path[dir.len()..]),
            None => return Err("it is not beneath a directory that kb.source_dirs allows".into()),
        },
    };
    let parts = names(relative);
    match parts.contains(&"..") {
        true => Err("it leads out of its directory (\"..\")".into()),
        false => Ok((root, parts)),
    }
}

pub fn names(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !["", "."].contains(part)).collect()
}

/// The directories that a pattern names.
pub fn fixed<'a>(parts: &[&'a str]) -> impl Iterator<Item = &'a str> {
    let directories = parts[..parts.len().saturating_sub(1)].to_vec();
    directories.into_iter().take_while(|part| !part.contains(['*', '?', '[', ']', '{', '}', '\\']))
}

pub fn glob(parts: &[&str]) -> Result<GlobMatcher, String> {
    let glob = GlobBuilder::new(&parts.join("/")).literal_separator(true).build();
    glob.map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
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
}
