//! If an index misses much at every ef_search, ef_search "auto" still finds all: by comparing all vectors
//! while that is quick, and by a denser graph beyond that.

use crate::support::{Cluster, Db, Document, LONG, WHOLE, until, vector_table};

/// Documents in two groups without a common word, each nearly the same text many times, so that few of them
/// can be reached in an HNSW graph.
fn fixture(documents: usize) -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.create_kb("k", "hash", WHOLE);
    put(&mut db, 0..documents);
    until(LONG * 2, "the index is there", || db.one("SELECT indexed FROM kb.status WHERE kb_id = 'k'"));
    Some((cluster, db))
}

fn put(db: &mut Db, numbers: std::ops::Range<usize>) {
    let text = |i: usize| match i % 2 {
        0 => format!("alpha beta gamma delta epsilon zeta eta theta {i}"),
        _ => format!("ship harbor lantern island sail mast rope deck {i}"),
    };
    let all: Vec<Document> = numbers.map(|i| Document::new(format!("d{i}"), text(i))).collect();
    all.chunks(1000).for_each(|part| db.put_all("k", part));
    db.wait("k");
}

/// The number of documents that are not among the three that their own text finds.
fn missed(db: &mut Db) -> i64 {
    db.count(
        "kb.documents d WHERE NOT EXISTS (
             SELECT FROM kb.query('k', d.content, 3) q WHERE q.external_id = d.external_id)",
    )
}

fn hint(db: &mut Db) -> String {
    db.one("SELECT status || ': ' || coalesce(hint, '') FROM kb.health() WHERE component = 'recall'")
}

#[test]
fn ef_search_auto_finds_every_document_by_its_text_even_if_the_index_misses_many() {
    let Some((_cluster, mut db)) = fixture(1520) else { return };
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"ef_search": 1000}')"#);
    assert!(missed(&mut db) > 100, "the index finds them all: this shows nothing");
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"ef_search": "auto"}')"#);
    assert!(missed(&mut db) > 100, "it was not measured yet");
    // The measurement applies to all answers from now on: no search uses the index.
    let measured = "SELECT recall = 1 AND ef_search IS NULL AND sample > 0 FROM kb.measure_recall('k', 400)";
    // By chance, a graph may be just good enough: then another is built.
    let table = vector_table(&mut db, "k");
    let is_poor = (0..5).any(|_| {
        db.one(measured) || {
            db.run(&format!("REINDEX TABLE {table}"));
            false
        }
    });
    assert!(is_poor, "every index is good enough");
    assert_eq!(missed(&mut db), 0);
    assert_eq!(hint(&mut db), "ok: ");
    let dense =
        "SELECT kb.explain('k', 'ship 7', 3) -> 'dense' @> '{\"has_index\": false, \"index_misses\": true}'";
    assert!(db.one::<bool>(dense));
    // A caller who specifies ef_search gets that.
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"ef_search": 1000}')"#);
    assert!(missed(&mut db) > 100);
    // When comparing all takes long, the index is used again; its measured recall was kept.
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"ef_search": "auto"}')"#);
    assert!(db.one::<bool>("SELECT recall < 0.97 AND ef_search = 1000 FROM kb.index_recall"));
    assert_eq!(hint(&mut db), "ok: ");
    put(&mut db, 1520..5600);
    until(LONG, "kb.health() tells", || hint(&mut db) != "ok: ");
    assert_eq!(
        hint(&mut db),
        "warning: Measure again (kb.measure_recall); the index is then rebuilt with more edges."
    );
}

#[test]
fn a_poor_index_of_many_vectors_is_built_again_with_more_edges() {
    let Some((_cluster, mut db)) = fixture(5600) else { return };
    let measure = "SELECT recall FROM kb.measure_recall('k', 200)";
    let before: f64 = db.one(measure);
    assert!(before < 0.9, "{before}");
    assert!(hint(&mut db).starts_with("warning: Set ef_search"), "{}", hint(&mut db));
    db.run(r#"SELECT kb.alter_knowledge_base('k', retrieval => '{"ef_search": "auto"}')"#);
    let with_auto: f64 = db.one(measure);
    assert!(with_auto < 0.97, "{with_auto}");
    let while_building = hint(&mut db);
    assert!(while_building.starts_with("warning: An index is being rebuilt"), "{while_building}");
    let table = vector_table(&mut db, "k");
    let edges = format!(
        "SELECT coalesce(max(o.option_value::int), 16) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
         JOIN pg_am a ON a.oid = c.relam AND amname = 'hnsw', pg_options_to_table(c.reloptions) o
         WHERE i.indrelid = '{table}'::regclass AND o.option_name = 'm'"
    );
    until(LONG, "an index with twice the edges is being built", || db.one::<i32>(&edges) == 32);
    let before = "SELECT indexed AND segments = 1 FROM kb.status";
    assert!(db.one::<bool>(before), "meanwhile the one before is used");
    let config =
        "SELECT config @> '{\"m\": 32, \"ef_construction\": 400, \"min_rows\": 1000}' FROM kb.builds";
    assert!(db.one::<bool>(config));
    // When it has the most edges that kb gives an index and still misses some, the hint is another.
    db.run("UPDATE kb.builds SET config = config || '{\"m\": 64, \"ef_construction\": 200}'");
    let at_the_end = hint(&mut db);
    assert!(at_the_end.contains("larger min_rows, below which all vectors are compared"), "{at_the_end}");
    db.run(
        "SELECT kb.create_vector_db('exact', dimension => 384, config => '{\"min_rows\": 1000000}');
         SELECT kb.create_knowledge_base('compared', 'hash', 'exact', chunking => '{\"strategy\": \"none\"}');
         SELECT count(*) FROM kb.put_documents('compared', (SELECT array_agg(jsonb_build_object('external_id', external_id, 'content', content))
             FROM kb.documents WHERE external_id < 'd3'))",
    );
    db.wait("compared");
    let recall = "SELECT recall = 1 AND sample = 0 FROM kb.measure_recall('compared', 200)";
    assert!(db.count("kb.documents WHERE kb_id = 'compared'") > 2000 && db.one::<bool>(recall));
}
