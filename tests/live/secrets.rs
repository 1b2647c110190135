//! Promise 8: secrets appear in no catalog, log, error message or dump.

use crate::stub::{Options, Stub};
use crate::support::{APP, SOON, assert_sound, succeed, texts, until};

const KEY: &str = "sk-live-5f1e9b7c3a2d4068";

/// Every table and view of kb as text, as far as this role may read it.
fn everything(db: &mut crate::support::Db) -> String {
    let relations: Vec<String> = db.all(
        "SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = 'kb'::regnamespace AND relkind IN ('r', 'v')
         AND relname <> 'secrets' AND has_table_privilege(c.oid, 'SELECT')",
    );
    let mut all = String::new();
    for relation in relations {
        let rows: Vec<String> = db.all(&format!("SELECT t::text FROM {relation} t"));
        all.push_str(&rows.join("\n"));
    }
    all
}

#[test]
fn a_key_is_in_no_catalog_log_error_activity_or_dump() {
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let (cluster, mut db) = crate::connected!("log_min_messages = debug1", "log_min_error_statement = error");
    db.0.execute("SELECT kb.set_secret('openai', $1)", &[&KEY]).unwrap();
    db.run(&format!(
        "SELECT kb.create_embedder('e', 'openai', 'm', 8, '{}', 'kb:openai')",
        stub.base_url("openai")
    ));
    db.create_kb("k", "e", "{}");
    db.put_and_wait("k", "d", "A text about harbors.");
    assert_sound(&mut db, "k", 1, 0);
    assert_eq!(db.found("k", "harbor", 1), ["d"]);
    assert_eq!(stub.complaints(), [] as [String; 0]);
    // A key that the provider refuses, and repeats in its answer.
    let wrong = format!("{KEY}-wrong");
    db.0.execute("SELECT kb.set_secret('openai', $1)", &[&wrong]).unwrap();
    db.put_and_wait("k", "d2", "Another text about harbors.");
    assert_eq!(db.count("kb.failures WHERE error LIKE '%401%***%'"), 1);
    let fault = db.fault("SELECT * FROM kb.query('k', 'castle')");
    assert!(fault.text.contains("401") && !fault.text.contains("5f1e9b7c"), "{fault:?}");
    let problem: String = db.one("SELECT problem FROM kb.check_embedder('e')");
    assert!(problem.contains("401") && !problem.contains("5f1e9b7c"), "{problem}");
    // An error of set_secret itself, whose statement would be logged with it.
    let fault = db.fault(&format!("SELECT kb.set_secret('a/b', '{KEY}')"));
    assert!(!fault.text.contains(KEY), "{fault:?}");
    // A key in a place where a reference belongs is refused, and not logged with the error.
    for config in [
        "",
        r#", config => '{"headers": {"Authorization": "Bearer KEY"}}'"#,
        r#", config => '{"api_key": "KEY"}'"#,
    ] {
        let secret = if config.is_empty() { KEY } else { "env:X" };
        let config = config.replace("KEY", KEY);
        let fault =
            db.fault(&format!("SELECT kb.create_embedder('x', 'openai', secret => '{secret}'{config})"));
        assert!(fault.code == "22023" && !fault.text.contains(KEY), "{fault:?}");
    }
    assert!(!everything(&mut db).contains("5f1e9b7c"));
    let activity: Vec<String> =
        cluster.connect(APP).all("SELECT query FROM pg_stat_activity WHERE query <> ''");
    assert!(activity.iter().all(|query| !query.contains(KEY)), "{activity:?}");
    let dump = succeed(cluster.program("pg_dump").arg(APP)).stdout;
    let dump = String::from_utf8_lossy(&dump);
    assert!(dump.contains("kb:openai") && !dump.contains("5f1e9b7c"));
    assert!(!cluster.log().contains("5f1e9b7c"), "the key is in the server's log");
}

#[test]
fn a_running_set_secret_does_not_show_the_key_in_pg_stat_activity() {
    let (cluster, mut db) = crate::connected!();
    let (mut watcher, mut holder) = (cluster.connect(APP), cluster.connect(APP));
    // It waits for a lock on the way, long enough to be observed.
    holder.run("BEGIN; LOCK TABLE kb.secrets");
    std::thread::scope(|scope| {
        scope.spawn(|| db.run(&format!("SELECT kb.set_secret('x', '{KEY}')")));
        let waiting = "pg_stat_activity WHERE wait_event_type = 'Lock'";
        let begun = std::time::Instant::now();
        while watcher.count(waiting) == 0 && begun.elapsed() < SOON {}
        let shown: Vec<String> = watcher.all(&format!("SELECT query FROM {waiting}"));
        // Before anything can fail, because the other session would wait for ever.
        holder.run("COMMIT");
        assert_eq!(shown, ["<hidden by kb>"]);
    });
}

#[test]
fn no_role_reads_a_secret() {
    let (_cluster, mut db) = crate::connected!();
    db.0.execute("SELECT kb.set_secret('openai', $1)", &[&KEY]).unwrap();
    for role in ["kb_reader", "kb_writer", "kb_admin"] {
        db.run(&format!("SET ROLE {role}"));
        assert_eq!(db.fault("SELECT * FROM kb.secrets").code, "42501", "{role}");
        assert_eq!(db.fault("SELECT value::int FROM kb.secrets").code, "42501", "{role}");
        assert_eq!(db.fault("COPY kb.secrets TO STDOUT").code, "42501", "{role}");
        db.run("RESET ROLE");
    }
    // Not even a role with a right on the table reads it, because there is no policy.
    db.run("CREATE ROLE curious; GRANT USAGE ON SCHEMA kb TO curious; GRANT SELECT ON kb.secrets TO curious; SET ROLE curious");
    assert_eq!(db.count("kb.secrets"), 0);
    db.run("RESET ROLE");
    for role in ["kb_reader", "kb_writer"] {
        db.run(&format!("SET ROLE {role}"));
        assert_eq!(db.fault("SELECT kb.set_secret('a', 'b')").code, "42501", "{role}");
        assert_eq!(db.fault("SELECT kb.drop_secret('openai')").code, "42501", "{role}");
        db.run("RESET ROLE");
    }
}

#[test]
fn a_moved_embedder_does_not_take_its_secret_along() {
    let (stub, other) = (
        Stub::start(Options { key: Some(KEY.into()), ..Options::default() }),
        Stub::start(Options::default()),
    );
    let (_cluster, mut db) = crate::connected!();
    db.0.execute("SELECT kb.set_secret('openai', $1)", &[&KEY]).unwrap();
    db.run(&format!(
        "SELECT kb.create_embedder('e', 'openai', 'm', 8, '{}', 'kb:openai')",
        stub.base_url("openai")
    ));
    assert!(db.one::<bool>("SELECT ok FROM kb.check_embedder('e')"));
    db.run(&format!("SELECT kb.alter_embedder('e', base_url => '{}')", other.base_url("openai")));
    let problem: String = db.one("SELECT problem FROM kb.check_embedder('e')");
    assert!(problem.contains("not bound"), "{problem}");
    assert_eq!(other.request_count(), 0);
    db.run(&format!("SELECT kb.alter_embedder('e', base_url => '{}')", stub.base_url("openai")));
    db.run("SELECT kb.alter_embedder('e', secret => 'kb:openai')");
    assert!(db.one::<bool>("SELECT ok FROM kb.check_embedder('e')"));
}

#[test]
fn a_key_file_and_a_changed_setting_apply_after_a_reload() {
    let stub = Stub::start(Options { key: Some(KEY.into()), ..Options::default() });
    let (cluster, mut db) = crate::connected!();
    db.run(&format!(
        "SELECT kb.create_embedder('e', 'openai', 'm', 8, '{}', 'file:openai')",
        stub.base_url("openai")
    ));
    let problem: String = db.one("SELECT problem FROM kb.check_embedder('e')");
    assert!(problem.contains("kb.secret_dir is not set"), "{problem}");
    std::fs::write(cluster.path("openai"), KEY).unwrap();
    let dir = format!("kb.secret_dir = '{}'", cluster.path("").display());
    cluster.configure(&[&dir]);
    cluster.reload();
    until(SOON, "the gateway finds the key", || db.one::<bool>("SELECT ok FROM kb.check_embedder('e')"));
    // Hosts can be forbidden, whatever the row of an embedder says.
    cluster.configure(&[&dir, "kb.allowed_hosts = 'api.openai.com'"]);
    cluster.reload();
    until(SOON, "the host is not allowed", || {
        db.one::<Option<String>>("SELECT problem FROM kb.check_embedder('e')")
            .is_some_and(|problem| problem.contains("kb.allowed_hosts"))
    });
    until(SOON, "the session has the setting", || {
        db.one::<String>("SELECT current_setting('kb.allowed_hosts')") == "api.openai.com"
    });
    db.refused("SELECT kb.create_embedder('f', 'ollama')", "22023");
}

#[test]
fn a_key_changed_while_a_document_is_under_way_is_used_for_what_is_left_of_it() {
    const NEW: &str = "sk-new-77aa55cc33ee1100";
    let latency = std::time::Duration::from_millis(20);
    let stub = Stub::start(Options { key: Some(KEY.into()), latency, ..Options::default() });
    stub.take_key(NEW);
    let (_cluster, mut db) = crate::connected!();
    db.0.execute("SELECT kb.set_secret('openai', $1)", &[&KEY]).unwrap();
    let config = r#"{"batch_size": 1, "max_concurrency": 1}"#;
    db.run(&format!(
        "SELECT kb.create_embedder('e', 'openai', 'm', 8, '{}', 'kb:openai', '{config}')",
        stub.base_url("openai")
    ));
    db.create_kb("k", "e", r#"{"strategy": "recursive", "size": 40, "overlap": 0}"#);
    db.put("k", "d", &texts::text(3, 120, 30));
    until(SOON, "the document is under way", || stub.request_count() >= 5);
    db.0.execute("SELECT kb.set_secret('openai', $1)", &[&NEW]).unwrap();
    let before = stub.request_count();
    db.wait("k");
    assert_sound(&mut db, "k", 1, 0);
    let requests = stub.requests();
    let with = |key: &str| {
        let header = format!("Bearer {key}");
        requests.iter().filter(|seen| seen.headers["authorization"] == header).count()
    };
    // One being answered, two waiting at the gateway and one on its way there still have the old key.
    assert!(with(KEY) <= before + 5 && with(NEW) > 50, "{before}, then {} and {}", with(KEY), with(NEW));
    assert_eq!(stub.complaints(), [] as [String; 0]);
}
