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
}
