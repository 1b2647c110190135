use super::*;
use std::fs;
use std::os::unix::fs::symlink;

/// A folder with a file outside of it.
fn folder() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("root/a/b")).unwrap();
    fs::write(dir.path().join("secret.md"), "secret").unwrap();
    for name in ["x.md", "a/y.md", "a/b/z.md", "a/other.txt"] {
        fs::write(dir.path().join("root").join(name), name).unwrap();
    }
    let root = dir.path().join("root").to_str().unwrap().to_string();
    (dir, root)
}

fn listed(root: &str, path: &str) -> Listing {
    list(&Pattern::parse(path, &[root.to_string()]).unwrap())
}

fn paths(listing: &Listing) -> Vec<&str> {
    listing.items.iter().map(|item| item.path.as_str()).collect()
}

#[test]
fn a_listing_has_what_the_pattern_matches() {
    let (_dir, root) = folder();
    assert_eq!(paths(&listed(&root, "**/*.md")), ["a/b/z.md", "a/y.md", "x.md"]);
    assert_eq!(paths(&listed(&root, "a/*.md")), ["a/y.md"]);
    assert_eq!(paths(&listed(&root, "a/b/z.md")), ["a/b/z.md"]);
    assert!(listed(&root, "missing/*").problem.is_some_and(|problem| problem.contains("No such file")));
}

#[test]
fn links_and_special_files_are_neither_followed_nor_opened() {
    let (dir, root) = folder();
    let inside = Path::new(&root);
    symlink(dir.path().join("secret.md"), inside.join("link.md")).unwrap();
    symlink(dir.path(), inside.join("up")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, inside.join("fifo.md"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let listing = listed(&root, "**/*.md");
    assert_eq!(paths(&listing), ["a/b/z.md", "a/y.md", "x.md"]);
    let mut failed: Vec<&str> = listing.failed.iter().map(|(path, _)| path.as_str()).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["fifo.md", "link.md"]);
    // Had they taken the place of files since: an open of the fifo would wait for ever.
    for path in ["link.md", "up/secret.md", "fifo.md", "a"] {
        assert!(matches!(read_file(&root, path, 100), Content::Unreadable(_)), "{path}");
    }
    assert!(listed(&root, "up/*.md").problem.is_some());
}

#[test]
fn a_file_has_its_bytes_and_a_limit() {
    let (_dir, root) = folder();
    assert!(matches!(read_file(&root, "x.md", 4), Content::Read(found) if found.bytes == b"x.md"));
    assert_eq!(read_file(&root, "x.md", 3), Content::TooLarge(4));
    assert_eq!(read_file(&root, "gone.md", 3), Content::Gone);
}

#[test]
fn a_file_that_was_just_written_is_read_again() {
    let (_dir, root) = folder();
    assert!(matches!(read_file(&root, "x.md", 4), Content::Read(found) if found.version.is_empty()));
}

#[test]
fn every_name_is_listed_or_reported() {
    let (_dir, root) = folder();
    let names: [&[u8]; 4] = [b"new\nline.md", b"quote\"'.md", b"bad\xff.md", "Ä ö.md".as_bytes()];
    for name in names {
        fs::write(Path::new(&root).join(OsStr::from_bytes(name)), "text").unwrap();
    }
    let listing = listed(&root, "*.md");
    assert_eq!(paths(&listing), ["new\nline.md", "quote\"'.md", "x.md", "Ä ö.md"]);
    assert_eq!(listing.failed, [("bad\u{fffd}ff.md".to_string(), "its name is not UTF-8".to_string())]);
}
