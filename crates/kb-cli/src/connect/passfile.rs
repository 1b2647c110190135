//! The password file of libpq, `.pgpass`.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a line of the file must match.
pub struct Wanted<'a> {
    pub host: &'a str,
    pub port: &'a str,
    pub dbname: &'a str,
    pub user: &'a str,
}

/// The password in the file, if it has one for this connection, or why the file is not read.
pub fn password(file: &Path, wanted: &Wanted<'_>) -> Result<Option<String>, String> {
    let Ok(metadata) = std::fs::metadata(file) else {
        return Ok(None);
    };
    if !metadata.is_file() {
        return Err(format!("the password file {} is not a plain file", file.display()));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(format!(
            "the password file {} is not read: others may read it, and its mode must be 0600 or less",
            file.display()
        ));
    }
    // A line that is not UTF-8 concerns others only if it does not match.
    let bytes = std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).lines().find_map(|line| matching(line, wanted)))
}

/// The password of a line `host:port:database:user:password` that matches. `*` as a whole field matches
/// everything, and a backslash quotes the next character.
fn matching(line: &str, wanted: &Wanted<'_>) -> Option<String> {
    let line = line.trim_end_matches(['\r', '\n']);
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let mut rest = line;
    for field in [wanted.host, wanted.port, wanted.dbname, wanted.user] {
        rest = after_field(rest, field)?;
    }
    let mut password = String::new();
    let mut characters = rest.chars();
    while let Some(c) = characters.next() {
        match c {
            ':' => break,
            '\\' => password.push(characters.next().unwrap_or('\\')),
            _ => password.push(c),
        }
    }
    (!password.is_empty()).then_some(password)
}

/// What follows the first field of a line, if this field matches.
fn after_field<'l>(line: &'l str, wanted: &str) -> Option<&'l str> {
    if let Some(rest) = line.strip_prefix("*:") {
        return Some(rest);
    }
    let mut expected = wanted.chars();
    let mut characters = line.char_indices();
    while let Some((at, c)) = characters.next() {
        let c = match c {
            ':' => return expected.next().is_none().then(|| &line[at + 1..]),
            '\\' => characters.next()?.1,
            _ => c,
        };
        if expected.next() != Some(c) {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const WANTED: Wanted<'_> = Wanted { host: "db.example.com", port: "5432", dbname: "app", user: "ann" };

    #[test]
    fn the_first_line_that_matches_has_the_password() {
        let of = |line: &str| matching(line, &WANTED);
        assert_eq!(of("db.example.com:5432:app:ann:secret"), Some("secret".into()));
        assert_eq!(of("*:*:*:*:any"), Some("any".into()));
        assert_eq!(of("db.example.com:5432:app:ann:a\\:b\\\\c:rest"), Some("a:b\\c".into()));
        assert_eq!(of("db\\.example.com:*:app:ann:x\r"), Some("x".into()));
        for other in [
            "#*:*:*:*:comment",
            "",
            "db.example.com:5433:app:ann:x",
            "db.example.co:5432:app:ann:x",
            "db.example.com.evil:5432:app:ann:x",
            "db.example.com:5432:app:bob:x",
            "*x:5432:app:ann:x",
            "db.example.com:5432:app",
            "*:*:*:*:",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        let odd = Wanted { dbname: "a:b\\c", ..WANTED };
        assert_eq!(matching("*:*:a\\:b\\\\c:ann:x", &odd), Some("x".into()));
    }

    #[test]
    fn a_file_that_others_may_read_is_not_read() {
        let dir = std::env::temp_dir().join(format!("kb-cli-passfile-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("pgpass");
        std::fs::write(&file, "# first\nother:*:*:*:no\n*:*:*:ann:yes\n*:*:*:*:late\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
        mode(0o600);
        assert_eq!(password(&file, &WANTED), Ok(Some("yes".into())));
        mode(0o640);
        assert!(password(&file, &WANTED).unwrap_err().contains("0600"));
        assert!(password(&dir, &WANTED).unwrap_err().contains("plain file"));
        assert_eq!(password(&dir.join("none"), &WANTED), Ok(None));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
