//! Vectors that no index has yet are packed: answers are those of a comparison of all original vectors,
//! whatever was deleted, edited, restored or indexed, and no more stays packed than is worth it.

use crate::segments::{put, until_state};
use crate::support::{APP, Db, LONG, WHOLE, assert_sound, succeed, texts, until, vector_table};

fn packed(db: &mut Db) -> i64 {
    db.one("SELECT coalesce(sum(length(packed)), 0) / (192 + 28) FROM kb.tail_vectors")
}

/// For the vector of each of these texts, the answer has the rows that a comparison of all vectors gives, in
/// that order.
fn assert_exact(db: &mut Db, table: &str, operator: &str, questions: impl Iterator<Item = u64>) {
    for i in questions {
        let text = format!("{} harbor", texts::paragraph(i, 12));
        for (top_k, filter) in
            [(1, "NULL"), (10, "NULL"), (10, r#"'{"half": true}'"#), (60, r#"'{"rare": true}'"#)]
        {
            let sql = format!(
                "WITH q AS MATERIALIZED (SELECT e::vector AS v FROM kb.embed('hash', ARRAY[$1], 'query') e),
                 found AS (
                     SELECT array_agg(r.chunk_id ORDER BY r.rank) AS ids, max(v.embedding {operator} q.v) AS far
                     FROM q, kb.query_vector('k', q.v, {top_k}, min_score => -1, filter => {filter}) r
                     JOIN {table} v USING (chunk_id)),
                 near AS (
                     SELECT array_agg(n.chunk_id) AS ids, max(n.far) AS far FROM (
                         SELECT v.chunk_id, v.embedding {operator} q.v AS far FROM q, {table} v
                         JOIN kb.chunks c USING (build_no, chunk_id) JOIN kb.documents d USING (document_id)
                         WHERE {filter}::jsonb IS NULL OR d.metadata @> {filter} ORDER BY 2 LIMIT {top_k}) n)
                 SELECT found.ids = near.ids OR found.far = near.far AND cardinality(found.ids) = cardinality(near.ids)
                 FROM found, near"
            );
            assert!(db.one_with::<bool>(&sql, &[&text]), "question {i}, {top_k}, {filter}");
        }
    }
}

#[test]
fn vectors_without_an_index_are_found_as_by_comparing_all() {
    let (cluster, mut db) = crate::with_kb!("hash", WHOLE);
    let table = vector_table(&mut db, "k");
    put(&mut db, "k", 0..900);
    db.wait("k");
    assert_eq!(packed(&mut db), 900);
    assert_exact(&mut db, &table, "<=>", 0..6);
    // Deleted and edited ones.
    db.run("SELECT kb.delete_document('k', 'd' || i) FROM generate_series(0, 899, 3) i");
    db.run("SELECT kb.put_document('k', 'd' || i, 'Ship ' || i || ' lies in the harbor.', '{\"half\": true}') FROM generate_series(1, 899, 30) i");
    db.wait("k");
    assert_exact(&mut db, &table, "<=>", 0..6);
    assert_eq!(db.found("k", "Ship 31 lies in the harbor.", 1), ["d31"]);
    // The packed vectors were used, and a snapshot sees what it saw.
    let mut other = cluster.connect(APP);
    let scans = "SELECT jsonb_array_length(kb.explain('k', 'harbor', 10, -1) #> '{dense,scans}')";
    other.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    assert_eq!(other.one::<i32>(scans), 1);
    db.run("DELETE FROM kb.tail_vectors");
    assert_eq!(db.count("kb.query('k', 'harbor', 10, -1)"), 10, "the exact scan that follows finds them");
    assert!(db.one::<i32>(scans) > 1);
    assert_eq!(other.one::<i32>(scans), 1);
    other.run("COMMIT");
    assert_sound(&mut db, "k", 600, 0);
}

#[test]
fn vectors_behind_a_segment_are_packed_until_an_index_has_them() {
    let (cluster, mut db) = crate::with_kb!("hash", WHOLE);
    put(&mut db, "k", 0..1200);
    db.wait("k");
    until_state(&mut db, (1, 0));
    until(LONG, "nothing is packed", || packed(&mut db) == 0);
    // As if the indexer had been killed before it deleted what was packed.
    db.run(
        "UPDATE kb.tails SET first = 0;
         INSERT INTO kb.tail_vectors SELECT build_no, tenant_id, 0, '\\x00' FROM kb.builds",
    );
    put(&mut db, "k", 1200..2000);
    db.wait("k");
    until(LONG, "what has an index is not packed", || db.count("kb.tail_vectors WHERE segment = 0") == 0);
    assert_eq!(packed(&mut db), 800);
    for i in [1200, 1500, 1999, 3] {
        assert_eq!(db.found("k", &texts::paragraph(i, 20), 1), [format!("d{i}")]);
    }
    // The index is dropped, and no other is built while an older snapshot exists: its rows are compared as
    // they are.
    let mut holder = cluster.connect(APP);
    holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kb.documents");
    let index: String = db.one("SELECT indexrelid::regclass::text FROM pg_index WHERE indpred IS NOT NULL AND pg_get_expr(indpred, indrelid) LIKE '%segment%'");
    db.run(&format!("DROP INDEX {index}"));
    let table = vector_table(&mut db, "k");
    assert_exact(&mut db, &table, "<=>", 0..6);
    holder.run("COMMIT");
}

#[test]
fn vectors_that_are_not_packed_are_found_all_the_same() {
    let (_cluster, mut db) = crate::with_kb!("hash", WHOLE);
    let table = vector_table(&mut db, "k");
    put(&mut db, "k", 0..400);
    db.wait("k");
    // As after a restore, before the worker has looked (tests/live/dump.rs).
    db.run("DELETE FROM kb.tails");
    assert_eq!(packed(&mut db), 0);
    assert_exact(&mut db, &table, "<=>", 0..5);
    put(&mut db, "k", 400..700);
    db.wait("k");
    assert_eq!(packed(&mut db), 0);
    assert_exact(&mut db, &table, "<=>", 0..5);
    // From some number on.
    db.run(&format!(
        "INSERT INTO kb.tails SELECT build_no, (SELECT max(segment) + 1 FROM {table}) FROM kb.builds"
    ));
    put(&mut db, "k", 700..900);
    db.wait("k");
    assert_eq!(packed(&mut db), 200);
    assert_exact(&mut db, &table, "<=>", 0..6);
    assert_eq!(db.found("k", &texts::paragraph(399, 20), 1), ["d399"]);
}

#[test]
fn edited_over_and_over_a_knowledge_base_has_little_more_packed_than_it_has_chunks() {
    let (_cluster, mut db) = crate::with_kb!("hash", WHOLE, ["kb.worker_idle_timeout = '1h'"]);
    let mut most = 0;
    for round in 0..12 {
        db.run(&format!(
            "SELECT count(*) FROM kb.put_documents('k', ARRAY(SELECT jsonb_build_object(
                 'external_id', 'e' || i, 'content', 'number ' || i || ' of round {round}') FROM generate_series(1, 600) i))"
        ));
        db.wait("k");
        most = most.max(packed(&mut db));
    }
    assert!(most >= 1200, "{most}");
    until(LONG, "little is packed", || packed(&mut db) <= 2000 + 2 * 600);
    assert_eq!(db.found("k", "number 77 of round 11", 1), ["e77"]);
    assert_sound(&mut db, "k", 600, 0);
    // When all rows are gone, new ones are packed as well.
    let table = vector_table(&mut db, "k");
    db.run("SELECT kb.delete_document('k', external_id) FROM kb.documents");
    put(&mut db, "k", 0..300);
    db.wait("k");
    assert_exact(&mut db, &table, "<=>", 0..3);
    let before = packed(&mut db);
    put(&mut db, "k", 300..400);
    db.wait("k");
    assert_eq!(packed(&mut db), before + 100);
    assert_exact(&mut db, &table, "<=>", 0..3);
}

#[test]
fn packed_vectors_give_the_exact_answer_for_every_metric_element_and_after_a_move() {
    let (cluster, mut db) = crate::connected!();
    for (metric, element, operator) in [
        ("l2", "vector", "<->"),
        ("ip", "vector", "<#>"),
        ("cosine", "halfvec", "<=>"),
        ("l2", "halfvec", "<->"),
    ] {
        db.run(&format!(
            "SELECT kb.create_vector_db('v', dimension => 384, metric => '{metric}',
                 config => '{{\"min_rows\": 300, \"element\": \"{element}\"}}');
             SELECT kb.create_knowledge_base(k, 'hash', 'v', chunking => '{{\"strategy\": \"none\"}}')
             FROM unnest('{{other,k}}'::text[]) k"
        ));
        put(&mut db, "k", 0..500);
        db.wait("k");
        until(LONG, "it has a table of its own", || !vector_table(&mut db, "k").contains("_v_"));
        let table = vector_table(&mut db, "k");
        until_state(&mut db, (1, 0));
        put(&mut db, "k", 500..1200);
        db.wait("k");
        assert!(packed(&mut db) >= 700);
        for i in (500..1200).step_by(40) {
            let text = texts::paragraph(i, 20);
            assert_eq!(db.found("k", &text, 1), [format!("d{i}")], "{metric}, {element}");
        }
        // Without the index, and while no other is built because of an older snapshot, all vectors are
        // compared.
        let mut holder = cluster.connect(APP);
        holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kb.documents");
        db.run(&format!(
            "DO $$BEGIN EXECUTE (SELECT format('DROP INDEX kb.%I', c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                 JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'hnsw' AND i.indrelid = '{table}'::regclass); END$$"
        ));
        assert_exact(&mut db, &table, operator, 0..6);
        holder.run("COMMIT");
        db.run("SELECT kb.drop_knowledge_base(id) FROM kb.knowledge_bases; SELECT kb.drop_vector_db('v')");
        assert_eq!(db.count("kb.tails") + packed(&mut db), 0);
    }
}

#[test]
fn no_role_reads_packed_vectors() {
    let (_cluster, mut db) = crate::with_kb!("hash", WHOLE);
    put(&mut db, "k", 0..10);
    db.wait("k");
    db.run("CREATE ROLE reads LOGIN IN ROLE kb_admin, kb_writer, kb_reader");
    db.run("SET ROLE reads");
    for table in ["kb.tails", "kb.tail_vectors"] {
        db.refused(&format!("SELECT * FROM {table}"), "42501");
    }
    assert_eq!(db.count("kb.query('k', 'harbor', 3, -1)"), 3);
}

#[test]
fn packed_vectors_of_other_tenants_are_not_read() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text, tenant text);
         INSERT INTO t SELECT i, 'ship ' || i || ' lies in the harbor', CASE WHEN i % 90 = 0 THEN 'b' ELSE 'a' END
             FROM generate_series(1, 900) i;
         SET kb.tenant = 'a';
         SELECT kb.create_knowledge_base('k', 'hash', chunking => '{\"strategy\": \"none\"}');
         SELECT kb.attach_table('k', 't', 'body', tenant => 'tenant');
         SELECT kb.share('k', 'b')",
    );
    db.wait("k");
    let blocks = "SELECT tenant_id || ' ' || sum(length(packed)) / (192 + 28) FROM kb.tail_vectors GROUP BY tenant_id ORDER BY 1";
    assert_eq!(db.all::<String>(blocks), ["a 890", "b 10"]);
    let own =
        "SELECT count(*) FROM kb.query('k', 'ship in the harbor', 20, -1) WHERE external_id::int % 90 = 0";
    db.run("SET kb.tenant = 'b'");
    // It sees its own rows and, because the knowledge base is shared with it, those of a.
    let all: i64 = db.one("SELECT count(*) FROM kb.query('k', 'ship in the harbor', 1000, -1)");
    assert_eq!(all, 900);
    db.run("SET kb.tenant = 'a'");
    assert_eq!(db.one::<i64>(own), 0);
    // What others have packed does not matter: not even bytes that kb did not write.
    db.run("UPDATE kb.tail_vectors SET packed = '\\x00' WHERE tenant_id = 'b'");
    assert_eq!(db.count("kb.query('k', 'ship in the harbor', 1000, -1)"), 890);
    assert_eq!(db.found("k", "ship 77 lies in the harbor", 1), ["77"]);
}

#[test]
fn the_nearest_that_pass_a_filter_are_found_behind_many_packed_ones_that_do_not() {
    let (cluster, mut db) = crate::with_kb!("hash", WHOLE);
    put(&mut db, "k", 0..1200);
    db.wait("k");
    until_state(&mut db, (1, 0));
    // No other index is built while an older snapshot exists.
    let mut holder = cluster.connect(APP);
    holder.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kb.documents");
    put(&mut db, "k", 1200..5200);
    db.wait("k");
    assert_eq!(packed(&mut db), 4000);
    let question =
        "WITH q AS MATERIALIZED (SELECT e::vector AS v FROM kb.embed('hash', ARRAY[$1], 'query') e)";
    let table = vector_table(&mut db, "k");
    // Eleven are rare, eight of them packed.
    let mut right = 0;
    for i in 0..5 {
        let text = format!("{} harbor", texts::paragraph(i, 12));
        db.run("SET kb.forced_scan = 'index'");
        let found: Vec<String> = db.all_with(
            &format!("{question} SELECT r.external_id FROM q, kb.query_vector('k', q.v, 6, min_score => -1, filter => '{{\"rare\": true}}') r"),
            &[&text],
        );
        let near: Vec<String> = db.all_with(
            &format!(
                "{question} SELECT d.external_id FROM q, {table} v JOIN kb.chunks c USING (build_no, chunk_id)
                 JOIN kb.documents d USING (document_id) WHERE d.metadata @> '{{\"rare\": true}}' ORDER BY v.embedding <=> q.v LIMIT 6"
            ),
            &[&text],
        );
        assert_eq!((found.len(), near.len()), (6, 6));
        right += found.iter().filter(|id| near.contains(id)).count();
    }
    // Rows in an index are found approximately.
    assert!(right >= 28, "{right} of 30");
    holder.run("COMMIT");
}

#[test]
fn packed_vectors_are_found_after_their_pages_have_moved() {
    let cluster = crate::cluster!("shared_buffers = 2MB", "max_wal_size = '1GB'");
    let (mut db, mut other) = (cluster.connect(APP), cluster.connect(APP));
    db.create_kb("k", "hash", WHOLE);
    let table = vector_table(&mut db, "k");
    put(&mut db, "k", 0..900);
    db.wait("k");
    let ask = |db: &mut Db| assert_exact(db, &table, "<=>", 0..3);
    ask(&mut db);
    ask(&mut db);
    // Pages of others take the buffers.
    other.run("CREATE TABLE large AS SELECT i, repeat('x', 1000) AS x FROM generate_series(1, 8000) i");
    other.run("CREATE INDEX ON large (i); SELECT count(*) FROM large; SELECT sum(length(x)) FROM large WHERE i % 7 > 0");
    ask(&mut db);
    // The rows move to another file, and to other pages of it.
    other.run("VACUUM FULL kb.tail_vectors");
    ask(&mut db);
    other.run("CREATE TABLE kept AS TABLE kb.tail_vectors; TRUNCATE kb.tail_vectors");
    other.run("INSERT INTO kb.tail_vectors SELECT * FROM kept ORDER BY md5(packed::text)");
    ask(&mut db);
    // Rows are deleted, and others take their places.
    db.run("SELECT kb.delete_document('k', 'd' || i) FROM generate_series(1, 899, 2) i");
    other.run("DELETE FROM kb.tail_vectors");
    other.run("VACUUM kb.tail_vectors");
    other.run("INSERT INTO kb.tail_vectors SELECT * FROM kept");
    put(&mut db, "k", 900..1000);
    db.wait("k");
    ask(&mut db);
    // Another version of a row, which no index contains; and one of a transaction that failed.
    db.put_and_wait("k", "ship", "A ship lies in the harbor.");
    for end in ["ROLLBACK", "COMMIT"] {
        other.run("BEGIN; UPDATE kb.tail_vectors SET tenant_id = tenant_id");
        let unknown = "SELECT pg_stat_get_xact_tuples_hot_updated('kb.tail_vectors'::regclass)";
        assert!(other.one::<i64>(unknown) > 0);
        other.run(end);
        for _ in 0..2 {
            ask(&mut db);
            assert_eq!(db.found("k", "A ship lies in the harbor.", 1), ["ship"]);
            other.run("VACUUM kb.tail_vectors");
        }
    }
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        db.run(&format!("BEGIN ISOLATION LEVEL {level}"));
        ask(&mut db);
        db.run("COMMIT");
    }
    // Any session can ignore system indexes, and kb's count as such.
    let question = "SELECT string_agg(external_id, ' ' ORDER BY rank) FROM kb.query('k', 'Ships lie in the harbor.', 5, -1)";
    let found: String = db.one(question);
    let mut psql = cluster.program("psql");
    psql.env("PGOPTIONS", "-c ignore_system_indexes=on").args(["-d", APP, "-X", "-A", "-t", "-c", question]);
    assert_eq!(String::from_utf8(succeed(&mut psql).stdout).unwrap().trim(), found);
}
