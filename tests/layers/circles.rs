//! Circles of imports among the files of a room.

use crate::source::{self, Source};
use std::collections::BTreeMap;

/// A circle among a room's files, if there is one: each imports the next, or is the folder whose mod.rs has it. What a
/// folder's file takes from its own mod.rs (a trait that it implements) makes none.
pub fn circle(sources: &[Source], room: &str) -> Option<String> {
    let inside = |module: &str| module == room || module.starts_with(&format!("{room}::"));
    let modules: Vec<&str> = sources.iter().map(|s| s.module.as_str()).filter(|m| inside(m)).collect();
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|s| inside(&s.module)) {
        let own = source.module.as_str();
        let imported = source::imports(source);
        let theirs = imported.iter().filter_map(|path| owner(&modules, path));
        let parts = modules.iter().copied().filter(|module| parent(module) == own && own != room);
        let all = theirs.filter(|module| *module != own && parent(own) != *module).chain(parts);
        edges.insert(own, all.collect());
    }
    let mut done = Vec::new();
    modules.iter().find_map(|module| walk(module, &edges, &mut Vec::new(), &mut done))
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(parent, _)| parent)
}

/// The module that a path leads into.
fn owner<'a>(modules: &[&'a str], path: &str) -> Option<&'a str> {
    let holds = |module: &&&str| path == **module || path.starts_with(&format!("{module}::"));
    modules.iter().filter(holds).max_by_key(|module| module.len()).copied()
}

fn walk<'a>(
    module: &'a str,
    edges: &BTreeMap<&'a str, Vec<&'a str>>,
    path: &mut Vec<&'a str>,
    done: &mut Vec<&'a str>,
) -> Option<String> {
    if let Some(at) = path.iter().position(|before| *before == module) {
        return Some([&path[at..], &[module]].concat().join(" → "));
    }
    if done.contains(&module) {
        return None;
    }
    path.push(module);
    let found = edges.get(module)?.iter().find_map(|next| walk(next, edges, path, done));
    path.pop();
    done.push(module);
    found
}
