//! A fake machine: servers, packages and programs are files and small scripts in a temporary directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The programs that the scripts use of any system, from the real one.
const REAL: &str = "basename bash cat chmod cksum cmp cp cut date dirname env find flock grep head install ls mkdir mktemp mv rm \
    sed sh sleep sort tail tar test touch tr true uname";

/// The parts of a server that lacks nothing, for `Machine::postgres`.
pub const WHOLE: &str = "server headers 0.8.0";

pub struct Machine {
    dir: tempfile::TempDir,
    checkout: PathBuf,
    env: Vec<(String, String)>,
}

impl Machine {
    /// Root on a Debian that has everything except PostgreSQL; apt knows Debian 12's packages.
    pub fn new() -> Machine {
        Machine::in_checkout("kb")
    }

    /// The same with the complete PostgreSQL 15 of Debian.
    pub fn whole() -> Machine {
        let machine = Machine::new();
        machine.postgres(15, WHOLE);
        machine
    }

    pub fn in_checkout(name: &str) -> Machine {
        let dir = tempfile::tempdir().unwrap();
        let checkout = dir.path().join(name);
        fs::create_dir_all(checkout.join("tools")).unwrap();
        fs::copy("Cargo.toml", checkout.join("Cargo.toml")).unwrap();
        for file in fs::read_dir("tools").unwrap().map(|entry| entry.unwrap().path()) {
            if file.is_file() {
                fs::copy(&file, checkout.join(&file)).unwrap();
            }
        }
        let machine = Machine { dir, checkout, env: Vec::new() };
        fs::create_dir_all(machine.root().join("bin")).unwrap();
        for name in REAL.split_ascii_whitespace() {
            let path = std::env::split_paths(&std::env::var_os("PATH").unwrap())
                .map(|dir| dir.join(name))
                .find(|path| path.is_file())
                .unwrap_or_else(|| panic!("no {name} on PATH"));
            symlink(path, machine.root().join("bin").join(name)).unwrap();
        }
        for name in ["make", "cc", "pkg-config", "apt-get"] {
            machine.program(name, "exit 0");
        }
        machine.user("0");
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
        for (path, text) in [
            ("dpkg", ""),
            ("etc/passwd", "root:x:0:0::/root:/bin/sh\npostgres:x:101:101::/:/bin/sh\n"),
            ("etc/ssl/certs/ca-certificates.crt", "certificates"),
            ("usr/include/stdio.h", ""),
            ("usr/lib/llvm-14/lib/libclang.so", ""),
            ("scratch/models/.pins", &machine.pins()),
            ("scratch/manual/index.html", ""),
        ] {
            machine.file(path, text);
        }
        machine.apt("postgresql default 15, postgresql-15 15.18, postgresql-server-dev-15 15.18");
        machine
    }

    pub fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    /// The path of a file under the machine's root.
    pub fn at(&self, path: &str) -> String {
        self.root().join(path).display().to_string()
    }

    pub fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root().join(path)).unwrap_or_default()
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

    pub fn user(&self, id: &str) {
        self.program("id", &format!("case $1 in -un) echo ada ;; *) echo {id} ;; esac"));
    }

    pub fn rust(&self, version: &str) {
        self.program("rustc", &format!("echo 'rustc {version} (abc 2026-01-01)'"));
    }

    /// The packages that apt knows, with their versions; "postgresql default N".
    pub fn apt(&self, packages: &str) {
        self.file("apt", &packages.replace(", ", "\n"));
    }

    /// Further packages that apt knows.
    pub fn apt_knows(&self, packages: &str) {
        self.apt(&format!("{}, {packages}", self.text("apt")));
    }

    /// A variable of the environment of the command.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.into(), value.into()));
    }

    fn pins(&self) -> String {
        let script = "root=$1; . \"$1/tools/pins.sh\"; echo \"$MODEL_PINS\"";
        let output = Command::new("bash").args(["-c", script, "bash"]).arg(&self.checkout).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Debian's PostgreSQL of a major. Its parts are `server`, `headers` and a version of pgvector; pg_config
    /// is always there, since it comes with the client. Returns the path of pg_config.
    pub fn postgres(&self, major: u32, parts: &str) -> String {
        let pg = format!("usr/lib/postgresql/{major}");
        self.postgres_in(&pg, &format!("usr/include/postgresql/{major}/server"), major, parts)
    }

    pub fn postgres_in(&self, pg: &str, include: &str, major: u32, parts: &str) -> String {
        let (lib, extension) = (format!("{pg}/lib"), format!("{pg}/share/extension"));
        // pgxs.mk comes with the server and proves nothing.
        self.file(&format!("{lib}/pgxs/src/makefiles/pgxs.mk"), "");
        self.file(&format!("{extension}/plpgsql.control"), "");
        for part in parts.split_ascii_whitespace() {
            match part {
                "server" => {
                    self.script(&format!("{pg}/bin/initdb"), "exit 0");
                    self.script(&format!("{pg}/bin/postgres"), "exit 0");
                }
                "headers" => self.file(&format!("{include}/postgres.h"), ""),
                version => {
                    let control = format!("comment = 'vector'\ndefault_version = '{version}'\n");
                    self.file(&format!("{extension}/vector.control"), &control);
                    self.file(&format!("{extension}/vector--{version}.sql"), "");
                    self.file(&format!("{lib}/vector.so"), "");
                }
            }
        }
        let config = format!("{pg}/bin/pg_config");
        let [bin, share] = ["bin", "share"].map(|part| self.at(&format!("{pg}/{part}")));
        let (include, lib) = (self.at(include), self.at(&lib));
        let version = format!("PostgreSQL {major}.3 (Debian {major}.3-0+deb12u1)");
        self.script(
            &config,
            &format!(
                "case $1 in
                    --version) echo '{version}' ;;
                    --bindir) echo '{bin}' ;; --includedir-server) echo '{include}' ;;
                    --sharedir) echo '{share}' ;; --pkglibdir) echo '{lib}' ;;
                 esac"
            ),
        );
        self.at(&config)
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
            .envs(self.env.iter().cloned())
            .output()
            .unwrap()
    }

    /// The plan for these parts of setup, its steps between semicolons; `server 15` is Debian's PostgreSQL
    /// 15. The machine is not changed by it.
    pub fn decide(&self, parts: &[&str]) -> String {
        let before = self.files();
        let output = self.run("decide.sh", parts);
        // bash warns of a locale that is not there before it reads a script.
        let said = String::from_utf8_lossy(&output.stderr);
        let quiet = said.lines().all(|line| line.contains("setlocale"));
        assert!(output.status.success() && quiet, "decide.sh: {}\n{said}", output.status);
        assert_eq!(self.files(), before, "decide.sh changed the machine");
        let plan = String::from_utf8(output.stdout).unwrap();
        assert!(!plan.starts_with("stop ") || plan.lines().count() == 1, "not one line: {plan}");
        let plan = plan.trim_end().replace('\n', "; ");
        let mut plan = plan.replace(&format!("{}/", self.root().display()), "/");
        for major in 14..20 {
            plan = plan.replace(&format!("/usr/lib/postgresql/{major}/bin/pg_config"), &major.to_string());
        }
        plan
    }

    /// Every file with its length and time.
    fn files(&self) -> String {
        let mut find = Command::new("find");
        let output = find.arg(self.dir.path()).args(["-printf", "%p %s %T@ %m\\n"]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}
