//! The program, asked about repositories as the worker asks it: it reads nothing outside of its directory.

#![allow(clippy::unwrap_used)] // a test says more by panicking

use kb_types::extraction::{VERSION, read_frame, write_frame};
use kb_types::repository::{Blob, Files, Question, Request};
use serde::de::DeserializeOwned;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The program in a directory, which is killed in the end.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Program {
    fn start(directory: &Path, memory: u64) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kb-extract"));
        command.args([memory.to_string(), "git".into()]).env_clear().current_dir(directory);
        let mut program = Program(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
        let version: String = read_frame(program.0.stdout.as_mut().unwrap(), 1024).unwrap();
        assert_eq!(version, VERSION);
        program
    }

    fn ask<A: DeserializeOwned>(&mut self, question: Question) -> A {
        write_frame(self.0.stdin.as_mut().unwrap(), &Request { question, seconds: 60 }).unwrap();
        read_frame(self.0.stdout.as_mut().unwrap(), 1 << 20).unwrap()
    }

    fn list(&mut self) -> Result<Files, String> {
        self.ask(Question::List { reference: "main".into(), directories: vec![String::new()] })
    }

    fn read(&mut self, id: &str) -> Result<Blob, String> {
        self.ask(Question::Read { id: id.into(), most: 1 << 20 })
    }
}

/// The packed repository of the tests, in a directory of this name.
fn copy(into: &Path) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/git/sha1");
    fs::create_dir_all(into.join("objects/pack")).unwrap();
    fs::create_dir_all(into.join("refs")).unwrap();
    for place in ["", "objects/pack"] {
        for file in fs::read_dir(from.join(place)).unwrap() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                fs::copy(file.path(), into.join(place).join(file.file_name())).unwrap();
            }
        }
    }
}

#[test]
fn the_confined_program_reads_a_repository_whose_packs_are_larger_than_its_memory() {
    let dir = tempfile::tempdir().unwrap();
    copy(dir.path());
    // A pack is mapped as a whole. This one ends with a hole.
    let packs = dir.path().join("objects/pack");
    let pack = fs::read_dir(&packs).unwrap().map(|file| file.unwrap().path());
    let pack = pack.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "pack")).unwrap();
    fs::OpenOptions::new().write(true).open(pack).unwrap().set_len(4 << 30).unwrap();
    let mut program = Program::start(dir.path(), 256 << 20);
    let files = program.list().unwrap();
    let two = files.entries.iter().find(|entry| entry.path == b"docs/two.md").unwrap();
    assert_eq!((program.read(&two.id), files.problem), (Ok(Blob::Content(b"Two\n".to_vec())), None));
}

#[test]
fn links_lead_to_nothing_outside_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
    copy(&inside);
    copy(&outside);
    let one = Program::start(&outside, 256 << 20).list().unwrap().entries[0].id.clone();
    // Each of these files is there, and whoever runs this may read it.
    for name in ["objects/pack", "packed-refs", "HEAD", "config"] {
        let path = inside.join(name);
        let kept = dir.path().join("kept");
        fs::rename(&path, &kept).unwrap();
        symlink(outside.join(name), &path).unwrap();
        let mut program = Program::start(&inside, 256 << 20);
        if name == "HEAD" {
            let question = Question::List { reference: "HEAD".into(), directories: vec![String::new()] };
            assert!(program.ask::<Result<Files, String>>(question).unwrap_err().contains("denied"));
        } else {
            let error = program.list().unwrap_err();
            assert!(error.contains("denied"), "{name}: {error}");
        }
        if name == "objects/pack" {
            assert!(program.read(&one).is_err());
        }
        fs::remove_file(&path).unwrap();
        fs::rename(&kept, &path).unwrap();
    }
    assert!(Program::start(&inside, 256 << 20).list().is_ok());
}
