//! kb.apply that is cancelled, killed or finds no room leaves nothing of its file.

use crate::support::{APP, Cluster, Db, SOON, signal, until};

/// What comes last waits for what the test locks.
const FILE: &str = "embedders:\n  - {id: e, provider: hash, dimension: 16}\nknowledge_bases:\n  - {id: fresh, embedder: e}\n  - {id: old, embedder: hash, description: New.}\n  - id: rows\n    embedder: hash\n    tables:\n      - {table: public.articles, content: body}\n";

fn prepare(db: &mut Db) {
    db.run(
        "CREATE TABLE public.articles (id int PRIMARY KEY, body text);
         SELECT kb.create_knowledge_base('old', 'hash'), kb.create_knowledge_base('rows', 'hash');
         SELECT kb.attach_table('rows', 'public.articles', '{{body}} {{body}}')",
    );
}

fn declared(db: &mut Db) -> String {
    db.one("SELECT kb.export()")
}

/// A session in which the file waits for a lock, on a thread of its own; and its process.
fn waiting(cluster: &Cluster, db: &mut Db) -> (std::thread::JoinHandle<(Db, Option<String>)>, i32) {
    let mut session = cluster.connect(APP);
    let pid = session.one::<i32>("SELECT pg_backend_pid()");
    let apply = std::thread::spawn(move || {
        let error = session.0.simple_query(&format!("SELECT kb.apply($yaml${FILE}$yaml$)")).err();
        let code =
            error.map(|error| error.code().map_or("connection lost".into(), |code| code.code().to_string()));
        (session, code)
    });
    until(SOON, "the file waits for the lock", || {
        db.count(&format!("pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'")) == 1
    });
    (apply, pid)
}

#[test]
fn a_cancelled_file_leaves_nothing_wherever_it_waits() {
    let (cluster, mut db) = crate::connected!();
    prepare(&mut db);
    let before = declared(&mut db);
    for lock in [
        "SELECT 1 FROM kb.knowledge_bases WHERE id = 'old' FOR UPDATE",
        // It is read in a subtransaction, whose errors are problems of the file.
        "LOCK TABLE public.articles IN ACCESS EXCLUSIVE MODE",
    ] {
        let mut holder = cluster.connect(APP);
        holder.run(&format!("BEGIN; {lock}"));
        let (apply, pid) = waiting(&cluster, &mut db);
        db.run(&format!("SELECT pg_cancel_backend({pid})"));
        let (mut session, code) = apply.join().unwrap();
        assert_eq!(code.as_deref(), Some("57014"), "{lock}");
        assert_eq!(declared(&mut session), before, "{lock}");
        holder.run("ROLLBACK");
    }
    db.run(&format!("SELECT kb.apply($yaml${FILE}$yaml$)"));
    assert_ne!(declared(&mut db), before);
}

#[test]
fn a_killed_file_leaves_nothing_and_is_applied_afterwards() {
    let (cluster, mut db) = crate::crashing!();
    prepare(&mut db);
    let before = declared(&mut db);
    let mut holder = cluster.connect(APP);
    holder.run("BEGIN; SELECT 1 FROM kb.knowledge_bases WHERE id = 'old' FOR UPDATE");
    let (apply, pid) = waiting(&cluster, &mut db);
    signal(pid, libc::SIGKILL);
    assert_eq!(apply.join().unwrap().1.as_deref(), Some("connection lost"));
    let mut db = cluster.reconnect_after_crash(db);
    assert_eq!(declared(&mut db), before);
    let done = "SELECT string_agg(action, ' ') FROM kb.apply($yaml$";
    assert_eq!(
        db.one::<String>(&format!("{done}{FILE}$yaml$)")),
        "created created changed unchanged changed"
    );
    assert_eq!(db.one::<String>(&format!("{done}{FILE}$yaml$)")).replace("unchanged", "").trim(), "");
}

#[test]
fn a_full_disk_is_not_taken_for_a_problem_of_the_file() {
    let (_cluster, mut db) = crate::connected!();
    prepare(&mut db);
    let before = declared(&mut db);
    db.run(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END$$",
    );
    for table in ["embedders", "knowledge_bases", "sources", "builds"] {
        db.run(&format!(
            "CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON kb.{table} FOR EACH ROW EXECUTE FUNCTION full_disk()"
        ));
        db.refused(&format!("SELECT kb.apply($yaml${FILE}$yaml$)"), "53100");
        assert_eq!(declared(&mut db), before, "{table}");
        db.run(&format!("DROP TRIGGER full_disk ON kb.{table}"));
    }
    db.run(&format!("SELECT kb.apply($yaml${FILE}$yaml$)"));
}
