//! Reads the files of src/ into tokens.

use proc_macro2::{TokenStream, TokenTree};
use std::path::Path;

/// A file of src/: the path of its module, and its words, literals and punctuation, without comments and
/// tests.
pub struct Source {
    pub module: Vec<String>,
    pub tokens: Vec<String>,
}

pub fn source(file: &Path, text: &str) -> Source {
    let mut module: Vec<String> =
        file.with_extension("").iter().map(|name| name.to_str().unwrap().into()).collect();
    module.pop_if(|last| last == "mod" || last == "lib");
    let mut tokens = Vec::new();
    flatten(text.parse().unwrap(), &mut tokens);
    Source { module, tokens }
}

/// Leaves out the items under `#[cfg(test)]`, which end at a brace or a semicolon, and documentation.
fn flatten(stream: TokenStream, out: &mut Vec<String>) {
    let mut is_test = false;
    for tree in stream {
        let is_end = matches!(&tree, TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::Brace)
            || matches!(&tree, TokenTree::Punct(mark) if mark.as_char() == ';');
        let text = tree.to_string();
        match tree {
            _ if is_test => is_test = !is_end,
            TokenTree::Group(_) if text.starts_with("[doc = ") => {}
            TokenTree::Group(_) if text == "[cfg (test)]" => is_test = true,
            TokenTree::Group(group) => {
                out.push("{".into());
                flatten(group.stream(), out);
                out.push("}".into());
            }
            _ => out.push(text),
        }
    }
}

/// The names after `crate::`, also in braces.
pub fn imports(tokens: &[String]) -> impl Iterator<Item = &String> {
    tokens.windows(4).enumerate().filter(|(_, w)| w[0] == "crate" && w[1] == ":").flat_map(|(at, w)| {
        let mut depth = 0;
        let group = tokens[at + 3..].iter().take_while(move |token| {
            depth += i32::from(*token == "{") - i32::from(*token == "}");
            depth > 0
        });
        let names: Vec<&String> = if w[3] == "{" {
            let listed: Vec<&String> = group.collect();
            listed.windows(2).filter(|two| *two[0] == "," || *two[0] == "{").map(|two| two[1]).collect()
        } else {
            vec![&w[3]]
        };
        names
    })
}
