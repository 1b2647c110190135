//! The files of a folder.

use std::path::{Path, PathBuf};

/// All files under a folder, in order.
pub fn under(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { under(path) } else { vec![path] }).collect();
    files.sort();
    files
}
