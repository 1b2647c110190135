//! setup.sh killed in the middle of each thing it makes: nothing half-made counts as made, and the next run goes on.

use crate::machine::Machine;
use crate::machine::Part::{Headers, Pgvector, Server};
use std::fs;
use std::os::unix::process::ExitStatusExt;

/// The first time that a script runs this, it is killed with all its processes.
const KILLED: &str = "if [ ! -e \"$KB_ROOT/killed\" ]; then : >\"$KB_ROOT/killed\"; kill -9 0; fi";

#[track_caller]
fn killed(machine: &Machine) {
    assert_eq!(machine.run("setup.sh", &[]).status.signal(), Some(9), "setup.sh was not killed");
}

#[track_caller]
fn goes_on(machine: &Machine) {
    let output = machine.run("setup.sh", &[]);
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let log = fs::read_to_string(machine.checkout().join(".scratch/setup.log")).unwrap_or_default();
    assert!(output.status.success(), "{}\n{said}\n{log}", output.status);
    let plan = machine.decide();
    assert!(plan.len() == 1 && plan[0].starts_with("server "), "still to do: {plan:?}\n{said}\n{log}");
    assert!(!machine.root().join("scratch/setup").exists(), "the place of work is left");
}

#[test]
fn while_packages_are_installed() {
    let machine = Machine::new();
    machine.postgres(15, &[Server, Headers, Pgvector("0.8.0")]);
    machine.without("cc");
    machine.apt_knows("gcc 12");
    machine.program(
        "apt-get",
        &format!(
            "case \"$*\" in
                *'install -y --no-install-recommends gcc')
                    if grep -q half \"$KB_ROOT/dpkg\"; then echo 'E: dpkg was interrupted' >&2; exit 100; fi
                    echo 'gcc half-configured' >\"$KB_ROOT/dpkg\"; {KILLED}
                    ln -s true \"$KB_ROOT/bin/cc\"; echo 'gcc installed' >\"$KB_ROOT/dpkg\" ;;
             esac"
        ),
    );
    machine.program("ln", "cp \"$KB_ROOT/bin/$2\" \"$3\"");
    machine.program("dpkg", "echo 'gcc installed' >\"$KB_ROOT/dpkg\"");
    killed(&machine);
    assert_eq!(machine.decide()[..2], ["repair", "install gcc"]);
    goes_on(&machine);
}

#[test]
fn while_pgvector_is_installed() {
    for file in ["vector.so", "vector--0.8.0.sql", "vector.control"] {
        pgvector_killed_at(file);
    }
}

fn pgvector_killed_at(file: &str) {
    let machine = Machine::new();
    let config = machine.postgres(15, &[Server, Headers, Pgvector("0.7.4")]);
    let pg = config.parent().unwrap().parent().unwrap();
    machine.program("apt-get", "[ $1 != indextargets ] || echo http://mirror");
    machine.script(
        "usr/lib/apt/apt-helper",
        "mkdir -p \"$KB_ROOT/pgvector-0.8.0\" && tar -czf \"$3\" -C \"$KB_ROOT\" pgvector-0.8.0",
    );
    machine.program("gzip", "exec cat");
    machine.program(
        "make",
        &format!(
            "for word; do case $word in DESTDIR=*) stage=${{word#*=}}{} ;; esac; done
             [ -n \"$stage\" ] || exit 0
             mkdir -p \"$stage/lib\" \"$stage/share/extension\"
             echo new >\"$stage/lib/vector.so\"
             echo new >\"$stage/share/extension/vector--0.8.0.sql\"
             echo \"default_version = '0.8.0'\" >\"$stage/share/extension/vector.control\"",
            pg.display()
        ),
    );
    // Killed where this file is moved into place.
    machine.remove("bin/mv");
    machine.program(
        "mv",
        &format!("case \"$*\" in */{file}) {KILLED} ;; esac; PATH=/usr/bin:/bin exec mv \"$@\""),
    );
    killed(&machine);
    assert!(
        machine.decide().contains(&"pgvector source".into()),
        "killed at {file}: half a pgvector is taken for whole"
    );
    goes_on(&machine);
    assert_eq!(fs::read_to_string(pg.join("lib/vector.so")).unwrap(), "new\n");
}

#[test]
fn while_models_are_unpacked() {
    let machine = Machine::new();
    machine.postgres(15, &[Server, Headers, Pgvector("0.8.0")]);
    machine.file("scratch/models/.pins", "older ones");
    machine.file("scratch/models/old", "");
    machine.program(
        "python3",
        &format!(
            "case \"$*\" in
                *unpack-models.py*) mkdir -p \"$3\"; echo half >\"$3/model\"; {KILLED}; echo whole >\"$3/model\" ;;
             esac"
        ),
    );
    killed(&machine);
    assert!(
        machine.root().join("scratch/models/old").exists(),
        "the old models went before the new ones were whole"
    );
    goes_on(&machine);
    assert_eq!(fs::read_to_string(machine.root().join("scratch/models/model")).unwrap(), "whole\n");
}

#[test]
fn while_the_manual_is_unpacked() {
    let machine = Machine::new();
    machine.postgres(15, &[Server, Headers, Pgvector("0.8.0")]);
    machine.remove("scratch/manual");
    machine.program("apt-get", "[ $1 != download ] || : >\"$2_15_all.deb\"");
    machine.program(
        "dpkg-deb",
        &format!(
            "d=\"$3/usr/share/doc/postgresql-doc-15/html\"; mkdir -p \"$d\"; echo 1 >\"$d/index.html\"; {KILLED}
             echo 2 >\"$d/tutorial.html\""
        ),
    );
    killed(&machine);
    assert_eq!(machine.decide()[1], "fetch manual");
    goes_on(&machine);
    assert!(machine.root().join("scratch/manual/tutorial.html").exists());
}

#[test]
fn a_failure_is_one_line_with_its_reason() {
    let machine = Machine::new();
    machine.postgres(15, &[Server, Headers, Pgvector("0.8.0")]);
    machine.without("cc");
    machine.apt_knows("gcc 12");
    machine.program(
        "apt-get",
        "echo 'much output'; echo 'E: Failed to fetch gcc: no route to host' >&2; exit 100",
    );
    let output = machine.run("setup.sh", &[]);
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("apt-get update failed (E: Failed to fetch gcc: no route to host)"), "{said}");
}
