//! Rows become documents with every statement that changes them.

use super::{ARTICLES, ready, with_articles, without_worker};
use crate::support::{Db, assert_sound};

#[test]
fn a_row_is_found_once_published_and_gone_at_the_commit_that_removes_it() {
    let Some((cluster, mut db)) = with_articles() else { return };
    db.run(
        "INSERT INTO articles (title, body, status, tags) SELECT 'Leave ' || n, 'Thirty days of leave in office ' || n,
             'published', ARRAY['hr'] FROM generate_series(1, 8) n",
    );
    db.run_and_wait("k", "INSERT INTO articles (title, body) VALUES ('Draft', 'Not for anybody')");
    assert_eq!(ready(&mut db, "k"), ["1", "2", "3", "4", "5", "6", "7", "8"]);
    let found: String = db.one(
        "SELECT concat_ws('|', title, content, metadata, stale) FROM kb.query('k', 'Thirty days of leave in office 3', 1)",
    );
    assert_eq!(found, "Leave 3|Leave 3\n\nThirty days of leave in office 3|{\"tags\": [\"hr\"]}|f");
    let all = |db: &mut Db| -> Vec<String> {
        db.all("SELECT external_id FROM kb.query('k', 'leave', 50, min_score => 0) ORDER BY external_id")
    };
    without_worker(&cluster, || {
        db.run("UPDATE articles SET status = 'draft' WHERE id = 1");
        assert_eq!(all(&mut db), ["2", "3", "4", "5", "6", "7", "8"]);
        db.run("DELETE FROM articles WHERE id = 2");
        assert_eq!(all(&mut db), ["3", "4", "5", "6", "7", "8"]);
        db.run("UPDATE articles SET id = 30 WHERE id = 3");
        assert_eq!(all(&mut db), ["4", "5", "6", "7", "8"]);
        db.run("BEGIN; DELETE FROM articles; ROLLBACK");
        db.run("BEGIN; SAVEPOINT s; DELETE FROM articles; ROLLBACK TO s; COMMIT");
        assert_eq!(all(&mut db), ["4", "5", "6", "7", "8"]);
        db.run("UPDATE articles SET body = 'Another text' WHERE id = 4");
        let stale: Vec<String> =
            db.all("SELECT external_id FROM kb.query('k', 'leave', 50, min_score => 0) WHERE stale");
        assert_eq!(stale, ["4"]);
        let statuses: Vec<String> =
            db.all("SELECT status FROM unnest(ARRAY['1', '2', '3', '30', '4', '5', '99']) k, kb.row_status('articles', k)");
        assert_eq!(statuses, ["absent", "absent", "absent", "pending", "stale", "ready", "absent"]);
    });
    db.wait("k");
    assert_eq!(ready(&mut db, "k"), ["30", "4", "5", "6", "7", "8"]);
    assert_eq!(db.count("kb.query('k', 'leave', 50, min_score => 0) WHERE stale"), 0);
    assert_sound(&mut db, "k", 6, 0);
    without_worker(&cluster, || {
        db.run(
            "TRUNCATE articles; INSERT INTO articles (id, body, status) VALUES (5, 'After it', 'published')",
        );
        assert_eq!(all(&mut db), [""; 0]);
    });
    db.wait("k");
    assert_eq!(all(&mut db), ["5"]);
    assert_sound(&mut db, "k", 1, 0);
    assert_eq!(db.count("kb.changes"), 0);
}

#[test]
fn an_update_of_other_columns_writes_and_embeds_nothing() {
    let Some((_cluster, mut db)) = with_articles() else { return };
    db.run(
        "INSERT INTO articles (body, status) SELECT 'Text ' || n, 'published' FROM generate_series(1, 5) n",
    );
    db.run_and_wait("k", "INSERT INTO articles (body) VALUES ('A draft')");
    for (statement, written) in [
        ("UPDATE articles SET views = views + 1", 0),
        ("UPDATE articles SET body = body, status = status, title = title", 0),
        ("UPDATE articles SET body = 'Still a draft' WHERE status = 'draft'", 0),
        ("DELETE FROM articles WHERE status = 'draft'", 0),
        ("INSERT INTO articles (body) VALUES ('Another draft')", 0),
        ("UPDATE articles SET body = 'x' WHERE false", 0),
        ("UPDATE articles SET tags = '{a}' WHERE id = 1", 1),
        ("UPDATE articles SET body = body || '!' WHERE id IN (2, 3)", 1),
    ] {
        db.run("BEGIN");
        db.run(statement);
        assert_eq!(db.count("kb.changes"), written, "{statement}");
        db.run("ROLLBACK");
    }
}

#[test]
fn every_kind_of_key_and_statement_is_followed() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        "CREATE SCHEMA s; CREATE TYPE s.kind AS ENUM ('b', 'a');
         CREATE TABLE s.\"Odd \"\"name\" (\"the key\" text, kind s.kind, at timestamptz, \"the body\" text,
             PRIMARY KEY (kind, \"the key\", at));
         CREATE TABLE by_uuid (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), body text);
         CREATE TABLE flags (flag boolean PRIMARY KEY, body text)",
    );
    db.create_kb("odd", "hash", "{}");
    db.create_kb("uuid", "hash", "{}");
    db.create_kb("flags", "hash", "{}");
    db.run(
        "INSERT INTO s.\"Odd \"\"name\" VALUES ('x/y', 'a', '2026-01-01 12:00+00', 'Before it was attached');
         SET DateStyle = 'German'; SET TimeZone = 'Asia/Tokyo';
         SELECT kb.attach_table('odd', 's.\"Odd \"\"name\"', content => '{the body}');
         SELECT kb.attach_table('uuid', 'by_uuid', content => '{{body}}'), kb.attach_table('flags', 'flags', 'body');
         INSERT INTO s.\"Odd \"\"name\" VALUES ('', 'b', '2026-01-01 12:00+00', 'An empty part of a key'),
             ('\\', 'b', 'infinity', 'A backslash');
         INSERT INTO flags VALUES (true, 'Yes it is'), (false, 'No it is not');
         INSERT INTO by_uuid (body) SELECT 'Text ' || n FROM generate_series(1, 3) n;
         RESET DateStyle; RESET TimeZone",
    );
    for kb in ["odd", "uuid", "flags"] {
        db.wait(kb);
    }
    let ids = ["a/x\\/y/2026-01-01 12:00:00+00", "b/\\0/2026-01-01 12:00:00+00", "b/\\\\/infinity"];
    assert_eq!(ready(&mut db, "odd"), ids);
    assert_eq!(ready(&mut db, "flags"), ["f", "t"]);
    assert_eq!(ready(&mut db, "uuid"), db.all::<String>("SELECT id::text FROM by_uuid ORDER BY 1"));
    assert_eq!(db.found("odd", "Before it was attached", 1), ids[..1]);
    // All kinds of statements.
    db.run(
        "INSERT INTO flags VALUES (true, 'x') ON CONFLICT (flag) DO UPDATE SET body = 'Changed by a conflict';
         MERGE INTO flags USING (VALUES (false)) v (flag) ON flags.flag = v.flag WHEN MATCHED THEN DELETE;
         WITH gone AS (DELETE FROM by_uuid WHERE body = 'Text 1' RETURNING id)
             INSERT INTO by_uuid SELECT id, 'Put back by the same statement' FROM gone WHERE false;
         UPDATE s.\"Odd \"\"name\" SET kind = CASE kind WHEN 'a' THEN 'b'::s.kind ELSE 'a' END",
    );
    let mut copy = db.0.copy_in("COPY by_uuid (body) FROM STDIN").unwrap();
    std::io::Write::write_all(&mut copy, b"Copied\nCopied, too\n").unwrap();
    copy.finish().unwrap();
    for kb in ["odd", "uuid", "flags"] {
        db.wait(kb);
    }
    assert_eq!(
        db.all::<String>("SELECT content FROM kb.documents WHERE kb_id = 'flags'"),
        ["Changed by a conflict"]
    );
    let texts: Vec<String> = db.all("SELECT content FROM kb.documents WHERE kb_id = 'uuid' ORDER BY 1");
    assert_eq!(texts, ["Copied", "Copied, too", "Text 2", "Text 3"]);
    assert_eq!(
        ready(&mut db, "odd"),
        ["a/\\0/2026-01-01 12:00:00+00", "a/\\\\/infinity", "b/x\\/y/2026-01-01 12:00:00+00"]
    );
    for (kb, documents) in [("odd", 3), ("uuid", 4), ("flags", 1)] {
        assert_sound(&mut db, kb, documents, 0);
    }
}

#[test]
fn existing_rows_are_enqueued_by_key_and_live_changes_go_first() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE t (a int, b int, body text, PRIMARY KEY (a, b));
            INSERT INTO t SELECT n % 7, n, 'Text number ' || n FROM generate_series(1, 3500) n",
    );
    db.create_kb("k", "hash", "{}");
    db.run("SELECT kb.attach_table('k', 't', content => 'body')");
    db.run_and_wait("k", "INSERT INTO t VALUES (9, 9999, 'Put meanwhile')");
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 3501);
    assert_eq!(db.count("kb.sources WHERE backfill IS NOT NULL OR error IS NOT NULL"), 0);
    // The table is attached again with another template: only rows whose text differs are processed.
    db.run_and_wait("k", "SELECT kb.attach_table('k', 't', content => '{{body}}.')");
    assert_eq!(db.count("kb.documents WHERE content LIKE '%.'"), 3501);
    assert_eq!(db.count("kb.sources"), 1);
}

#[test]
fn rows_that_cascades_delete_or_replication_applies_are_followed() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE authors (id int PRIMARY KEY);
         CREATE TABLE t (id int PRIMARY KEY, author int REFERENCES authors ON DELETE CASCADE ON UPDATE SET NULL, body text);
         CREATE TABLE local (id int PRIMARY KEY, body text); INSERT INTO authors VALUES (1), (2), (3)",
    );
    db.create_kb("k", "hash", "{}");
    db.create_kb("l", "hash", "{}");
    db.run("SELECT kb.attach_table('k', 't', '{{body}} of {{author}}', replicated => true); SELECT kb.attach_table('l', 'local', 'body')");
    db.run_and_wait("k", "INSERT INTO t SELECT n, 1 + n % 3, 'Text ' || n FROM generate_series(1, 6) n");
    without_worker(&cluster, || {
        db.run("DELETE FROM authors WHERE id = 1");
        assert_eq!(
            db.all::<String>("SELECT external_id FROM kb.query('k', 'text', 9, min_score => 0) ORDER BY 1"),
            ["1", "2", "4", "5"]
        );
        db.run("UPDATE authors SET id = 9 WHERE id = 2");
    });
    db.wait("k");
    assert_eq!(
        db.all::<String>("SELECT content FROM kb.documents ORDER BY external_id"),
        ["Text 1 of ", "Text 2 of 3", "Text 4 of ", "Text 5 of 3"]
    );
    // In the way in which logical replication applies rows.
    db.run(
        "SET session_replication_role = replica; INSERT INTO t VALUES (7, NULL, 'Replicated'); DELETE FROM t WHERE id = 1;
         INSERT INTO local VALUES (1, 'Not asked for'); RESET session_replication_role",
    );
    db.wait("k");
    db.wait("l");
    assert_eq!(ready(&mut db, "k"), ["2", "4", "5", "7"]);
    assert_eq!(ready(&mut db, "l"), [""; 0]);
}

#[test]
fn other_places_of_a_text_are_listed_only_for_existing_rows() {
    let Some((cluster, mut db)) = with_articles() else { return };
    db.run(
        "INSERT INTO articles (body, status) SELECT 'The same text', 'published' FROM generate_series(1, 3)",
    );
    db.wait("k");
    let places = |db: &mut Db| -> String {
        db.one(
            "SELECT concat_ws(' ', external_id, (SELECT string_agg(p ->> 'external_id', ',' ORDER BY p ->> 'external_id')
                 FROM jsonb_array_elements(locator -> 'also_in') p)) FROM kb.query('k', 'the same text', 3)",
        )
    };
    let mut named: Vec<char> = places(&mut db).chars().filter(char::is_ascii_digit).collect();
    named.sort_unstable();
    assert_eq!(named, ['1', '2', '3']);
    without_worker(&cluster, || {
        db.run("DELETE FROM articles WHERE id = 2");
        let mut named: Vec<char> = places(&mut db).chars().filter(char::is_ascii_digit).collect();
        named.sort_unstable();
        assert_eq!(named, ['1', '3']);
        db.run("UPDATE articles SET status = 'draft' WHERE id = 1");
        assert_eq!(places(&mut db), "3");
    });
}

#[test]
fn a_title_that_is_null_is_no_title() {
    let (_cluster, mut db) = crate::connected!();
    db.run("CREATE TABLE t (id int PRIMARY KEY, title text, uri text, type text, body text)");
    db.create_kb("k", "hash", "{}");
    db.run(
        "SELECT kb.attach_table('k', 't', 'body', title => 'title', uri => 'uri', content_type => 'type')",
    );
    db.run("INSERT INTO t VALUES (1, 'One', 'a:1', 'text/plain', 'Body'), (2, 'Two', 'a:2', 'text/markdown', E'# Heading\n\nBody')");
    db.wait("k");
    let told = |db: &mut Db| -> Vec<String> {
        db.all("SELECT concat_ws('|', external_id, title, uri) FROM kb.documents ORDER BY 1")
    };
    assert_eq!(told(&mut db), ["1|One|a:1", "2|Two|a:2"]);
    db.run_and_wait("k", "UPDATE t SET title = NULL, uri = NULL");
    // The same as for a document that is put without one.
    db.create_kb("put", "hash", "{}");
    db.run_and_wait("put", "SELECT kb.put_document('put', id::text, body, content_type => type) FROM t");
    let of = |db: &mut Db, kb: &str| -> Vec<String> {
        db.all(&format!(
            "SELECT concat_ws('|', external_id, title, uri) FROM kb.documents WHERE kb_id = '{kb}' ORDER BY 1"
        ))
    };
    assert_eq!(of(&mut db, "k"), of(&mut db, "put"));
}

#[test]
fn rows_whose_reading_meets_a_conflict_do_not_wait_for_their_leases_to_end() {
    let (cluster, mut db) = crate::connected!("kb.lease_duration = '10min'");
    db.run(ARTICLES);
    db.create_kb("k", "hash", "{}");
    db.run("SELECT kb.attach_table('k', 'articles', content => '{body}')");
    db.wait("k");
    // The worker records that rows were read; the first time, it meets a conflict.
    db.run(
        "CREATE SEQUENCE public.conflicts;
         CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN
                 IF nextval('public.conflicts') = 1 THEN
                     RAISE EXCEPTION 'a conflict' USING ERRCODE = 'serialization_failure';
                 END IF;
                 RETURN NULL;
             END$$;
         CREATE TRIGGER conflict AFTER UPDATE ON kb.sources FOR EACH STATEMENT EXECUTE FUNCTION conflict()",
    );
    db.run("INSERT INTO articles (body) SELECT 'Text ' || n FROM generate_series(1, 40) n");
    db.wait("k");
    assert!(cluster.log().contains("worker waits for a lock of another session"), "there was no conflict");
    assert_eq!(ready(&mut db, "k").len(), 40);
    assert_sound(&mut db, "k", 40, 0);
}
