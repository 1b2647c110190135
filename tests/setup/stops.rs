//! What cannot be installed is said in one line, with what to do.

use crate::machine::Machine;
use crate::machine::Part::{Headers, Pgvector, Server};

#[track_caller]
fn says(machine: &Machine, words: &[&str]) {
    let line = machine.stops();
    for word in words {
        assert!(line.contains(word), "no {word:?} in: {line}");
    }
}

#[test]
fn without_rust_or_with_an_old_one() {
    let machine = Machine::new();
    machine.postgres(15, &[Server, Headers, Pgvector("0.8.0")]);
    machine.rust("1.63.0");
    says(&machine, &["Rust 1.63.0 is too old", "install 1.95"]);
    machine.program("rustc", "echo 'error: no default toolchain' >&2; exit 1");
    says(&machine, &["rustc does not run", "1.95"]);
    machine.without("cargo");
    says(&machine, &["cargo is missing", "1.95", "rustup"]);
}

#[test]
fn without_sudo_the_line_names_what_root_must_install() {
    let machine = Machine::new();
    machine.user(1000);
    let known = "as root: apt-get update && apt-get install -y postgresql-15 postgresql-server-dev-15";
    says(&machine, &[known]);
    // Without apt's lists, as in an image for containers.
    machine.apt(&[]);
    says(&machine, &["apt-get update && apt-get install -y postgresql postgresql-server-dev-all"]);
    machine.apt(&["postgresql default 15", "postgresql-15 1", "postgresql-server-dev-15 1"]);
    machine.postgres(15, &[Server]);
    says(&machine, &["apt-get install -y postgresql-server-dev-15"]);
    machine.apt(&[]);
    says(&machine, &["apt-get install -y postgresql-server-dev-15"]);
    machine.without("cc");
    says(&machine, &["apt-get install -y gcc postgresql-server-dev-15"]);
}

#[test]
fn without_apt_the_line_names_what_is_missing() {
    let machine = Machine::new();
    machine.without("apt-get");
    says(&machine, &["no PostgreSQL with headers", "PG_CONFIG"]);
    machine.postgres(15, &[Server, Headers, Pgvector("0.8.0")]);
    machine.without("cc");
    machine.without("pkg-config");
    says(&machine, &["no apt-get", "gcc pkg-config"]);
}

#[test]
fn a_package_that_apt_does_not_know_even_after_an_update() {
    let mut machine = Machine::new();
    machine.without("cc");
    assert_eq!(machine.decide(), ["update"]);
    machine.set("KB_UPDATED", "1");
    says(&machine, &["apt knows no gcc"]);
}

#[test]
fn a_debian_whose_postgresql_kb_is_not_for() {
    let machine = Machine::new();
    machine.apt(&["postgresql default 13", "postgresql-13 1", "postgresql-server-dev-13 1"]);
    says(&machine, &["apt has PostgreSQL 13", "PG_CONFIG"]);
}

#[test]
fn a_pg_config_that_is_none() {
    let mut machine = Machine::new();
    let own = machine.own_postgres("opt/pg", 16, &[Server, Headers, Pgvector("0.8.0")]);
    let dir = own.parent().unwrap().display().to_string();
    machine.file("opt/plain", "no program");
    machine.program("pg_dump", "echo 'pg_dump (PostgreSQL) 16.1'");
    machine.set("PG_CONFIG", "/nowhere/pg_config");
    says(&machine, &["PG_CONFIG=/nowhere/pg_config is no program", "unset PG_CONFIG"]);
    machine.set("PG_CONFIG", dir.clone());
    says(&machine, &[&dir, "is no program"]);
    machine.set("PG_CONFIG", machine.root().join("opt/plain").display().to_string());
    says(&machine, &["is no program"]);
    machine.set("PG_CONFIG", machine.root().join("bin/pg_dump").display().to_string());
    says(&machine, &["does not answer as pg_config does"]);
}

#[test]
fn a_pg_config_of_a_server_that_is_not_whole_and_not_debians() {
    let mut machine = Machine::new();
    let own = machine.own_postgres("opt/pg", 16, &[Server, Pgvector("0.8.0")]);
    machine.set("PG_CONFIG", own.display().to_string());
    says(&machine, &["postgres.h", "install that server's headers"]);
    let own = machine.own_postgres("opt/pg2", 16, &[Headers]);
    machine.set("PG_CONFIG", own.display().to_string());
    says(&machine, &["no server in", "give the pg_config of a server"]);
    let own = machine.own_postgres("opt/pg14", 14, &[Server, Headers]);
    machine.set("PG_CONFIG", own.display().to_string());
    says(&machine, &["of PostgreSQL 14", "18 17 16 15"]);
}

#[test]
fn a_debian_pg_config_whose_headers_apt_does_not_know() {
    let mut machine = Machine::new();
    let fourteen = machine.postgres(16, &[Server]);
    machine.set("PG_CONFIG", fourteen.display().to_string());
    machine.set("KB_UPDATED", "1");
    says(&machine, &["apt knows no postgresql-server-dev-16", "unset PG_CONFIG"]);
}

#[test]
fn root_without_a_user_for_the_server() {
    let machine = Machine::new();
    machine.postgres(15, &[Server, Headers, Pgvector("0.8.0")]);
    machine.program("runuser", "exit 1");
    says(&machine, &["user postgres may not enter"]);
    machine.file("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    says(&machine, &["no user postgres", "useradd"]);
}

#[test]
fn files_that_sudo_left_in_the_checkout() {
    let machine = Machine::new();
    machine.postgres(15, &[Server, Headers, Pgvector("0.8.0")]);
    std::fs::create_dir_all(machine.checkout().join("target/debug")).unwrap();
    // An id that nobody's files have.
    machine.user(54_321);
    says(&machine, &["/target holds files of another user", "chown -R ada"]);
}

#[test]
fn a_pgvector_that_may_neither_be_installed_nor_built() {
    let machine = Machine::new();
    machine.user(1000);
    let fifteen = machine.postgres(15, &[Server, Headers, Pgvector("0.7.4")]);
    // A library directory that nobody can write to, root neither.
    let text = std::fs::read_to_string(&fifteen).unwrap();
    let lib = machine.root().join("usr/lib/postgresql/15/lib").display().to_string();
    std::fs::write(
        &fifteen,
        text.replace(&format!("--pkglibdir) echo '{lib}'"), "--pkglibdir) echo /nowhere"),
    )
    .unwrap();
    says(&machine, &["pgvector 0.8 or newer is missing", "sudo"]);
}

#[test]
fn the_manual_without_apt_or_its_lists() {
    let machine = Machine::new();
    machine.postgres(15, &[Server, Headers, Pgvector("0.8.0")]);
    machine.remove("scratch/manual");
    assert_eq!(machine.decide()[1], "fetch manual");
    machine.apt(&[]);
    assert_eq!(machine.decide(), ["update"]);
    machine.user(1000);
    says(&machine, &["as root: apt-get update"]);
    machine.without("apt-get");
    says(&machine, &["no apt-get", "scratch/manual"]);
}

/// A configuration file or a connection string would have to quote it, or a socket's name would not fit.
#[test]
fn a_clusters_place_is_the_checkout_unless_its_path_will_not_do() {
    let long = "k".repeat(60);
    for (name, fits) in
        [("kb", true), ("my own kb", false), ("Übung", false), ("it's", false), (&long, false)]
    {
        let mut machine = Machine::in_checkout(name);
        machine.postgres(15, &[Server, Headers, Pgvector("0.8.0")]);
        machine.without("apt-get");
        machine.set("KB_SCRATCH", "");
        let place = if fits {
            machine.checkout().join(".scratch").display().to_string()
        } else {
            "/var/tmp/kb-0-".into()
        };
        says(&machine, &[&format!("html as {place}")]);
    }
}
