//! What the scopes of a caller allow. No scopes at all allow everything.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Search,
    Documents,
    Memories,
    Answers,
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Scope::Search => "search",
            Scope::Documents => "documents",
            Scope::Memories => "memories",
            Scope::Answers => "answers",
        }
    }

    /// Whether a list of scopes, with spaces between them, has this one.
    pub fn is_in(self, scopes: &str) -> bool {
        let mut names = scopes.split_whitespace().peekable();
        names.peek().is_none() || names.any(|name| name == self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_scopes_mean_everything_and_some_mean_these() {
        assert!(Scope::Memories.is_in("") && Scope::Memories.is_in("  "));
        assert!(Scope::Memories.is_in("search memories"));
        for others in ["search", "memory", "admin", "memories_x", "MEMORIES"] {
            assert!(!Scope::Memories.is_in(others), "{others}");
        }
    }
}
