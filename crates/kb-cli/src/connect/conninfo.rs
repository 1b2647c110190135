//! Connection strings of libpq: `postgresql://…` and `name=value …`. No error repeats a value, which may be a
//! password.

use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

/// Connection parameters by libpq's names.
pub type Parameters = BTreeMap<String, String>;

/// libpq's parameters, with the variable of the environment that stands for each.
pub const KNOWN: &[(&str, &str)] = &[
    ("application_name", "PGAPPNAME"),
    ("channel_binding", "PGCHANNELBINDING"),
    ("client_encoding", "PGCLIENTENCODING"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("dbname", "PGDATABASE"),
    ("fallback_application_name", ""),
    ("gssdelegation", "PGGSSDELEGATION"),
    ("gssencmode", "PGGSSENCMODE"),
    ("gsslib", "PGGSSLIB"),
    ("host", "PGHOST"),
    ("hostaddr", "PGHOSTADDR"),
    ("keepalives", ""),
    ("keepalives_count", ""),
    ("keepalives_idle", ""),
    ("keepalives_interval", ""),
    ("krbsrvname", "PGKRBSRVNAME"),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS"),
    ("max_protocol_version", "PGMAXPROTOCOLVERSION"),
    ("min_protocol_version", "PGMINPROTOCOLVERSION"),
    ("oauth_client_id", ""),
    ("oauth_client_secret", ""),
    ("oauth_issuer", ""),
    ("oauth_scope", ""),
    ("options", "PGOPTIONS"),
    ("passfile", "PGPASSFILE"),
    ("password", "PGPASSWORD"),
    ("port", "PGPORT"),
    ("replication", ""),
    ("require_auth", "PGREQUIREAUTH"),
    ("requirepeer", "PGREQUIREPEER"),
    ("scram_client_key", ""),
    ("scram_server_key", ""),
    ("service", "PGSERVICE"),
    ("servicefile", "PGSERVICEFILE"),
    ("ssl_max_protocol_version", "PGSSLMAXPROTOCOLVERSION"),
    ("ssl_min_protocol_version", "PGSSLMINPROTOCOLVERSION"),
    ("sslcert", "PGSSLCERT"),
    ("sslcertmode", "PGSSLCERTMODE"),
    ("sslcompression", "PGSSLCOMPRESSION"),
    ("sslcrl", "PGSSLCRL"),
    ("sslcrldir", "PGSSLCRLDIR"),
    ("sslkey", "PGSSLKEY"),
    ("sslkeylogfile", ""),
    ("sslmode", "PGSSLMODE"),
    ("sslnegotiation", "PGSSLNEGOTIATION"),
    ("sslpassword", ""),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslsni", "PGSSLSNI"),
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
    ("tcp_user_timeout", ""),
    ("user", "PGUSER"),
];

pub fn is_known(key: &str) -> bool {
    KNOWN.iter().any(|(name, _)| *name == key)
}

/// What `-d` says: a connection string, or else the name of a database.
pub fn parse(text: &str) -> Result<Parameters, String> {
    match text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://")) {
        Some(rest) => uri(rest),
        None if text.contains('=') => pairs(text),
        None => Ok(Parameters::from([("dbname".to_string(), text.to_string())])),
    }
}

fn uri(rest: &str) -> Result<Parameters, String> {
    let mut parameters = Parameters::new();
    let mut set = |key: &str, value: String| {
        if !value.is_empty() {
            parameters.insert(key.to_string(), value);
        }
    };
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, dbname) = before.split_once('/').unwrap_or((before, ""));
    set("dbname", decoded(dbname)?);
    let hosts = match authority.rsplit_once('@') {
        Some((user, hosts)) => {
            let (user, password) = user.split_once(':').unwrap_or((user, ""));
            set("user", decoded(user)?);
            set("password", decoded(password)?);
            hosts
        }
        None => authority,
    };
    let mut names = Vec::new();
    let mut ports = Vec::new();
    for host in hosts.split(',') {
        let (name, port) = if let Some(rest) = host.strip_prefix('[') {
            let (address, after) =
                rest.split_once(']').ok_or("the connection URI has an address without a closing bracket")?;
            match after.strip_prefix(':') {
                Some(port) => (address, port),
                None if after.is_empty() => (address, ""),
                None => {
                    return Err("the connection URI has something else than a port after an address".into());
                }
            }
        } else {
            host.split_once(':').unwrap_or((host, ""))
        };
        names.push(decoded(name)?);
        ports.push(decoded(port)?);
    }
    if names.iter().any(|name| !name.is_empty()) {
        set("host", names.join(","));
    }
    if ports.iter().any(|port| !port.is_empty()) {
        set("port", ports.join(","));
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) =
            pair.split_once('=').ok_or("the connection URI has a parameter without a value")?;
        let (key, value) = (decoded(key)?, decoded(value)?);
        match (key.as_str(), value.as_str()) {
            ("ssl", "true") => set("sslmode", "require".into()),
            _ if is_known(&key) => set(&key, value),
            _ => return Err(format!("\"{key}\" in the connection URI is not a connection parameter")),
        }
    }
    Ok(parameters)
}

fn decoded(text: &str) -> Result<String, String> {
    let has_bad_escape = text.match_indices('%').any(|(at, _)| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    let decoded = percent_decode_str(text).decode_utf8();
    match decoded {
        Ok(decoded) if !has_bad_escape && !decoded.contains('\0') => Ok(decoded.into_owned()),
        _ => Err("the connection URI has an invalid percent-encoded character".into()),
    }
}

fn pairs(text: &str) -> Result<Parameters, String> {
    let mut parameters = Parameters::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest
            .split_once('=')
            .ok_or("the connection string has a name without \"=\" after it".to_string())?;
        let key = key.trim_end();
        if key.contains(char::is_whitespace) {
            return Err("the connection string has a name without \"=\" after it".into());
        }
        if !is_known(key) {
            return Err(format!("\"{key}\" in the connection string is not a connection parameter"));
        }
        let (value, after) = value(after.trim_start())?;
        parameters.insert(key.to_string(), value);
        rest = after.trim_start();
    }
    Ok(parameters)
}

/// The value at the beginning of `text`, and what follows it.
fn value(text: &str) -> Result<(String, &str), String> {
    let quoted = text.strip_prefix('\'');
    let body = quoted.unwrap_or(text);
    let mut value = String::new();
    let mut characters = body.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '\'' if quoted.is_some() => return Ok((value, &body[at + 1..])),
            '\\' => value.extend(characters.next().map(|(_, next)| next)),
            _ if quoted.is_none() && c.is_whitespace() => return Ok((value, &body[at..])),
            _ => value.push(c),
        }
    }
    match quoted {
        Some(_) => Err("the connection string has a quoted value that does not end".into()),
        None => Ok((value, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str) -> String {
        let parameters = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
        parameters.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn uris_are_read_as_libpq_reads_them() {
        for (uri, expected) in [
            ("postgresql://", ""),
            ("postgresql://localhost", "host=localhost"),
            ("postgresql://localhost:5433", "host=localhost port=5433"),
            ("postgres://localhost/mydb", "dbname=mydb host=localhost"),
            ("postgresql://user@localhost", "host=localhost user=user"),
            ("postgresql://user:s%40c@localhost", "host=localhost password=s@c user=user"),
            (
                "postgresql://other@localhost/otherdb?connect_timeout=10&application_name=myapp",
                "application_name=myapp connect_timeout=10 dbname=otherdb host=localhost user=other",
            ),
            (
                "postgresql://host1:123,host2:456/somedb?target_session_attrs=any",
                "dbname=somedb host=host1,host2 port=123,456 target_session_attrs=any",
            ),
            ("postgresql://host1,host2:456/", "host=host1,host2 port=,456"),
            ("postgresql:///mydb?host=localhost&port=5433", "dbname=mydb host=localhost port=5433"),
            ("postgresql://[2001:db8::1234]:1/database", "dbname=database host=2001:db8::1234 port=1"),
            ("postgresql://%2Fvar%2Flib%2Fpostgresql/dbname", "dbname=dbname host=/var/lib/postgresql"),
            ("postgresql://h/d?ssl=true", "dbname=d host=h sslmode=require"),
        ] {
            assert_eq!(listed(uri), expected, "{uri}");
        }
    }

    #[test]
    fn strings_of_pairs_are_read_as_libpq_reads_them() {
        for (text, expected) in [
            ("mydb", "dbname=mydb"),
            ("host=localhost port = 5432 dbname=mydb", "dbname=mydb host=localhost port=5432"),
            ("password='it''s' user=a", "password=it user=a"),
            (r"password='it\'s \\ x' user=a\ b", r"password=it's \ x user=a b"),
            ("host='' dbname=x", "dbname=x host="),
        ] {
            match parse(text) {
                Ok(_) => assert_eq!(listed(text), expected, "{text}"),
                // libpq, too, expects a space after a quoted value.
                Err(e) => assert!(text.contains("''s'"), "{text}: {e}"),
            }
        }
    }

    #[test]
    fn what_is_wrong_with_a_connection_string_repeats_no_value() {
        for text in [
            "postgresql://u:secret%zz@h",
            "postgresql://u:secret@[::1",
            "postgresql://u:secret@h?secret",
            "postgresql://u:secret@h?pasword=secret",
            "password=secret host",
            "password='secret",
            "pasword=secret",
            "dbname=a secret b=c",
        ] {
            let problem = parse(text).unwrap_err();
            assert!(!problem.contains("secret"), "{text}: {problem}");
        }
    }
}
