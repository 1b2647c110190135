//! A knowledge base that moves to another tenant: all of it, at once, and only to that one.

use super::as_tenant;
use crate::stub::{Options, Stub};
use crate::support::{APP, Cluster, Db, SOON, assert_sound, texts, until};

const CHUNKING: &str = r#"{"strategy": "fixed", "size": 10, "overlap": 0}"#;

/// Rows by table and tenant, in every table whose rows have a tenant, except for rows of those who asked or
/// paid, and quotas.
fn rows(db: &mut Db, tenant: &str) -> Vec<String> {
    let tables: Vec<String> = db.all(
        "SELECT c.relname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
         WHERE c.relnamespace = 'kb'::regnamespace AND c.relkind = 'r' AND a.attname = 'tenant_id' AND c.relname NOT IN
             ('usage', 'query_log', 'query_feedback', 'quotas', 'quota_counts', 'tenant_roles', 'shares') ORDER BY 1",
    );
    let count = |table: &String| {
        let rows = db.count(&format!("kb.{table} WHERE tenant_id = '{tenant}'"));
        // The worker merges words, and packs and unpacks vectors, at any time.
        let rows = if table.starts_with("bm25") || table.starts_with("tail") { rows.min(1) } else { rows };
        format!("{table} {rows}")
    };
    tables.iter().map(count).filter(|line| !line.ends_with(" 0")).collect()
}

/// Tenants a and b, and an administrator; a has knowledge base k with whatever there can be.
fn fixture(cluster: &Cluster) -> (Db, Db, Db) {
    let mut db = cluster.connect(APP);
    for (role, group) in [("a", "kb_writer"), ("b", "kb_writer"), ("chief", "kb_admin")] {
        db.run(&format!("CREATE ROLE {role} LOGIN IN ROLE {group}"));
    }
    let (mut a, b) = (as_tenant(cluster, "a"), as_tenant(cluster, "b"));
    a.create_kb("k", "hash", CHUNKING);
    for n in 0..4 {
        a.put("k", &format!("d{n}"), &texts::text(n, 3, 30));
    }
    a.wait("k");
    a.run("SELECT kb.ingest('k'), kb.index_metadata('k', 'key', 'text'), kb.create_eval_set('k', 'set');
        SELECT kb.put_eval_question('k', 'set', 'q', 'Which harbor?', '[\"d1\"]'), kb.measure_recall('k', 3, 'chunks'),
               kb.share('k', 'b'), kb.share('k', 'c')");
    a.wait("k");
    (db, a, b)
}

fn chunk_ids(db: &mut Db) -> Vec<String> {
    db.all("SELECT chunk_id::text FROM kb.chunks ORDER BY 1")
}

#[test]
fn all_rows_change_hands_in_one_commit_and_chunks_keep_their_ids() {
    let cluster = crate::cluster!();
    let (mut db, mut a, mut b) = fixture(&cluster);
    let mut chief = cluster.connect_as_tenant("chief", "a");
    // So many that words are in a segment; those of the last documents are pending.
    a.put_and_wait("k", "large", &texts::text(9, 30, 90));
    until(SOON, "words are in a segment", || db.count("kb.bm25_segments") > 0);
    a.put_and_wait("k", "small", &texts::text(10, 3, 30));
    let (before, ids) = (rows(&mut db, "a"), chunk_ids(&mut db));
    assert!(before.len() >= 10, "{before:?}");
    let question = "SELECT external_id FROM kb.query('k', 'ships in the harbor', 3, mode => 'hybrid')";
    let answer: Vec<String> = a.all(question);
    assert_eq!(answer.len(), 3);
    let nearest = "SELECT round(score::numeric, 4)::text FROM kb.query('k', 'ships', 50, mode => 'dense', min_score => -1)";
    let scores: Vec<String> = a.all(nearest);
    assert_eq!(scores.len(), 50);
    // Until the move is committed nobody sees anything of it, and a rollback undoes it.
    chief.run("BEGIN; SELECT kb.move_knowledge_base('k', 'b')");
    assert_eq!(a.all::<String>(question), answer);
    chief.run("ROLLBACK");
    assert_eq!(rows(&mut db, "a"), before);
    chief.run("SELECT kb.move_knowledge_base('k', 'b')");
    // Vectors are packed when they are written; these are compared whole until they have an index.
    let moved: Vec<String> = before.into_iter().filter(|line| !line.starts_with("tail")).collect();
    assert_eq!((rows(&mut db, "a"), rows(&mut db, "b")), (Vec::new(), moved));
    a.refused(question, "42704");
    assert_eq!(a.count("kb.documents") + a.count("kb.chunks") + a.count("kb.eval_questions"), 0);
    b.wait("k");
    assert_eq!(b.all::<String>(question), answer);
    assert_eq!(b.all::<String>(nearest), scores);
    // Without a second scan, which would find vectors that count as packed and are not.
    assert_eq!(
        b.one::<i32>("SELECT jsonb_array_length(kb.explain('k', 'ships', 10, -1) #> '{dense,scans}')"),
        1
    );
    // It is shared with c as before.
    let mut c = as_tenant(&cluster, "a");
    c.run("SET kb.tenant = 'c'");
    assert_eq!(c.all::<String>(question), answer);
    assert_eq!(db.all::<String>("SELECT tenant_id || ' ' || owner_id FROM kb.shares"), ["c b"]);
    assert_eq!(chunk_ids(&mut db), ids);
    assert_sound(&mut db, "k", 6, 0);
    // An edit keeps the chunks that it does not change, and a deleted document is gone with its vectors.
    b.put_and_wait("k", "d1", &format!("{} And one more sentence at its very end.", texts::text(1, 3, 30)));
    let after = chunk_ids(&mut db);
    let kept = ids.iter().filter(|id| after.contains(id)).count();
    assert!(kept >= ids.len() - 3, "{kept} of {}", ids.len());
    b.run_and_wait("k", "SELECT kb.delete_document('k', 'd0'), kb.ingest('k', 'replace')");
    let tables = "pg_class WHERE relnamespace = 'kb'::regnamespace AND relname ~ '^vectors_[0-9]+$'";
    until(SOON, "the old build and its table are gone", || {
        db.count("kb.builds") == 1 && db.count(tables) == 1
    });
    assert_sound(&mut db, "k", 5, 0);
    assert_eq!(rows(&mut db, "a"), [""; 0]);
}

#[test]
fn work_in_progress_during_a_move_ends_with_the_new_tenant() {
    let stub = Stub::start(Options::default());
    let (_cluster, mut db) = crate::connected!();
    stub.hold(true);
    db.create_stub_embedder("e", &stub, r#"{"timeout_ms": 60000}"#);
    db.run("SET kb.tenant = 'a'");
    db.create_kb("k", "e", CHUNKING);
    db.put("k", "sent", &texts::text(1, 3, 30));
    until(SOON, "its chunks are written", || db.count("kb.chunks") > 3);
    // One more, which has not been processed.
    db.run("BEGIN");
    db.put("k", "waits", &texts::text(2, 3, 30));
    // And one for which the other tenant has a job, too.
    db.run("INSERT INTO kb.jobs (kb_no, tenant_id, subject) SELECT kb_no, 'b', subject FROM kb.jobs WHERE subject = 'sent'");
    db.run("SELECT kb.move_knowledge_base('k', 'b'); COMMIT");
    assert_eq!(db.all::<String>("SELECT DISTINCT tenant_id FROM kb.jobs"), ["b"]);
    stub.hold(false);
    db.run("SET kb.tenant = 'b'");
    db.wait("k");
    assert_eq!(rows(&mut db, "a"), [""; 0]);
    assert_sound(&mut db, "k", 2, 0);
    let texts = db.one::<i64>("SELECT count(DISTINCT content) FROM kb.chunks");
    assert_eq!(db.count("kb.query('k', 'ships', 50, min_score => -1)"), texts);
}

#[test]
fn a_move_waits_for_writers_of_chunks_words_and_vectors() {
    let cluster = crate::cluster!();
    let (mut db, ..) = fixture(&cluster);
    let mut writer = cluster.connect(APP);
    db.run("SET kb.tenant = 'a'; SET lock_timeout = '100ms'");
    // A transaction that writes rows that refer to these locks them in this way.
    for rows in ["kb.knowledge_bases", "kb.builds", "kb.chunks"] {
        writer.run(&format!("BEGIN; SELECT FROM {rows} FOR KEY SHARE"));
        assert_eq!(db.fault("SELECT kb.move_knowledge_base('k', 'b')").code, "55P03", "{rows}");
        writer.run("COMMIT");
    }
    db.run("RESET lock_timeout; SELECT kb.move_knowledge_base('k', 'b')");
}

#[test]
fn rows_of_attached_tables_go_with_it_by_what_their_column_says() {
    let (cluster, mut db) = crate::connected!("kb.worker_idle_timeout = '1s'");
    db.run("CREATE TABLE t (id int PRIMARY KEY, body text); CREATE TABLE u (id text PRIMARY KEY, whose text, body text);
        SET kb.tenant = 'a'");
    db.create_kb("k", "hash", CHUNKING);
    db.run("SELECT kb.attach_table('k', 't', 'body'), kb.attach_table('k', 'u', 'body', tenant => 'whose');
        INSERT INTO t VALUES (1, 'A row of nobody.');
        INSERT INTO u VALUES ('of a', 'a', 'A row of a.'), ('of b', 'b', 'A row of b.'), ('of none', NULL, 'A row of none.')");
    db.wait("k");
    let of = "SELECT tenant_id || ' ' || external_id FROM kb.documents WHERE status = 'ready' ORDER BY 1";
    assert_eq!(db.all::<String>(of), [" of none", "a 1", "a of a", "b of b"]);
    // kb.wait would start a worker, so this does without it: the commit alone must.
    until(SOON, "the worker has left", || cluster.processes("kb worker", Some(APP)).is_empty());
    db.run("SELECT kb.move_knowledge_base('k', 'b'); SET kb.tenant = 'b'");
    let moved = [" of none", "a of a", "b 1", "b of b"];
    until(SOON, "rows are the tenants' that they say", || db.all::<String>(of) == moved);
    db.run("INSERT INTO t VALUES (2, 'Another row.'); DELETE FROM u WHERE id = 'of b'; UPDATE u SET body = 'New.' WHERE id = 'of none'");
    db.wait("k");
    assert_eq!(db.all::<String>(of), [" of none", "a of a", "b 1", "b 2"]);
    assert_eq!(db.all::<String>("SELECT content FROM kb.documents WHERE external_id = 'of none'"), ["New."]);
}

#[test]
fn a_move_to_a_tenant_that_may_not_have_it_is_refused() {
    let cluster = crate::cluster!();
    let (mut db, mut a, mut b) = fixture(&cluster);
    let moves = "SELECT kb.move_knowledge_base('k', 'b')";
    a.refused(moves, "42501");
    db.run("GRANT kb_admin TO a; SELECT kb.bind_role('a', 'a')");
    assert_eq!(cluster.connect_as(APP, "a").fault(moves).code, "42501");
    db.run("SET kb.tenant = 'a'");
    let before = rows(&mut db, "a");
    let counted = |db: &mut Db, tenant: &str| -> i64 {
        db.one(&format!(
            "SELECT coalesce(sum(documents), 0)::bigint FROM kb.quota_counts WHERE tenant_id = '{tenant}'"
        ))
    };
    // Not beyond any limit of the new tenant's quota.
    db.run("SELECT kb.set_quota('a', bytes => 1000000)");
    for quota in ["documents => 3", "bytes => 100", "knowledge_bases => 0", "metadata_indexes => 0"] {
        db.run(&format!("SELECT kb.set_quota('b', {quota})"));
        assert_eq!(db.fault(moves).code, "53400", "{quota}");
        assert_eq!((rows(&mut db, "a"), counted(&mut db, "a")), (before.clone(), 4));
    }
    // Nor if a name is taken, by a knowledge base or a document, or for a role that may not have rows of b.
    b.create_kb("k", "hash", "{}");
    db.refused(moves, "42710");
    b.run("SELECT kb.drop_knowledge_base('k')");
    let tables = "pg_class WHERE relnamespace = 'kb'::regnamespace AND relname ~ '^vectors_[0-9]+$'";
    until(SOON, "its table is gone", || db.count(tables) == 1);
    db.run("CREATE TABLE t (id text PRIMARY KEY, body text); ALTER TABLE t OWNER TO a; SELECT kb.attach_table('k', 't', 'body')");
    let fault = db.refused(moves, "55000");
    assert!(fault.message.contains("role \"a\", whose table public.t is attached"), "{fault:?}");
    db.run("SELECT kb.detach_table('k', 't')");
    db.run("CREATE TABLE u (id text PRIMARY KEY, whose text, body text); INSERT INTO u VALUES ('d1', 'b', 'A row of b.');
        SELECT kb.attach_table('k', 'u', 'body', tenant => 'whose')");
    until(SOON, "b's row is a document", || {
        db.count("kb.documents WHERE tenant_id = 'b' AND status = 'ready'") == 1
    });
    let fault = db.refused(moves, "55000");
    assert!(fault.message.contains("both tenants have a document \"d1\""), "{fault:?}");
    db.run("SELECT kb.detach_table('k', 'u')");
    until(SOON, "b's row is none", || db.count("kb.documents WHERE tenant_id = 'b'") == 0);
    for (sql, code) in [
        ("SELECT kb.move_knowledge_base('k', 'a')", "22023"),
        ("SELECT kb.move_knowledge_base('k', E'a\\n')", "22023"),
        ("SELECT kb.move_knowledge_base('none', 'b')", "42704"),
        ("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT kb.move_knowledge_base('k', 'b')", "55000"),
    ] {
        db.refused(sql, code);
        db.run("ROLLBACK");
    }
    assert_eq!(rows(&mut db, "a"), before);
    // If there is room, it is counted for the new tenant.
    db.run("SELECT kb.set_quota('b', documents => 4)");
    db.run(moves);
    assert_eq!((counted(&mut db, "a"), counted(&mut db, "b")), (0, 4));
    b.wait("k");
    b.refused("SELECT kb.put_document('k', 'fifth', 'One too many.')", "53400");
}

#[test]
fn rows_that_nobody_could_read_are_refused_and_all_tenants_are_no_tenant() {
    let (_cluster, mut db) = crate::connected!();
    db.run("CREATE TABLE t (id int PRIMARY KEY, whose text, body text); INSERT INTO t VALUES (1, 'acme', 'A row of acme.')");
    db.create_kb("k", "hash", "{}");
    let attach = "SELECT kb.attach_table('k', 't', 'body', tenant => 'whose')";
    let fault = db.fault(attach);
    assert_eq!(fault.code, "55000");
    assert!(
        fault.message.contains("other tenants could not read their rows in knowledge base \"k\""),
        "{fault:?}"
    );
    for way in ["SET kb.tenant = 'shared'", "kb.move_knowledge_base", "kb.share"] {
        assert!(fault.text.contains(way), "{fault:?}");
    }
    let asked = |db: &mut Db| {
        db.run("SET kb.tenant = 'acme'");
        let found = db.found("k", "row", 5);
        db.run("RESET kb.tenant");
        found
    };
    // Each of these changes makes it possible.
    db.run("SELECT kb.share('k', 'acme')");
    db.run_and_wait("k", attach);
    until(SOON, "acme's row is ready", || db.count("kb.documents WHERE status = 'ready'") == 1);
    assert_eq!(asked(&mut db), ["1"]);
    // A later cause that makes it unreadable is reported until it is removed.
    let told = "SELECT concat_ws('; ', status, detail, hint) FROM kb.health() WHERE component = 'sources'";
    let fine = "ok; every attached table can be read";
    assert_eq!(db.one::<String>(told), fine);
    for (spoils, mends) in [
        ("SELECT kb.unshare('k', 'acme')", "SELECT kb.share('k', 'acme')"),
        (
            "SELECT kb.unshare('k', 'acme'), kb.move_knowledge_base('k', 'globex'); SET kb.tenant = 'globex'",
            "SELECT kb.move_knowledge_base('k', ''); SET kb.tenant = ''; SELECT kb.share('k', 'acme')",
        ),
    ] {
        db.run(spoils);
        let problem =
            "warning; public.t: it has rows of tenants that cannot read knowledge base \"k\"; Share";
        // After a move the rows are read again.
        until(SOON, "health tells of them", || db.one::<String>(told).starts_with(problem));
        db.run(mends);
        assert_eq!(db.one::<String>(told), fine, "{mends}");
    }
    db.run(
        "SELECT kb.unshare('k', 'acme'), kb.detach_table('k', 't'), kb.move_knowledge_base('k', 'shared');
        SET kb.tenant = 'shared'",
    );
    db.run(attach);
    until(SOON, "acme's row is ready", || db.count("kb.documents WHERE status = 'ready'") == 1);
    assert_eq!(asked(&mut db), ["1"]);
    db.create_kb("l", "hash", "{}");
    let fault = db.fault("SELECT kb.share('l', '*')");
    assert_eq!(fault.code, "55000");
    assert!(
        fault.text.contains("Every tenant can read the knowledge bases of tenant \"shared\""),
        "{fault:?}"
    );
    assert_eq!(db.count("kb.shares"), 0);
}
