//! The first commands and the files of a repository: what setup and lint do, as cases.sh says, and what a
//! repository is expected to have.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::panic)]

mod repository;

#[test]
fn setup_and_lint_do_on_made_up_machines_what_cases_sh_expects() {
    let output = std::process::Command::new("bash").arg("tests/setup/cases.sh").output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
