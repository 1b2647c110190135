//! Resources and their etags: what was read is changed only while it is still the same.

use crate::support::{APP, Cluster, Db, SOON, until};
use serde_json::{Value, json};

fn read(db: &mut Db, call: &str) -> Value {
    serde_json::from_str(&db.one::<String>(&format!("SELECT {call}::text"))).unwrap()
}

fn etag(db: &mut Db, call: &str) -> String {
    read(db, call)["etag"].as_str().unwrap().to_string()
}

/// The ids of all pages.
fn ids(db: &mut Db, function: &str, limit: i32) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let given = cursor.as_str().map_or("NULL".to_string(), |cursor| format!("'{cursor}'"));
        let page = read(db, &format!("kb.{function}({limit}, {given})"));
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit as usize);
        ids.extend(items.iter().map(|item| item["id"].as_str().unwrap().to_string()));
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            return ids;
        }
    }
}

/// One of each kind: how it is read, a change of it, and its drop. The last two end before their `if_match`.
const KINDS: [(&str, &str, &str); 7] = [
    (
        "kb.get_source('k', 'q')",
        r#"kb.alter_source('k', 'q', '{"query": "SELECT chr(66) AS external_id, chr(67) AS content"}'"#,
        "kb.drop_source('k', 'q'",
    ),
    (
        "kb.get_knowledge_base('k')",
        "kb.alter_knowledge_base('k', description => 'New.'",
        "kb.drop_knowledge_base('k'",
    ),
    ("kb.get_vector_db('v')", "", "kb.drop_vector_db('v'"),
    (
        "kb.get_embedder('e')",
        r#"kb.alter_embedder('e', config => '{"batch_size": 3}'"#,
        "kb.drop_embedder('e'",
    ),
    (
        "kb.get_reranker('r')",
        r#"kb.alter_reranker('r', config => '{"max_chars": 300}'"#,
        "kb.drop_reranker('r'",
    ),
    ("kb.get_llm('l')", r#"kb.alter_llm('l', config => '{"temperature": 1}'"#, "kb.drop_llm('l'"),
    (
        "kb.get_extractor('x')",
        r#"kb.alter_extractor('x', config => '{"timeout_ms": 9000}'"#,
        "kb.drop_extractor('x'",
    ),
];

fn fill(db: &mut Db) {
    db.run(
        r#"SELECT kb.set_secret('key', 'x'), kb.create_embedder('e', 'hash', dimension => 16), kb.create_vector_db('v', dimension => 16),
               kb.create_reranker('r', 'cohere', secret => 'kb:key'), kb.create_llm('l', 'openai', secret => 'kb:key'),
               kb.create_extractor('x', 'tika', base_url => 'http://127.0.0.1:1');
           SELECT kb.create_knowledge_base('k', 'e');
           SELECT kb.create_source('k', 'q', 'query', '{"query": "SELECT chr(65) AS external_id, chr(66) AS content"}')"#,
    );
}

#[test]
fn what_changed_since_it_was_read_is_neither_altered_nor_dropped() {
    let (_cluster, mut db) = crate::connected!();
    fill(&mut db);
    for (get, alter, drop) in KINDS {
        let first = etag(&mut db, get);
        let is_same = |db: &mut Db, etag: &str| -> bool {
            db.one(&format!("SELECT {} IS NULL", get.replace(')', &format!(", if_none_match => '{etag}')"))))
        };
        assert!(is_same(&mut db, &first) && is_same(&mut db, first.trim_matches('"')), "{get}");
        assert!(!is_same(&mut db, "\"0123456789abcdef\""), "{get}");
        let mut now = first.clone();
        if !alter.is_empty() {
            db.run(&format!("SELECT {alter}, if_match => '{first}')"));
            now = etag(&mut db, get);
            assert_ne!(now, first, "{alter}");
            assert!(!is_same(&mut db, &first), "{get}");
            for stale in [&first, "*", ""] {
                let fault = db.fault(&format!("SELECT {alter}, if_match => '{stale}')"));
                assert_eq!(fault.code, "KB412", "{alter}: {}", fault.text);
                assert!(fault.text.contains(&format!("Its etag is {now} now.")), "{}", fault.text);
            }
            assert_eq!(etag(&mut db, get), now);
        }
        let fault = db.fault(&format!("SELECT {drop}, if_match => '\"0\"')"));
        assert_eq!(fault.code, "KB412", "{drop}");
        // PL/pgSQL catches it by its code, and the code of what comes after is its own.
        db.run(&format!(
            "DO $do$ BEGIN PERFORM {drop}, if_match => 'x'); ASSERT false; EXCEPTION WHEN SQLSTATE 'KB412' THEN NULL; END $do$"
        ));
        db.refused("SELECT 1/0", "22012");
        db.run(&format!("SELECT {drop}, if_match => '{now}')"));
        assert_eq!(db.fault(&format!("SELECT {get}")).code, "42704", "{get}");
        // Of what does not exist, this is said.
        assert_eq!(db.fault(&format!("SELECT {drop}, if_match => '{now}')")).code, "42704", "{drop}");
    }
}

#[test]
fn of_two_who_read_the_same_only_the_first_one_changes_it() {
    let (cluster, mut db) = crate::connected!();
    fill(&mut db);
    let mut other = cluster.connect(APP);
    for (get, alter, _) in KINDS.iter().filter(|(_, alter, _)| !alter.is_empty()) {
        let etag = etag(&mut db, get);
        db.run(&format!("BEGIN; SELECT {alter}, if_match => '{etag}')"));
        let pid: i32 = other.one("SELECT pg_backend_pid()");
        let sql = format!("SELECT {alter}, if_match => '{etag}')");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| other.fault(&sql));
            until(SOON, "the second one waits", || {
                db.one::<bool>(&format!(
                    "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = {pid} AND NOT granted)"
                ))
            });
            db.run("COMMIT");
            assert_eq!(second.join().unwrap().code, "KB412", "{alter}");
        });
    }
}

#[test]
fn an_etag_changes_with_what_belongs_to_a_knowledge_base_and_with_nothing_else() {
    let (_cluster, mut db) = crate::connected!();
    fill(&mut db);
    db.run(
        "CREATE TABLE public.rows (id int PRIMARY KEY, body text, ok boolean); SELECT kb.create_memory('m', 'e');",
    );
    let get = "kb.get_knowledge_base('k')";
    let mut last = etag(&mut db, get);
    for change in [
        "kb.share('k', 'acme')",
        "kb.index_metadata('k', 'year', 'number')",
        r#"kb.create_source('k', 'q2', 'query', '{"query": "SELECT chr(68) AS external_id, chr(69) AS content"}')"#,
        "kb.attach_table('k', 'public.rows', 'body', published_when => 'ok')",
        "kb.attach_table('k', 'public.rows', 'body')",
        "kb.drop_source('k', 'q2')",
        r#"kb.alter_knowledge_base('k', metadata => '{"a": null}')"#,
        r#"kb.alter_knowledge_base('k', metadata => '{}')"#,
    ] {
        db.run(&format!("SELECT {change}"));
        let now = etag(&mut db, get);
        assert_ne!(now, last, "{change}");
        last = now;
    }
    db.put_and_wait("k", "d", "A document.");
    db.run("SELECT kb.alter_knowledge_base('k', metadata => '{}'); SELECT kb.ingest('k'); ANALYZE kb.knowledge_bases");
    assert_eq!(etag(&mut db, get), last);
    let found = read(&mut db, get);
    assert_eq!(found["sources"][0], json!({"type": "table", "table": "public.rows", "content": ["body"]}));
    assert_eq!((&found["shared_with"], &found["tenant"]), (&json!(["acme"]), &json!("")));
    let before = etag(&mut db, "kb.get_knowledge_base('m')");
    db.run(r#"SELECT kb.alter_memory('m', '{"retrieval": {"max_results": 3}}')"#);
    assert_ne!(etag(&mut db, "kb.get_knowledge_base('m')"), before);
}

#[test]
fn pages_list_everything_once_whatever_their_size() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_knowledge_base('kb ' || chr(i), 'hash') FROM generate_series(65, 85) i");
    let all: Vec<String> = db.all("SELECT id FROM kb.knowledge_bases ORDER BY id");
    for limit in [1, 4, 20, 21, 22, 1000] {
        assert_eq!(ids(&mut db, "list_knowledge_bases", limit), all, "{limit}");
    }
    assert_eq!(ids(&mut db, "list_embedders", 2), ["hash", "minilm", "static"]);
    // What was dropped meanwhile does not stop the next page.
    let page = read(&mut db, "kb.list_knowledge_bases(3)");
    assert_eq!(page["next_cursor"], "kb C");
    db.run("SELECT kb.drop_knowledge_base('kb C')");
    assert_eq!(read(&mut db, "kb.list_knowledge_bases(1, 'kb C')")["items"][0]["id"], "kb D");
    for wrong in ["0", "1001", "-1"] {
        db.refused(&format!("SELECT kb.list_knowledge_bases({wrong})"), "22023");
    }
    db.refused("SELECT kb.list_sources('none')", "42704");
    // A page costs what it holds, however many there are.
    let mut pages = Vec::new();
    for number in [200, 400] {
        db.run(&format!(
            "INSERT INTO kb.knowledge_bases (tenant_id, id, embedder, chunking, preprocess, retrieval)
             SELECT t, 'x' || i, 'hash', '{{}}', '{{}}', '{{}}' FROM generate_series({number} + 1, {number} * 2) i, unnest('{{a,b,\"\"}}'::text[]) t"
        ));
        pages.push(db.buffers("kb.list_knowledge_bases(10, 'x2')"));
    }
    assert!(pages[1] <= pages[0] + pages[0] / 5, "{pages:?}");
}

/// A session of tenant a, and one of tenant b.
fn tenants(cluster: &Cluster, db: &mut Db) -> (Db, Db) {
    db.run(
        "CREATE ROLE a LOGIN IN ROLE kb_writer; CREATE ROLE b LOGIN IN ROLE kb_writer;
         SELECT kb.bind_role('a', 'a'), kb.bind_role('b', 'b')",
    );
    (cluster.connect_as(APP, "a"), cluster.connect_as(APP, "b"))
}

#[test]
fn a_tenant_reads_its_own_and_what_is_shared_and_changes_only_its_own() {
    let (cluster, mut db) = crate::connected!();
    let (mut a, mut b) = tenants(&cluster, &mut db);
    db.run("SET kb.tenant = 'shared'; SELECT kb.create_knowledge_base('both', 'hash', description => 'SHARED'), kb.create_knowledge_base('all', 'hash')");
    a.run("SELECT kb.create_knowledge_base('both', 'hash', description => 'A'), kb.create_knowledge_base('lent', 'hash'), kb.create_knowledge_base('own', 'hash'), kb.share('lent', 'b')");
    assert_eq!(ids(&mut a, "list_knowledge_bases", 1), ["all", "both", "lent", "own"]);
    assert_eq!(ids(&mut b, "list_knowledge_bases", 1), ["all", "both", "lent"]);
    assert_eq!(read(&mut a, "kb.get_knowledge_base('both')")["description"], "A");
    assert_eq!(read(&mut b, "kb.get_knowledge_base('both')")["description"], "SHARED");
    assert_eq!(read(&mut b, "kb.get_knowledge_base('lent')")["tenant"], "a");
    b.refused("SELECT kb.get_knowledge_base('own')", "42704");
    let lent = etag(&mut b, "kb.get_knowledge_base('lent')");
    b.refused(&format!("SELECT kb.drop_knowledge_base('lent', '{lent}')"), "42501");
}

#[test]
fn the_default_embedder_is_the_first_whose_key_is_there_or_what_the_setting_says() {
    let (_cluster, mut db) = crate::connected!();
    let default = |db: &mut Db| db.one::<String>("SELECT kb.default_embedder()");
    assert_eq!(default(&mut db), "minilm");
    db.run(
        "SELECT kb.create_embedder('by_hash', 'hash');
         SELECT kb.create_embedder('no_key', 'openai', secret => 'env:KB_NO_SUCH_VARIABLE');
         SELECT kb.create_embedder('later', 'openai', secret => 'kb:key')",
    );
    assert_eq!(default(&mut db), "minilm");
    db.run("SELECT kb.set_secret('key', 'sk-1')");
    assert_eq!(default(&mut db), "later");
    db.run("CREATE ROLE r IN ROLE kb_reader; SET ROLE r");
    assert_eq!(default(&mut db), "later");
    db.run("RESET ROLE; SELECT kb.create_knowledge_base('k')");
    assert_eq!(db.one::<String>("SELECT embedder FROM kb.knowledge_bases"), "later");
    // A key that was given for another host is not there.
    db.run("SELECT kb.alter_embedder('later', base_url => 'https://example.org/v1')");
    assert_eq!(default(&mut db), "minilm");
    db.run("SET kb.default_embedder = 'by_hash'");
    assert_eq!(default(&mut db), "by_hash");
    db.run("SELECT kb.create_knowledge_base('k2')");
    assert_eq!(db.one::<String>("SELECT embedder FROM kb.knowledge_bases WHERE id = 'k2'"), "by_hash");
}
