//! Keys in places where they might show or be taken: CONTEXT lines, the server's environment, its disk.

use crate::stub::{Options, Stub};
use crate::support::{APP, Cluster, Db, SOON, until};
use std::path::Path;

const KEY: &str = "sk-live-5f1e9b7c3a2d4068";
/// A part of the key that must not be found, because masking only the beginning or the end would leave it.
const MARK: &str = "5f1e9b7c";

#[test]
fn a_key_is_in_no_context_of_an_error_warning_or_notice() {
    let (cluster, mut db) = crate::connected!("log_min_messages = debug1", "log_error_verbosity = verbose");
    db.run("SELECT kb.create_embedder('e', 'openai', 'm', 8, 'https://one.example', 'kb:one')");
    db.run(
        "CREATE FUNCTION give(k text) RETURNS void LANGUAGE plpgsql AS $$BEGIN PERFORM kb.set_secret('a/b', k); END$$",
    );
    let deep = "[".repeat(200) + &"]".repeat(200);
    let header = r#"config => '{"headers": {"X-Vault-Token": "KEY"}}'"#;
    let calls = [
        "PERFORM kb.set_secret('a/b', 'KEY')".to_string(),
        "PERFORM kb.set_secret(NULL, 'KEY')".into(),
        "PERFORM kb.set_secret('n', E'KEY\\nx')".into(),
        "PERFORM give('KEY')".into(),
        "EXECUTE $q$SELECT kb.set_secret('a/b', 'KEY')$q$".into(),
        "PERFORM kb.create_embedder('x', 'openai', secret => 'KEY')".into(),
        "PERFORM kb.create_embedder(NULL, 'openai', secret => 'KEY')".into(),
        "PERFORM kb.create_embedder('x', 'openai', 'm', 8, 'https://u:KEY@one.example')".into(),
        "PERFORM kb.create_embedder('e', 'openai', 'm', 8, 'https://one.example/KEY')".into(),
        format!("PERFORM kb.create_embedder('x', 'openai', 'm', 8, 'https://one.example', {header})"),
        format!(r#"PERFORM kb.create_embedder('x', 'hash', config => '{{"key": "KEY", "x": {deep}}}')"#),
        "PERFORM kb.alter_embedder('e', secret => 'KEY')".into(),
        "PERFORM kb.alter_embedder(NULL, secret => 'KEY')".into(),
        format!("PERFORM kb.alter_embedder('e', {header})"),
        format!("PERFORM kb.alter_embedder('none', {header})"),
    ];
    for call in calls {
        let call = call.replace("KEY", KEY);
        let fault = db.fault(&format!("DO $do$ BEGIN {call}; END $do$"));
        assert!(!fault.text.contains(MARK), "{call}: {fault:?}");
        // Code that catches the error learns no more.
        let caught = db.fault(&format!(
            "DO $do$ DECLARE c text; BEGIN {call}; EXCEPTION WHEN OTHERS THEN
                 GET STACKED DIAGNOSTICS c = PG_EXCEPTION_CONTEXT; RAISE EXCEPTION 'context: %', c; END $do$"
        ));
        assert!(!caught.text.contains(MARK) && caught.message.starts_with("context: "), "{caught:?}");
    }
    // Another session has the table locked: the call waits, and is cancelled.
    let mut holder = cluster.connect(APP);
    holder.run("BEGIN; LOCK TABLE kb.secrets");
    db.run("SET statement_timeout = '1s'");
    let fault = db.fault(&format!("DO $do$ BEGIN PERFORM kb.set_secret('n', '{KEY}'); END $do$"));
    assert!(fault.code == "57014" && !fault.text.contains(MARK), "{fault:?}");
    holder.run("COMMIT");
    db.run("RESET statement_timeout");
    // A warning and a notice of its own; both are logged here.
    db.run("SET log_duration = on");
    db.run(&format!("DO $do$ BEGIN PERFORM kb.set_secret('n', '{KEY}'); END $do$"));
    db.run("RESET log_duration");
    let headers = format!(r#"config => '{{"headers": {{"X-Title": "{KEY}"}}}}'"#);
    db.run(&format!(
        "DO $do$ BEGIN PERFORM kb.alter_embedder('e', base_url => 'https://two.example', {headers}); END $do$"
    ));
    // An error after such a call has its usual CONTEXT.
    let fault =
        db.fault(&format!("DO $do$ BEGIN PERFORM kb.set_secret('n', '{KEY}'); PERFORM 1/0; END $do$"));
    assert!(fault.text.contains("SELECT 1/0") && !fault.text.contains(MARK), "{fault:?}");
    let log = cluster.log();
    assert!(log.contains("this server logs statements") && log.contains("was given for another host"));
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(MARK)).collect();
    assert!(lines.is_empty(), "{lines:?}");
}

#[test]
fn kb_admin_reads_no_variable_of_the_servers_environment_that_is_not_listed() {
    const PASSWORD: &str = "not-for-embedders-77aa";
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let mut cluster = crate::cluster!();
    cluster.give("POSTGRES_PASSWORD", PASSWORD);
    cluster.give("KB_STUB", KEY);
    cluster.stop("fast", 30);
    cluster.up();
    let mut db = cluster.connect(APP);
    db.run("SET ROLE kb_admin");
    let url = stub.base_url("openai");
    let mut refused = |name: &str, call: &str| {
        let fault = db.refused(&call.replace("NAME", name), "22023");
        assert!(fault.text.contains("kb.secret_env") && fault.text.contains("file:"), "{fault:?}");
        fault.text.replace(name, "NAME")
    };
    let create = format!("SELECT kb.create_embedder('x', 'openai', 'm', 8, '{url}', 'env:NAME')");
    // The error does not reveal whether there is such a variable.
    let there = refused("POSTGRES_PASSWORD", &create);
    assert_eq!(there, refused("POSTGRES_NO_SUCH", &create));
    assert!(!there.contains(PASSWORD));
    db.run(&format!("SELECT kb.create_embedder('e', 'openai', 'm', 8, '{url}', 'env:KB_STUB')"));
    assert!(db.one::<bool>("SELECT ok FROM kb.check_embedder('e')"));
    db.refused("SELECT kb.alter_embedder('e', secret => 'env:POSTGRES_PASSWORD')", "22023");
    db.refused("SHOW kb.secret_env", "42501");
    db.refused("SET kb.secret_env = 'POSTGRES_PASSWORD'", "55P02");
    // A row that exists already does not help, either.
    db.run("RESET ROLE; UPDATE kb.embedders SET secret = 'env:POSTGRES_PASSWORD' WHERE id = 'e'; SET ROLE kb_admin");
    let before = stub.request_count();
    let problem: String = db.one("SELECT problem FROM kb.check_embedder('e')");
    assert!(problem.contains("kb.secret_env") && !problem.contains(PASSWORD), "{problem}");
    assert_eq!(stub.request_count(), before);
    assert!(!cluster.log().contains(PASSWORD));
}

/// Whether a file under this folder holds a text.
fn holds(dir: &Path, text: &str) -> bool {
    std::fs::read_dir(dir).unwrap().flatten().any(|entry| {
        let kind = entry.file_type().unwrap();
        match kind.is_dir() {
            true => holds(&entry.path(), text),
            // Files come and go while the server runs.
            false => {
                kind.is_file()
                    && std::fs::read(entry.path())
                        .is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
            }
        }
    })
}

/// Makes the server seal secrets under a key of this name, or under none.
fn seal(cluster: &Cluster, db: &mut Db, key: Option<&str>) {
    let setting = match key {
        Some(name) => {
            let path = cluster.path(name);
            std::fs::write(&path, format!("{name} of thirty-two characters at least\n")).unwrap();
            format!("kb.secret_key = 'file:{}'", path.display())
        }
        None => "kb.secret_key = ''".into(),
    };
    cluster.configure(&[&setting]);
    cluster.reload();
    until(SOON, "the session has the setting", || {
        setting.contains(&format!(
            "'{}'",
            db.one::<String>("SELECT coalesce(current_setting('kb.secret_key', true), '')")
        ))
    });
}

fn set(db: &mut Db, key: &str) {
    db.0.execute("SELECT kb.set_secret('openai', $1)", &[&key]).unwrap();
}

#[test]
fn a_sealed_key_is_in_no_file_of_the_data_directory_and_works() {
    const OPEN: &str = "sk-open-99887766";
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let (cluster, mut db) = crate::connected!();
    // Without a sealing key the database stores it as it is, which also shows that the search looks in the
    // right place.
    set(&mut db, OPEN);
    db.run("CHECKPOINT");
    assert!(holds(&cluster.data(), OPEN));
    seal(&cluster, &mut db, Some("sealing"));
    let url = stub.base_url("openai");
    db.run(&format!("SELECT kb.create_embedder('e', 'openai', 'm', 8, '{url}', 'kb:openai')"));
    // A key that was stored before is read as it is, until it is set again.
    let problem: String = db.one("SELECT problem FROM kb.check_embedder('e')");
    assert!(problem.contains("401"), "{problem}");
    set(&mut db, KEY);
    db.run("CHECKPOINT");
    assert!(db.one::<bool>("SELECT sealed FROM kb.secrets WHERE name = 'openai'"));
    assert!(db.one::<bool>("SELECT ok FROM kb.check_embedder('e')"));
    assert!(!holds(&cluster.data(), KEY));
    // A sealed value that somebody copies to another name does not open there.
    db.run("INSERT INTO kb.secrets (name, value, sealed) SELECT 'other', value, sealed FROM kb.secrets");
    db.run("SELECT kb.alter_embedder('e', secret => 'kb:other')");
    let problem: String = db.one("SELECT problem FROM kb.check_embedder('e')");
    assert!(problem.contains("kb.secret_key"), "{problem}");
}

#[test]
fn documents_wait_and_do_not_fail_while_the_sealing_key_is_another_or_missing() {
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let (cluster, mut db) = crate::connected!();
    seal(&cluster, &mut db, Some("first"));
    set(&mut db, KEY);
    let url = stub.base_url("openai");
    db.run(&format!("SELECT kb.create_embedder('e', 'openai', 'm', 8, '{url}', 'kb:openai')"));
    db.create_kb("k", "e", "{}");
    for key in [None, Some("second")] {
        seal(&cluster, &mut db, key);
        let fault = db.fault("SELECT * FROM kb.query('k', 'harbor')");
        assert!(fault.code == "53400" && fault.text.contains("kb.secret_key"), "{fault:?}");
        assert!(!fault.text.contains(MARK) && !fault.text.contains(cluster.path("").to_str().unwrap()));
    }
    db.put("k", "d", "A text about harbors.");
    until(SOON, "the worker has seen it", || {
        db.count("kb.jobs WHERE error LIKE '%kb.secret_key%' AND leased_until IS NULL") == 1
    });
    assert_eq!((db.count("kb.failures"), stub.request_count()), (0, 0));
    // If the sealing key cannot be read, nothing is stored.
    std::fs::remove_file(cluster.path("second")).unwrap();
    let fault = db.fault("SELECT kb.set_secret('fresh', 'sk-fresh-1')");
    assert!(fault.code == "55000" && fault.text.contains("kb.secret_key"), "{fault:?}");
    assert_eq!(db.count("kb.secrets"), 1);
    seal(&cluster, &mut db, Some("first"));
    db.wait("k");
    assert_eq!(db.found("k", "harbor", 1), ["d"]);
}

#[test]
fn an_embedder_that_names_the_sealing_key_is_refused() {
    let (_cluster, mut db) = crate::connected!("kb.secret_key = 'env:KB_SEALING'");
    db.run("SELECT kb.create_embedder('e', 'openai', 'm', 8, 'https://one.example')");
    for statement in [
        "SELECT kb.create_embedder('x', 'openai', 'm', 8, 'https://one.example', 'env:KB_SEALING')",
        "SELECT kb.alter_embedder('e', secret => 'env:KB_SEALING')",
    ] {
        let fault = db.fault(statement);
        assert!(fault.code == "22023" && fault.text.contains("kb.secret_key"), "{fault:?}");
    }
    db.run("SELECT kb.alter_embedder('e', secret => 'env:KB_OTHER')");
}
