//! Attached tables that a subscription fills: PostgreSQL's own processes copy and apply the rows of another
//! database.

use super::{ready, without_worker};
use crate::support::{APP, Cluster, Db, LONG, SOON, until};

const TABLES: &str =
    "CREATE TABLE t (id int PRIMARY KEY, body text, status text DEFAULT 'published', views int DEFAULT 0);
    CREATE TABLE fractions (id int PRIMARY KEY, body text, n int);
    CREATE TABLE local (id int PRIMARY KEY, body text)";

/// A database whose rows the other one is subscribed to, where they are attached as replicated (t, p,
/// fractions), and once not (local).
fn subscribed() -> Option<(Cluster, Db, Db)> {
    let cluster = Cluster::start(&["wal_level = logical"])?;
    cluster.create_database("origin");
    let mut origin = cluster.connect("origin");
    let mut db = cluster.connect(APP);
    origin.run(TABLES);
    origin.run(
        "CREATE TABLE p (id int, year int, body text, PRIMARY KEY (year, id));
         INSERT INTO t VALUES (1, 'One that was there', 'published'), (2, 'A draft that was there', 'draft');
         INSERT INTO p VALUES (1, 2025, 'One of last year');
         INSERT INTO fractions VALUES (1, 'A half is written down', 2); INSERT INTO local VALUES (1, 'Not asked for')",
    );
    origin.run("CREATE PUBLICATION news FOR TABLE t, p, fractions, local");
    origin.run("SELECT pg_create_logical_replication_slot('news', 'pgoutput')");
    db.run(TABLES);
    db.run(
        "CREATE TABLE p (id int, year int, body text, PRIMARY KEY (year, id)) PARTITION BY LIST (year);
         CREATE TABLE p2025 PARTITION OF p FOR VALUES IN (2025);
         CREATE TABLE p2026 (year int, id int NOT NULL, body text, PRIMARY KEY (year, id));
         ALTER TABLE p ATTACH PARTITION p2026 FOR VALUES IN (2026)",
    );
    for (table, more) in [
        ("t", ", published_when => 'status = ''published''', replicated => true"),
        ("p", ", replicated => true"),
        ("fractions", ", published_when => '10 / n > 1', replicated => true"),
        ("local", ""),
    ] {
        db.create_kb(table, "hash", "{}");
        db.run_and_wait(table, &format!("SELECT kb.attach_table('{table}', '{table}', 'body'{more})"));
    }
    let address: String = db.one(
        "SELECT format('host=%s port=%s user=%s dbname=origin', split_part(current_setting('unix_socket_directories'), ',', 1),
             current_setting('port'), current_user)",
    );
    db.run(&format!(
        "CREATE SUBSCRIPTION news CONNECTION '{address}' PUBLICATION news WITH (create_slot = false, slot_name = 'news')"
    ));
    until(SOON, "the copy of the tables", || {
        db.count("pg_subscription_rel WHERE srsubstate <> 'r'") == 0 && db.count("pg_subscription_rel") == 4
    });
    Some((cluster, origin, db))
}

/// Waits until the statements in one database have taken effect in the other.
fn replicated(origin: &mut Db, db: &mut Db, statements: &str) {
    origin.run(statements);
    let end: String = origin.one("SELECT pg_current_wal_lsn()::text");
    until(LONG, "the subscription", || {
        origin.one::<bool>(&format!(
            "SELECT bool_and(confirmed_flush_lsn >= '{end}') FROM pg_replication_slots WHERE slot_name = 'news'"
        ))
    });
    assert_eq!(db.count("pg_stat_subscription WHERE pid IS NULL"), 0);
}

fn found(db: &mut Db, kb: &str) -> Vec<String> {
    db.all(&format!("SELECT external_id FROM kb.query('{kb}', 'text', 50, min_score => 0) ORDER BY 1"))
}

#[test]
fn rows_that_a_subscription_copies_and_applies_are_followed() {
    let Some((cluster, mut origin, mut db)) = subscribed() else { return };
    for kb in ["t", "p", "fractions", "local"] {
        db.wait(kb);
    }
    assert_eq!(found(&mut db, "t"), ["1"]);
    assert_eq!(found(&mut db, "p"), ["2025/1"]);
    assert_eq!(found(&mut db, "fractions"), ["1"]);
    assert_eq!(found(&mut db, "local"), [""; 0]);

    replicated(
        &mut origin,
        &mut db,
        "INSERT INTO t VALUES (3, 'Three came later', 'published'), (4, 'Four came later', 'draft'); UPDATE t SET status = 'published' WHERE id = 2;
         INSERT INTO p VALUES (2, 2025, 'Two of last year'), (1, 2026, 'One of this year'); INSERT INTO local VALUES (2, 'Nor this')",
    );
    db.wait("t");
    db.wait("p");
    assert_eq!(found(&mut db, "t"), ["1", "2", "3"]);
    assert_eq!(found(&mut db, "p"), ["2025/1", "2025/2", "2026/1"]);
    assert_eq!(found(&mut db, "local"), [""; 0]);
    without_worker(&cluster, || {
        // A change of a column that is not read is no change.
        replicated(&mut origin, &mut db, "UPDATE t SET views = views + 1");
        assert_eq!(db.count("kb.changes"), 0);
        // The row is gone at the commit that applies the change: unpublished, deleted, with another key, in
        // another partition.
        replicated(
            &mut origin,
            &mut db,
            "UPDATE t SET status = 'draft' WHERE id = 1; DELETE FROM t WHERE id = 2; UPDATE t SET id = 30 WHERE id = 3;
             UPDATE p SET year = 2026 WHERE id = 2; DELETE FROM p WHERE year = 2026 AND id = 1",
        );
        assert_eq!(found(&mut db, "t"), [""; 0]);
        assert_eq!(found(&mut db, "p"), ["2025/1"]);
    });
    db.wait("t");
    db.wait("p");
    assert_eq!((found(&mut db, "t"), ready(&mut db, "t")), (vec!["30".into()], vec!["30".into()]));
    assert_eq!(found(&mut db, "p"), ["2025/1", "2026/2"]);
    without_worker(&cluster, || {
        replicated(&mut origin, &mut db, "TRUNCATE t, p");
        assert_eq!(found(&mut db, "t").len() + found(&mut db, "p").len(), 0);
    });
    db.wait("t");
    db.wait("p");
    assert_eq!(ready(&mut db, "t").len() + ready(&mut db, "p").len(), 0);
}

#[test]
fn no_condition_stops_a_subscription_and_every_row_of_it_is_followed() {
    let Some((_cluster, mut origin, mut db)) = subscribed() else { return };
    // The condition fails for the first row, which is applied all the same.
    replicated(
        &mut origin,
        &mut db,
        "INSERT INTO fractions VALUES (2, 'Nothing divides by it', 0), (3, 'A third is written down', 3);
         INSERT INTO t SELECT n, 'Text number ' || n, CASE WHEN n % 2 = 0 THEN 'published' ELSE 'draft' END FROM generate_series(11, 4010) n",
    );
    assert_eq!(db.count("fractions"), 3);
    db.wait("fractions");
    db.wait("t");
    assert_eq!(found(&mut db, "fractions"), ["1", "3"]);
    assert_eq!(ready(&mut db, "t").len(), 2001);
    // What a transaction that is rolled back sent has no effect, and its own sessions fire the same triggers
    // once.
    replicated(&mut origin, &mut db, "BEGIN; DELETE FROM t; ROLLBACK; DELETE FROM t WHERE id > 2010");
    db.wait("t");
    assert_eq!(ready(&mut db, "t").len(), 1001);
    // Before the worker can process it.
    db.run("BEGIN; INSERT INTO t VALUES (9999, 'Written here')");
    assert_eq!(db.count("kb.changes WHERE source_no = 1 AND keys = '{9999}'"), 1);
    db.run("COMMIT");
    db.wait("t");
    assert_eq!(ready(&mut db, "t").len(), 1002);
}
