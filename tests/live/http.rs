//! kb.http acts as its caller, answers every error as a problem, and undoes what failed; an API key can
//! do what its creator could hand out, and no more.

use crate::support::{APP, Cluster, Db, SOON, until};
use serde_json::{Value, json};

/// The status and the body of an answer.
fn ask(db: &mut Db, method: &str, path: &str, body: &str) -> (i32, Value) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let row =
        db.0.query_one(
            "SELECT status, convert_from(body, 'UTF8') FROM kb.http($1, $2, $3, '{}', convert_to($4, 'UTF8'))",
            &[&method, &path, &query, &body],
        )
        .unwrap_or_else(|error| panic!("{method} {path}: {:?}", error.as_db_error()));
    let text: String = row.get(1);
    (row.get(0), if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap() })
}

/// Two tenants, each with a knowledge base k and one of its own, and their roles.
fn two_tenants(cluster: &Cluster) -> Db {
    let mut db = cluster.connect(APP);
    for tenant in ["a", "b"] {
        db.run(&format!(
            "CREATE ROLE {tenant} LOGIN IN ROLE kb_writer; CREATE ROLE {tenant}_reader LOGIN IN ROLE kb_reader;
             SELECT kb.bind_role('{tenant}', '{tenant}'), kb.bind_role('{tenant}_reader', '{tenant}');
             SET kb.tenant = '{tenant}';
             SELECT kb.create_knowledge_base('k', 'hash'), kb.create_knowledge_base('of_{tenant}', 'hash');
             SELECT kb.put_document('k', 'd', 'The harbor of {tenant}.'), kb.put_document('of_{tenant}', 'd', 'Ships of {tenant}.')"
        ));
        db.wait("k");
        db.wait(&format!("of_{tenant}"));
    }
    db.run("RESET kb.tenant");
    db
}

/// Every route that names a knowledge base.
fn routes_of(id: &str) -> Vec<(&'static str, String, &'static str)> {
    let path = format!("/api/v0/knowledge-bases/{id}");
    vec![
        ("GET", path.clone(), ""),
        ("DELETE", path.clone(), ""),
        ("POST", format!("{path}/ingest"), ""),
        ("POST", format!("{path}/query"), r#"{"query": "harbor"}"#),
        ("GET", format!("/api/search/semantic?query=harbor&knowledge_base={id}"), ""),
    ]
}

#[test]
fn a_request_reaches_what_its_caller_may_reach_and_nothing_else() {
    let cluster = crate::cluster!();
    let mut db = two_tenants(&cluster);
    let mut a = cluster.connect_as(APP, "a");
    // What another tenant has is as missing as what nobody has.
    let mut answers = |id: &str| -> Vec<(i32, String)> {
        let asked = routes_of(id).into_iter().map(|(method, path, body)| ask(&mut a, method, &path, body));
        asked.map(|(status, body)| (status, body.to_string().replace(id, "ID"))).collect()
    };
    let (theirs, nobodys) = (answers("of_b"), answers("none"));
    assert!(theirs.iter().all(|(status, _)| *status == 404), "{theirs:?}");
    assert_eq!(theirs, nobodys);
    let (_, listed) = ask(&mut a, "GET", "/api/v0/knowledge-bases", "");
    let ids: Vec<&str> = listed["data"]["knowledge_bases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kb| kb["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["k", "of_a"]);
    let (_, found) = ask(&mut a, "GET", "/api/search/semantic?query=harbor&limit=10", "");
    assert!(found["results"].as_array().unwrap().len() == 2 && !found.to_string().contains(" b."), "{found}");
    // A reader asks, and changes nothing.
    let mut reader = cluster.connect_as(APP, "a_reader");
    for (method, path, body) in routes_of("of_a") {
        let (status, answer) = ask(&mut reader, method, &path, body);
        let may = path.contains("query") || method == "GET";
        assert_eq!(status, if may { 200 } else { 403 }, "{method} {path}: {answer}");
    }
    assert_eq!(ask(&mut reader, "PUT", "/api/v0/knowledge-bases/new", r#"{"embedder": "hash"}"#).0, 403);
    assert_eq!(db.count("kb.knowledge_bases"), 4);
    // What a role without kb may not call, it may not ask for.
    db.run("CREATE ROLE stranger LOGIN");
    cluster.connect_as(APP, "stranger").refused("SELECT kb.http('GET', '/openapi.json')", "42501");
}

#[test]
fn two_writers_with_one_etag_do_not_overwrite_each_other() {
    let (_cluster, mut db) = crate::connected!();
    let path = "/api/v0/knowledge-bases/k";
    assert_eq!(ask(&mut db, "PUT", path, r#"{"embedder": "hash"}"#).0, 201);
    let etag: String = db.one("SELECT headers ->> 'etag' FROM kb.http('GET', '/api/v0/knowledge-bases/k')");
    let put = |db: &mut Db, description: &str| -> i32 {
        db.one_with(
            "SELECT status FROM kb.http('PUT', '/api/v0/knowledge-bases/k', '', jsonb_build_object('If-Match', $1::text),
                 convert_to(jsonb_build_object('description', $2::text)::text, 'UTF8'))",
            &[&etag, &description],
        )
    };
    assert_eq!((put(&mut db, "first"), put(&mut db, "second")), (200, 412));
    assert_eq!(db.one::<String>("SELECT description FROM kb.knowledge_bases"), "first");
    // An embedder that is left out stays.
    assert_eq!(db.one::<String>("SELECT embedder FROM kb.knowledge_bases"), "hash");
    // What fails in the middle leaves nothing, and the caller's transaction goes on.
    db.run("BEGIN");
    let (status, problem) = ask(
        &mut db,
        "PUT",
        "/api/v0/knowledge-bases/other",
        r#"{"embedder": "hash", "sources": [{"name": "s", "type": "nowhere"}]}"#,
    );
    assert_eq!(status, 422, "{problem}");
    assert_eq!(db.count("kb.knowledge_bases"), 1);
    db.run("COMMIT");
}

#[test]
fn of_two_requests_that_create_one_knowledge_base_one_is_told_that_it_exists() {
    let (cluster, mut db) = crate::connected!();
    let path = "/api/v0/knowledge-bases/k";
    db.run("BEGIN");
    assert_eq!(ask(&mut db, "PUT", path, r#"{"embedder": "hash", "description": "first"}"#).0, 201);
    let mut other = cluster.connect(APP);
    let pid: i32 = other.one("SELECT pg_backend_pid()");
    let second = std::thread::spawn(move || {
        ask(&mut other, "PUT", path, r#"{"embedder": "hash", "description": "second"}"#)
    });
    let mut watch = cluster.connect(APP);
    until(SOON, "the second request waits for the first", || {
        watch.count(&format!("pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'")) == 1
    });
    db.run("COMMIT");
    assert_eq!(second.join().unwrap().0, 428);
    assert_eq!(db.one::<String>("SELECT description FROM kb.knowledge_bases"), "first");
}

#[test]
fn a_cancelled_request_is_an_error_and_no_answer() {
    let (_cluster, mut db) = crate::connected!();
    db.create_slow_embedder(1);
    db.create_kb("k", "slow", "{}");
    db.run("SET statement_timeout = '300ms'");
    let fault = db.fault(
        "SELECT kb.http('POST', '/api/v0/knowledge-bases/k/query', '', '{}', convert_to('{\"query\": \"' || repeat('x ', 2000) || '\"}', 'UTF8'))",
    );
    assert_eq!(fault.code, "57014", "{}", fault.text);
}

#[test]
fn odd_and_large_requests_are_problems_of_the_client() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    let query = "/api/v0/knowledge-bases/k/query";
    let long = "x".repeat(2_000_000);
    let deep = "[".repeat(200_000);
    for (method, path, body) in [
        ("GET", "".to_string(), ""),
        ("GET", format!("/{}", "a/".repeat(500_000)), ""),
        ("GET", format!("/api/v0/knowledge-bases/{long}"), ""),
        ("GET", "/api/v0/knowledge-bases/%00".into(), ""),
        ("GET", format!("/api/v0/knowledge-bases?limit={long}"), ""),
        ("GET", "/api/v0/knowledge-bases?limit=0".into(), ""),
        ("GET", format!("/api/search/semantic?query=x{}", "&knowledge_base=k".repeat(20_000)), ""),
        ("POST", query.into(), &deep),
        ("POST", query.into(), "{\"query\": \"\\u0000\"}"),
        ("POST", query.into(), "{\"query\": \"x\", \"top_k\": 1e99}"),
        ("POST", query.into(), "{\"query\": \"x\", \"filters\": {\"$and\": 3}}"),
        ("POST", query.into(), "{\"query\": \"x\", \"options\": {\"rerank\": {\"reranker\": \"none\"}}}"),
        ("POST", query.into(), "{\"query\": \"\"}"),
        ("PUT", "/api/v0/knowledge-bases/%0A".into(), "{\"embedder\": \"hash\"}"),
        (&long, "/".into(), ""),
    ] {
        let (status, problem) = ask(&mut db, method, &path, body);
        let shown = format!("{method:.20} {path:.60} {body:.40}: {status} {problem:.300}");
        assert!((400..500).contains(&status), "{shown}");
        assert!(problem.to_string().len() < 20_000, "{shown}");
    }
    // A body that is no UTF-8.
    let status: i32 =
        db.one("SELECT status FROM kb.http('POST', '/api/v0/knowledge-bases/k/query', '', '{}', '\\xff')");
    assert_eq!(status, 400);
}

#[test]
fn a_page_of_knowledge_bases_costs_what_it_holds() {
    let (_cluster, mut db) = crate::connected!();
    let mut cost = |count: i32| {
        db.run(&format!(
            "SELECT kb.create_knowledge_base(format('k%s', i), 'hash') FROM generate_series({}, {count}) i",
            count / 2 + 1
        ));
        let query = "count(*) FROM kb.http('GET', '/api/v0/knowledge-bases', 'limit=10')";
        db.buffers(query);
        db.buffers(query)
    };
    let (one, two) = (cost(60), cost(120));
    assert!(two < one * 3 / 2, "{one} {two}");
}

fn assume(db: &mut Db, key: &str) -> Result<(), String> {
    db.run("BEGIN");
    let assumed = db.0.query("SELECT * FROM kb.assume_api_key($1)", &[&key]);
    assumed.map(|_| ()).map_err(|error| {
        db.run("ROLLBACK");
        error.code().map_or(String::new(), |code| code.code().to_string())
    })
}

/// The login of a server, which can become the roles of two tenants.
fn web(db: &mut Db) {
    db.run(
        "CREATE ROLE web LOGIN NOINHERIT; GRANT a, a_reader, b_reader TO web; GRANT USAGE ON SCHEMA kb TO web;
         GRANT EXECUTE ON FUNCTION kb.assume_api_key(text) TO web",
    );
}

#[test]
fn a_key_makes_a_role_of_a_tenant_until_the_transaction_ends() {
    let cluster = crate::cluster!();
    let mut db = two_tenants(&cluster);
    web(&mut db);
    let key: String = db.one("SELECT kb.create_api_key('site', 'a', 'a', '{search}')");
    let other: String = db.one("SELECT kb.create_api_key('site', 'b_reader', 'b')");
    let mut web = cluster.connect_as(APP, "web");
    web.refused("SELECT kb.http('GET', '/openapi.json')", "42501");
    assume(&mut web, &key).unwrap();
    assert_eq!(web.one::<String>("SELECT current_user || ' ' || kb.current_tenant()"), "a a");
    for (method, path, body) in routes_of("k") {
        let (status, answer) = ask(&mut web, method, &path, body);
        assert_eq!(status, if path.contains("query") { 200 } else { 403 }, "{method} {path}: {answer}");
    }
    web.run("COMMIT");
    assert_eq!(
        web.one::<String>(
            "SELECT current_user || current_setting('kb.tenant') || current_setting('kb.scopes')"
        ),
        "web"
    );
    assume(&mut web, &other).unwrap();
    let (status, found) = ask(&mut web, "GET", "/api/search/semantic?query=ships", "");
    assert!(status == 200 && found.to_string().contains("of b"), "{found}");
    web.run("COMMIT");
    // It is noted when it was used, by one of several at the same time.
    assert_eq!(db.count("kb.api_keys WHERE last_used_at IS NOT NULL"), 2);
    // A key that is wrong, deleted or expired says the same, and its text is in no log.
    db.run("SELECT kb.drop_api_key(key_id) FROM kb.api_keys WHERE tenant_id = 'a'; UPDATE kb.api_keys SET expires_at = now()");
    let wrong = format!("{}0", &other[..other.len() - 1]);
    for key in [&key, &other, &wrong, &"kb_".to_string(), &"x".repeat(1_000_000)] {
        assert_eq!(assume(&mut web, key), Err("28P01".into()));
    }
    assert!(!cluster.log().contains(&key[16..]) && !cluster.log().contains(&other[16..]));
}

#[test]
fn a_key_cannot_do_more_than_its_creator() {
    let cluster = crate::cluster!();
    let mut db = two_tenants(&cluster);
    web(&mut db);
    db.run(
        "CREATE ROLE boss SUPERUSER; CREATE ROLE sees_all BYPASSRLS IN ROLE kb_reader; CREATE ROLE outsider;
         CREATE ROLE admin LOGIN IN ROLE kb_admin; GRANT a_reader, b_reader TO admin;
         CREATE ROLE admin_of_a LOGIN IN ROLE kb_admin; GRANT a_reader TO admin_of_a; SELECT kb.bind_role('admin_of_a', 'a');
         SELECT kb.create_api_key('of b', 'b_reader', 'b')",
    );
    let mut admin = cluster.connect_as_tenant("admin", "a");
    for (arguments, code) in [
        ("'x', 'a'", "42501"),
        ("'x', 'outsider'", "22023"),
        ("'x', 'boss'", "22023"),
        ("'x', 'sees_all'", "22023"),
        ("'x', 'nobody'", "42704"),
        // A role that is bound to another tenant.
        ("'x', 'a_reader', 'b'", "42501"),
        ("'x', 'a_reader', 'shared'", "42501"),
        ("E'x\\n', 'a_reader', 'a'", "22023"),
        ("repeat('x', 2000), 'a_reader', 'a'", "22023"),
    ] {
        let fault = admin.fault(&format!("SELECT kb.create_api_key({arguments})"));
        assert_eq!(fault.code, code, "{arguments}: {}", fault.text);
    }
    let mut bound = cluster.connect_as(APP, "admin_of_a");
    bound.refused("SELECT kb.create_api_key('x', 'b_reader', 'b')", "42501");
    assert_eq!(bound.one::<i64>("SELECT count(key_id) FROM kb.api_keys"), 0);
    let of_b: String = db.one("SELECT key_id FROM kb.api_keys");
    assert!(!bound.one::<bool>(&format!("SELECT kb.drop_api_key('{of_b}')")));
    bound.run("SELECT kb.create_api_key('mine', 'a_reader')");
    assert_eq!(
        bound.all::<String>("SELECT tenant_id || ' ' || created_by FROM kb.api_keys"),
        ["a admin_of_a"]
    );
    admin.refused("SELECT hash FROM kb.api_keys", "42501");
    cluster.connect_as(APP, "a").refused("SELECT kb.create_api_key('x', 'a')", "42501");
    cluster.connect_as(APP, "a").refused("SELECT key_id FROM kb.api_keys", "42501");
    // A key for a role that the server's login cannot become is of no use there.
    let key: String = db.one("SELECT kb.create_api_key('x', 'admin', 'a')");
    assert_eq!(assume(&mut cluster.connect_as(APP, "web"), &key), Err("42501".into()));
}

#[test]
fn a_standby_answers_questions_of_keys() {
    let cluster = crate::cluster!();
    let mut db = two_tenants(&cluster);
    web(&mut db);
    let key: String = db.one("SELECT kb.create_api_key('site', 'a', 'a')");
    let standby = cluster.standby(&[]);
    let mut web = standby.reconnect(APP);
    web.run("SET SESSION AUTHORIZATION web");
    until(SOON, "the standby has the key", || match assume(&mut web, &key) {
        Ok(()) => true,
        Err(_) => false,
    });
    let (status, found) = ask(&mut web, "GET", "/api/search/semantic?query=harbor", "");
    assert!(status == 200 && found.to_string().contains("of a"), "{found}");
    // What writes says that it cannot.
    let (status, problem) = ask(&mut web, "DELETE", "/api/v0/knowledge-bases/k", "");
    assert_eq!((status, problem["code"].clone()), (503, json!("25006")), "{problem}");
}
