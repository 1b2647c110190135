//! kb.explain: the answer is that of kb.query, and the reasons for what is missing in it are given as far as
//! the caller may know them.

use crate::support::{APP, Cluster, Db, Document, LONG, WHOLE, until};
use serde_json::{Value, json};

fn explained(db: &mut Db, query: &str, arguments: &str) -> Value {
    let text: String = db.one_with(&format!("SELECT kb.explain('k', $1, {arguments})::text"), &[&query]);
    serde_json::from_str(&text).unwrap()
}

/// The stage and the reason for the first chunk of what is asked about.
fn why(db: &mut Db, query: &str, arguments: &str) -> (String, String) {
    let about = explained(db, query, arguments)["asked_about"].clone();
    let chunk = if about["chunks"].is_null() { &about } else { &about["chunks"][0] };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    (text(&chunk["stage"]), text(&chunk["why"]))
}

fn fixture() -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.create_kb("k", "hash", WHOLE);
    for (id, text) in [
        ("ships", "ships in the harbor"),
        ("ships again", "ships in the harbor"),
        ("boats", "boats in the harbor of the town"),
        ("bread", "bread from the bakery"),
        ("flour", "flour for the bakery of the town"),
    ] {
        db.put("k", id, text);
    }
    let metadata = json!({"year": 1900});
    db.put_all_and_wait(
        "k",
        &[Document { metadata, ..Document::new("old", "ships in the harbor, old ones") }],
    );
    Some((cluster, db))
}

#[test]
fn a_chunk_that_is_not_in_an_answer_has_its_stage_and_reason() {
    let Some((cluster, mut db)) = fixture() else { return };
    let query = "ships in the harbor";
    let mut told = |arguments: &str, stage: &str, words: &str| {
        let (found, why) = why(&mut db, query, arguments);
        assert!(found == stage && why.contains(words), "{arguments}: {found}: {why}");
    };
    told("1, external_id => 'boats'", "recall", "and the number of candidates is 1");
    told("9, external_id => 'old', filter => '{\"year\": 2000}'", "filter", "does not pass the filter");
    told("9, external_id => 'bread', min_score => 0.5", "shape", "is below min_score");
    told("9, external_id => 'bread', mode => 'keyword'", "recall", "does not contain the words");
    told("9, external_id => 'old', mode => 'keyword', options => '{\"bm25\": {\"b\": 0}}'", "", "");
    told("2, external_id => 'bread', mode => 'hybrid'", "shape", "and top_k is 2");
    told(
        "9, external_id => 'boats', max_tokens => 8",
        "shape",
        "does not fit into the part of max_tokens (8) that better rows leave",
    );
    told("9, external_id => 'old', options => '{\"collapse\": 0.3}'", "diversity", "resembles");
    told("2, external_id => 'old', options => '{\"mmr\": {\"lambda\": 0.1}}'", "diversity", "mmr");
    told("9, external_id => 'nobody'", "", "");
    // Of two documents with one text, one represents both.
    let twins = explained(&mut db, query, "9, external_id => 'ships'")["asked_about"]["chunks"][0].clone();
    let again =
        explained(&mut db, query, "9, external_id => 'ships again'")["asked_about"]["chunks"][0].clone();
    let (shown, hidden) = if twins["rank"].is_null() { (again, twins) } else { (twins, again) };
    assert_eq!(shown["rank"], 1, "{shown}");
    assert!(hidden["why"].as_str().unwrap().contains("has the same text"), "{hidden}");
    let chunk: String = db.one("SELECT chunk_id::text FROM kb.chunks JOIN kb.documents USING (document_id) WHERE external_id = 'bread'");
    assert_eq!(why(&mut db, query, &format!("1, chunk_id => '{chunk}'")).0, "recall");
    let nobody = explained(&mut db, query, "1, chunk_id => '00000000-0000-0000-0000-000000000000'");
    assert!(nobody["asked_about"]["why"].as_str().unwrap().contains("no chunk with this id"));
    let fault = db.fault(&format!("SELECT kb.explain('k', 'x', external_id => 'a', chunk_id => '{chunk}')"));
    assert_eq!(fault.code, "22023", "{fault:?}");

    // A state in which an operator might find it.
    db.run("UPDATE kb.chunks SET enabled = false WHERE document_id = (SELECT document_id FROM kb.documents WHERE external_id = 'flour')");
    assert_eq!(why(&mut db, query, "9, external_id => 'flour'").0, "enabled");
    let table = crate::support::vector_table(&mut db, "k");
    db.run(&format!("DELETE FROM {table} WHERE chunk_id = '{chunk}'"));
    let (stage, reason) = why(&mut db, query, "9, external_id => 'bread'");
    assert_eq!((stage.as_str(), reason.as_str()), ("recall", "it has no vector yet"));
    db.run("DELETE FROM kb.chunks USING kb.documents d WHERE d.document_id = chunks.document_id AND external_id = 'boats';
            UPDATE kb.documents SET status = 'failed', error = 'it is torn' WHERE external_id = 'boats'");
    let about = explained(&mut db, query, "9, external_id => 'boats'")["asked_about"].clone();
    assert_eq!(
        (&about["why"], &about["status"]),
        (&json!("it has no chunks; its status is failed: it is torn"), &json!(["failed"]))
    );

    // Before it is processed.
    db.run("BEGIN");
    db.put("k", "waits", "trains in the station");
    let about = explained(&mut db, query, "9, external_id => 'waits'")["asked_about"].clone();
    assert_eq!(
        (&about["why"], &about["status"]),
        (&json!("it has no chunks; its status is pending"), &json!(["pending"]))
    );
    db.run("ROLLBACK");

    // A document of another tenant is reported as if it did not exist.
    let old: String = db.one("SELECT chunk_id::text FROM kb.chunks JOIN kb.documents USING (document_id) WHERE external_id = 'old'");
    db.run("CREATE ROLE b LOGIN IN ROLE kb_reader; SELECT kb.share('k', 'b')");
    db.run("UPDATE kb.documents SET tenant_id = 'c' WHERE external_id = 'old';
            UPDATE kb.chunks SET tenant_id = 'c' WHERE document_id = (SELECT document_id FROM kb.documents WHERE external_id = 'old')");
    let mut b = cluster.connect_as_tenant("b", "b");
    let theirs = explained(&mut b, query, "9, external_id => 'old'");
    let none = explained(&mut b, query, "9, external_id => 'nobody'");
    assert_eq!(theirs["asked_about"]["why"], none["asked_about"]["why"]);
    assert!(!theirs.to_string().contains("old ones"), "{theirs}");
    let theirs_by_id = explained(&mut b, query, &format!("9, chunk_id => '{old}'"))["asked_about"].clone();
    assert_eq!(theirs_by_id, json!({"chunk_id": old, "why": nobody["asked_about"]["why"]}));
    assert!(theirs["dense"]["index_vectors"].is_null(), "{theirs}");
}

#[test]
fn the_rank_of_a_chunk_is_reported_for_each_leg() {
    let Some((_cluster, mut db)) = fixture() else { return };
    // It is behind two texts that equal the question, and one that has more of its words.
    for (mode, dense) in [("hybrid", json!(4)), ("keyword", json!(null)), ("dense", json!(4))] {
        let arguments = format!("9, external_id => 'boats', mode => '{mode}'");
        let about = explained(&mut db, "ships in the harbor", &arguments)["asked_about"].clone();
        let chunk = &about["chunks"][0];
        let keyword = if mode == "dense" { json!(null) } else { json!(4) };
        assert_eq!((&chunk["dense"]["rank"], &chunk["keyword"]["rank"]), (&dense, &keyword), "{chunk}");
        for leg in ["dense", "keyword"] {
            let (rank, score) = (&chunk[leg]["rank"], &chunk[leg]["score"]);
            assert_eq!(rank.is_null(), score.as_f64().is_none_or(|score| score <= 0.0), "{chunk}");
        }
        assert!(chunk["rank"].is_u64() && chunk["why"].is_null(), "{chunk}");
    }
}

#[test]
fn a_chunk_in_the_passage_of_another_is_said_to_be_in_the_answer() {
    let (_cluster, mut db) = crate::with_kb!("hash", r#"{"size": 12, "overlap": 0}"#);
    db.put_and_wait("k", "d", "Ships leave the harbor at six.\n\nThe secret of the harbor is a tunnel.\n\nTrains leave the station at seven.");
    assert_eq!(db.count("kb.chunks"), 3);
    let mut chunks = |options: &str| {
        let arguments = format!("1, external_id => 'd', options => '{options}'");
        explained(&mut db, "ships leave the harbor", &arguments)["asked_about"]["chunks"].clone()
    };
    let told = chunks(r#"{"neighbors": 1}"#);
    assert_eq!((&told[0]["rank"], &told[0]["why"]), (&json!(1), &json!(null)), "{told}");
    let why = json!("it is a part of the passage of rank 1");
    assert_eq!(
        (&told[1]["rank"], &told[1]["stage"], &told[1]["why"]),
        (&json!(1), &json!(null), &why),
        "{told}"
    );
    assert!(told[2]["rank"].is_null() && told[2]["why"].is_string(), "{told}");
    let alone = chunks("{}");
    assert!(alone[1]["rank"].is_null() && alone[1]["stage"] == "recall", "{alone}");
    let arguments = r#"9, external_id => 'd', options => '{"per_document": 1}'"#;
    let (stage, why) = {
        let about = explained(&mut db, "ships leave the harbor", arguments)["asked_about"].clone();
        (about["chunks"][1]["stage"].clone(), about["chunks"][1]["why"].to_string())
    };
    assert!(stage == "diversity" && why.contains("per_document allows no more"), "{stage}: {why}");
}

#[test]
fn the_share_that_a_filter_keeps_is_shown_only_to_roles_without_policies() {
    let Some((cluster, mut db)) = fixture() else { return };
    db.run(
        "CREATE ROLE reader LOGIN IN ROLE kb_reader;
         CREATE POLICY no_bakery ON kb.chunks AS RESTRICTIVE FOR SELECT TO reader USING (content NOT LIKE '%bakery%')",
    );
    let arguments = r#"9, filter => '{"type": "exists", "key": "$external_id"}'"#;
    let keeps = |db: &mut Db| explained(db, "the bakery", arguments)["dense"]["filter_keeps"].clone();
    assert_eq!(keeps(&mut db), json!({"chunks": 6, "counted": true}));
    let mut reader = cluster.connect_as(APP, "reader");
    assert_eq!(keeps(&mut reader), json!({"chunks": null, "counted": true}));
    let hits = explained(&mut reader, "the bakery", arguments)["hits"].clone();
    assert!(!hits.to_string().contains("bread") && !hits.as_array().unwrap().is_empty(), "{hits}");
}

#[test]
fn a_chunk_that_a_policy_hides_is_explained_as_if_it_did_not_exist() {
    let Some((cluster, mut db)) = fixture() else { return };
    db.put_and_wait("k", "secret", "the merger with Initech is planned");
    db.run(
        "CREATE ROLE reader LOGIN IN ROLE kb_reader;
         CREATE POLICY no_secret ON kb.documents AS RESTRICTIVE FOR SELECT TO reader USING (external_id <> 'secret');
         CREATE POLICY no_secret ON kb.chunks AS RESTRICTIVE FOR SELECT TO reader
             USING (document_id IN (SELECT document_id FROM kb.documents))",
    );
    let mut reader = cluster.connect_as(APP, "reader");
    let mut parts = |question: &str, arguments: &str| {
        let explanation = explained(&mut reader, question, arguments);
        (explanation["dense"].clone(), explanation["keyword"]["looks"].clone(), explanation["hits"].clone())
    };
    let mut by_filter =
        |id: &str| parts("a question", &format!("5, filter => '{{\"$external_id\": \"{id}\"}}'"));
    assert_eq!(by_filter("secret"), by_filter("absent"));
    let mut by_words = |question: &str| parts(question, "1, mode => 'keyword'");
    assert_eq!(by_words("merger"), by_words("dismissal"));
    assert_eq!(by_words("merger -initech"), by_words("merger -absent"));
}

#[test]
fn a_chunk_that_the_index_misses_is_reported_as_missed() {
    let Some((_cluster, mut db)) = fixture() else { return };
    let documents: Vec<_> = (0..1_200)
        .map(|i| Document {
            id: format!("n{i}"),
            content: format!("note {i} about the fields and the weather of day {i}"),
            metadata: json!({}),
        })
        .collect();
    db.put_all_and_wait("k", &documents);
    until(LONG, "the index is built", || db.one("SELECT indexed FROM kb.status WHERE kb_id = 'k'"));
    let table = crate::support::vector_table(&mut db, "k");
    let ready = |ready: bool| {
        format!(
            "SET allow_system_table_mods = on; UPDATE pg_index SET indisready = {ready} FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE amname = 'hnsw' AND c.oid = indexrelid AND indrelid = '{table}'::regclass"
        )
    };
    // What is written now is not in the index, although its number is in the range of the index.
    db.run(&ready(false));
    assert_eq!(db.count("pg_index WHERE NOT indisready"), 1);
    db.put_and_wait("k", "missed", "lighthouse on the cliff");
    db.run(&format!("UPDATE {table} SET segment = 0 WHERE segment = (SELECT max(segment) FROM {table})"));
    db.run("DELETE FROM kb.tail_vectors");
    assert_eq!(db.count("pg_index WHERE NOT indisready"), 1);
    db.run(&ready(true));
    // The table is so small that the planner may sort all of it.
    db.run("SET enable_seqscan = off; SET enable_sort = off");
    let about = explained(&mut db, "lighthouse on the cliff", "3, external_id => 'missed'");
    let chunk = &about["asked_about"]["chunks"][0];
    assert_eq!((&chunk["stage"], &chunk["dense"]["rank"]), (&json!("recall"), &json!(1)), "{about}");
    assert!(chunk["why"].as_str().unwrap().contains("the index missed it"), "{chunk}");
    assert_eq!(about["dense"]["scans"][0]["scan"], "index");
    assert_eq!(about["dense"]["scans"][0]["ef_search"], 40);
}

#[test]
fn the_explained_answer_is_that_of_kb_query() {
    let Some((_cluster, mut db)) = fixture() else { return };
    for (options, passed) in [
        (r#"{}"#, &["dense", "shape"][..]),
        (r#"{"mode": "keyword"}"#, &["keyword", "shape"][..]),
        (r#"{"mode": "hybrid"}"#, &["dense", "keyword", "fuse", "shape"][..]),
        (
            r#"{"mode": "hybrid", "per_document": 1, "mmr": {"lambda": 0.5}, "neighbors": 1}"#,
            &["dense", "keyword", "fuse", "diversity", "shape", "surround"][..],
        ),
    ] {
        let query = "harbor of the town";
        let answer: Vec<String> = db.all_with(
            "SELECT chunk_id || ' ' || coalesce(rank_score::text, '') FROM kb.query('k', $1, 4, options => $2::text::jsonb) ORDER BY rank",
            &[&query, &options],
        );
        let explained: Vec<String> = db.all_with(
            "SELECT (h ->> 'chunk_id') || ' ' || coalesce((h ->> 'rank_score')::float8::text, '')
             FROM jsonb_array_elements(kb.explain('k', $1, 4, options => $2::text::jsonb) -> 'hits') h",
            &[&query, &options],
        );
        assert_eq!(answer, explained, "{options}");
        let whole = explained_whole(&mut db, query, options);
        let stages = whole["stages"].as_array().unwrap();
        let names: Vec<&str> = stages.iter().map(|stage| stage["stage"].as_str().unwrap()).collect();
        assert_eq!(names, passed, "{whole}");
        assert_eq!(stages[stages.len() - 1]["candidates"], answer.len(), "{whole}");
        // All six are found by meaning, and those that contain a word are found by words; rows that are not
        // in the answer are reported as left out.
        let found = stages[0]["candidates"].as_u64().unwrap() as usize;
        if passed.len() > 2 {
            assert_eq!((found, &stages[1]["candidates"]), (6, &json!(5)), "{whole}");
        }
        let dropped = &whole["dropped"];
        assert_eq!(dropped["count"], found - answer.len(), "{whole}");
        assert_eq!(dropped["chunks"].as_array().unwrap().len(), found - answer.len(), "{whole}");
        assert!(whole["dense"]["filter_keeps"].is_null(), "{whole}");
        assert!(whole["milliseconds"]["total"].as_f64().unwrap() > 0.0);
        let has_words = whole["keyword"]["words"].as_array().is_some_and(|words| words.len() == 2);
        assert_eq!(has_words, options.contains("keyword") || options.contains("hybrid"), "{whole}");
        assert_eq!(whole["milliseconds"]["embed"].is_null(), options.contains("keyword"));
    }
    let filtered = explained(&mut db, "harbor", "4, filter => '{\"year\": 1900}'")["dense"].clone();
    assert_eq!(filtered["filter_keeps"], json!({"chunks": 1, "counted": true}));
    assert_eq!((&filtered["scans"][0]["scan"], &filtered["scans"][0]["found"]), (&json!("exact"), &json!(1)));
}

fn explained_whole(db: &mut Db, query: &str, options: &str) -> Value {
    let text: String =
        db.one_with("SELECT kb.explain('k', $1, 4, options => $2::text::jsonb)::text", &[&query, &options]);
    serde_json::from_str(&text).unwrap()
}
