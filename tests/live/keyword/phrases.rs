//! Quoted phrases, and how many candidates count.

#[test]
fn phrases_have_so_many_words_at_most_and_each_counts_once() {
    let (_cluster, mut db) = crate::connected!();
    super::create(&mut db, "k");
    db.put("k", "two", "common common words");
    db.put_and_wait("k", "one", "common words");
    let mut found = |question: String| {
        let sql = "SELECT external_id FROM kb.query('k', $1, 9) ORDER BY 1";
        let rows = db.0.query(sql, &[&question]);
        rows.map(|rows| rows.iter().map(|row| row.get(0)).collect::<Vec<String>>())
    };
    // The phrase is searched for, and no chunk has it, so the words alone find the answer.
    assert_eq!(found(format!("\"{}\" words", "common ".repeat(1_024))).unwrap(), ["one", "two"]);
    for question in [
        format!("\"{}\"", "common ".repeat(1_025)),
        format!("common -\"{}\"", "common ".repeat(200_000)),
        (0..400).map(|i| format!("\"common common w{i}\" ")).collect(),
    ] {
        let error = found(question).unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "22023");
        assert!(error.message().contains("at most 1024 are allowed"), "{error}");
    }
    assert_eq!(found("\"common common\" ".repeat(20_000)).unwrap(), ["two"]);
    assert_eq!(found("common \"common words\" -\"common common\"".into()).unwrap(), ["one"]);
}

#[test]
fn a_phrase_is_found_beside_a_chunk_of_more_words_than_a_tsvector_holds() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        "SELECT kb.create_knowledge_base('k', 'hash', chunking => '{\"strategy\": \"none\", \"size\": 1000000}');
         SELECT kb.put_document('k', 'large', 'alpha beta ' || (
             SELECT string_agg(w, ' ') FROM (
                 SELECT (SELECT string_agg(CASE WHEN j = 5 THEN '-' ELSE chr(19968 + (hashint4(i * 10 + j) & 2047)) END, '' ORDER BY j)
                         FROM generate_series(1, 9) j) AS w FROM generate_series(1, 20000) i) x));
         SELECT kb.put_document('k', 'small', 'alpha beta gamma')",
    );
    db.wait("k");
    let ids = "SELECT array_agg(external_id ORDER BY external_id) FROM kb.query('k', '\"alpha beta\"', 5, mode => 'keyword')";
    assert_eq!(db.one::<Vec<String>>(ids), ["large", "small"]);
}

#[test]
fn hybrid_counts_as_many_candidates_as_are_set_despite_filters_and_duplicates() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        "SELECT kb.create_knowledge_base('k', 'hash', retrieval => '{\"mode\": \"hybrid\", \"hybrid\": {\"candidates\": 20, \"fusion\": \"score\"}}');
         SELECT count(*) FROM kb.put_documents('k', (
             SELECT array_agg(jsonb_build_object('external_id', 'd' || i, 'metadata', jsonb_build_object('all', 1),
                 'content', repeat('alpha ', 1 + i % 7) || repeat('beta ', i % 5) || 'x' || i || repeat(' filler' || i % 11, i % 13)))
             FROM generate_series(1, 300) i))",
    );
    db.wait("k");
    let mut answer = |filter: &str| -> Vec<String> {
        db.one(&format!(
            "SELECT array_agg(format('%s %s', content, rank_score::numeric(6, 4)) ORDER BY rank)
             FROM kb.query('k', 'alpha beta', 5{filter})"
        ))
    };
    let without = answer("");
    assert_eq!(without.len(), 5);
    assert_eq!(answer(", filter => '{\"all\": 1}'"), without);
}
