//! libpq's connection service files: named sets of connection parameters.

use super::conninfo::{self, Parameters};
use std::path::{Path, PathBuf};

/// The parameters of a service: from the file that PGSERVICEFILE names or `~/.pg_service.conf`, and otherwise
/// from the system's file.
pub fn parameters(
    service: &str,
    own_file: Option<PathBuf>,
    home: Option<&Path>,
    system_dirs: &[PathBuf],
) -> Result<Parameters, String> {
    let mut files = Vec::new();
    match own_file {
        Some(file) if !file.exists() => {
            return Err(format!("the service file {} does not exist", file.display()));
        }
        Some(file) => files.push(file),
        None => files.extend(home.map(|home| home.join(".pg_service.conf"))),
    }
    files.extend(system_dirs.iter().map(|dir| dir.join("pg_service.conf")));
    for file in files.iter().filter(|file| file.exists()) {
        let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        if let Some(found) = section(&text, service).map_err(|e| format!("{}: {e}", file.display()))? {
            return Ok(found);
        }
    }
    Err(format!("the definition of service \"{service}\" was not found"))
}

/// The parameters below `[service]`, if the file has it.
fn section(text: &str, service: &str) -> Result<Option<Parameters>, String> {
    let mut found: Option<Parameters> = None;
    for (line, number) in text.lines().map(str::trim).zip(1..) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            if found.is_some() {
                break;
            }
            if name.split(']').next() == Some(service) && name.contains(']') {
                found = Some(Parameters::new());
            }
            continue;
        }
        let Some(parameters) = &mut found else {
            continue;
        };
        if line.starts_with("ldap") {
            return Err(format!("line {number}: kb does not look up services in LDAP"));
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err(format!("line {number}: expected name=value"));
        };
        if matches!(key, "service" | "servicefile") {
            return Err(format!("line {number}: a service cannot name another one"));
        }
        if !conninfo::is_known(key) {
            return Err(format!("line {number}: \"{key}\" is not a connection parameter"));
        }
        // The first value counts.
        parameters.entry(key.to_string()).or_insert_with(|| value.to_string());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# services\n[other]\nhost=x\n[ app ]\nhost=y\n  [app]\n\nhost=db.example.com\n  port=5433\nport=1\nuser=ann\npassword=a=b \n[app]\nhost=z\n";

    #[test]
    fn a_service_is_the_first_section_of_its_name() {
        let found = section(FILE, "app").unwrap().unwrap();
        let listed: Vec<String> = found.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(listed, ["host=db.example.com", "password=a=b", "port=5433", "user=ann"]);
        assert!(section(FILE, "none").unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_with_a_service_names_its_line_and_no_value() {
        for (file, problem) in [
            ("[a]\nhost", "line 2: expected name=value"),
            ("[a]\nservice=b", "line 2: a service cannot name another one"),
            ("[a]\npasword=secret", "line 2: \"pasword\" is not a connection parameter"),
            ("[a]\nldap://x", "line 2: kb does not look up services in LDAP"),
        ] {
            assert_eq!(section(file, "a").unwrap_err(), problem);
        }
    }

    #[test]
    fn ones_own_file_comes_before_the_systems() {
        let dir = std::env::temp_dir().join(format!("kb-cli-service-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("home")).unwrap();
        std::fs::create_dir_all(dir.join("etc")).unwrap();
        std::fs::write(dir.join("home/.pg_service.conf"), "[a]\nhost=own\n").unwrap();
        std::fs::write(dir.join("etc/pg_service.conf"), "[a]\nhost=system\n[b]\nhost=system\n").unwrap();
        let home = dir.join("home");
        let host = |service: &str, own: Option<PathBuf>| {
            parameters(service, own, Some(&home), &[dir.join("etc")]).map(|found| found["host"].clone())
        };
        assert_eq!(host("a", None).unwrap(), "own");
        assert_eq!(host("b", None).unwrap(), "system");
        assert_eq!(host("a", Some(dir.join("etc/pg_service.conf"))).unwrap(), "system");
        assert!(host("c", None).unwrap_err().contains("service \"c\" was not found"));
        assert!(host("a", Some(dir.join("none"))).unwrap_err().contains("does not exist"));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
