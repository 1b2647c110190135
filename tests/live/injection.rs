//! Text that looks like SQL is a name, a path, a key or a text like any other, wherever kb accepts one.

use crate::support::{APP, Cluster, Db, SOON, until};

/// The ends of literals, identifiers, comments and dollar quotes, and the special characters of templates,
/// formats and patterns.
const NAMES: &[&str] = &[
    "'; DROP TABLE victim; --",
    "\"; DROP TABLE victim; --",
    "'\"`); DROP TABLE victim; /*",
    "\\'; DROP TABLE victim; --",
    "$$; DROP TABLE victim; $$",
    "E'\\x27' || x",
    "%I %s %1$s $1 :name ?",
    "{}{0}{name}",
    "a.b/c%2Fd,e",
    "select",
    "Ünïcode 名前 \u{1F600}",
    " spaces ",
    "line\nand\ttab",
    "null",
];

/// A cluster with data to lose.
fn with_victim() -> Option<(Cluster, Db)> {
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.run("CREATE TABLE victim (a int); INSERT INTO victim VALUES (1)");
    Some((cluster, db))
}

/// Asserts that nothing was dropped, created or changed without being asked for.
fn assert_unharmed(db: &mut Db, what: &str) {
    assert_eq!(db.try_run("SELECT 1 / count(*) FROM public.victim"), Ok(()), "{what}");
}

fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// As a text array.
fn array(names: &[String]) -> String {
    let quoted: Vec<String> =
        names.iter().map(|name| format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))).collect();
    format!("{{{}}}", quoted.join(","))
}

#[test]
fn tables_columns_keys_and_values_of_any_name_are_followed_like_others() {
    let Some((_cluster, mut db)) = with_victim() else { return };
    // A column names the tenants of these rows, because nobody else could query a knowledge base of tenant
    // ''.
    db.run("SET kb.tenant = 'a'");
    for (n, name) in NAMES.iter().enumerate() {
        let of = |suffix: &str| format!("{name}{suffix}");
        let (schema, table) = (identifier(&of(" s")), identifier(name));
        let qualified = format!("{schema}.{table}");
        let columns: Vec<String> =
            ["k", "l", "body", "meta", "title", "uri", "tenant", "state"].map(of).to_vec();
        let [k, l, body, meta, title, uri, tenant, state] =
            <[String; 8]>::try_from(columns.iter().map(|column| identifier(column)).collect::<Vec<_>>())
                .unwrap();
        db.run(&format!(
            "CREATE SCHEMA {schema}; CREATE TABLE {qualified} ({k} text, {l} text, {body} text, {meta} jsonb, {title} text,
                 {uri} text, {tenant} text, {state} text, PRIMARY KEY ({k}, {l}))"
        ));
        let kb = literal(&of(" kb"));
        db.run(&format!("SELECT kb.create_knowledge_base({kb}, 'hash')"));
        let attached: Result<(), _> = db.try_run(&format!(
            "SELECT kb.attach_table({kb}, {}, {}, published_when => {}, metadata => {}, title => {}, uri => {}, tenant => {})",
            literal(&qualified),
            literal(&array(&columns[2..3])),
            literal(&format!("{state} = {}", literal(name))),
            literal(&array(&columns[3..4])),
            literal(&columns[4]),
            literal(&columns[5]),
            literal(&columns[6]),
        ));
        assert_eq!(attached, Ok(()), "{name}");
        for (i, key) in NAMES.iter().enumerate() {
            db.0.execute(
                &format!(
                    "INSERT INTO {qualified} VALUES ($1, $2, $3, jsonb_build_object($1::text, $2::text), $2, $1, 'a', $4)"
                ),
                &[key, name, &format!("Text {i} of {n}: {key}"), name],
            )
            .unwrap();
        }
        db.run(&format!("SELECT kb.wait({kb})"));
        let found: i64 = db.one(&format!(
            "SELECT count(*) FROM kb.query_rows({kb}, 'text', 50, min_score => 0) WHERE row IS NOT NULL"
        ));
        assert_eq!(found, NAMES.len() as i64, "{name}");
        // One of them by its metadata, its key and its status.
        for key in NAMES {
            let sql = format!(
                "SELECT (key ->> {}) || '/' || (row ->> {}) FROM kb.query_rows({kb}, 'text', 5, min_score => 0,
                     filter => jsonb_build_object({}, jsonb_build_object({}, {})))",
                literal(&columns[0]),
                literal(&columns[4]),
                literal(&if columns[3].starts_with('$') { format!("${}", columns[3]) } else { columns[3].clone() }),
                literal(key),
                literal(name)
            );
            assert_eq!(db.all::<String>(&sql), [format!("{key}/{name}")], "{name}: {key}");
        }
        let external_ids: Vec<String> =
            db.all(&format!("SELECT external_id FROM kb.documents WHERE kb_id = {kb}"));
        for id in &external_ids {
            let status: String =
                db.one_with(&format!("SELECT status FROM kb.row_status({}, $1)", literal(&qualified)), &[id]);
            assert_eq!(status, "ready", "{name}: {id}");
        }
        // Changed, of another key, gone.
        db.run(&format!(
            "UPDATE {qualified} SET {body} = 'Changed ' || {k} WHERE {k} = {}",
            literal(NAMES[0])
        ));
        db.run(&format!("UPDATE {qualified} SET {l} = {l} || '/' WHERE {k} = {}", literal(NAMES[1])));
        db.run(&format!("UPDATE {qualified} SET {state} = 'other' WHERE {k} = {}", literal(NAMES[2])));
        db.run(&format!("DELETE FROM {qualified} WHERE {k} = {}", literal(NAMES[3])));
        db.run(&format!("SELECT kb.wait({kb})"));
        let ready = db.count(&format!("kb.documents WHERE kb_id = {kb} AND status = 'ready'"));
        assert_eq!(ready, NAMES.len() as i64 - 2, "{name}");
        let drift: i64 =
            db.one(&format!("SELECT (to_jsonb(r) ->> 'missing')::bigint FROM kb.reconcile({kb}) r"));
        assert_eq!(drift, 0, "{name}");
        db.run(&format!(
            "SELECT kb.detach_table({kb}, {}), kb.drop_knowledge_base({kb})",
            literal(&qualified)
        ));
        assert_unharmed(&mut db, name);
    }
    assert_eq!(db.count("kb.failures"), 0);
}

#[test]
fn a_template_a_path_and_a_condition_are_nothing_but_that() {
    let Some((_cluster, mut db)) = with_victim() else { return };
    db.create_kb("k", "hash", "{}");
    db.run("CREATE TABLE t (id int PRIMARY KEY, body text, j jsonb)");
    let attach =
        |content: &str, more: &str| format!("SELECT kb.attach_table('k', 't', {}{more})", literal(content));
    for name in NAMES {
        // Conditions that end their statement, or that are none.
        for condition in [
            format!("true) {name}"),
            format!("true; {name}"),
            format!("body = '{name}"),
            format!("(SELECT count(*) > 0 FROM victim) {name}"),
            "true); DROP TABLE victim; SELECT (true".into(),
            "EXISTS (DELETE FROM victim RETURNING 1)".into(),
            "(SELECT true FROM victim)".into(),
        ] {
            let fault =
                db.try_run(&attach("{body}", &format!(", published_when => {}", literal(&condition))));
            assert!(fault.is_err(), "{condition}");
        }
        // Names of columns that do not exist, in lists and templates.
        for content in [array(&[name.to_string()]), format!("{{{{{}}}}}", name.replace(['{', '}'], ""))] {
            assert!(db.try_run(&attach(&content, "")).is_err(), "{content}");
        }
        // The text around a column is text; a path to a member of that name finds it.
        let text = name.replace(['{', '}'], "");
        let path = format!(
            "$[\"{}\"]",
            name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t")
        );
        let fields =
            format!(", json_fields => jsonb_build_object('include', jsonb_build_array({}))", literal(&path));
        db.run(&attach(&format!("{text}: {{{{j}}}}"), &fields));
        db.run(&format!(
            "TRUNCATE t; INSERT INTO t VALUES (1, 'Not read', jsonb_build_object({}, 'Read', 'other', 'Not read'))",
            literal(name)
        ));
        db.wait("k");
        let content: Vec<String> = db.all("SELECT content FROM kb.documents");
        assert_eq!(content, [format!("{}: Read", text)], "{name}");
        assert_unharmed(&mut db, name);
    }
}

#[test]
fn ids_tenants_roles_secrets_and_texts_of_any_name_are_what_they_are() {
    let Some((cluster, mut db)) = with_victim() else { return };
    let mut roles = 0;
    for name in NAMES {
        let quoted = literal(name);
        let is_tenant = !name.chars().any(char::is_control);
        db.run(&format!(
            "SELECT kb.create_embedder({quoted}, 'hash', dimension => 16); SELECT kb.create_vector_db({quoted}, dimension => 16)"
        ));
        let kept = db.try_run(&format!("SELECT kb.set_secret('key', {quoted})"));
        assert_eq!(kept.is_ok(), is_tenant, "{name}");
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        assert_eq!(
            db.try_run(&format!("SELECT kb.set_secret({quoted}, 'value')")).is_ok(),
            is_plain,
            "{name}"
        );
        if is_tenant {
            let role = identifier(name);
            db.run(&format!(
                "CREATE ROLE {role} LOGIN IN ROLE kb_writer; SELECT kb.bind_role({quoted}, {quoted});
                 SELECT kb.set_quota({quoted}, documents => 100)"
            ));
            let mut bound = cluster.connect_as(APP, name);
            assert_eq!(bound.one::<String>("SELECT kb.current_tenant()"), *name);
            bound.run(&format!(
                "SELECT kb.create_knowledge_base({quoted}, {quoted}, {quoted}, description => {quoted})"
            ));
            bound.run(&format!("SELECT kb.share({quoted}, 'another'), kb.put_document({quoted}, {quoted}, {quoted}, title => {quoted})"));
            roles += 1;
        } else {
            db.run(&format!("SELECT kb.create_knowledge_base({quoted}, {quoted}, {quoted})"));
            db.run(&format!("SELECT kb.put_document({quoted}, {quoted}, {quoted}, metadata => jsonb_build_object({quoted}, {quoted}))"));
        }
        let tenant = if is_tenant { *name } else { "" };
        db.run(&format!("SET kb.tenant = {}", literal(tenant)));
        db.run(&format!("SELECT kb.wait({quoted})"));
        let question =
            format!("SELECT external_id FROM kb.query({quoted}, {quoted} || ' text', 5, min_score => 0)");
        assert_eq!(db.all::<String>(&question), [*name]);
        db.run(&format!(
            "SELECT kb.ingest({quoted}, 'replace'); SELECT kb.retry({quoted}, {quoted}); SELECT * FROM kb.estimate_ingest({quoted})"
        ));
        db.run(&format!("SELECT kb.wait({quoted}); SELECT * FROM kb.health()"));
        for wrong in [
            format!(
                "SELECT kb.alter_knowledge_base({quoted}, preprocess => jsonb_build_object('language', {quoted}))"
            ),
            format!(
                "SELECT kb.alter_knowledge_base({quoted}, chunking => jsonb_build_object('strategy', {quoted}))"
            ),
            format!("SELECT kb.create_vector_db('more', {quoted})"),
            format!("SELECT kb.create_vector_db('more', dimension => 16, metric => {quoted})"),
            format!(
                "SELECT kb.create_vector_db('more', dimension => 16, config => jsonb_build_object({quoted}, {quoted}))"
            ),
            format!("SELECT kb.create_embedder('more', {quoted})"),
            format!("SELECT kb.ingest({quoted}, {quoted})"),
            format!("SELECT * FROM kb.query({quoted}, 'x', mode => {quoted})"),
            format!(
                "SELECT * FROM kb.query({quoted}, 'x', options => jsonb_build_object({quoted}, {quoted}))"
            ),
            format!("SELECT kb.put_document({quoted}, 'x', 'x', content_type => {quoted})"),
        ] {
            let fault = db.fault(&wrong);
            assert!(!fault.code.starts_with("42601") && fault.code != "XX000", "{wrong}: {fault:?}");
        }
        db.run(&format!(
            "SELECT kb.delete_document({quoted}, {quoted}); SELECT kb.drop_knowledge_base({quoted})"
        ));
        db.run("RESET kb.tenant");
        if is_tenant {
            db.run(&format!("SELECT kb.unbind_role({quoted}, {quoted}); SELECT kb.set_quota({quoted})"));
        }
        db.run(&format!(
            "SELECT kb.drop_vector_db({quoted}); SELECT kb.drop_embedder({quoted}); SELECT kb.drop_secret('key') WHERE {is_tenant}"
        ));
        assert_unharmed(&mut db, name);
    }
    assert!(roles > 10, "{roles} roles");
    until(SOON, "nothing is left", || db.count("kb.documents") + db.jobs() == 0);
}
