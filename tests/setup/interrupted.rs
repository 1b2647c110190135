//! setup.sh is killed in the middle of each thing that it makes: nothing half-made counts as made, and the
//! next run continues.

use crate::machine::Machine;
use std::os::unix::process::ExitStatusExt;

/// The first time that a script runs this command, it is killed with all its processes.
const KILLED: &str = "if [ ! -e \"$KB_ROOT/killed\" ]; then : >\"$KB_ROOT/killed\"; kill -9 0; fi";

/// Setup is killed, has this plan afterwards, keeps what it should keep, and does the rest when it is run
/// again.
#[track_caller]
fn goes_on(machine: &Machine, plan: &str, keeps: impl FnOnce(&Machine)) {
    assert_eq!(machine.run("setup.sh", &[]).status.signal(), Some(9), "setup.sh was not killed");
    assert_eq!(machine.decide(&[]), plan, "what is half-made is taken for whole");
    keeps(machine);
    let output = machine.run("setup.sh", &[]);
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    let log = machine.text("../kb/.scratch/setup.log");
    assert!(output.status.success(), "{}\n{said}\n{log}", output.status);
    assert_eq!(machine.decide(&[]), "server 15", "{said}\n{log}");
    assert!(!machine.root().join("scratch/setup").exists(), "the place of work is left");
}

#[test]
fn while_packages_are_installed() {
    let machine = Machine::whole();
    machine.without("cc");
    machine.apt_knows("gcc 12");
    machine.program(
        "apt-get",
        &format!(
            "case \"$*\" in
                *'install -y --no-install-recommends gcc')
                    if grep -q half \"$KB_ROOT/dpkg\"; then echo 'E: dpkg was interrupted' >&2; exit 100; fi
                    echo 'gcc half-configured' >\"$KB_ROOT/dpkg\"; {KILLED}
                    cp \"$KB_ROOT/bin/true\" \"$KB_ROOT/bin/cc\"; echo 'gcc installed' >\"$KB_ROOT/dpkg\" ;;
             esac"
        ),
    );
    machine.program("dpkg", "echo 'gcc installed' >\"$KB_ROOT/dpkg\"");
    goes_on(&machine, "repair; install gcc; server 15", |_| ());
}

#[test]
fn while_pgvector_is_installed() {
    for file in ["vector.so", "vector--0.8.0.sql", "vector.control"] {
        let machine = Machine::new();
        machine.postgres(15, "server headers 0.7.4");
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
                machine.at("usr/lib/postgresql/15")
            ),
        );
        // Killed at the moment at which this file is moved into place.
        machine.without("mv");
        let moved = format!("case \"$*\" in */{file}) {KILLED} ;; esac; PATH=/usr/bin:/bin exec mv \"$@\"");
        machine.program("mv", &moved);
        goes_on(&machine, "server 15; pgvector source", |_| ());
        assert_eq!(machine.text("usr/lib/postgresql/15/lib/vector.so"), "new\n");
    }
}

#[test]
fn while_models_are_unpacked() {
    let machine = Machine::whole();
    machine.file("scratch/models/.pins", "older ones");
    machine.program(
        "python3",
        &format!(
            "case \"$*\" in
                *unpack-models.py*) mkdir -p \"$3\"; echo half >\"$3/model\"; {KILLED}; echo whole >\"$3/model\" ;;
             esac"
        ),
    );
    goes_on(&machine, "server 15; fetch models", |machine| {
        assert_eq!(machine.text("scratch/models/.pins"), "older ones", "the old models are gone");
    });
    assert_eq!(machine.text("scratch/models/model"), "whole\n");
}

#[test]
fn while_the_manual_is_unpacked() {
    let machine = Machine::whole();
    machine.remove("scratch/manual");
    machine.program("apt-get", "[ $1 != download ] || : >\"$2_15_all.deb\"");
    machine.program(
        "dpkg-deb",
        &format!(
            "d=\"$3/usr/share/doc/postgresql-doc-15/html\"; mkdir -p \"$d\"; echo 1 >\"$d/index.html\"; {KILLED}
             echo 2 >\"$d/tutorial.html\""
        ),
    );
    goes_on(&machine, "server 15; fetch manual", |_| ());
    assert_eq!(machine.text("scratch/manual/tutorial.html"), "2\n");
}

#[test]
fn a_failure_is_one_line_with_its_reason() {
    let machine = Machine::whole();
    machine.without("cc");
    machine.apt_knows("gcc 12");
    let fails = "echo 'much output'; echo 'E: Failed to fetch gcc: no route to host' >&2; exit 100";
    machine.program("apt-get", fails);
    let output = machine.run("setup.sh", &[]);
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("apt-get update failed (E: Failed to fetch gcc: no route to host)"), "{said}");
}
