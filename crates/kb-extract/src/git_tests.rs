use super::*;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use gix_object::Write as _;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

const MEMORY: u64 = 1 << 30;

/// A repository that a test writes.
struct Written {
    dir: TempDir,
}

impl Written {
    fn new() -> Written {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("objects/info")).unwrap();
        fs::create_dir_all(dir.path().join("refs/heads")).unwrap();
        let written = Written { dir };
        written.file("HEAD", "ref: refs/heads/main\n");
        written
    }

    fn file(&self, name: &str, text: &str) {
        fs::create_dir_all(self.dir.path().join(name).parent().unwrap()).unwrap();
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    fn object(&self, kind: gix_object::Kind, bytes: &[u8]) -> ObjectId {
        let store = gix_odb::loose::Store::at(self.dir.path().join("objects"), Kind::Sha1);
        store.write_buf(kind, bytes).unwrap()
    }

    /// A tree, of which the entries are in the order of their names.
    fn tree(&self, entries: &[(&str, &[u8], ObjectId)]) -> ObjectId {
        let mut bytes = Vec::new();
        for (mode, name, id) in entries {
            bytes.extend_from_slice(&[mode.as_bytes(), b" ", name, b"\0", id.as_slice()].concat());
        }
        self.object(gix_object::Kind::Tree, &bytes)
    }

    /// A commit, which becomes the head of branch main.
    fn commit(&self, tree: ObjectId) -> ObjectId {
        let who = "A <a@example.org> 1704067200 +0000";
        let text = format!("tree {tree}\nauthor {who}\ncommitter {who}\n\nmessage\n");
        let id = self.object(gix_object::Kind::Commit, text.as_bytes());
        self.file("refs/heads/main", &format!("{id}\n"));
        id
    }

    fn blob(&self, bytes: &[u8]) -> ObjectId {
        self.object(gix_object::Kind::Blob, bytes)
    }

    /// A file where the object with this id would be.
    fn raw(&self, id: ObjectId, bytes: &[u8]) {
        let hex = id.to_string();
        let directory = self.dir.path().join("objects").join(&hex[..2]);
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join(&hex[2..]);
        let _ = fs::remove_file(&path);
        fs::write(path, bytes).unwrap();
    }

    fn open(&self) -> Result<Repository, String> {
        Repository::open(self.dir.path(), MEMORY)
    }

    fn list(&self) -> Result<Files, String> {
        self.open()?.list("main", &[String::new()])
    }
}

fn id_of(byte: u8) -> ObjectId {
    ObjectId::from_bytes_or_panic(&[byte; 20])
}

fn packed(inner: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(inner).unwrap();
    encoder.finish().unwrap()
}

/// One that git has packed, with files that are deltas of others.
fn fixture(name: &str) -> (TempDir, Repository) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/git").join(name);
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(".git/objects/pack")).unwrap();
    fs::create_dir_all(dir.path().join(".git/refs")).unwrap();
    for place in ["", "objects/pack"] {
        for file in fs::read_dir(from.join(place)).unwrap() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                fs::copy(file.path(), dir.path().join(".git").join(place).join(file.file_name())).unwrap();
            }
        }
    }
    let repository = Repository::open(dir.path(), MEMORY).unwrap();
    (dir, repository)
}

fn paths(files: &Files) -> Vec<String> {
    files.entries.iter().map(|entry| String::from_utf8_lossy(&entry.path).into_owned()).collect()
}

fn content(repository: &Repository, files: &Files, path: &str) -> Vec<u8> {
    let entry = files.entries.iter().find(|entry| entry.path == path.as_bytes()).unwrap();
    match repository.read(&entry.id, 1 << 20).unwrap() {
        Blob::Content(bytes) => bytes,
        Blob::TooLarge(size) => panic!("{size}"),
    }
}

#[test]
fn a_branch_a_tag_and_a_commit_name_files() {
    for name in ["sha1", "sha256"] {
        let (_dir, repository) = fixture(name);
        let all = [String::new()];
        let main = repository.list("main", &all).unwrap();
        assert_eq!(paths(&main), ["docs/long.md", "docs/two.md", "src/link", "src/main.rs"], "{name}");
        assert_eq!(main.problem, None);
        assert_eq!(main.entries[2].kind, EntryKind::SymbolicLink);
        assert_eq!(repository.list("HEAD", &all).unwrap(), main);
        assert_eq!(repository.list("refs/heads/main", &all).unwrap(), main);
        let first = repository.list("v1", &all).unwrap();
        assert_eq!(paths(&first), ["docs/a/one.md", "docs/long.md", "src/link", "src/main.rs"]);
        // An annotated tag, a tag of that, a branch with a slash, and the id of the commit name the same.
        for reference in ["again", "feature/x", first.commit.as_str()] {
            assert_eq!(repository.list(reference, &all).unwrap(), first, "{reference}");
        }
        // Both versions are there, of which one is a delta of the other.
        let long = content(&repository, &main, "docs/long.md");
        let before = content(&repository, &first, "docs/long.md");
        assert!(long.starts_with(b"line 1 of a long page\n") && long.len() == before.len() + 4);
        assert_eq!(content(&repository, &first, "docs/a/one.md"), b"One\n");
        assert_eq!(repository.read(&main.entries[0].id, 10), Ok(Blob::TooLarge(long.len() as u64)));
    }
}

#[test]
fn a_listing_has_the_directories_that_are_asked_for() {
    let (_dir, repository) = fixture("sha1");
    let listed = |directories: &[&str]| {
        let directories: Vec<String> = directories.iter().map(|name| (*name).to_string()).collect();
        paths(&repository.list("v1", &directories).unwrap())
    };
    assert_eq!(listed(&["docs/a"]), ["docs/a/one.md"]);
    assert_eq!(listed(&["src", "docs/a"]), ["docs/a/one.md", "src/link", "src/main.rs"]);
    assert!(listed(&["none", "docs/long.md", "src/link", "docs/a/b"]).is_empty());
}

#[test]
fn what_is_named_but_not_there_is_an_error_that_says_so() {
    let (_dir, repository) = fixture("sha1");
    let fails = |reference: &str, says: &str| {
        let error = repository.list(reference, &[String::new()]).unwrap_err();
        assert!(error.contains(says), "{reference}: {error}");
    };
    fails("none", "no branch, tag or commit \"none\"");
    fails(&"1".repeat(40), "does not have its content");
    fails("22d7cc0", "no branch, tag or commit");
    fails("../../../etc/passwd", "cannot be read");
    fails("", "cannot be read");
    fails("682ed2869c4d28e372ab48704a64665ebd88a171", "names no commit, but a tree");
    assert!(repository.read(&id_of(1).to_string(), 10).unwrap_err().contains("partial clone"));
    for id in ["", "none", &"1".repeat(64)] {
        assert!(repository.read(id, 10).unwrap_err().contains("not the id"), "{id}");
    }
    let dir = tempfile::tempdir().unwrap();
    let error = Repository::open(dir.path(), MEMORY).err().unwrap();
    assert!(error.contains("not a Git repository"), "{error}");
}

#[test]
fn names_of_any_bytes_are_listed_and_those_that_git_forbids_are_not() {
    let written = Written::new();
    let one = written.blob(b"One");
    let names: [&[u8]; 4] =
        [b"bad\xff.md", b"new\nline.md", "quote\"'.md".as_bytes(), "\u{dc}n\u{ef}.md".as_bytes()];
    let entries: Vec<_> = names.iter().map(|name| ("100644", *name, one)).collect();
    written.commit(written.tree(&entries));
    let files = written.list().unwrap();
    assert_eq!(files.entries.iter().map(|entry| entry.path.as_slice()).collect::<Vec<_>>(), names);
    let module = written.tree(&[("160000", b"sub", one), ("100755", b"run", one)]);
    written.commit(module);
    let files = written.list().unwrap();
    let kinds: Vec<EntryKind> = files.entries.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [EntryKind::File, EntryKind::Submodule]);
    for name in ["..", ".", "a/b"] {
        written.commit(written.tree(&[("100644", name.as_bytes(), one), ("100644", b"x", one)]));
        assert!(written.list().unwrap().problem.is_some(), "{name}");
    }
    written.commit(written.tree(&[("100644", b"x", one), ("100644", b"x", written.blob(b"Two"))]));
    let files = written.list().unwrap();
    assert_eq!((paths(&files), files.problem.is_some()), (vec!["x".to_string()], true));
}

#[test]
fn a_repository_that_leads_elsewhere_is_refused() {
    let other = Written::new();
    let elsewhere = other.dir.path().to_str().unwrap().to_string();
    let refused = |change: &dyn Fn(&Written), says: &str| {
        let written = Written::new();
        written.commit(written.tree(&[]));
        assert!(written.list().is_ok());
        change(&written);
        let error = written.list().unwrap_err();
        assert!(error.contains(says), "{error}");
    };
    let objects = format!("{elsewhere}/objects\n");
    refused(&|written| written.file("objects/info/alternates", &objects), "borrows objects");
    refused(&|written| written.file("commondir", &elsewhere), "shares the repository");
    refused(&|written| written.file(".git", &format!("gitdir: {elsewhere}\n")), ".git is not a directory");
    refused(
        &|written| symlink(&elsewhere, written.dir.path().join(".git")).unwrap(),
        ".git is not a directory",
    );
    refused(&|written| written.file("reftable/tables.list", "x"), "reftable");
    refused(
        &|written| written.file("config", "[extensions] objectFormat = \"md5\"\n"),
        "object format is \"md5\"",
    );
    for name in ["objects", "refs"] {
        let link = |written: &Written| {
            fs::remove_dir_all(written.dir.path().join(name)).unwrap();
            symlink(other.dir.path().join(name), written.dir.path().join(name)).unwrap();
        };
        refused(&link, &format!("its {name} is not a directory"));
    }
}

#[test]
fn references_that_loop_are_an_error() {
    let written = Written::new();
    written.file("refs/heads/main", "ref: refs/heads/other\n");
    written.file("refs/heads/other", "ref: refs/heads/main\n");
    assert!(written.list().unwrap_err().contains("a reference to a reference"));
    written.file("refs/heads/main", "ref: ../../../secret\n");
    assert!(written.list().is_err());
}

#[test]
fn content_that_is_not_what_its_id_says_is_an_error() {
    let written = Written::new();
    let one = written.blob(b"One");
    written.raw(one, &packed(b"blob 3\0Two"));
    let repository = written.open().unwrap();
    assert!(repository.read(&one.to_string(), 10).unwrap_err().contains("has been changed"));
    for broken in
        [packed(b"blob 9\0Two"), packed(b"blob -1\0Two"), packed(b"nothing"), b"raw".to_vec(), Vec::new()]
    {
        written.raw(one, &broken);
        assert!(repository.read(&one.to_string(), 10).is_err(), "{broken:?}");
    }
}

#[test]
fn what_unpacks_to_more_than_its_size_is_not_unpacked() {
    let written = Written::new();
    let zeros = vec![0; 64 << 20];
    // The size is what it says, and too large.
    written.raw(id_of(1), &packed(&[b"blob 67108864\0".as_slice(), &zeros].concat()));
    let repository = written.open().unwrap();
    assert_eq!(repository.read(&id_of(1).to_string(), 1 << 20), Ok(Blob::TooLarge(64 << 20)));
    // The size is not what it says.
    written.raw(id_of(2), &packed(&[b"blob 10\0".as_slice(), &zeros].concat()));
    assert!(repository.read(&id_of(2).to_string(), 1 << 20).is_err());
    // A directory, of which no size is expected.
    written.raw(id_of(3), &packed(&[b"tree 67108864\0".as_slice(), &zeros].concat()));
    written.commit(id_of(3));
    let small = Repository::open(written.dir.path(), 16 << 20).unwrap();
    let files = small.list("main", &[String::new()]).unwrap();
    assert!(files.problem.is_some_and(|problem| problem.contains("allocation limit")));
}

#[test]
fn a_small_repository_of_endless_files_or_directories_has_a_limit() {
    let written = Written::new();
    let one = written.blob(b"One");
    let names: Vec<Vec<u8>> = (0..1_100).map(|n| format!("{n:05}").into_bytes()).collect();
    let tree = |mode, id| {
        let entries: Vec<(&str, &[u8], ObjectId)> =
            names.iter().map(|name| (mode, name.as_slice(), id)).collect();
        written.tree(&entries)
    };
    let files = tree("100644", one);
    written.commit(tree("40000", files));
    assert!(
        written.list().unwrap().problem.is_some_and(|problem| problem.contains("more than 1000000 files"))
    );
    let empty = written.tree(&[]);
    let directories = tree("40000", tree("40000", tree("40000", empty)));
    written.commit(directories);
    let problem = written.list().unwrap().problem;
    assert!(problem.is_some_and(|problem| problem.contains("more than 1000000 directories")));
}

#[test]
fn deltas_of_each_other_are_an_error() {
    let written = Written::new();
    let ids = [id_of(1), id_of(2)];
    let delta = packed(&[3, 3, 0x90, 3]);
    let mut pack = [b"PACK".as_slice(), &2_u32.to_be_bytes(), &2_u32.to_be_bytes()].concat();
    let mut offsets = Vec::new();
    for base in [ids[1], ids[0]] {
        offsets.push(pack.len() as u32);
        // The type, which is 7 for a delta of an object by its id, and the size of the delta.
        pack.push(7 << 4 | 4);
        pack.extend_from_slice(base.as_slice());
        pack.extend_from_slice(&delta);
    }
    pack.extend_from_slice(&[0; 20]);
    let mut index = vec![0xff, b't', b'O', b'c', 0, 0, 0, 2];
    index.extend((0..256_u32).flat_map(|first| first.min(2).to_be_bytes()));
    index.extend(ids.iter().flat_map(|id| id.as_slice().to_vec()));
    index.extend([0; 8]);
    index.extend(offsets.iter().flat_map(|offset| offset.to_be_bytes()));
    index.extend([0; 40]);
    let packs = written.dir.path().join("objects/pack");
    fs::create_dir_all(&packs).unwrap();
    fs::write(packs.join("pack-1.pack"), pack).unwrap();
    fs::write(packs.join("pack-1.idx"), index).unwrap();
    let error = written.open().unwrap().read(&ids[0].to_string(), 100).unwrap_err();
    assert!(error.contains("cycle"), "{error}");
}

#[test]
fn what_is_packed_again_while_it_is_read_is_found() {
    let (dir, repository) = fixture("sha1");
    let packs = dir.path().join(".git/objects/pack");
    let main = repository.list("main", &[String::new()]).unwrap();
    let moved = tempfile::tempdir().unwrap();
    for file in fs::read_dir(&packs).unwrap() {
        let file = file.unwrap();
        let ending = file.path().extension().unwrap().to_owned();
        fs::copy(file.path(), moved.path().join("pack-new").with_extension(&ending)).unwrap();
        fs::remove_file(file.path()).unwrap();
        fs::rename(
            moved.path().join("pack-new").with_extension(&ending),
            packs.join("pack-new").with_extension(&ending),
        )
        .unwrap();
    }
    let anew = Repository::open(dir.path(), MEMORY).unwrap();
    for repository in [&repository, &anew] {
        assert_eq!(content(repository, &main, "docs/two.md"), b"Two\n");
    }
}
