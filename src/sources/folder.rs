//! Lists and reads files beneath an allowed directory. Pure.
//!
//! **Invariant:** no file outside of the directory is opened, whatever somebody does to it meanwhile. Every
//! directory and every file is opened by a single name beneath the descriptor of its parent, never by "..",
//! and never through a symbolic link (O_NOFOLLOW). Only regular files are read; others are never opened, but
//! for one that has just taken the place of a regular file, which is opened without waiting (O_NONBLOCK) and
//! closed.

use super::config::{Allowed, SourceType};
use super::pattern::Pattern;
use super::reader::{Content, Found, Item, Listing, READ_BYTES, Reader, Wanted};
use kb_types::error::Result;
use kb_types::json_reader::Fields;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde_json::{Map, Value, json};
use std::ffi::{CStr, OsStr};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The most files that a source may have; their names are in the worker's memory.
const MOST_FILES: usize = 1_000_000;
/// The most directories within each other, each of which has an open descriptor.
const MOST_NESTED: usize = 64;
/// A file that was changed more recently than this many seconds ago can change once more without a change of
/// its size and times.
const SETTLED: i64 = 2;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// The configuration of a source of type files or markdown_glob.
#[derive(Debug, Clone, PartialEq)]
pub struct FolderConfig {
    path: String,
    is_markdown: bool,
}

/// Files beneath an allowed directory.
pub struct Folder {
    config: FolderConfig,
    pattern: Pattern,
    max_size: usize,
}

impl FolderConfig {
    pub fn parse(kind: SourceType, fields: &mut Fields, allowed: &Allowed) -> FolderConfig {
        let before = fields.problems.len();
        let path = fields.required_text("path");
        if fields.problems.len() == before
            && let Err(problem) = Pattern::parse(&path, &allowed.dirs)
        {
            fields.problem("path", problem);
        }
        FolderConfig { path, is_markdown: kind == SourceType::MarkdownGlob }
    }

    pub fn to_json(&self) -> Map<String, Value> {
        Map::from_iter([("path".to_string(), json!(self.path))])
    }

    pub fn reader(&self, allowed: &Allowed) -> Result<Folder, String> {
        let pattern =
            Pattern::parse(&self.path, &allowed.dirs).map_err(|problem| format!("config.path: {problem}"))?;
        Ok(Folder { config: self.clone(), pattern, max_size: allowed.max_size })
    }
}

impl Reader for Folder {
    fn list(&self) -> Result<Listing> {
        Ok(list(&self.pattern))
    }

    fn read(&self, wanted: &[Wanted]) -> Result<Vec<Content>> {
        let (mut read, mut bytes) = (Vec::new(), 0);
        for item in wanted {
            if bytes > 0 && bytes + item.size > READ_BYTES {
                break;
            }
            let mut content = read_file(&self.pattern.root, &item.path, self.max_size);
            if let Content::Read(found) = &mut content {
                bytes += found.bytes.len();
                found.content_type = self.config.is_markdown.then(|| "text/markdown".to_string());
            }
            read.push(content);
        }
        Ok(read)
    }

    fn uri(&self, path: &str) -> String {
        path.to_string()
    }

    fn nothing(&self) -> String {
        format!("no file matches \"{}\"", self.config.path)
    }
}

/// Lists the files that a pattern matches, in the order of their paths.
fn list(pattern: &Pattern) -> Listing {
    let mut listing = Listing::default();
    match open_directory(&pattern.root, pattern.fixed.iter().map(|name| OsStr::new(name.as_str()))) {
        Ok(directory) => {
            let mut path = pattern.fixed.join("/").into_bytes();
            if !path.is_empty() {
                path.push(b'/');
            }
            let depth = pattern.fixed.len();
            walk(pattern, directory.as_fd(), &mut path, depth, &mut listing);
        }
        Err(error) => {
            let path = pattern.fixed.join("/");
            let path = if path.is_empty() { "that is allowed".into() } else { format!("\"{path}\"") };
            listing.problem = Some(format!("the directory {path} cannot be opened: {}", reason(error)));
        }
    }
    listing.items.sort_by(|a, b| a.path.cmp(&b.path));
    listing
}

/// Reads a file of at most `most` bytes.
fn read_file(root: &str, path: &str, most: usize) -> Content {
    match try_read(root, path, most) {
        Ok(content) => content,
        Err(Errno::NOENT) => Content::Gone,
        Err(error) => Content::Unreadable(format!("it cannot be read: {}", reason(error))),
    }
}

fn try_read(root: &str, path: &str, most: usize) -> Result<Content, Errno> {
    let path = Path::new(path);
    let directories = path.parent().into_iter().flat_map(Path::iter);
    let directory = open_directory(root, directories)?;
    let file = rustix::fs::openat(&directory, path.file_name().unwrap_or_default(), FILE, Mode::empty())?;
    let before = rustix::fs::fstat(&file)?;
    if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
        return Ok(Content::Unreadable("it is not a regular file any more".into()));
    }
    let size = usize::try_from(before.st_size).unwrap_or(usize::MAX);
    if size > most {
        return Ok(Content::TooLarge(size));
    }
    let file = std::fs::File::from(file);
    let mut bytes = Vec::with_capacity(size);
    if let Err(error) = (&file).take(most as u64 + 1).read_to_end(&mut bytes) {
        return Ok(Content::Unreadable(format!("it cannot be read: {error}")));
    }
    if bytes.len() > most {
        return Ok(Content::TooLarge(bytes.len()));
    }
    let after = rustix::fs::fstat(&file)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs() as i64);
    let is_settled = version(&before) == version(&after) && now - (after.st_ctime as i64) > SETTLED;
    let version = if is_settled { version(&after) } else { String::new() };
    Ok(Content::Read(Found { bytes, version, ..Found::default() }))
}

/// Opens a directory below the root, which the configuration file names, so that links to the root itself are
/// followed.
pub fn open_directory<'a>(root: &str, names: impl Iterator<Item = &'a OsStr>) -> Result<OwnedFd, Errno> {
    let mut directory = rustix::fs::open(root, DIRECTORY, Mode::empty())?;
    for name in names {
        directory = rustix::fs::openat(&directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Ok(directory)
}

/// Lists a directory. `path`: its path, with a slash at the end unless it is the root.
fn walk(pattern: &Pattern, directory: BorrowedFd, path: &mut Vec<u8>, depth: usize, listing: &mut Listing) {
    let fail = |listing: &mut Listing, path: &[u8], error: Errno| {
        let problem = || format!("directory \"{}\" cannot be read: {}", shown(path), reason(error));
        listing.problem.get_or_insert_with(problem);
    };
    let entries = match Dir::read_from(directory) {
        Ok(entries) => entries,
        Err(error) => return fail(listing, path, error),
    };
    let length = path.len();
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return fail(listing, path, error),
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        path.extend_from_slice(name.to_bytes());
        match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                if pattern.depth.is_none_or(|most| depth + 1 < most) {
                    enter(pattern, directory, name, path, depth, listing);
                }
            }
            Ok(stat) => take(pattern, path, &stat, listing),
            // It was deleted meanwhile.
            Err(Errno::NOENT) => {}
            Err(error) => fail(listing, path, error),
        }
        path.truncate(length);
        if listing.items.len() > MOST_FILES {
            listing.problem = Some(format!("it has more than {MOST_FILES} files"));
            return;
        }
    }
}

fn enter(
    pattern: &Pattern,
    parent: BorrowedFd,
    name: &CStr,
    path: &mut Vec<u8>,
    depth: usize,
    listing: &mut Listing,
) {
    if depth >= MOST_NESTED {
        let problem = || format!("directory \"{}\" is more than {MOST_NESTED} levels deep", shown(path));
        listing.problem.get_or_insert_with(problem);
        return;
    }
    match rustix::fs::openat(parent, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(directory) => {
            path.push(b'/');
            walk(pattern, directory.as_fd(), path, depth + 1, listing);
        }
        // It was deleted meanwhile, or something else has its name.
        Err(Errno::NOENT) => {}
        Err(error) => {
            let problem = || format!("directory \"{}\" cannot be read: {}", shown(path), reason(error));
            listing.problem.get_or_insert_with(problem);
        }
    }
}

/// Takes a file into the listing, if the pattern matches it.
fn take(pattern: &Pattern, path: &[u8], stat: &Stat, listing: &mut Listing) {
    if !pattern.matcher.is_match(Path::new(OsStr::from_bytes(path))) {
        return;
    }
    let problem = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => match std::str::from_utf8(path) {
            Ok(path) => {
                let size = usize::try_from(stat.st_size).unwrap_or(usize::MAX);
                listing.items.push(Item { path: path.to_string(), version: Some(version(stat)), size });
                return;
            }
            Err(_) => "its name is not UTF-8",
        },
        FileType::Symlink => "it is a symbolic link, which is not followed",
        _ => "it is not a regular file",
    };
    listing.failed.push((shown(path), problem.into()));
}

fn version(stat: &Stat) -> String {
    let (size, mtime, ctime) = (stat.st_size, stat.st_mtime, stat.st_ctime);
    format!("{size} {mtime}.{:09} {ctime}.{:09}", stat.st_mtime_nsec, stat.st_ctime_nsec)
}

/// A path as text. Bytes that are no UTF-8 are shown by their numbers, so that few different paths look the
/// same.
pub fn shown(path: &[u8]) -> String {
    let mut text = String::new();
    for part in path.utf8_chunks() {
        text.push_str(part.valid());
        text.extend(part.invalid().iter().map(|byte| format!("\u{fffd}{byte:02x}")));
    }
    text
}

/// An error as the system words it, without its number.
pub fn reason(error: Errno) -> String {
    let text = std::io::Error::from(error).to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

#[cfg(test)]
#[path = "folder_tests.rs"]
mod tests;
