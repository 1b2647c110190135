//! Tables that are dropped, recreated or swapped, and those that lose columns that are read.

use super::{ready, with_articles, without_worker};
use crate::support::{APP, Db, SOON, WHOLE, assert_sound, until};

fn answered(db: &mut Db, kb: &str) -> Vec<String> {
    let sql = format!(
        "SELECT content FROM kb.query('{kb}', 'a crow or an owl', 10, min_score => -1) ORDER BY content"
    );
    db.all(&sql)
}

/// The report of kb.health() on attached tables.
fn fault(db: &mut Db) -> String {
    db.one("SELECT detail FROM kb.health() WHERE component = 'sources'")
}

fn until_fault(db: &mut Db, words: &str) {
    until(SOON, &format!("the tables' fault is told: {words}"), || fault(db).contains(words));
}

#[test]
fn rows_of_a_dropped_table_leave_the_answers_at_the_commit_however_it_is_dropped() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    for (make, table, drop) in [
        ("CREATE TABLE t (id int PRIMARY KEY, body text)", "t", "DROP TABLE t"),
        ("CREATE SCHEMA s; CREATE TABLE s.t (id int PRIMARY KEY, body text)", "s.t", "DROP SCHEMA s CASCADE"),
        (
            "CREATE TABLE p (id int PRIMARY KEY, body text) PARTITION BY RANGE (id);
             CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
            "p",
            "DROP TABLE p",
        ),
        (
            "CREATE ROLE leaves; CREATE TABLE o (id int PRIMARY KEY, body text); ALTER TABLE o OWNER TO leaves",
            "o",
            "DROP OWNED BY leaves",
        ),
    ] {
        db.run(&format!("{make}; INSERT INTO {table} VALUES (1, 'A crow'), (2, 'An owl'); SELECT kb.attach_table('k', '{table}', 'body')"));
        db.wait("k");
        assert_eq!(answered(&mut db, "k"), ["A crow", "An owl"], "{drop}");
        // After a rollback the rows are there again.
        db.run(&format!("BEGIN; {drop}"));
        assert_eq!(answered(&mut db, "k").len(), 0, "in the transaction itself: {drop}");
        db.run("ROLLBACK");
        assert_eq!(answered(&mut db, "k").len(), 2, "{drop}");
        without_worker(&cluster, || {
            db.run(&format!("UPDATE {table} SET body = body || '!'; {drop}"));
            assert_eq!(answered(&mut db, "k").len(), 0, "{drop}");
        });
        db.wait("k");
        until_fault(&mut db, "was dropped, or its triggers were");
        assert_sound(&mut db, "k", 0, 0);
        assert_eq!(db.count("kb.failures") + db.count("kb.jobs WHERE kind = 'document'"), 0, "{drop}");
        db.run("SELECT kb.detach_table('k', relation::regclass) FROM kb.sources");
        assert_eq!(fault(&mut db), "every attached table can be read");
    }
}

#[test]
fn a_table_that_is_recreated_or_takes_another_name_is_attached_with_its_own_rows() {
    let Some((_cluster, mut db)) = with_articles() else { return };
    db.run(
        "CREATE TABLE a (id int PRIMARY KEY, body text); INSERT INTO a VALUES (1, 'Old crow'), (2, 'Old owl');
         CREATE TABLE other (id int PRIMARY KEY, body text); INSERT INTO other VALUES (7, 'Another');
         SELECT kb.create_knowledge_base('s', 'hash'), kb.attach_table('s', 'a', 'body'), kb.attach_table('s', 'other', 'body')",
    );
    db.wait("s");
    // The same table as a whole, with other rows, some with keys that existed before.
    db.run("DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY, body text); INSERT INTO a VALUES (1, 'New robin'), (3, 'New wren')");
    until_fault(&mut db, "public.a");
    // A table that no longer exists does not stop the comparison of another.
    assert_eq!(db.all::<String>("SELECT relation FROM kb.reconcile('s')"), ["public.other"]);
    db.run_and_wait("s", "SELECT kb.attach_table('s', 'a', 'body')");
    assert_eq!(answered(&mut db, "s"), ["Another", "New robin", "New wren"]);
    assert_eq!(
        (db.count("kb.sources WHERE error IS NULL"), fault(&mut db).as_str()),
        (3, "every attached table can be read")
    );
    db.run_and_wait("s", "INSERT INTO a VALUES (4, 'New finch')");
    assert_eq!(answered(&mut db, "s").len(), 4);
    // Two tables swap their names: both are there, and the keys of one are those of the other.
    db.run(
        "CREATE TABLE b (id int PRIMARY KEY, body text); INSERT INTO b VALUES (1, 'Newest robin');
         ALTER TABLE a RENAME TO a_old; ALTER TABLE b RENAME TO a; SELECT kb.attach_table('s', 'a', 'body')",
    );
    until_fault(&mut db, "documents of another attached table have the keys of rows");
    db.run("SELECT kb.detach_table('s', 'a_old')");
    db.run_and_wait("s", "SELECT kb.reconcile('s')");
    assert_eq!(answered(&mut db, "s"), ["Another", "Newest robin"]);
}

#[test]
fn a_column_or_key_that_is_missing_is_said_of_the_table_until_it_is_there_again() {
    let Some((_cluster, mut db)) = with_articles() else { return };
    db.run("INSERT INTO articles (body, status) VALUES ('One', 'published'), ('Two', 'published')");
    db.wait("k");
    for (lose, words, mend) in [
        (
            "ALTER TABLE articles DROP CONSTRAINT articles_pkey",
            "is not in the primary key of table public.articles any more",
            "ALTER TABLE articles ADD PRIMARY KEY (id)",
        ),
        (
            "ALTER TABLE articles RENAME body TO text",
            "column t.body does not exist",
            "ALTER TABLE articles RENAME text TO body",
        ),
    ] {
        db.run(&format!(
            "{lose}; INSERT INTO articles (id, status) VALUES (nextval('articles_id_seq'), 'published')"
        ));
        until_fault(&mut db, words);
        db.run(&format!(
            "{mend}; UPDATE articles SET body = 'Three' WHERE body IS NULL; SELECT kb.retry('k')"
        ));
        db.wait("k");
        assert_eq!(fault(&mut db), "every attached table can be read", "{mend}");
    }
    assert_eq!(ready(&mut db, "k").len(), 4);
}

#[test]
fn rows_that_cannot_be_read_have_a_reason_when_the_wait_ends() {
    let Some((cluster, mut db)) = with_articles() else { return };
    db.run_and_wait("k", "INSERT INTO articles (body, status) VALUES ('One', 'published')");
    db.run("CREATE ROLE heir");
    let mut holder = cluster.connect(APP);
    for (lose, words, mend) in [
        (
            "ALTER TABLE articles RENAME body TO text; UPDATE articles SET text = 'Two'",
            "column t.body does not exist",
            "ALTER TABLE articles RENAME text TO body",
        ),
        (
            "ALTER TABLE articles RENAME id TO number; UPDATE articles SET body = 'Three'",
            "column \"id\" does not exist",
            "ALTER TABLE articles RENAME number TO id",
        ),
        (
            "ALTER TABLE articles OWNER TO heir; UPDATE articles SET body = 'Four'",
            "has another owner",
            "ALTER TABLE articles OWNER TO postgres",
        ),
    ] {
        // While nothing is known of the table, nothing ends.
        holder.run("BEGIN; SELECT FROM kb.sources FOR NO KEY UPDATE");
        db.run(lose);
        until(SOON, "the worker wants to tell", || {
            db.count("pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT granted AND backend_type = 'kb worker'") > 0
        });
        assert_eq!(db.fault("SELECT kb.wait('k', 1)").code, "55P03", "{words}");
        holder.run("COMMIT");
        db.wait("k");
        let error: Option<String> = db.one("SELECT error FROM kb.sources");
        assert!(error.as_ref().is_some_and(|error| error.contains(words)), "{words}: {error:?}");
        assert!(fault(&mut db).contains(words));
        db.run_and_wait("k", &format!("{mend}; SELECT kb.retry('k'), count(*) FROM kb.reconcile('k')"));
        assert_eq!(db.one::<Option<String>>("SELECT error FROM kb.sources"), None);
    }
}

#[test]
fn rows_of_another_table_that_have_the_keys_of_a_dropped_one_all_become_documents() {
    let (_cluster, mut db) = crate::with_kb!("hash", WHOLE);
    db.run("CREATE TABLE a (id int PRIMARY KEY, body text); SELECT kb.attach_table('k', 'a', 'body')");
    // The last ones are deleted last, and added first.
    for (first, last) in [(801, 1600), (1, 800)] {
        db.run(&format!("INSERT INTO a SELECT i, 'Old ' || i FROM generate_series({first}, {last}) i"));
        db.wait("k");
    }
    db.run(
        "BEGIN; DROP TABLE a; CREATE TABLE b (id int PRIMARY KEY, body text);
         INSERT INTO b SELECT i, 'New ' || i FROM generate_series(1, 1600) i; SELECT kb.attach_table('k', 'b', 'body'); COMMIT",
    );
    db.wait("k");
    until(SOON, "all rows are documents", || db.count("kb.documents WHERE status = 'ready'") == 1600);
    assert_eq!(db.count("kb.documents WHERE content LIKE 'New %'"), 1600);
    assert_sound(&mut db, "k", 1600, 0);
}

#[test]
fn an_earlier_workers_error_about_a_table_ends_when_it_can_be_read() {
    let Some((cluster, mut db)) = with_articles() else { return };
    db.run_and_wait("k", "INSERT INTO articles (body, status) VALUES ('One', 'published')");
    db.run("ALTER TABLE articles RENAME body TO text; UPDATE articles SET text = 'Two'");
    until_fault(&mut db, "column t.body does not exist");
    // An answer with the old text is marked as stale.
    assert!(db.one::<bool>("SELECT bool_and(stale) FROM kb.query('k', 'one', 5, min_score => -1)"));
    let worker = cluster.processes("kb worker", Some(APP));
    db.run(&format!("SELECT pg_terminate_backend({})", worker[0]));
    until(SOON, "the worker has ended", || cluster.processes("kb worker", Some(APP)) != worker);
    db.run_and_wait("k", "ALTER TABLE articles RENAME text TO body; UPDATE articles SET body = 'Three'");
    until(SOON, "the fault is over", || fault(&mut db) == "every attached table can be read");
    assert!(!db.one::<bool>("SELECT bool_and(stale) FROM kb.query('k', 'one', 5, min_score => -1)"));
}

#[test]
fn dropping_a_copy_of_an_attached_table_removes_nothing_from_answers() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    db.run(
        "CREATE ROLE stranger LOGIN IN ROLE kb_reader; GRANT CREATE ON SCHEMA public TO stranger;
         CREATE TABLE a (id int PRIMARY KEY, body text); INSERT INTO a VALUES (1, 'A crow');
         SELECT kb.attach_table('k', 'a', 'body')",
    );
    db.wait("k");
    // kb.sources shows the previous name until the worker looks again.
    db.run("ALTER TABLE a RENAME TO b");
    let source: i64 = db.one("SELECT source_no FROM kb.sources WHERE relation_name = 'public.a'");
    let mut stranger = cluster.connect_as(APP, "stranger");
    without_worker(&cluster, || {
        stranger.run(&format!(
            "CREATE TABLE public.a (id int PRIMARY KEY, body text);
             CREATE TRIGGER kb_{source}_insert BEFORE UPDATE ON public.a FOR EACH ROW
                 EXECUTE FUNCTION suppress_redundant_updates_trigger();
             DROP TABLE public.a"
        ));
        assert_eq!(answered(&mut db, "k"), ["A crow"]);
        assert_eq!(db.count("kb.changes"), 0);
    });
}
