//! Dumps of every format, restored in every way: nothing is lost or duplicated, and attached tables are
//! followed.

use crate::dump::{PG_RESTORE, catalogs, create_empty, dump, numbers, restore, rows};
use crate::support::{APP, Cluster, Db, SOON, assert_sound, until, vector_table};

/// The arguments of pg_dump, and the program with its arguments that restores the dump.
type Step = (&'static [&'static str], &'static [&'static str]);

const DIRECTORY: &[&str] = &["--format=directory"];
const PSQL: &[&str] = &["psql", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file"];

/// The database into which each way restores, and its steps.
const WAYS: [(&str, &[Step]); 5] = [
    ("plain", &[(&["--format=plain"], PSQL)]),
    ("custom", &[(&["--format=custom"], PG_RESTORE)]),
    ("directory", &[(&["--format=directory"], PG_RESTORE)]),
    (
        "parallel",
        &[
            (DIRECTORY, &["pg_restore", "--exit-on-error", "--section=pre-data"]),
            (DIRECTORY, &["pg_restore", "--exit-on-error", "--section=data", "--schema=kb"]),
            (
                DIRECTORY,
                &["pg_restore", "--exit-on-error", "--section=data", "--exclude-schema=kb", "--jobs=2"],
            ),
            (DIRECTORY, &["pg_restore", "--exit-on-error", "--section=post-data", "--jobs=2"]),
        ],
    ),
    (
        "two_steps",
        &[
            (&["--format=custom", "--schema-only"], PG_RESTORE),
            (
                &["--format=custom", "--data-only"],
                &["pg_restore", "--exit-on-error", "--data-only", "--disable-triggers"],
            ),
        ],
    ),
];

const ATTACH_ARTICLES: &str = "SELECT kb.attach_table('articles', 'articles', '{title, body}',
    published_when => 'NOT is_draft', title => 'title')";
const ATTACH_NOTICES: &str =
    "SELECT kb.attach_table('notices', 'notices', 'body', tenant => 'domain', replicated => true)";

/// The articles that are in answers.
const ANSWERED: &str =
    "SELECT external_id FROM kb.query('articles', 'opening hours', 50, min_score => 0) ORDER BY 1";

fn guide(tenant: &str) -> String {
    format!("The guide of {tenant} to bicycles.")
}

fn notice(tenant: &str) -> String {
    format!("Notice to tenant {tenant}: no water on Monday.")
}

/// A cluster whose database has an embedder, a shared vector table, documents of tenants a, b and shared, an
/// attached table of the ordinary role `author`, and one whose rows are of several tenants.
fn filled() -> Option<(Cluster, Db)> {
    // A worker for each of its databases.
    let (cluster, mut db) = Cluster::connected(&["max_worker_processes = 16"])?;
    db.run("SELECT kb.create_embedder('own', 'hash', dimension => 64)");
    db.run("SELECT kb.create_vector_db('shelf', dimension => 64)");
    db.run(
        "CREATE ROLE author LOGIN IN ROLE kb_writer; CREATE ROLE reader LOGIN IN ROLE kb_reader;
         GRANT CREATE ON SCHEMA public TO author",
    );
    for tenant in ["a", "b", "shared"] {
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        db.run("SELECT kb.create_knowledge_base('handbook', 'own', 'shelf')");
        db.put_and_wait("handbook", "guide", &guide(tenant));
    }
    db.run(&format!(
        "CREATE TABLE notices (id int PRIMARY KEY, domain text, body text);
         INSERT INTO notices VALUES (1, 'a', '{}'), (2, 'b', '{}'), (3, NULL, 'Notice to everybody: snow.')",
        notice("a"),
        notice("b")
    ));
    db.create_kb("notices", "hash", "{}");
    db.run(ATTACH_NOTICES);
    let mut author = cluster.connect_as(APP, "author");
    author.run(
        "CREATE TABLE articles (id int PRIMARY KEY, title text, body text, is_draft boolean);
         INSERT INTO articles VALUES (1, 'Canteen', 'Opening hours of the canteen: eight to two.', false),
             (2, 'Garage', 'Opening hours of the garage: six to midnight.', false),
             (3, 'Sauna', 'Opening hours of the sauna: not yet known.', true),
             (4, 'Library', 'Opening hours of the library: ten to four.', false)",
    );
    author.create_kb("articles", "hash", "{}");
    author.run(ATTACH_ARTICLES);
    db.run(
        "CREATE ROLE clerk; SELECT kb.bind_role('clerk', 'a'); SELECT kb.set_quota('a', bytes => 1000000, documents => 9);
         SET kb.tenant = 'a'; SELECT kb.share('handbook', 'c'); RESET kb.tenant",
    );
    until(SOON, "the counts to be exact", || db.count("kb.quotas WHERE is_settled") == 1);
    wait_for_tables(&mut db);
    Some((cluster, db))
}

/// Waits until the rows of attached tables are documents, whichever tenants they belong to.
fn wait_for_tables(db: &mut Db) {
    for (tenant, kb) in [("", "articles"), ("shared", "notices")] {
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        db.wait(kb);
    }
    db.run("RESET kb.tenant");
}

/// All triggers of users' tables: their definitions, when they fire, and the number of extensions on which
/// they depend.
fn triggers(db: &mut Db) -> Vec<String> {
    db.all(
        "SELECT concat_ws(' ', pg_get_triggerdef(t.oid), 'fires', tgenabled, (
             SELECT count(*) FROM pg_depend d WHERE d.classid = 'pg_trigger'::regclass AND d.objid = t.oid
                 AND d.refclassid = 'pg_extension'::regclass))
         FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid
         WHERE c.relnamespace = 'public'::regnamespace AND NOT tgisinternal ORDER BY 1",
    )
}

/// The attached tables with the roles as which they are read, and their errors.
fn sources(db: &mut Db) -> Vec<String> {
    db.all("SELECT concat_ws(' ', relation_name, role_name, error) FROM kb.sources ORDER BY 1")
}

/// A reader finds what belongs to its tenant and nothing of another's.
fn assert_tenants_are_apart(cluster: &Cluster, database: &str) {
    let mut reader = cluster.connect_as(database, "reader");
    for (tenant, other) in [("a", "b"), ("b", "a")] {
        reader.run(&format!("SET kb.tenant = '{tenant}'"));
        for (kb, own, theirs) in
            [("handbook", guide(tenant), guide(other)), ("notices", notice(tenant), notice(other))]
        {
            let sql = "SELECT content FROM kb.query($1, $2, 50, min_score => 0)";
            assert_eq!(reader.all_with::<String>(sql, &[&kb, &theirs]), [own]);
        }
        let tenants = reader.all::<String>("SELECT DISTINCT tenant_id FROM kb.documents ORDER BY 1");
        assert_eq!(tenants, [tenant, "shared"]);
    }
}

/// Changes of rows of attached tables, by statements of users, appear in answers.
fn assert_tables_are_followed(db: &mut Db) {
    let body = "Opening hours of the library: all day long.";
    db.run(&format!(
        "UPDATE articles SET body = '{body}' WHERE id = 4;
         INSERT INTO notices VALUES (5, 'a', 'Notice to tenant a: the lift works again.')"
    ));
    wait_for_tables(db);
    let found: Vec<String> = db.all_with("SELECT content FROM kb.query('articles', $1, 1)", &[&body]);
    assert_eq!(found, [format!("Library\n\n{body}")]);
    // At once, because no worker sees what is not committed.
    db.run("BEGIN; DELETE FROM articles WHERE id = 4");
    assert!(!db.all::<String>(ANSWERED).contains(&"4".to_string()));
    db.run("COMMIT");
    wait_for_tables(db);
    for (kb, rows) in [("articles", "articles WHERE NOT is_draft"), ("notices", "notices")] {
        let rows = db.count(rows);
        assert_sound(db, kb, rows, 0);
    }
    assert_eq!(db.count("kb.changes"), 0);
    assert_eq!(db.count("kb.sources WHERE relation <> to_regclass(relation_name) OR error IS NOT NULL"), 0);
    // Four on each table, and one for each row that is replicated.
    assert_eq!(triggers(db).len(), 9);
}

#[test]
fn a_dump_of_every_format_brings_everything_back_once_and_its_tables_are_followed() {
    let Some((cluster, mut db)) = filled() else { return };
    for (database, steps) in WAYS {
        eprintln!("restored as {database}");
        create_empty(&cluster, database);
        for (n, (dumped, restored)) in steps.iter().enumerate() {
            let file = dump(&cluster, &format!("{database}.{n}"), dumped);
            restore(&cluster, database, &file, restored);
        }
        let mut copy = cluster.connect(database);
        assert_eq!(rows(&mut copy), rows(&mut db));
        assert_eq!(numbers(&mut copy), numbers(&mut db));
        assert_eq!(catalogs(&mut copy), catalogs(&mut db));
        let mut there = triggers(&mut db);
        if database == "two_steps" {
            // With --disable-triggers, all are enabled afterwards as ordinary ones.
            for trigger in &mut there {
                *trigger = trigger.replace(" fires A ", " fires O ").replace(" fires R ", " fires O ");
            }
        }
        assert_eq!(triggers(&mut copy), there);
        assert_eq!(copy.all::<String>(ANSWERED), ["1", "2", "4"]);
        assert_tenants_are_apart(&cluster, database);
        assert_tables_are_followed(&mut copy);
    }
    assert_eq!(db.all::<String>(ANSWERED), ["1", "2", "4"]);
}

#[test]
fn an_attached_table_is_known_by_its_name_right_after_a_restore() {
    let Some((cluster, _db)) = filled() else { return };
    let file = dump(&cluster, "dump", &["--format=custom"]);
    for database in ["again", "let_go"] {
        create_empty(&cluster, database);
        restore(&cluster, database, &file, PG_RESTORE);
        // The oid that articles had in the original may be another table's here.
        cluster.connect(database).run(
            "UPDATE kb.sources SET relation = 'notices'::regclass WHERE relation_name = 'public.articles'",
        );
    }
    let mut again = cluster.connect("again");
    let titles = "SELECT row ->> 'title' FROM kb.query_rows('articles', 'opening hours', 50, min_score => 0)
                  ORDER BY 1";
    assert_eq!(again.all::<String>(titles), ["Canteen", "Garage", "Library"]);
    for (table, key) in [("articles", "1"), ("notices", "3")] {
        let sql = format!("SELECT concat_ws(' ', kb_id, status) FROM kb.row_status('{table}', '{key}')");
        assert_eq!(again.all::<String>(&sql), [format!("{table} ready")]);
    }
    cluster.connect_as("again", "author").run(ATTACH_ARTICLES);
    wait_for_tables(&mut again);
    assert_eq!(sources(&mut again), ["public.articles author", "public.notices postgres"]);
    assert_tables_are_followed(&mut again);
    let mut let_go = cluster.connect("let_go");
    assert_eq!(let_go.one::<i64>("SELECT kb.detach_table('articles', 'articles')"), 3);
    assert_eq!(sources(&mut let_go), ["public.notices postgres"]);
    assert_eq!(triggers(&mut let_go).len(), 5);
    assert_eq!(let_go.count("kb.documents WHERE kb_id = 'articles'"), 0);
}

#[test]
fn a_table_with_another_owner_after_a_restore_is_reported_until_attached_again() {
    let Some((cluster, mut db)) = filled() else { return };
    let file = dump(&cluster, "dump", &["--format=custom"]);
    let elsewhere = crate::cluster!();
    elsewhere.connect("postgres").run("CREATE ROLE boss LOGIN SUPERUSER");
    create_empty(&elsewhere, "moved");
    let as_boss = ["pg_restore", "--exit-on-error", "--no-owner", "--no-privileges", "--username=boss"];
    restore(&elsewhere, "moved", &file, &as_boss);
    let mut moved = elsewhere.connect_as("moved", "boss");
    // The role clerk does not exist here; it is bound once it does.
    let but_roles = |mut rows: Vec<String>| {
        rows.retain(|row| !row.starts_with("kb.tenant_roles"));
        rows
    };
    assert_eq!(but_roles(rows(&mut moved)), but_roles(rows(&mut db)));
    moved.run("CREATE ROLE clerk IN ROLE kb_reader; SET ROLE clerk");
    assert_eq!(moved.one::<String>("SELECT kb.current_tenant()"), "a");
    moved.run("RESET ROLE");
    // The role author does not exist here, and postgres does not own notices any more.
    moved.run(
        "DELETE FROM articles WHERE id = 1;
         UPDATE articles SET body = 'Opening hours of the garage: at night.' WHERE id = 2;
         UPDATE notices SET body = 'Notice to everybody: rain.' WHERE id = 3",
    );
    until(SOON, "it is told of both tables", || {
        moved.count("kb.sources WHERE error LIKE '%has another owner now, who must attach it again%'") == 2
    });
    let warned = "kb.health() WHERE component = 'sources' AND status = 'warning'";
    assert_eq!(moved.count(warned), 1);
    // No session waits for them, and rows that are gone or cannot be judged are in no answer.
    wait_for_tables(&mut moved);
    assert_eq!(moved.all::<String>(ANSWERED), ["4"]);
    moved.run(
        "CREATE ROLE writer LOGIN IN ROLE kb_writer; CREATE ROLE reader LOGIN IN ROLE kb_reader;
         ALTER TABLE articles OWNER TO writer",
    );
    elsewhere.connect_as("moved", "writer").run(ATTACH_ARTICLES);
    moved.run("SET kb.tenant = 'shared'");
    moved.run(ATTACH_NOTICES);
    wait_for_tables(&mut moved);
    assert_eq!(sources(&mut moved), ["public.articles writer", "public.notices boss"]);
    assert_eq!(moved.count(warned), 0);
    assert_eq!(moved.all::<String>(ANSWERED), ["2", "4"]);
    let late: Vec<String> =
        moved.all("SELECT content FROM kb.documents WHERE content ~ 'night|rain' ORDER BY 1");
    assert_eq!(late, ["Garage\n\nOpening hours of the garage: at night.", "Notice to everybody: rain."]);
    assert_tenants_are_apart(&elsewhere, "moved");
    assert_tables_are_followed(&mut moved);
}

#[test]
fn a_database_that_is_restored_without_privileges_answers_its_first_question() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    db.put_and_wait("k", "d", "Keys are at the reception.");
    let file = dump(&cluster, "dump", &["--format=custom"]);
    create_empty(&cluster, "bare");
    restore(&cluster, "bare", &file, &["pg_restore", "--exit-on-error", "--no-privileges"]);
    let mut bare = cluster.connect("bare");
    assert_eq!(bare.found("k", "where are the keys at?", 1), ["d"]);
}

#[test]
fn vector_tables_of_an_earlier_version_get_the_policies_of_this_one() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    db.put_and_wait("k", "d", "Lamps are in the attic.");
    let table = vector_table(&mut db, "k");
    let policies = "SELECT concat_ws(' ', policyname, cmd, qual, with_check) FROM pg_policies
        WHERE schemaname = 'kb' AND tablename LIKE 'vectors%' ORDER BY 1";
    let made: Vec<String> = db.all(policies);
    // In the form in which an earlier development version created them.
    for policy in ["read", "insert", "update", "delete"] {
        db.run(&format!("DROP POLICY tenant_{policy} ON {table}"));
    }
    db.run(&format!(
        "CREATE POLICY tenant_read ON {table} FOR SELECT USING (tenant_id = ANY ((SELECT kb.visible_tenants())::text[]));
         CREATE POLICY tenant_write ON {table} USING (tenant_id = (SELECT kb.current_tenant()))"
    ));
    let file = dump(&cluster, "dump", &["--format=custom"]);
    create_empty(&cluster, "later");
    restore(&cluster, "later", &file, PG_RESTORE);
    let mut later = cluster.connect("later");
    later.put_and_wait("k", "more", "Brushes are in the cellar.");
    assert_eq!(later.all::<String>(policies), made);
}
