//! A fake machine: servers, packages and programs are files and small scripts in a temporary directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What the scripts use of any system, taken from the real one.
const REAL: &[&str] = &[
    "basename", "bash", "cat", "chmod", "cksum", "cmp", "cp", "cut", "date", "dirname", "env", "find",
    "flock", "grep", "head", "install", "ls", "mkdir", "mktemp", "mv", "rm", "sed", "sh", "sleep", "sort",
    "tail", "tar", "test", "touch", "tr", "true", "uname",
];

/// A PostgreSQL's parts.
#[derive(Clone, Copy, PartialEq)]
pub enum Part {
    Server,
    Headers,
    Pgvector(&'static str),
}

pub struct Machine {
    dir: tempfile::TempDir,
    checkout: PathBuf,
    env: Vec<(&'static str, String)>,
}

impl Machine {
    /// Root on a Debian that has all but PostgreSQL; apt knows Debian 12's packages.
    pub fn new() -> Machine {
        Machine::in_checkout("kb")
    }

    pub fn in_checkout(name: &str) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let checkout = dir.path().join(name);
        let source = Path::new(".");
        fs::create_dir_all(checkout.join("tools")).unwrap();
        fs::copy(source.join("Cargo.toml"), checkout.join("Cargo.toml")).unwrap();
        for entry in fs::read_dir(source.join("tools")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                fs::copy(&path, checkout.join("tools").join(path.file_name().unwrap())).unwrap();
            }
        }
        let machine = Machine { dir, checkout, env: Vec::new() };
        for name in REAL {
            let path = std::env::split_paths(&std::env::var_os("PATH").unwrap())
                .map(|dir| dir.join(name))
                .find(|path| path.is_file())
                .unwrap_or_else(|| panic!("no {name} on PATH"));
            fs::create_dir_all(machine.root().join("bin")).unwrap();
            symlink(path, machine.root().join("bin").join(name)).unwrap();
        }
        for name in ["make", "cc", "pkg-config", "apt-get"] {
            machine.program(name, "exit 0");
        }
        machine.user(0);
        machine.rust("1.95.0");
        machine.program("cargo", "exit 0");
        machine.program("runuser", "shift 3; exec \"$@\"");
        machine.program("python3", "[ \"$*\" = '-m pip --version' ]");
        // Answers from files of lines "name version" and "name status".
        machine.program(
            "apt-cache",
            "case $1 in
                policy) v=$(sed -n \"s/^$2 //p\" \"$KB_ROOT/apt\"); echo \"$2:\"; echo \"  Candidate: ${v:-(none)}\" ;;
                depends) sed -n 's/^postgresql default /  Depends: postgresql-/p' \"$KB_ROOT/apt\" | grep . ||
                    { echo 'E: No packages found' >&2; exit 100; } ;;
             esac",
        );
        machine.program("dpkg-query", "sed -nE 's/^([^ ]+) (.*)/\\2 \\1/p' \"$KB_ROOT/dpkg\"");
        machine.file("dpkg", "");
        machine.file("etc/passwd", "root:x:0:0::/root:/bin/sh\npostgres:x:101:101::/:/bin/sh\n");
        machine.file("etc/ssl/certs/ca-certificates.crt", "certificates");
        machine.file("usr/include/stdio.h", "");
        machine.file("usr/lib/llvm-14/lib/libclang.so", "");
        machine.file("scratch/models/.pins", &machine.pins());
        machine.file("scratch/manual/index.html", "");
        machine.apt(&[
            "postgresql default 15",
            "postgresql-15 15.18-0+deb12u1",
            "postgresql-server-dev-15 15.18-0+deb12u1",
        ]);
        machine
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub fn checkout(&self) -> &Path {
        &self.checkout
    }

    pub fn file(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn remove(&self, path: &str) {
        let path = self.root().join(path);
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }

    pub fn script(&self, path: &str, body: &str) {
        self.file(path, &format!("#!/bin/sh\n{body}\n"));
        fs::set_permissions(self.root().join(path), fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// A program on PATH.
    pub fn program(&self, name: &str, body: &str) {
        self.script(&format!("bin/{name}"), body);
    }

    pub fn without(&self, program: &str) {
        self.remove(&format!("bin/{program}"));
    }

    pub fn user(&self, id: u32) {
        self.program("id", &format!("case $1 in -un) echo ada ;; *) echo {id} ;; esac"));
    }

    pub fn sudo(&self) {
        self.program("sudo", "exec \"$@\"");
    }

    pub fn rust(&self, version: &str) {
        self.program("rustc", &format!("echo 'rustc {version} (abc 2026-01-01)'"));
    }

    /// What apt knows: lines of a package and its version; "postgresql default N".
    pub fn apt(&self, lines: &[&str]) {
        self.file("apt", &lines.join("\n"));
    }

    pub fn apt_knows(&self, line: &str) {
        let known = fs::read_to_string(self.root().join("apt")).unwrap();
        self.file("apt", &format!("{known}\n{line}"));
    }

    pub fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.env.push((name, value.into()));
    }

    fn pins(&self) -> String {
        let script = "root=$1; . \"$1/tools/pins.sh\"; echo \"$MODEL_PINS\"";
        let output = Command::new("bash").args(["-c", script, "bash"]).arg(&self.checkout).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Debian's PostgreSQL of a major, with these parts. pg_config is always there: it comes with the client.
    pub fn postgres(&self, major: u32, parts: &[Part]) -> PathBuf {
        let pg = format!("usr/lib/postgresql/{major}");
        self.postgres_in(&pg, &format!("usr/include/postgresql/{major}/server"), major, parts)
    }

    /// A server somewhere else, with these parts.
    pub fn own_postgres(&self, dir: &str, major: u32, parts: &[Part]) -> PathBuf {
        self.postgres_in(dir, &format!("{dir}/include/server"), major, parts)
    }

    fn postgres_in(&self, pg: &str, include: &str, major: u32, parts: &[Part]) -> PathBuf {
        let root = self.root();
        let at = |path: &str| root.join(path).display().to_string();
        let (lib, share) = (format!("{pg}/lib"), format!("{pg}/share"));
        // pgxs.mk comes with the server and proves nothing.
        self.file(&format!("{lib}/pgxs/src/makefiles/pgxs.mk"), "");
        self.file(&format!("{share}/extension/plpgsql.control"), "");
        for part in parts {
            match part {
                Part::Server => {
                    self.script(&format!("{pg}/bin/initdb"), "exit 0");
                    self.script(&format!("{pg}/bin/postgres"), "exit 0");
                }
                Part::Headers => self.file(&format!("{include}/postgres.h"), ""),
                Part::Pgvector(version) => {
                    let control = format!("comment = 'vector'\ndefault_version = '{version}'\n");
                    self.file(&format!("{share}/extension/vector.control"), &control);
                    self.file(&format!("{share}/extension/vector--{version}.sql"), "");
                    self.file(&format!("{lib}/vector.so"), "");
                }
            }
        }
        let config = format!("{pg}/bin/pg_config");
        self.script(
            &config,
            &format!(
                "case $1 in
                    --version) echo 'PostgreSQL {major}.3 (Debian {major}.3-0+deb12u1)' ;;
                    --bindir) echo '{}' ;; --includedir-server) echo '{}' ;;
                    --sharedir) echo '{}' ;; --pkglibdir) echo '{}' ;;
                 esac",
                at(&format!("{pg}/bin")),
                at(include),
                at(&share),
                at(&lib)
            ),
        );
        root.join(config)
    }

    /// A script of tools/, on this machine, in a process group of its own.
    pub fn run(&self, script: &str, args: &[&str]) -> Output {
        let root = self.root();
        Command::new("bash")
            .process_group(0)
            .arg(self.checkout.join("tools").join(script))
            .args(args)
            .current_dir(&self.checkout)
            .env_clear()
            .env("PATH", root.join("bin"))
            .env("HOME", &root)
            .env("CARGO_HOME", root.join("cargo"))
            .env("KB_ROOT", &root)
            .env("KB_SCRATCH", root.join("scratch"))
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap()
    }

    /// The plan, a step a line. The machine is not changed by it.
    pub fn decide(&self) -> Vec<String> {
        let before = self.files();
        let output = self.run("decide.sh", &[]);
        // bash warns of a locale that is not there before it reads a script.
        let said = String::from_utf8_lossy(&output.stderr);
        let quiet = said.lines().all(|line| line.contains("setlocale"));
        assert!(output.status.success() && quiet, "decide.sh: {}\n{said}", output.status);
        assert_eq!(self.files(), before, "decide.sh changed the machine");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
    }

    /// Every file with its length and time.
    fn files(&self) -> Vec<(PathBuf, u64, std::time::SystemTime)> {
        let mut dirs = vec![self.dir.path().to_owned()];
        let mut out = Vec::new();
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(&dir).unwrap() {
                let path = entry.unwrap().path();
                let meta = fs::symlink_metadata(&path).unwrap();
                if meta.is_dir() {
                    dirs.push(path.clone());
                }
                out.push((path, meta.len(), meta.modified().unwrap()));
            }
        }
        out.sort();
        out
    }

    /// What it stops with, in a line.
    pub fn stops(&self) -> String {
        let plan = self.decide();
        assert_eq!(plan.len(), 1, "not one line: {plan:#?}");
        plan[0].strip_prefix("stop ").unwrap_or_else(|| panic!("no stop: {plan:?}")).to_owned()
    }
}
