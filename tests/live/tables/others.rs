//! The cost of one table affects nobody else.

use super::{ready, with_articles, without_worker};
use crate::support::{APP, Db, LONG, SOON, assert_sound, signal, until};
use std::time::Instant;

/// Puts documents into another knowledge base, one after another, and waits for each.
fn others_go_on(db: &mut Db) {
    let before = db.count("kb.documents WHERE kb_id = 'other'");
    for n in before..before + 10 {
        db.put_and_wait("other", &format!("d{n}"), &format!("Text {n}"));
    }
}

#[test]
fn a_table_that_somebody_has_locked_delays_its_own_rows_only() {
    let Some((cluster, mut db)) = with_articles() else { return };
    db.create_kb("other", "hash", "{}");
    others_go_on(&mut db);
    let mut holder = cluster.connect(APP);
    without_worker(&cluster, || {
        db.run("INSERT INTO articles (body, status) SELECT 'Text ' || n, 'published' FROM generate_series(1, 300) n");
        db.run("DELETE FROM articles WHERE id = 300");
        holder.run("BEGIN; LOCK articles");
    });
    others_go_on(&mut db);
    assert_eq!(db.count("kb.documents WHERE kb_id = 'k' AND status <> 'pending'"), 0);
    assert_eq!(db.count("kb.jobs WHERE attempts > 1"), 0);
    assert_eq!(db.count("kb.failures") + db.count("kb.sources WHERE error IS NOT NULL"), 0);
    holder.run("COMMIT");
    db.wait("k");
    assert_sound(&mut db, "k", 299, 0);
}

#[test]
fn a_condition_that_takes_its_time_is_seldom_evaluated() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE FUNCTION slow(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
             $$BEGIN RAISE LOG 'slow of %', $1; PERFORM pg_sleep(0.4); RETURN true; END$$;
         CREATE TABLE t (id int PRIMARY KEY, body text);
         INSERT INTO t SELECT n, 'Text ' || n FROM generate_series(1, 40) n",
    );
    db.create_kb("k", "hash", "{}");
    db.create_kb("other", "hash", "{}");
    db.run("SELECT kb.attach_table('k', 't', 'body', published_when => 'slow(id)')");
    // As many as five seconds permit; then the table rests, whatever arrives.
    until(LONG, "its rows are jobs", || db.count("kb.sources WHERE backfill IS NULL") == 1);
    let evaluated = || cluster.log().matches("LOG:  slow of").count();
    let before = evaluated();
    assert!(before <= 13, "{before}");
    others_go_on(&mut db);
    assert_eq!(evaluated(), before);
    assert_eq!(db.count("kb.failures"), 0);
}

#[test]
fn slow_tables_of_one_owner_share_the_time_of_one_also_after_a_worker_restart() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE ROLE evil LOGIN IN ROLE kb_writer; GRANT CREATE ON SCHEMA public TO evil; SELECT kb.bind_role('evil', 'evil');
         CREATE FUNCTION slow(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
             $$BEGIN RAISE LOG 'slow of %', $1; PERFORM pg_sleep(4); RETURN true; END$$",
    );
    db.create_kb("other", "hash", "{}");
    let mut evil = cluster.connect_as(APP, "evil");
    evil.create_kb("k", "hash", "{}");
    let each = |n: i32| {
        format!(
            "CREATE TABLE t{n} (id int PRIMARY KEY, body text); INSERT INTO t{n} VALUES ({n}, 'Text');
             SELECT kb.attach_table('k', 't{n}', 'body', published_when => 'public.slow(id)');"
        )
    };
    evil.run(&format!("BEGIN; {} COMMIT", (1..=12).map(each).collect::<String>()));
    let begun = Instant::now();
    let evaluated = || cluster.log().matches("LOG:  slow of").count() as u64;
    until(SOON, "the first is read", || evaluated() > 0);
    others_go_on(&mut db);
    // A twentieth of the time, which is one for each 80 s, however slow this machine is, and however many
    // tables there are.
    let most = |begun: &Instant| 1 + begun.elapsed().as_secs() / 80;
    assert!(evaluated() <= most(&begun), "{}", evaluated());
    let worker = cluster.worker(APP);
    signal(worker, libc::SIGTERM);
    until(SOON, "the worker has ended", || !cluster.processes("kb worker", Some(APP)).contains(&worker));
    others_go_on(&mut db);
    assert!(evaluated() <= most(&begun), "{}", evaluated());
    assert_ne!(cluster.worker(APP), worker);
}

#[test]
fn a_document_that_somebody_has_locked_keeps_no_other_waiting_and_is_deleted_later() {
    let Some((cluster, mut db)) = with_articles() else { return };
    db.create_kb("other", "hash", "{}");
    db.run("INSERT INTO articles (body, status) VALUES ('One', 'published'), ('Two', 'published')");
    db.wait("k");
    let mut holder = cluster.connect(APP);
    holder.run("BEGIN; SELECT FROM kb.documents WHERE external_id = '1' FOR UPDATE");
    db.run("DELETE FROM articles WHERE id = 1");
    others_go_on(&mut db);
    assert_eq!(db.count("kb.query('k', 'one', 9, min_score => 0)"), 1);
    holder.run("COMMIT");
    db.wait("k");
    assert_eq!(ready(&mut db, "k"), ["2"]);
    // What was waiting was recorded anew once for each look, of which there are few.
    let mut written = 0;
    until(SOON, "statistics", || {
        written = db.one("SELECT n_tup_ins FROM pg_stat_all_tables WHERE relid = 'kb.changes'::regclass");
        written >= 2_i64
    });
    assert!(written < 20, "{written}");
}

#[test]
fn each_tenant_waits_for_its_own_rows_only() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE TABLE t (id int PRIMARY KEY, domain text, body text); SET kb.tenant = 'shared';
         CREATE ROLE writer LOGIN IN ROLE kb_writer",
    );
    db.create_kb("k", "hash", "{}");
    db.run("SELECT kb.attach_table('k', 't', 'body', tenant => 'domain')");
    db.run_and_wait("k", "INSERT INTO t VALUES (1, 'a', 'Of a'), (2, 'b', 'Of b')");
    let mut writer = cluster.connect_as(APP, "writer");
    without_worker(&cluster, || {
        db.run("UPDATE t SET body = 'Changed' WHERE id = 2");
        writer.run("SET kb.tenant = 'a'");
        writer.wait("k");
        writer.run("SET kb.tenant = 'b'");
        writer.refused("SELECT kb.wait('k', 0)", "55P03");
    });
    writer.wait("k");
    assert_eq!(writer.all::<String>("SELECT content FROM kb.chunks"), ["Changed"]);
}
