//! Reads a Git repository: the files of a commit, and their contents.
//!
//! By the crates of gitoxide that find and decode objects and references (`gix-odb`, `gix-object`,
//! `gix-ref`). They are safe Rust, but for maps of files. They bound what is allocated, and notice chains of
//! deltas and references that have no end. libgit2 (`git2`) would be another library, but it is C, its
//! licence is the GPL with an exception, and it follows alternates and links wherever they lead. All of `gix`
//! would add what is not wanted here: configuration, network, work trees.
//!
//! Only what is in the directory itself is read. The kernel refuses to open anything else (`confinement.rs`);
//! a repository that refers to another directory is an error that says so.

use gix_hash::{Kind, ObjectId, oid};
use gix_object::tree::EntryKind as Mode;
use gix_object::{CommitRefIter, Data, Find, TagRefIter, TreeRefIter};
use gix_odb::Header as _;
use gix_odb::store::init::Options;
use gix_ref::Target;
use kb_types::repository::{Blob, Entry, EntryKind, Files, MOST_FILES, MOST_PATHS};
use kb_types::sizes;
use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// The most directories of a commit.
const MOST_DIRECTORIES: usize = 1_000_000;
/// The most tags that are tags of each other, and references that refer to each other.
const MOST_STEPS: usize = 16;
/// How much is read of a file of configuration, and of an error.
const CONFIGURATION: u64 = 1 << 20;
const ERROR: usize = 300;

pub struct Repository {
    objects: gix_odb::Handle,
    references: gix_ref::file::Store,
    hash: Kind,
}

impl Repository {
    /// Opens the repository of a directory, which has it in .git or is bare. `memory`: how much of it may be
    /// used.
    pub fn open(directory: &Path, memory: u64) -> Result<Repository, String> {
        let place = place(directory)?;
        let hash = hash(&place)?;
        let limit = usize::try_from(memory / 4).unwrap_or(usize::MAX);
        let options = Options { alloc_limit_bytes: Some(limit), ..Options::default() };
        let objects = gix_odb::at_opts(place.join("objects"), hash, None, options)
            .map_err(|error| format!("the repository cannot be opened: {}", short(error)))?;
        Ok(Repository { objects, references: gix_ref::file::Store::at(place, hash), hash })
    }

    /// The id of the commit that a reference names.
    pub fn commit_id(&self, reference: &str) -> Result<String, String> {
        self.commit(reference).map(|(commit, _)| commit.to_string())
    }

    /// The files of the commit that a reference names, beneath these directories.
    pub fn list(&self, reference: &str, directories: &[String]) -> Result<Files, String> {
        let (commit, tree) = self.commit(reference)?;
        let mut listing = Listing::default();
        for directory in directories {
            if let Some(tree) = self.directory(tree, directory)? {
                listing.wait(tree, directory.clone().into_bytes());
                self.walk(&mut listing);
            }
        }
        let Listing { mut entries, mut problem, .. } = listing;
        entries.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let number = entries.len();
        entries.dedup_by(|a, b| a.path == b.path);
        if entries.len() < number {
            problem.get_or_insert("the commit has several files of the same path".into());
        }
        Ok(Files { commit: commit.to_string(), entries, problem })
    }

    /// The content of the file with this id, if it has at most `most` bytes.
    pub fn read(&self, id: &str, most: u64) -> Result<Blob, String> {
        let found = ObjectId::from_hex(id.as_bytes()).ok().filter(|id| id.kind() == self.hash);
        let id = found.ok_or_else(|| format!("\"{id}\" is not the id of an object of this repository"))?;
        let header = self.objects.try_header(&id).map_err(unreadable)?.ok_or_else(missing)?;
        if header.size() > most {
            return Ok(Blob::TooLarge(header.size()));
        }
        let mut bytes = Vec::new();
        if self.object(&id, &mut bytes)?.kind != gix_object::Kind::Blob {
            return Err(format!("object {id} is not a file"));
        }
        Ok(Blob::Content(bytes))
    }

    /// An object, whose content has the id that it should have.
    fn object<'a>(&self, id: &oid, buffer: &'a mut Vec<u8>) -> Result<Data<'a>, String> {
        let data = self.objects.try_find(id, buffer).map_err(unreadable)?.ok_or_else(missing)?;
        data.verify_checksum(id)
            .map_err(|_| format!("object {id} has been changed: its content has another id"))?;
        Ok(data)
    }

    /// The commit that a reference names, and its tree.
    fn commit(&self, reference: &str) -> Result<(ObjectId, ObjectId), String> {
        let mut id = self.target(reference)?;
        let mut buffer = Vec::new();
        for _ in 0..MOST_STEPS {
            let data =
                self.object(&id, &mut buffer).map_err(|problem| format!("\"{reference}\": {problem}"))?;
            match data.kind {
                gix_object::Kind::Commit => {
                    let tree =
                        CommitRefIter::from_bytes(data.data, self.hash).tree_id().map_err(unreadable)?;
                    return Ok((id, tree));
                }
                gix_object::Kind::Tag => {
                    id = TagRefIter::from_bytes(data.data, self.hash).target_id().map_err(unreadable)?;
                }
                kind => return Err(format!("\"{reference}\" names no commit, but a {kind}")),
            }
        }
        Err(format!("\"{reference}\" is a tag of a tag of a tag, and so on"))
    }

    /// The object that a reference names.
    fn target(&self, reference: &str) -> Result<ObjectId, String> {
        if reference.len() == self.hash.len_in_hex()
            && let Ok(id) = ObjectId::from_hex(reference.as_bytes())
        {
            return Ok(id);
        }
        let mut name = reference.to_string();
        for _ in 0..MOST_STEPS {
            let found = self.references.try_find(name.as_str());
            let found = found.map_err(|error| format!("\"{reference}\" cannot be read: {}", short(error)))?;
            match found.map(|found| found.target) {
                Some(Target::Object(id)) => return Ok(id),
                Some(Target::Symbolic(next)) => name = next.as_bstr().to_string(),
                None => return Err(format!("the repository has no branch, tag or commit \"{name}\"")),
            }
        }
        Err(format!("\"{reference}\" is a reference to a reference to a reference, and so on"))
    }

    /// The tree of a directory; None: there is no such directory.
    fn directory(&self, mut tree: ObjectId, path: &str) -> Result<Option<ObjectId>, String> {
        let mut buffer = Vec::new();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let data = self.object(&tree, &mut buffer)?;
            let mut next = None;
            for entry in TreeRefIter::from_bytes(data.data, self.hash) {
                let entry = entry.map_err(unreadable)?;
                if entry.filename == name && entry.mode.is_tree() {
                    next = Some(entry.oid.to_owned());
                }
            }
            match next {
                Some(next) => tree = next,
                None => return Ok(None),
            }
        }
        Ok(Some(tree))
    }

    /// Lists the directories that wait, and those in them.
    fn walk(&self, listing: &mut Listing) {
        let mut buffer = Vec::new();
        while let Some((tree, path)) = listing.waiting.pop_front() {
            if let Err(problem) = self.list_tree(&tree, &path, &mut buffer, listing) {
                let path = String::from_utf8_lossy(&path);
                listing.problem.get_or_insert(format!("directory \"{path}\" cannot be read: {problem}"));
            }
            if let Some(limit) = listing.limit() {
                listing.problem = Some(limit);
                listing.waiting.clear();
            }
        }
    }

    fn list_tree(
        &self,
        tree: &oid,
        path: &[u8],
        buffer: &mut Vec<u8>,
        listing: &mut Listing,
    ) -> Result<(), String> {
        let data = self.object(tree, buffer)?;
        if data.kind != gix_object::Kind::Tree {
            return Err(format!("object {tree} is not a directory"));
        }
        for entry in TreeRefIter::from_bytes(data.data, self.hash) {
            let entry = entry.map_err(unreadable)?;
            let name: &[u8] = entry.filename;
            if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
                return Err(format!("it has a file that is called \"{}\"", entry.filename));
            }
            let path = if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() };
            let kind = match entry.mode.kind() {
                Mode::Tree => {
                    listing.wait(entry.oid.to_owned(), path);
                    continue;
                }
                Mode::Blob | Mode::BlobExecutable => EntryKind::File,
                Mode::Link => EntryKind::SymbolicLink,
                Mode::Commit => EntryKind::Submodule,
            };
            listing.bytes += path.len();
            listing.entries.push(Entry { path, id: entry.oid.to_string(), kind });
        }
        Ok(())
    }
}

/// What is listed so far. A small repository can have any number of files, because the same directory may be
/// in many places.
#[derive(Default)]
struct Listing {
    entries: Vec<Entry>,
    problem: Option<String>,
    /// Directories that are still to be listed; those that are higher come first, so that a limit is soon
    /// met.
    waiting: VecDeque<(ObjectId, Vec<u8>)>,
    directories: usize,
    bytes: usize,
}

impl Listing {
    fn wait(&mut self, tree: ObjectId, path: Vec<u8>) {
        self.directories += 1;
        self.bytes += path.len();
        self.waiting.push_back((tree, path));
    }

    fn limit(&self) -> Option<String> {
        if self.entries.len() > MOST_FILES {
            return Some(format!("it has more than {MOST_FILES} files"));
        }
        if self.directories > MOST_DIRECTORIES {
            return Some(format!("it has more than {MOST_DIRECTORIES} directories"));
        }
        (self.bytes > MOST_PATHS).then(|| format!("its paths have more than {MOST_PATHS} bytes in all"))
    }
}

/// Where the repository of a directory is. An error if it is, or may be, in another directory.
fn place(directory: &Path) -> Result<PathBuf, String> {
    let inner = directory.join(".git");
    let place = match fs::symlink_metadata(&inner) {
        Ok(found) if found.is_dir() => inner,
        Ok(_) => {
            return Err("its .git is not a directory but leads to one, as in a work tree or a submodule; \
                        only a repository that is all in its directory is read"
                .into());
        }
        Err(_) => directory.to_path_buf(),
    };
    for name in ["objects", "refs"] {
        match fs::symlink_metadata(place.join(name)) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(format!("its {name} is not a directory, and links are not followed")),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err("the directory is not a Git repository".into());
            }
            Err(error) => return Err(format!("its {name} cannot be read: {}", short(error))),
        }
    }
    for (name, what) in [
        ("commondir", "it shares the repository of another directory (commondir)"),
        ("objects/info/alternates", "it borrows objects of another directory (objects/info/alternates)"),
        ("reftable", "its references are stored as a reftable, which is not read"),
    ] {
        if fs::symlink_metadata(place.join(name)).is_ok_and(|found| found.is_dir() || found.len() > 0) {
            return Err(what.into());
        }
    }
    Ok(place)
}

/// What ids are made by, which the configuration of the repository says (extensions.objectFormat).
fn hash(place: &Path) -> Result<Kind, String> {
    let mut text = Vec::new();
    match fs::File::open(place.join("config")) {
        Ok(file) => file.take(CONFIGURATION).read_to_end(&mut text).map_err(short)?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(format!("its config cannot be read: {}", short(error))),
    };
    let mut is_extensions = false;
    for line in String::from_utf8_lossy(&text).lines() {
        let mut line = line.trim();
        if let Some((section, rest)) = line.strip_prefix('[').and_then(|line| line.split_once(']')) {
            is_extensions = section.trim().eq_ignore_ascii_case("extensions");
            line = rest.trim();
        }
        if let Some((key, value)) = line.split_once('=')
            && is_extensions
            && key.trim().eq_ignore_ascii_case("objectformat")
        {
            let value = value.trim().trim_matches('"').to_ascii_lowercase();
            return value.parse().map_err(|_| format!("its object format is \"{value}\", which is not read"));
        }
    }
    Ok(Kind::Sha1)
}

fn missing() -> String {
    "the repository does not have its content, as in a partial clone".into()
}

fn unreadable(error: impl Error) -> String {
    format!("the repository is damaged: {}", short(error))
}

/// An error and its causes, in a line.
fn short(error: impl Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    sizes::cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), ERROR).to_string()
}

#[cfg(test)]
#[path = "git_tests.rs"]
mod tests;
