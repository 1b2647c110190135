//! The rights with which rows are read, and who sees the rows.

use super::{ready, with_articles};
use crate::support::{APP, Cluster, Db, SOON, until};

#[test]
fn the_worker_reads_with_the_rights_and_the_row_security_of_the_tables_owner() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE ROLE author LOGIN IN ROLE kb_writer; GRANT CREATE ON SCHEMA public TO author;
         CREATE FUNCTION spy(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
             $$BEGIN RAISE LOG 'spy as %', current_user; RETURN true; END$$;
         CREATE FUNCTION closed(text) RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
         REVOKE EXECUTE ON FUNCTION closed(text) FROM PUBLIC",
    );
    let mut author = cluster.connect_as(APP, "author");
    author.run(
        "CREATE TABLE t (id int PRIMARY KEY, body text, mine boolean);
                SELECT kb.create_knowledge_base('k', 'hash')",
    );
    author.refused("SELECT kb.attach_table('k', 't', 'body', published_when => 'closed(body)')", "42501");
    author.run("SELECT kb.attach_table('k', 't', 'body', published_when => 'spy(body)')");
    // Whoever changes the table, and whoever attached it: the condition runs as the owner.
    db.run("SELECT kb.attach_table('k', 't', 'body', published_when => 'spy(body)')");
    db.run_and_wait("k", "INSERT INTO t VALUES (1, 'Seen', true), (2, 'Not seen', false)");
    assert_eq!(ready(&mut db, "k"), ["1", "2"]);
    let log = cluster.log();
    assert!(log.contains("spy as author") && !log.contains("spy as postgres"), "{log}");
    author.run(
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; ALTER TABLE t FORCE ROW LEVEL SECURITY;
         CREATE POLICY p ON t USING (mine); SELECT kb.attach_table('k', 't', 'body')",
    );
    db.wait("k");
    assert_eq!(ready(&mut db, "k"), ["1"]);
    db.run_and_wait("k", "INSERT INTO t VALUES (3, 'Not seen', false), (4, 'Seen', true)");
    assert_eq!(ready(&mut db, "k"), ["1", "4"]);
    // Another owner could have other code run with the rights of the previous one; deleted rows leave the
    // answers all the same.
    author.run("SELECT kb.attach_table('k', 't', 'body', published_when => 'spy(body)')");
    db.wait("k");
    db.run("CREATE ROLE other IN ROLE kb_writer; GRANT CREATE ON SCHEMA public TO other; ALTER TABLE t OWNER TO other");
    db.run("INSERT INTO t VALUES (5, 'Not read', true)");
    until(SOON, "health tells of the owner", || {
        db.count("kb.health() WHERE component = 'sources' AND detail LIKE '%another owner%'") == 1
    });
    db.wait("k");
    assert_eq!(ready(&mut db, "k"), ["1", "4"]);
    let spied = |cluster: &Cluster| cluster.log().matches("spy as ").count();
    let before = spied(&cluster);
    db.run("UPDATE t SET body = 'Other' WHERE id = 4; DELETE FROM t WHERE id = 1");
    assert_eq!(db.count("kb.query('k', 'seen', 9, min_score => 0)"), 0);
    assert_eq!(spied(&cluster), before);
}

#[test]
fn code_of_a_tables_owner_runs_as_no_other_role() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE author LOGIN IN ROLE kb_writer; GRANT CREATE ON SCHEMA public TO author");
    let mut author = cluster.connect_as(APP, "author");
    author.run(
        "CREATE FUNCTION evil() RETURNS boolean LANGUAGE plpgsql AS
             $$BEGIN RAISE LOG 'evil as %', current_user; RETURN true; END$$;
         CREATE DOMAIN number AS int CHECK (public.evil());
         CREATE TYPE pair AS (a text, b text);
         CREATE FUNCTION pair_text(pair) RETURNS text LANGUAGE sql AS $$SELECT public.evil()::text || ($1).a$$;
         CREATE FUNCTION pair_json(pair) RETURNS json LANGUAGE sql AS $$SELECT to_json(public.evil()::text || ($1).a)$$;
         CREATE CAST (pair AS text) WITH FUNCTION pair_text(pair);
         CREATE CAST (pair AS json) WITH FUNCTION pair_json(pair);
         CREATE TABLE t (id number PRIMARY KEY, body pair); GRANT ALL ON t TO PUBLIC;
         INSERT INTO t VALUES (1, ('one', 'x'))",
    );
    db.create_kb("k", "hash", "{}");
    db.run("SELECT kb.attach_table('k', 't', '{body}', metadata => '{body}', published_when => 'id <> 9')");
    db.wait("k");
    db.run_and_wait("k", "UPDATE t SET body = ('other', 'x')");
    assert_eq!(db.one::<String>("SELECT content FROM kb.documents"), "trueother");
    assert_eq!(db.one::<String>("SELECT row -> 'body' ->> 'a' FROM kb.query_rows('k', 'one')"), "other");
    db.run("SELECT * FROM kb.row_status('t', '1'); SELECT * FROM kb.reconcile('k'); DELETE FROM t; SELECT kb.detach_table('k', 't')");
    let log = cluster.log();
    assert!(log.contains("evil as author"), "{log}");
    let others: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("LOG:  evil as ") && !line.contains("evil as author"))
        .collect();
    assert_eq!(others, [""; 0]);
}

#[test]
fn rows_with_a_tenant_are_that_tenants_only() {
    let (_cluster, mut db) = crate::connected!();
    db.run("CREATE TABLE t (id int PRIMARY KEY, domain_id int, body text); SET kb.tenant = 'shared'");
    db.create_kb("k", "hash", "{}");
    db.run("SELECT kb.attach_table('k', 't', 'body', tenant => 'domain_id')");
    db.run("INSERT INTO t VALUES (1, 7, 'Of seven'), (2, 8, 'Of eight'), (3, 7, 'Also of seven'), (4, NULL, 'Of none')");
    db.wait("k");
    let tenant_sees = |db: &mut Db, tenant: &str| -> Vec<String> {
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        let mut reader = db.all("SELECT external_id FROM kb.query('k', 'of', 50, min_score => 0) ORDER BY 1");
        reader.dedup();
        reader
    };
    db.run("CREATE ROLE reader IN ROLE kb_reader; SET ROLE reader");
    assert_eq!(tenant_sees(&mut db, "7"), ["1", "3"]);
    assert_eq!(tenant_sees(&mut db, "8"), ["2"]);
    assert_eq!(tenant_sees(&mut db, ""), ["4"]);
    db.run("RESET ROLE; UPDATE t SET domain_id = 8 WHERE id = 1; SET ROLE reader");
    assert_eq!(tenant_sees(&mut db, "7"), ["3"]);
    db.run("RESET ROLE");
    db.run("SET kb.tenant = 'shared'");
    db.wait("k");
    db.run("SET ROLE reader");
    assert_eq!(tenant_sees(&mut db, "8"), ["1", "2"]);
}

#[test]
fn a_question_is_answered_with_the_rows_that_the_caller_may_see() {
    let Some((cluster, mut db)) = with_articles() else { return };
    db.run(
        "INSERT INTO articles (title, body, status) VALUES ('One', 'A text about leave', 'published'),
             ('Two', 'Another text about leave', 'published');
         CREATE ROLE reader LOGIN IN ROLE kb_reader; ALTER ROLE reader SET log_min_messages = 'notice'",
    );
    db.put_and_wait("k", "by hand", "This text about leave was put");
    let all = "SELECT concat_ws(' ', external_id, key, row ->> 'title', row ->> 'status') FROM kb.query_rows('k', 'leave', 9)
               ORDER BY 1";
    assert_eq!(
        db.all::<String>(all),
        ["1 {\"id\": 1} One published", "2 {\"id\": 2} Two published", "by hand"]
    );
    let mut reader = cluster.connect_as(APP, "reader");
    reader.refused(all, "42501");
    // The rights that a statement of the reader's own would need: every column, and the schema.
    db.run("GRANT SELECT (id, title, body, status, tags) ON articles TO reader");
    reader.refused(all, "42501");
    db.run("GRANT SELECT (views) ON articles TO reader");
    assert_eq!(reader.all::<String>(all).len(), 3);
    db.run("CREATE SCHEMA closed; ALTER TABLE articles SET SCHEMA closed");
    reader.refused(all, "42501");
    db.run("GRANT USAGE ON SCHEMA closed TO reader; ALTER TABLE closed.articles RENAME TO renamed");
    assert_eq!(reader.all::<String>(all).len(), 3);
    // Only the policies, which are the owner's code, determine which rows they admit.
    db.run(
        "ALTER TABLE closed.renamed ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON closed.renamed USING (title = 'Two')",
    );
    assert_eq!(reader.all::<String>(all), ["by hand"]);
    let joined =
        "SELECT t.title FROM kb.query('k', 'leave', 9) q JOIN closed.renamed t ON t.id::text = q.external_id";
    assert_eq!(reader.all::<String>(joined), ["Two"]);
    assert_eq!(db.all::<String>(all).len(), 3);
    db.run("ALTER ROLE reader BYPASSRLS");
    assert_eq!(reader.all::<String>(all).len(), 3);
    db.run("CREATE ROLE other; ALTER TABLE closed.renamed OWNER TO other");
    assert_eq!(reader.all::<String>(all), ["by hand"]);
    let told = "NOTICE:  rows of closed.renamed are left out, because its owner has changed; the new owner must attach it again";
    assert_eq!(cluster.log().matches(told).count(), 1);
}

/// Functions of `author` that report as whom they run, and try to bind a role of another tenant to their own.
const EVIL: &str = "CREATE FUNCTION evil() RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$BEGIN
         RAISE LOG 'evil as %, statement %', current_user, coalesce(current_query(), 'unknown');
         BEGIN
             PERFORM kb.bind_role('vic', 'att');
             RAISE LOG 'evil has bound';
         EXCEPTION WHEN OTHERS THEN NULL;
         END;
         RETURN true;
     END$$;
     CREATE FUNCTION evil(text) RETURNS boolean LANGUAGE sql AS 'SELECT public.evil()';
     CREATE TYPE pair AS (a text, b text);
     CREATE FUNCTION pair_json(pair) RETURNS json LANGUAGE sql AS $$SELECT to_json(public.evil()::text)$$;
     CREATE CAST (pair AS json) WITH FUNCTION pair_json(pair);
     CREATE DOMAIN number AS int CHECK (public.evil());";

#[test]
fn a_query_runs_no_code_of_a_tables_owner_as_the_caller() {
    let (cluster, mut db) = crate::connected!("log_min_messages = 'notice'");
    db.run(
        "CREATE ROLE author LOGIN IN ROLE kb_writer; CREATE ROLE vic LOGIN IN ROLE kb_writer; CREATE ROLE boss LOGIN IN ROLE kb_admin;
         GRANT CREATE ON SCHEMA public TO author; SELECT kb.bind_role('author', 'att'), kb.bind_role('vic', 'vic')",
    );
    let mut author = cluster.connect_as(APP, "author");
    author.run(EVIL);
    author.run("SELECT kb.create_knowledge_base('k', 'hash')");
    // Code that is evaluated when a statement on the table is planned, and code that the types of its columns
    // call.
    author.run(
        "CREATE TABLE open (id number PRIMARY KEY, body text, more pair, CHECK (public.evil()));
         CREATE INDEX ON open (id) WHERE public.evil(); GRANT ALL ON open TO PUBLIC;
         INSERT INTO open VALUES (1, 'An open row', ('a', 'b')); SELECT kb.attach_table('k', 'open', 'body')",
    );
    author.run(
        "CREATE TABLE trap (id int PRIMARY KEY, body text); GRANT ALL ON trap TO PUBLIC; INSERT INTO trap VALUES (10, 'A trapped row');
         ALTER TABLE trap ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON trap USING (public.evil(body));
         SELECT kb.attach_table('k', 'trap', 'body')",
    );
    author.run(
        "CREATE TABLE parts (id number, body text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
         CREATE TABLE part PARTITION OF parts DEFAULT; GRANT ALL ON parts, part TO PUBLIC;
         INSERT INTO parts VALUES (20, 'A row in parts'); SELECT kb.attach_table('k', 'parts', 'body')",
    );
    author.run_and_wait("k", "SELECT kb.share('k', 'vic')");
    // The same rows, for all to query.
    db.run("SET kb.tenant = 'shared'; SELECT kb.create_knowledge_base('of all', 'hash')");
    for table in ["open", "trap", "parts"] {
        db.run(&format!("SELECT kb.attach_table('of all', '{table}', 'body')"));
    }
    db.wait("of all");
    let notices = || -> Vec<String> {
        let log = cluster.log();
        log.lines().filter(|line| line.contains("NOTICE:  rows of ")).map(str::to_string).collect()
    };
    let asked = |kb: &str| {
        format!(
            "SELECT external_id FROM kb.query_rows('{kb}', 'whose secret row is this?', 9, min_score => 0) ORDER BY 1"
        )
    };
    for (role, tenant, kb, rows) in [
        ("boss", "att", "k", &["1", "20"][..]),
        // A tenant does not see which tables others have attached.
        ("vic", "vic", "k", &[]),
        ("vic", "vic", "of all", &["1", "20"]),
        ("postgres", "att", "k", &["1", "10", "20"]),
        ("author", "att", "of all", &["1", "10", "20"]),
    ] {
        let mut session = cluster.connect_as_tenant(role, tenant);
        let before = notices().len();
        assert_eq!(session.all::<String>(&asked(kb)), rows, "{role}, {kb}");
        let told = notices().split_off(before);
        let left_out = |what: &str| told.iter().filter(|notice| notice.contains(what)).count();
        let is_shared = (role, kb) == ("vic", "k");
        let is_bound = role == "boss" || (role, kb) == ("vic", "of all");
        let of_tables = "rows of tables attached to knowledge base \"k\" are left out";
        let counts = (told.len(), left_out("rows of public.trap are left out"), left_out(of_tables));
        assert_eq!(
            counts,
            (usize::from(is_shared || is_bound), usize::from(is_bound), usize::from(is_shared)),
            "{role}, {kb}: {told:?}"
        );
        session.run("SELECT * FROM kb.row_status('trap', '10'); SELECT * FROM kb.row_status('open', '1')");
        session.run("SELECT * FROM kb.context('k', 'a row'), kb.explain('k', 'a row'), kb.health()");
    }
    db.run("SET kb.tenant = 'att'; SELECT * FROM kb.reconcile('k')");
    assert_eq!(db.all::<String>("SELECT tenant_id FROM kb.tenant_roles WHERE role_name = 'vic'"), ["vic"]);
    let log = cluster.log();
    assert!(
        log.contains("LOG:  evil as author, statement unknown") && !log.contains("evil has bound"),
        "{log}"
    );
    let told: Vec<&str> = log
        .lines()
        .filter(|line| {
            line.contains("LOG:  evil as ") && (!line.contains("evil as author") || line.contains("secret"))
        })
        .collect();
    assert_eq!(told, [""; 0]);
}
