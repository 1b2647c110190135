//! Rows that qualify are found behind many vectors of their segment that do not, because these fail a filter
//! or belong to another tenant.

use crate::segments::until_state;
use crate::support::{APP, Db};

#[test]
fn the_nearest_rows_that_pass_a_filter_are_found_behind_many_that_do_not() {
    let (cluster, mut db) = crate::connected!();
    // The question is row 0, and each row is farther from it than the one before.
    db.run(
        "CREATE FUNCTION vector_of(i bigint) RETURNS public.vector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
             SELECT (ARRAY[cos(i / 3000.0), sin(i / 3000.0)] || array_fill(0.0::float8, '{382}'))::real[]::public.vector $$;
         CREATE PROCEDURE make(name text, a bigint, b bigint) LANGUAGE plpgsql AS $$BEGIN
             EXECUTE format('CREATE TABLE %I AS SELECT i AS id, ''text '' || i AS body, i >= 1500 AS late, vector_of(i) AS v
                             FROM generate_series(%s::bigint, %s) i', name, a, b);
             EXECUTE format('ALTER TABLE %I ADD PRIMARY KEY (id)', name);
             END$$;
         SELECT kb.create_knowledge_base('k', 'hash', chunking => '{\"strategy\": \"none\"}')",
    );
    // Vectors that rows already have are adopted when their table is attached, in a segment or without an
    // index.
    for (table, first, last, expected) in
        [("near", 0, 2999, (1, 0)), ("far", 3000, 3499, (1, 500)), ("farther", 3500, 3999, (2, 0))]
    {
        db.run(&format!(
            "CALL make('{table}', {first}, {last});
             SELECT kb.attach_table('k', '{table}', '{{body}}', metadata => '{{late}}', adopt => 'v')"
        ));
        db.wait("k");
        // All rows that a table had when it was attached are in one index, although they are enqueued in
        // parts.
        until_state(&mut db, expected);
        db.run("ANALYZE kb.documents, kb.chunks");
        if table != "near" {
            nearest_late_ones_are_found(&mut db, last);
        }
    }
    // In a parallel worker, too.
    let mut other = cluster.connect(APP);
    let setting = if other.one::<i32>("SELECT current_setting('server_version_num')::int") < 160000 {
        "force_parallel_mode"
    } else {
        "debug_parallel_query"
    };
    other.run(&format!("SET {setting} = on"));
    for _ in 0..2 {
        let sql = "SELECT external_id FROM kb.query_vector('k', vector_of(3500), 1)";
        assert_eq!(other.all::<String>(sql), ["3500"]);
        nearest_late_ones_are_found(&mut other, 3999);
    }
}

#[test]
fn a_tenant_finds_its_nearest_behind_many_of_another_tenant_in_the_same_segment() {
    let (cluster, mut db) = crate::connected!();
    // The question is at angle 0; 24,000 rows of tenant a are nearer than all of tenant b, which is more than
    // one scan visits.
    db.run(
        "CREATE FUNCTION at(angle float8) RETURNS public.vector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
             SELECT (ARRAY[cos(angle), sin(angle)] || array_fill(0.0::float8, '{14}'))::real[]::public.vector $$;
         CREATE PROCEDURE make(name text, whose text, count int, first float8, step float8) LANGUAGE plpgsql AS $$BEGIN
             EXECUTE format('INSERT INTO %I SELECT name, %L, %L || name, true, at(%s + i * %s::float8)
                 FROM (SELECT i, %L || i AS name FROM generate_series(1, %s) i) n', name, whose, whose, first, step, whose, count);
             END$$;
         CREATE TABLE sealed (id text PRIMARY KEY, whose text, body text, flag boolean, v public.vector(16));
         CREATE TABLE late (LIKE sealed INCLUDING ALL);
         CALL make('sealed', 'a', 24000, 0, 0.3 / 24000);
         CALL make('sealed', 'b', 3, 0.5, 0.001);
         CALL make('late', 'b', 900, 1, 0.0005);
         UPDATE late SET id = 'late ' || id, body = 'late ' || body;
         SELECT kb.create_embedder('h16', 'hash', dimension => 16);
         SET kb.tenant = 'shared';
         SELECT kb.create_knowledge_base('k', 'h16', chunking => '{\"strategy\": \"none\"}')",
    );
    for (table, expected) in [("sealed", (1, 0)), ("late", (1, 900))] {
        db.run(&format!(
            "SELECT kb.attach_table('k', '{table}', '{{body}}', metadata => '{{flag}}', tenant => 'whose', adopt => 'v')"
        ));
        db.wait("k");
        until_state(&mut db, expected);
    }
    let mut reader = cluster.connect(APP);
    reader.run("CREATE ROLE of_b IN ROLE kb_reader; GRANT USAGE ON SCHEMA public TO of_b; SET ROLE of_b; SET kb.tenant = 'b'");
    let assert_found = |reader: &mut Db| {
        for filter in ["", ", filter => '{\"flag\": true}'"] {
            let found: Vec<String> = reader.all(&format!(
                "SELECT external_id FROM kb.query_vector('k', at(0), 5, min_score => -1{filter}) ORDER BY rank"
            ));
            assert_eq!(found, ["b1", "b2", "b3", "late b1", "late b2"], "with {filter:?}");
        }
    };
    assert_found(&mut reader);
    // As after pg_upgrade: the number of rows of an index is unknown.
    db.run("UPDATE pg_class SET reltuples = -1 WHERE relkind = 'i' AND relname LIKE 'vectors%hnsw%'");
    assert_eq!(db.count("pg_class WHERE reltuples = -1 AND relname LIKE 'vectors%hnsw%'"), 1);
    let mut newer = cluster.connect(APP);
    newer.run("SET ROLE of_b; SET kb.tenant = 'b'");
    assert_found(&mut newer);
}

fn nearest_late_ones_are_found(db: &mut Db, last: i64) {
    let short = r#"{"late": true}"#;
    let long = r#"{"type": "and", "filters": [{"type": "eq", "key": "late", "value": true},
        {"type": "ne", "key": "other", "value": 1}]}"#;
    // By the index, the first segment returns none that pass, and the rest returns enough.
    for (first, top_k, filter) in
        [(0, 10, short), (0, 1, short), (3400, 10, short), (1400, 10, short), (0, 10, long), (1400, 10, long)]
    {
        let found: Vec<String> = db.all(&format!(
            "SELECT external_id FROM kb.query_vector('k', vector_of({first}), {top_k}, min_score => -1,
                 filter => '{filter}') ORDER BY rank"
        ));
        let mut numbers: Vec<i64> = found.iter().map(|id| id.parse().unwrap()).collect();
        let mut nearest: Vec<i64> = (1500..=last).collect();
        nearest.sort_by_key(|i| (i - first).abs());
        nearest.truncate(top_k);
        numbers.sort_unstable();
        nearest.sort_unstable();
        let right = numbers.iter().filter(|number| nearest.contains(number)).count();
        // Of two that are equally far from it, either may be in the answer.
        assert!(right + 1 >= top_k && numbers.len() == top_k, "of {first}: {numbers:?}, not {nearest:?}");
    }
}
