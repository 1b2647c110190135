//! The files that a repository is expected to have exist, and agree with Cargo.toml.

use std::fs;

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The value of the first line `key = "value"`.
fn value(path: &str, key: &str) -> String {
    let text = text(path);
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{key} = \"")));
    line.and_then(|rest| rest.strip_suffix('"')).unwrap_or_else(|| panic!("{path} has no {key}")).to_owned()
}

fn meta() -> serde_json::Value {
    serde_json::from_str(&text("META.json")).unwrap()
}

#[test]
fn every_statement_of_the_licence_names_the_same_one() {
    for path in ["Cargo.toml", "fuzz/Cargo.toml"] {
        assert_eq!(value(path, "license"), "Apache-2.0", "{path}");
    }
    assert_eq!(meta()["license"], "apache_2_0");
    let licence = text("LICENSE");
    assert!(licence.contains("Apache License\n") && licence.contains("Version 2.0, January 2004"));
    assert!(licence.contains("END OF TERMS AND CONDITIONS"));
    assert!(text("NOTICE").contains("Apache License, Version 2.0"));
    assert!(text("README.md").contains("License: [Apache-2.0](LICENSE)"));
}

#[test]
fn every_statement_of_the_version_names_the_same_one() {
    let version = value("Cargo.toml", "version");
    assert_eq!(meta()["version"], version.as_str());
    assert_eq!(meta()["provides"]["kb"]["version"], version.as_str());
    assert!(text("README.md").contains(&format!("\nVersion {version}.")));
    assert!(text("CHANGELOG.md").contains(&format!("\n## [{version}]")));
}

#[test]
fn meta_json_has_what_pgxn_requires() {
    let meta = meta();
    for key in ["name", "version", "abstract", "maintainer", "license"] {
        assert!(meta[key].as_str().is_some_and(|value| !value.is_empty()), "{key}");
    }
    assert_eq!(meta["meta-spec"]["version"], "1.0.0");
    for (name, extension) in meta["provides"].as_object().unwrap() {
        for key in ["file", "docfile"] {
            assert!(!text(extension[key].as_str().unwrap()).is_empty(), "{key} of {name}");
        }
    }
}

#[test]
fn the_rust_of_developers_is_one_that_cargo_toml_allows() {
    let numbers = |version: &str| -> Vec<u32> { version.split('.').map(|n| n.parse().unwrap()).collect() };
    let (pinned, least) = (value("rust-toolchain.toml", "channel"), value("Cargo.toml", "rust-version"));
    assert!(numbers(&pinned) >= numbers(&least), "{pinned} is older than {least}");
    // rustup would fetch components and targets, even if rustc is installed already.
    assert!(!text("rust-toolchain.toml").contains(" = ["));
}

#[test]
fn the_files_to_which_the_readme_leads_contributors_exist() {
    let readme = text("README.md");
    for path in ["CONTRIBUTING.md", "SECURITY.md", "LICENSE", "NOTICE", "RELEASING.md"] {
        assert!(readme.contains(&format!("]({path})")), "README.md has no link to {path}");
        assert!(!text(path).is_empty());
    }
    assert!(text(".github/workflows/ci.yml").contains("run: .ci/run\n"));
}
