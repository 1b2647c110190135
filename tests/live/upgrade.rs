//! Promise 10: an installation of every released version becomes the newest one by ALTER EXTENSION, with its
//! data, and is then the same as a fresh one, object by object.

use crate::support::{APP, Db, LONG, assert_sound, until};
use std::collections::BTreeMap;
use std::fs;

/// A version that tools/versions.sh installs for these tests: upgrade/to-made-up.sql says what it lacks.
const MADE_UP: &str = "0.0.1.made_up";

/// The versions whose install scripts are kept in sql/released.
fn released() -> Vec<String> {
    let names =
        fs::read_dir("sql/released").unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let version = |name: String| Some(name.strip_prefix("kb--")?.strip_suffix(".sql")?.to_string());
    let mut versions: Vec<String> = names.filter_map(version).collect();
    versions.sort();
    versions
}

/// The statements that fill an installation of this version: two knowledge bases, a document that is ready
/// and one that waits.
fn filling(version: &str) -> String {
    let file = format!("tests/live/upgrade/fill-{version}.sql");
    fs::read_to_string(&file).unwrap_or_else(|e| panic!("{file}: {e}"))
}

fn objects(db: &mut Db) -> BTreeMap<String, String> {
    let rows = db.0.query(include_str!("upgrade/objects.sql"), &[]).unwrap();
    rows.iter()
        .map(|row| (row.get("object"), row.get::<_, Option<String>>("definition").unwrap_or_default()))
        .collect()
}

/// The differences, one per line.
fn differences(updated: &BTreeMap<String, String>, fresh: &BTreeMap<String, String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (object, definition) in fresh {
        match updated.get(object) {
            None => lines.push(format!("{object}: only in a fresh installation")),
            Some(other) if other != definition => {
                lines.push(format!("{object}\n    updated: {other}\n    fresh:   {definition}"));
            }
            Some(_) => {}
        }
    }
    let left = updated.keys().filter(|object| !fresh.contains_key(*object));
    lines.extend(left.map(|object| format!("{object}: only in an updated installation")));
    lines
}

/// What must hold in a database after ALTER EXTENSION kb UPDATE, with knowledge base `handbook` as
/// [`filling`] makes it.
fn assert_updated(db: &mut Db, version: &str, fresh: &BTreeMap<String, String>) {
    let found = differences(&objects(db), fresh);
    assert!(
        found.is_empty(),
        "{version}, updated by sql/upgrade, is not what sql/ makes. Was a script forgotten?\n{}",
        found.join("\n")
    );
    db.wait("handbook");
    assert_sound(db, "handbook", 2, 0);
    assert_eq!(db.found("handbook", "How many days of leave?", 1), ["ready"]);
    assert_eq!(db.put("handbook", "new", "Put after the update."), "added");
    db.wait("handbook");
    assert_sound(db, "handbook", 3, 0);
    // Vectors whose meaning has changed are computed again.
    let run: i64 = db.one("SELECT kb.ingest('handbook')");
    db.run(&format!("SELECT kb.wait({run}, 180)"));
    until(LONG, "the old build is swept", || db.count("kb.builds WHERE state <> 'live'") == 0);
    let builds = "SELECT bool_and(b.fingerprint = e.fingerprint) FROM kb.builds b JOIN kb.embedders e ON e.id = b.embedder WHERE b.state = 'live'";
    assert!(db.one::<bool>(builds));
    assert_sound(db, "handbook", 3, 0);
}

#[test]
fn every_released_version_becomes_the_newest_and_keeps_its_data() {
    let cluster = crate::cluster!();
    let fresh = objects(&mut cluster.connect(APP));
    for (i, version) in released().iter().enumerate() {
        let database = format!("old_{i}");
        cluster.connect("postgres").run(&format!("CREATE DATABASE {database}"));
        let mut db = cluster.connect(&database);
        db.run(&format!("CREATE EXTENSION vector; CREATE EXTENSION kb VERSION '{version}.frozen'"));
        db.run(&filling(version));
        db.run("ALTER EXTENSION kb UPDATE");
        assert_updated(&mut db, version, &fresh);
    }
}

#[test]
fn a_version_made_up_for_this_test_becomes_the_newest_and_keeps_its_data() {
    let (_cluster, mut db) = crate::connected!();
    let fresh = objects(&mut db);
    db.create_kb("handbook", "hash", "{}");
    db.put("handbook", "ready", "Everybody has thirty days of annual leave.");
    db.put_and_wait("handbook", "waits.html", "<h1>Travel</h1><p>Trains are paid for.</p>");
    db.run(&format!("ALTER EXTENSION kb UPDATE TO '{MADE_UP}'"));
    assert!(!differences(&objects(&mut db), &fresh).is_empty());
    db.run("ALTER EXTENSION kb UPDATE");
    assert_updated(&mut db, MADE_UP, &fresh);
}

#[test]
fn an_extension_older_than_its_library_reports_that_until_it_is_updated() {
    let cluster = crate::cluster!();
    cluster.connect("postgres").run("CREATE DATABASE older");
    let mut db = cluster.connect("older");
    db.run(&format!("CREATE EXTENSION vector; CREATE EXTENSION kb VERSION '{MADE_UP}'"));
    for call in
        ["FROM kb.health()", "FROM kb.query('k', 'a question')", "kb.create_knowledge_base('k', 'hash')"]
    {
        let error = db.0.simple_query(&format!("SELECT {call}")).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "55000", "{call}: {error}");
        let told = format!("extension kb is version {MADE_UP} in this database, and its library ");
        assert!(error.message().starts_with(&told), "{call}: {error}");
        assert_eq!(error.hint(), Some("Bring it up to date: ALTER EXTENSION kb UPDATE;"));
    }
    // In the same session, and an error with another cause is reported unchanged.
    db.run(
        "ALTER EXTENSION kb UPDATE; SELECT kb.create_knowledge_base('k', 'hash'), count(*) FROM kb.health()",
    );
    let error = db.0.simple_query("SELECT FROM kb.query('none', 'a question')").unwrap_err();
    assert_eq!(error.as_db_error().unwrap().code().code(), "42704");
}

#[test]
fn an_object_that_differs_is_reported() {
    let (_cluster, mut db) = crate::connected!();
    let fresh = objects(&mut db);
    assert!(fresh.len() > 200, "{}", fresh.len());
    assert_eq!(differences(&objects(&mut db), &fresh), [""; 0]);
    for change in [
        "ALTER TABLE kb.jobs ADD COLUMN more text",
        "ALTER TABLE kb.jobs ALTER COLUMN attempts SET DEFAULT 1",
        "ALTER TABLE kb.runs ALTER COLUMN state DROP NOT NULL",
        "ALTER TABLE kb.chunks NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE kb.documents DROP CONSTRAINT documents_external_id_check",
        "DROP INDEX kb.chunks_content",
        "DROP POLICY tenant_read ON kb.usage",
        "GRANT SELECT ON kb.secrets TO kb_reader",
        "REVOKE EXECUTE ON FUNCTION kb.health() FROM kb_reader",
        "COMMENT ON FUNCTION kb.health() IS 'another'",
        "COMMENT ON COLUMN kb.documents.content IS NULL",
        "ALTER FUNCTION kb.health() STABLE",
        "CREATE OR REPLACE FUNCTION kb.visible_tenants() RETURNS text[] LANGUAGE sql STABLE PARALLEL SAFE
            RETURN ARRAY['shared']",
        "ALTER VIEW kb.failures SET (security_invoker = false)",
        "CREATE TRIGGER t BEFORE DELETE ON kb.jobs FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "ALTER SEQUENCE kb.job_no_seq CACHE 100",
        "ALTER EXTENSION kb DROP FUNCTION kb.health()",
        "DELETE FROM kb.embedders WHERE id = 'hash'",
        "UPDATE pg_extension SET extconfig = extconfig[2:], extcondition = extcondition[2:] WHERE extname = 'kb'",
    ] {
        db.run(&format!("BEGIN; {change}"));
        assert!(!differences(&objects(&mut db), &fresh).is_empty(), "{change}");
        db.run("ROLLBACK");
    }
}
