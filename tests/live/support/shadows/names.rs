//! The names that kb's SQL uses, read from the source, so that a new statement is covered by being written.

use crate::support::files;
use proc_macro2::{TokenStream, TokenTree};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[derive(Debug, Default)]
pub struct Names {
    /// All words and operators; the catalog determines which of them name something.
    pub words: BTreeSet<String>,
    /// The types to which values are cast.
    pub casts: BTreeSet<String>,
}

impl Names {
    /// From every string in src/, and from the parts of the installation script.
    pub fn of_kb() -> Names {
        let root = Path::new(".");
        let mut names = Names::default();
        for file in files::under("src") {
            names.read_strings(fs::read_to_string(file).unwrap().parse().unwrap());
        }
        let parts = fs::read_dir(root.join("sql")).unwrap().map(|entry| entry.unwrap().path());
        for part in parts.filter(|path| path.is_file()) {
            names.read(&fs::read_to_string(part).unwrap());
        }
        // Syntax that calls an operator without naming it: IN, BETWEEN, NULLIF, IS DISTINCT FROM, JOIN …
        // USING, LIKE.
        names.words.extend(["=", "<>", "<", "<=", ">", ">=", "~~"].map(String::from));
        names
    }

    /// Reads the literals of Rust source.
    fn read_strings(&mut self, source: TokenStream) {
        for tree in source {
            match tree {
                TokenTree::Group(group) => self.read_strings(group.stream()),
                TokenTree::Literal(literal) => self.read(&literal.to_string()),
                _ => {}
            }
        }
    }

    fn read(&mut self, sql: &str) {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_mark = |c: char| "+-*/<>=~!@#%^&|`?".contains(c);
        for line in sql.lines() {
            let mut rest = line;
            while let Some(first) = rest.chars().next() {
                if rest.starts_with("--") {
                    break;
                }
                let same = |c: char| if is_word(first) { is_word(c) } else { is_mark(c) };
                let length = rest.find(|c| !same(c)).unwrap_or(rest.len()).max(first.len_utf8());
                let (token, after) = rest.split_at(length);
                if is_word(first) {
                    self.words.insert(token.to_lowercase());
                } else if is_mark(first) {
                    self.words.insert(token.to_string());
                }
                rest = after;
                if let Some(cast) = rest.strip_prefix("::") {
                    let cast = cast.trim_start().split(|c| !is_word(c)).next().unwrap_or_default();
                    self.casts.insert(cast.to_lowercase());
                }
            }
        }
    }
}
