//! What make lint does before it compiles: it fails where something would go unchecked, and reads the
//! subjects of commits.

use crate::machine::Machine;

fn machine() -> Machine {
    let machine = Machine::whole();
    for name in ["git", "shellcheck", "cargo-deny"] {
        machine.program(name, "exit 0");
    }
    machine
}

/// Whether lint passes, and its message if it does not.
fn lint(machine: &Machine) -> (bool, String) {
    let output = machine.run("lint.sh", &[]);
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn lint_fails_where_a_program_that_it_checks_with_is_missing() {
    assert_eq!(lint(&machine()), (true, String::new()));
    for name in ["git", "shellcheck", "cargo-deny"] {
        let machine = machine();
        machine.without(name);
        let (passes, said) = lint(&machine);
        assert!(!passes && said.contains(&format!("{name} is missing")), "{name}: {said}");
    }
}

#[test]
fn lint_fails_where_a_check_does() {
    for name in ["shellcheck", "cargo-deny", "cargo"] {
        let machine = machine();
        machine.program(name, "exit 1");
        // In the way in which cargo finds its subcommands.
        if name != "cargo" {
            machine.program("cargo", "[ $1 != deny ] || exec cargo-deny");
        }
        assert!(!lint(&machine).0, "{name}");
    }
}

#[test]
fn a_subject_of_a_commit_has_at_most_72_characters() {
    for (length, passes) in [(72, true), (73, false)] {
        let machine = machine();
        // Characters, not bytes.
        let subject = "é".repeat(length);
        machine.program("git", &format!("echo 'abc1234 Short'; echo 'def5678 {subject}'"));
        let (passed, said) = lint(&machine);
        assert_eq!(passed, passes, "{length}: {said}");
        assert!(passes || said.contains("def5678") && !said.contains("abc1234"), "{said}");
    }
}
