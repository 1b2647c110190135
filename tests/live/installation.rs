//! CREATE EXTENSION in a database whose owner is not to be trusted.

use crate::support::{APP, Cluster, Db, Fault};

/// A database that `boss` owns, with pgvector and with shadows in public that boss made.
fn trapped() -> Option<(Cluster, Db)> {
    let cluster = Cluster::start(&[])?;
    let mut postgres = cluster.connect("postgres");
    postgres.run("CREATE ROLE boss LOGIN");
    postgres.run("CREATE DATABASE theirs OWNER boss");
    cluster.connect("theirs").run("CREATE EXTENSION vector SCHEMA public");
    let mut boss = cluster.connect_as("theirs", "boss").safe();
    boss.learn_names();
    boss.make_shadows("public", None);
    boss.run("SELECT evil.shadow_languages('public')");
    let db = cluster.connect("theirs");
    Some((cluster, db))
}

#[test]
fn stored_code_of_the_installation_refers_to_no_object_of_others() {
    let Some((cluster, mut db)) = trapped() else { return };
    db.run("CREATE EXTENSION kb");
    cluster.assert_no_evidence();
    let mut watch = cluster.connect("theirs").safe();
    watch.run("SELECT kb.create_knowledge_base('k', 'hash')");
    // Everything in kb that refers to objects outside pg_catalog, kb and pgvector.
    let references: Vec<String> = watch.all(
        "SELECT format('%s refers to %s', mine.identity, theirs.identity) FROM pg_depend d,
             pg_identify_object(d.classid, d.objid, d.objsubid) mine,
             pg_identify_object(d.refclassid, d.refobjid, d.refobjsubid) theirs
         WHERE (mine.schema = 'kb' OR mine.identity ~ '\\mkb\\.') AND theirs.schema NOT IN ('kb', 'pg_catalog', 'pg_toast')
           AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = d.refclassid AND e.objid = d.refobjid
               AND e.deptype = 'e' AND e.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'vector'))",
    );
    assert_eq!(references, [""; 0]);
    // Code that kb stores as text is read under a search_path of its own, or qualifies everything.
    let unpinned: Vec<String> = watch.all(
        "SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
         WHERE p.pronamespace = 'kb'::regnamespace AND l.lanname IN ('sql', 'plpgsql') AND p.prosqlbody IS NULL
           AND NOT coalesce(p.proconfig, '{}') && ARRAY['search_path=pg_catalog, pg_temp']",
    );
    assert_eq!(unpinned, [""; 0]);
}

#[test]
fn a_superuser_who_reads_what_was_installed_runs_nothing_of_others() {
    let Some((cluster, mut db)) = trapped() else { return };
    db.run("CREATE EXTENSION kb");
    cluster.without_evidence(|| {
        for path in crate::support::shadows::PATHS {
            db.run("SET search_path = pg_catalog");
            db.run("SELECT kb.create_knowledge_base('k', 'hash')");
            db.put_and_wait("k", "d", "Where is the harbor?");
            db.run(&format!("SET search_path = {path}"));
            for relation in ["status", "failures", "documents", "chunks", "jobs", "usage", "embedders"] {
                db.run(&format!("SELECT * FROM kb.{relation}"));
            }
            db.run("SELECT * FROM kb.health()");
            db.run("SELECT kb.current_tenant(), kb.visible_tenants()");
            db.run("SELECT kb.drop_knowledge_base('k')");
        }
    });
}

#[test]
fn a_schema_kb_that_is_not_the_installers_or_not_empty_is_refused() {
    let (_cluster, mut db) = crate::connected!();
    db.run("DROP EXTENSION kb CASCADE; DROP SCHEMA IF EXISTS kb CASCADE; CREATE ROLE mallory");
    for trap in [
        "CREATE SCHEMA kb AUTHORIZATION mallory",
        "CREATE SCHEMA kb; CREATE TABLE kb.t (a int)",
        "CREATE SCHEMA kb; CREATE VIEW kb.v AS SELECT 1 AS a",
        "CREATE SCHEMA kb; CREATE SEQUENCE kb.s",
        "CREATE SCHEMA kb; CREATE FUNCTION kb.count(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'",
        "CREATE SCHEMA kb; CREATE DOMAIN kb.text AS pg_catalog.text",
        "CREATE SCHEMA kb; CREATE TYPE kb.text AS ENUM ('a')",
        "CREATE SCHEMA kb; CREATE OPERATOR kb.+ (LEFTARG = float8, RIGHTARG = int, FUNCTION = pg_catalog.float84pl)",
        "CREATE SCHEMA kb; CREATE OPERATOR FAMILY kb.f USING btree",
        "CREATE SCHEMA kb; CREATE COLLATION kb.c FROM \"C\"",
        "CREATE SCHEMA kb; CREATE TEXT SEARCH CONFIGURATION kb.english (COPY = pg_catalog.simple)",
        "CREATE SCHEMA kb; CREATE TEXT SEARCH DICTIONARY kb.d (TEMPLATE = pg_catalog.simple)",
        "CREATE SCHEMA kb; CREATE CONVERSION kb.c FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8",
    ] {
        let trap = trap.replace("pg_catalog.float84pl", "trap");
        db.run(
            "BEGIN; CREATE FUNCTION trap(float8, int) RETURNS float8 LANGUAGE sql AS 'SELECT 1.0::float8'",
        );
        db.run(&trap);
        let fault = db.fault("CREATE EXTENSION kb");
        db.run("ROLLBACK");
        assert!(
            fault.message.contains("schema \"kb\"") || fault.message.contains("schema kb"),
            "{trap}: {fault:?}"
        );
        assert!(!fault.code.starts_with("XX") && fault.text.lines().count() > 1, "{trap}: {fault:?}");
    }
    // The remains of an earlier installation belong to the installer and are empty.
    db.run("CREATE SCHEMA kb; CREATE EXTENSION kb");
    assert_eq!(db.count("kb.embedders"), 3);
}

/// The statement in the message of a fault: the first line that ends in `;`.
fn hint(fault: &Fault) -> String {
    fault.text.lines().find(|line| line.ends_with(';')).unwrap_or_default().to_string()
}

#[test]
fn a_role_that_reads_vectors_and_has_members_is_refused() {
    let (_cluster, mut db) = crate::connected!();
    db.run("DROP EXTENSION kb CASCADE; DROP SCHEMA IF EXISTS kb CASCADE; CREATE ROLE \"Mallory\"; CREATE ROLE eve");
    db.run("GRANT kb_vectors TO \"Mallory\", eve");
    let fault = db.fault("CREATE EXTENSION kb");
    assert!(fault.message.contains("\"Mallory\", eve"), "{fault:?}");
    assert_eq!(hint(&fault), "REVOKE kb_vectors FROM \"Mallory\", eve;");
    db.run(&hint(&fault));
    db.run("CREATE EXTENSION kb");
}

#[test]
fn health_says_what_to_grant_after_pgvector_was_moved() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    db.put_and_wait("k", "d", "Ships lie in the harbor.");
    db.run(r#"CREATE SCHEMA "where it is"; ALTER EXTENSION vector SET SCHEMA "where it is""#);
    let mut new = cluster.connect(APP);
    new.refused("SELECT * FROM kb.query('k', 'harbor')", "42501");
    let status = "SELECT status FROM kb.health() WHERE component = 'pgvector'";
    assert_eq!(new.one::<String>(status), "error");
    let hint: String = new.one("SELECT hint FROM kb.health() WHERE component = 'pgvector'");
    assert_eq!(hint, r#"GRANT USAGE ON SCHEMA "where it is" TO kb_vectors;"#);
    new.run(&hint);
    assert_ne!(new.one::<String>(status), "error");
    assert_eq!(new.found("k", "harbor", 1), ["d"]);
}

#[test]
fn health_warns_of_a_pgvector_that_can_corrupt_indexes_and_says_why() {
    let (_cluster, mut db) = crate::connected!();
    for (version, status, faults) in [
        ("0.7.4", "error", ""),
        ("0.8.0", "warning", "0.8.2, 0.8.3, 0.8.4"),
        ("0.8.2", "warning", "0.8.3, 0.8.4"),
        ("0.8.3", "warning", "0.8.4"),
        ("0.8.4", "ok", ""),
        ("0.8.10", "ok", ""),
        ("0.9.0", "ok", ""),
        ("1.0", "ok", ""),
    ] {
        db.run(&format!("UPDATE pg_extension SET extversion = '{version}' WHERE extname = 'vector'"));
        let (found, detail, hint): (String, String, Option<String>) = {
            let row = db
                .0
                .query_one("SELECT status, detail, hint FROM kb.health() WHERE component = 'pgvector'", &[]);
            let row = row.unwrap();
            (row.get(0), row.get(1), row.get(2))
        };
        let said: Vec<&str> = ["0.8.2", "0.8.3", "0.8.4"]
            .into_iter()
            .filter(|fixed| detail.contains(&format!("{fixed})")))
            .collect();
        assert_eq!((found.as_str(), said.join(", ").as_str()), (status, faults), "{version}: {detail}");
        assert!(detail.starts_with(&format!("version {version}")), "{detail}");
        let advises = hint.is_some_and(|hint| hint.contains("ALTER EXTENSION vector UPDATE"));
        assert_eq!(advises, status != "ok", "{version}");
    }
}

/// The rights on objects in schema kb, and on the schema, that a role or everybody has.
const RIGHTS_OF_GRABBER: &str = "SELECT format('%s on %s', a.privilege_type, o.name) FROM (
         SELECT relacl, relname FROM pg_class WHERE relnamespace = 'kb'::regnamespace
         UNION ALL SELECT attacl, attname FROM pg_attribute JOIN pg_class c ON c.oid = attrelid WHERE relnamespace = 'kb'::regnamespace
         UNION ALL SELECT coalesce(proacl, acldefault('f', proowner)), proname FROM pg_proc WHERE pronamespace = 'kb'::regnamespace
         UNION ALL SELECT nspacl, nspname FROM pg_namespace WHERE nspname = 'kb') o (acl, name), aclexplode(o.acl) a
     WHERE a.grantee IN (0, (SELECT oid FROM pg_roles WHERE rolname = 'grabber'))";

#[test]
fn default_privileges_of_the_installer_apply_to_no_object_of_kb() {
    let (cluster, mut db) = crate::connected!();
    db.run("DROP EXTENSION kb CASCADE; DROP SCHEMA IF EXISTS kb CASCADE; CREATE ROLE grabber LOGIN");
    for grant in ["ALL ON TABLES", "ALL ON SEQUENCES", "ALL ON FUNCTIONS", "USAGE ON SCHEMAS"] {
        db.run(&format!("ALTER DEFAULT PRIVILEGES GRANT {grant} TO grabber WITH GRANT OPTION"));
        db.run(&format!("ALTER DEFAULT PRIVILEGES GRANT {grant} TO PUBLIC"));
    }
    db.run("CREATE EXTENSION kb; SELECT kb.create_vector_db('of all', dimension => 384), kb.create_vector_db('quick', 'memory', dimension => 384)");
    for vector_db in ["NULL", "'of all'", "'quick'"] {
        db.run(&format!(
            "SELECT kb.create_knowledge_base('k' || coalesce({vector_db}, ''), 'hash', {vector_db})"
        ));
    }
    db.put_and_wait("k", "d", "Ships lie in the harbor.");
    assert_eq!(db.all::<String>(RIGHTS_OF_GRABBER), [""; 0]);
    let mut grabber = cluster.connect_as(APP, "grabber");
    grabber.refused("UPDATE kb.embedders SET base_url = 'http://evil.example'", "42501");
    assert_eq!(db.found("k", "harbor", 1), ["d"]);
}

#[test]
fn health_tells_of_rights_on_kbs_objects_that_kb_did_not_give() {
    let (_cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE grabber; CREATE TABLE mine (a int); GRANT SELECT ON mine TO grabber");
    db.create_kb("k", "hash", "{}");
    db.put_and_wait("k", "d", "Ships lie in the harbor.");
    let grants = "SELECT status || ' ' || detail FROM kb.health() WHERE component = 'grants'";
    let ok: String = db.one(grants);
    assert!(ok.starts_with("ok "), "{ok}");
    let table = crate::support::vector_table(&mut db, "k");
    let all = format!("TABLE {table}");
    for (what, to, is_told) in [
        (
            "UPDATE (base_url) ON kb.embedders",
            "grabber",
            "grabber: UPDATE on column base_url of kb.embedders",
        ),
        ("SELECT ON kb.secrets", "grabber", "grabber: SELECT on kb.secrets"),
        ("INSERT ON kb.documents", "kb_reader", "kb_reader: INSERT on kb.documents"),
        (
            "EXECUTE ON FUNCTION kb.set_secret(text, text)",
            "PUBLIC",
            "PUBLIC: EXECUTE on kb.set_secret(text,text)",
        ),
        ("USAGE ON SEQUENCE kb.kb_no_seq", "grabber", "grabber: USAGE on kb.kb_no_seq"),
        (&format!("SELECT ON {all}"), "grabber", &format!("grabber: SELECT on {table}")),
    ] {
        db.run(&format!("GRANT {what} TO {to}"));
        let told: String = db.one(grants);
        assert!(told.starts_with("warning ") && told.contains(is_told), "{what}: {told}");
        db.run(&format!("REVOKE {what} FROM {to}"));
        assert_eq!(db.one::<String>(grants), ok, "{what}");
    }
    db.run("GRANT kb_vectors TO grabber");
    let told: String = db.one(grants);
    assert!(told.contains("grabber: membership in role kb_vectors"), "{told}");
}
