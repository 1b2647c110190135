//! Rust source as the layer test needs it: modules, words, string literals, and the paths they name.

use std::fs;
use std::path::{Path, PathBuf};

/// A source file cut into what the rules look at.
pub struct Source {
    /// `ingest::chunk` for kb-text/src/chunk/mod.rs; empty for lib.rs.
    pub module: String,
    pub tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Word(String),
    Text(String),
    /// `::` as ':', any other character as itself.
    Mark(char),
}

impl Token {
    pub fn is_word(&self, word: &str) -> bool {
        matches!(self, Token::Word(w) if w == word)
    }

    /// Whether it is this word, or a text that has it.
    pub fn names(&self, word: &str) -> bool {
        match self {
            Token::Word(w) => w == word,
            Token::Text(text) => {
                let is_part = |c: char| !(c.is_alphanumeric() || c == '_');
                text.split(is_part).any(|part| part == word)
            }
            Token::Mark(_) => false,
        }
    }
}

/// Words, string literals and marks; comments, numbers' details and lifetimes are of no interest.
fn tokens(text: &str) -> Vec<Token> {
    let c: Vec<char> = text.chars().collect();
    let at = |i: usize| c.get(i).copied().unwrap_or('\0');
    let word = |ch: char| ch.is_alphanumeric() || ch == '_';
    let mut out = Vec::new();
    let mut i = 0;
    while i < c.len() {
        match at(i) {
            '/' if at(i + 1) == '/' => {
                while i < c.len() && at(i) != '\n' {
                    i += 1;
                }
            }
            '/' if at(i + 1) == '*' => {
                let mut depth = 0;
                loop {
                    match (at(i), at(i + 1)) {
                        ('/', '*') => depth += 1,
                        ('*', '/') => depth -= 1,
                        _ => {
                            i += 1;
                            continue;
                        }
                    }
                    i += 2;
                    if depth == 0 || i >= c.len() {
                        break;
                    }
                }
            }
            // A character or a lifetime.
            '\'' if at(i + 1) == '\\' => {
                i += 3;
                while i < c.len() && at(i) != '\'' {
                    i += 1;
                }
                i += 1;
            }
            '\'' if at(i + 2) == '\'' => i += 3,
            '"' => {
                let start = i + 1;
                i = start;
                while i < c.len() && at(i) != '"' {
                    i += if at(i) == '\\' { 2 } else { 1 };
                }
                out.push(Token::Text(c[start..i.min(c.len())].iter().collect()));
                i += 1;
            }
            ch if word(ch) => {
                let start = i;
                while word(at(i)) {
                    i += 1;
                }
                let found: String = c[start..i].iter().collect();
                let mut hashes = 0;
                while at(i + hashes) == '#' {
                    hashes += 1;
                }
                if matches!(found.as_str(), "r" | "br" | "cr") && at(i + hashes) == '"' {
                    let start = i + hashes + 1;
                    i = start;
                    while i < c.len() && !(at(i) == '"' && (1..=hashes).all(|k| at(i + k) == '#')) {
                        i += 1;
                    }
                    out.push(Token::Text(c[start..i.min(c.len())].iter().collect()));
                    i += hashes + 1;
                } else {
                    out.push(Token::Word(found));
                }
            }
            ':' if at(i + 1) == ':' => {
                out.push(Token::Mark(':'));
                i += 2;
            }
            ch => {
                if !ch.is_whitespace() && ch != ':' {
                    out.push(Token::Mark(ch));
                }
                i += 1;
            }
        }
    }
    out
}

/// The tokens without the items under `#[cfg(test)]`: tests may reach anywhere.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let marker = ["#", "[", "cfg", "(", "test", ")", "]"];
    let starts = |rest: &[Token]| {
        rest.len() > marker.len()
            && rest.iter().zip(marker).all(|(token, text)| match token {
                Token::Word(word) => word == text,
                Token::Mark(mark) => text.len() == 1 && text.starts_with(*mark),
                Token::Text(_) => false,
            })
    };
    let mut out = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        if !starts(&tokens[i..]) {
            out.push(tokens[i].clone());
            i += 1;
            continue;
        }
        // The item ends at a `;` before any brace, or at the brace that closes its first.
        let mut depth = 0;
        while i < tokens.len() {
            match tokens[i] {
                Token::Mark('{') => depth += 1,
                Token::Mark('}') => depth -= 1,
                _ => {}
            }
            i += 1;
            if depth == 0 && matches!(tokens[i - 1], Token::Mark(';' | '}')) {
                break;
            }
        }
    }
    out
}

/// Every file under `root` but those of tests.
pub fn read(root: &Path) -> Vec<Source> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    let test_files: Vec<PathBuf> = files.iter().flat_map(|file| test_modules(file)).collect();
    files.retain(|file| !test_files.contains(file));
    files
        .iter()
        .map(|file| source(file.strip_prefix(root).unwrap(), &fs::read_to_string(file).unwrap()))
        .collect()
}

/// The files that a file declares by `#[cfg(test)] mod name;`, with or without a `#[path]`.
fn test_modules(file: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(file).unwrap();
    let all = tokens(&text);
    let folder = file.parent().unwrap();
    let stem = file.file_stem().unwrap().to_str().unwrap();
    let below = if matches!(stem, "mod" | "lib") { folder.to_path_buf() } else { folder.join(stem) };
    let declared = |tokens: &[Token]| -> Vec<PathBuf> {
        let modules = tokens.windows(3).filter_map(|three| match three {
            [m, Token::Word(name), Token::Mark(';')] if m.is_word("mod") => {
                Some(below.join(name).with_extension("rs"))
            }
            [p, Token::Mark('='), Token::Text(path)] if p.is_word("path") => Some(folder.join(path)),
            _ => None,
        });
        modules.collect()
    };
    let kept = declared(&without_tests(all.clone()));
    declared(&all).into_iter().filter(|module| !kept.contains(module)).collect()
}

pub fn source(file: &Path, text: &str) -> Source {
    let mut parts: Vec<&str> = file.iter().map(|part| part.to_str().unwrap()).collect();
    let stem = parts.pop().unwrap().trim_end_matches(".rs");
    if !matches!(stem, "mod" | "lib") {
        parts.push(stem);
    }
    Source { module: parts.join("::"), tokens: without_tests(tokens(text)) }
}

/// Every path the file names under `crate::` or `super::`, as seen from the crate's root.
pub fn imports(source: &Source) -> Vec<String> {
    let t = &source.tokens;
    let mut out = Vec::new();
    let mut i = 0;
    while i + 1 < t.len() {
        let mut path: Vec<String> = match &t[i] {
            Token::Word(w) if w == "crate" && t[i + 1] == Token::Mark(':') => Vec::new(),
            Token::Word(w) if w == "super" && t[i + 1] == Token::Mark(':') => {
                let mut parts: Vec<String> = source.module.split("::").map(String::from).collect();
                parts.pop();
                parts
            }
            _ => {
                i += 1;
                continue;
            }
        };
        i += 2;
        while t.get(i).is_some_and(|w| w.is_word("super")) {
            path.pop();
            i += 2;
        }
        branch(t, &mut i, path, &mut out);
    }
    out
}

/// One path or group of a `use` tree, from just after a `::`.
fn branch(t: &[Token], i: &mut usize, mut path: Vec<String>, out: &mut Vec<String>) {
    loop {
        match t.get(*i) {
            Some(Token::Word(name)) => {
                if name != "self" {
                    path.push(name.clone());
                }
                *i += 1;
                if t.get(*i) != Some(&Token::Mark(':')) {
                    break;
                }
                *i += 1;
            }
            Some(Token::Mark('{')) => {
                *i += 1;
                while *i < t.len() && t[*i] != Token::Mark('}') {
                    branch(t, i, path.clone(), out);
                    while *i < t.len() && !matches!(t[*i], Token::Mark(',' | '}')) {
                        *i += 1;
                    }
                    if t.get(*i) == Some(&Token::Mark(',')) {
                        *i += 1;
                    }
                }
                *i += 1;
                return;
            }
            _ => break,
        }
    }
    out.push(path.join("::"));
}

/// The SQL names of the functions that a file declares with `#[pg_extern]`.
pub fn sql_functions(source: &Source) -> Vec<String> {
    let t = &source.tokens;
    let declared = (0..t.len())
        .filter(|&i| t[i].is_word("pg_extern") && t[..i].ends_with(&[Token::Mark('#'), Token::Mark('[')]));
    let name = |from: usize| {
        let body = (from..t.len()).find(|&i| t[i].is_word("fn"))?;
        let given = t[from..body].windows(3).find_map(|three| match three {
            [n, Token::Mark('='), Token::Text(name)] if n.is_word("name") => Some(name.clone()),
            _ => None,
        });
        given.or_else(|| match t.get(body + 1) {
            Some(Token::Word(name)) => Some(name.clone()),
            _ => None,
        })
    };
    declared.filter_map(name).collect()
}
