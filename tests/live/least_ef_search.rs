//! How far the index of many vectors is searched where nobody says so.

use crate::segments::{put, state};
use crate::support::{APP, Db, LONG, until, vector_table};

const ROWS: i64 = 60_000;

/// Gives `k` so many vectors as a question of `numbers` makes each, and the index for all.
fn fill(db: &mut Db, numbers: &str) {
    put(db, "k", 0..1);
    db.wait("k");
    let table = vector_table(db, "k");
    db.run(&format!(
        "BEGIN;
         CREATE TEMP TABLE added ON COMMIT DROP AS SELECT gen_random_uuid() AS id, i FROM generate_series(1, {ROWS}) i;
         INSERT INTO kb.chunks (chunk_id, build_no, document_id, kb_no, tenant_id, ordinal, content, content_hash, token_count,
             start_char, end_char, terms)
         SELECT a.id, c.build_no, c.document_id, c.kb_no, c.tenant_id, a.i, c.content, c.content_hash, c.token_count,
             c.start_char, c.end_char, c.terms FROM kb.chunks c, added a;
         SELECT setseed(0.5);
         INSERT INTO {table} (chunk_id, build_no, kb_no, tenant_id, fingerprint, embedding, segment)
         SELECT a.id, v.build_no, v.kb_no, v.tenant_id, v.fingerprint, ({numbers})::vector, a.i / 100
         FROM {table} v, added a;
         COMMIT"
    ));
    // The worker looks at the table when it gets vectors.
    put(db, "k", 1..2);
    db.wait("k");
    until(LONG, "there is an index for all", || {
        db.one("SELECT segments = 1 AND unindexed = 0 AND building IS NULL FROM kb.status WHERE kb_id = 'k'")
    });
    until(LONG, "the indexer has nothing more to do", || {
        db.count("pg_stat_activity WHERE backend_type = 'kb indexer'") == 0
    });
}

/// What a question searches the index with.
fn ef_search(db: &mut Db, options: &str) -> i32 {
    let sql = "SELECT s.scan ->> 'ef_search', s.scan #>> '{segments,0,ef_search}'
               FROM (SELECT kb.explain('k', 'the harbor', 5, options => $1::text::jsonb) #> '{dense,scans,0}' AS scan) s";
    let row = db.0.query_one(sql, &[&options]).unwrap();
    let [whole, of_segment] = [0, 1].map(|i| row.get::<_, String>(i).parse::<i32>().unwrap());
    assert_eq!(whole, of_segment);
    whole
}

fn least(db: &mut Db) -> Option<i64> {
    db.one(
        "SELECT b.least_ef_search FROM kb.builds b JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'k'",
    )
}

#[test]
fn an_index_in_which_little_effort_finds_all_is_searched_with_little_unless_somebody_says_more() {
    let cluster = crate::cluster!();
    let mut db = cluster.connect(APP);
    db.run("SELECT kb.create_embedder('small', 'hash', dimension => 16)");
    db.create_kb("k", "small", r#"{"strategy": "none"}"#);
    // Directions of a plane.
    fill(&mut db, "ARRAY[cos(a.i), sin(a.i)] || array_fill(0::float8, ARRAY[14])");
    assert_eq!(least(&mut db), Some(40));
    assert_eq!((ef_search(&mut db, "{}"), ef_search(&mut db, r#"{"ef_search": 45}"#)), (40, 45));
    // Drafts find less: until they are built again, the default holds.
    put(&mut db, "k", 2..1_502);
    until(LONG, "a draft is built, and what was measured is forgotten", || least(&mut db).is_none());
    db.wait("k");
    until(LONG, "it is measured again when there are no more drafts", || least(&mut db) == Some(40));
    db.run("SELECT kb.alter_knowledge_base('k', retrieval => '{\"ef_search\": 44}')");
    assert_eq!(ef_search(&mut db, "{}"), 44);
    // Who holds the row of the build keeps no indexer waiting, and is kept waiting by none.
    db.run("UPDATE kb.builds SET least_ef_search = NULL");
    let mut holder = cluster.connect(APP);
    holder.run("BEGIN; UPDATE kb.builds SET least_ef_search = NULL");
    put(&mut db, "k", 1_502..3_002);
    db.wait("k");
    until(LONG, "all has an index, and the indexer has left", || {
        state(&mut db).1 == 0 && db.count("pg_stat_activity WHERE backend_type = 'kb indexer'") == 0
    });
    holder.run("COMMIT");
    assert_eq!(least(&mut db), None);
}

#[test]
fn an_index_that_finds_too_little_is_searched_with_the_default_for_its_size() {
    let cluster = crate::cluster!();
    let mut db = cluster.connect(APP);
    db.run("SELECT kb.create_embedder('large', 'hash', dimension => 64)");
    db.run(
        "SELECT kb.create_vector_db('v', dimension => 64, config => '{\"m\": 4, \"ef_construction\": 8}')",
    );
    db.run("SELECT kb.create_knowledge_base('k', 'large', 'v', chunking => '{\"strategy\": \"none\"}')");
    // All equally far from each other, about.
    fill(&mut db, "ARRAY(SELECT random() - 0.5 + 0 * a.i FROM generate_series(1, 64))");
    assert_eq!((least(&mut db), ef_search(&mut db, "{}")), (None, 42));
}
