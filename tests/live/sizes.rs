//! Everything that users store is bounded, in each of its fields, and all of it counts towards a quota.

use crate::support::{APP, Db, texts};

const LONG: usize = 5_000_000;

/// Each field that a member of kb_writer fills, with a value that is too long for it.
fn too_long() -> Vec<(&'static str, String)> {
    let (text, json) =
        (format!("repeat('x', {LONG})"), format!("jsonb_build_object('a', repeat('x', {LONG}))"));
    let put = |fields: &str| format!("SELECT kb.put_document('k', 'd', 'A text.', {fields})");
    vec![
        ("external_id", format!("SELECT kb.put_document('k', {text}, 'A text.')")),
        ("title", put(&format!("title => {text}"))),
        ("uri", put(&format!("uri => {text}"))),
        ("content_type", put(&format!("content_type => 'text/plain; ' || {text}"))),
        ("metadata", put(&format!("metadata => {json}"))),
        (
            "title of documents",
            format!(
                "SELECT kb.put_documents('k', ARRAY[jsonb_build_object('external_id', 'd', 'content', 'x', 'title', {text})])"
            ),
        ),
        ("id", format!("SELECT kb.create_knowledge_base({text}, 'hash')")),
        ("description", format!("SELECT kb.create_knowledge_base('l', 'hash', description => {text})")),
        (
            "metadata of a knowledge base",
            format!("SELECT kb.create_knowledge_base('l', 'hash', metadata => {json})"),
        ),
        ("new description", format!("SELECT kb.alter_knowledge_base('k', description => {text})")),
        ("new metadata", format!("SELECT kb.alter_knowledge_base('k', metadata => {json})")),
        (
            "retrieval",
            "SELECT kb.alter_knowledge_base('k', retrieval => jsonb_build_object('allowed_metadata_keys',
                (SELECT jsonb_agg('a key with a long name ' || n) FROM generate_series(1, 1000) n)))"
                .into(),
        ),
        ("evaluation set", format!("SELECT kb.create_eval_set('k', {text})")),
        ("question_id", format!("SELECT kb.put_eval_question('k', 'set', {text}, 'A question?', '[]')")),
        ("question", format!("SELECT kb.put_eval_question('k', 'set', 'q', {text}, '[]')")),
        (
            "judgements",
            "SELECT kb.put_eval_question('k', 'set', 'q', 'A question?',
                (SELECT jsonb_agg(n || repeat('x', 900)) FROM generate_series(1, 5000) n))"
                .into(),
        ),
        (
            "filter",
            "SELECT kb.put_eval_question('k', 'set', 'q', 'A question?', '[]', jsonb_build_object('a', repeat('x', 100000)))"
                .into(),
        ),
        (
            "loaded question",
            format!(
                "SELECT kb.load_eval('k', 'loaded', jsonb_build_object('_id', 'q', 'text', {text})::text, E'q\\td\\t1')"
            ),
        ),
        ("key", "SELECT kb.index_metadata('k', repeat('x', 300), 'text')".into()),
        ("id of a conversation", format!("SELECT kb.create_conversation({text})")),
        ("title of a conversation", format!("SELECT kb.create_conversation('d', {text})")),
        ("settings", format!("SELECT kb.create_conversation('d', settings => jsonb_build_object('tokenizer', {text}))")),
        ("metadata of a conversation", format!("SELECT kb.alter_conversation('c', metadata => {json})")),
        ("role", format!("SELECT kb.append_turn('c', {text}, 'x')")),
        ("content of a turn", format!("SELECT kb.append_turn('c', 'user', {text})")),
        (
            "parts",
            format!("SELECT kb.append_turn('c', 'user', jsonb_build_array(jsonb_build_object('type', 'a', 'b', {text})))"),
        ),
        ("parent", format!("SELECT kb.append_turn('c', 'user', 'x', parent_id => {text})")),
        (
            "tool calls",
            format!("SELECT kb.append_turn('c', 'assistant', 'x', tool_calls => jsonb_build_array(jsonb_build_object('id', 'a', 'b', {text})))"),
        ),
        ("tool_call_id", format!("SELECT kb.append_turn('c', 'tool', 'x', tool_call_id => {text})")),
        ("usage", format!("SELECT kb.append_turn('c', 'user', 'x', usage => {json})")),
        ("metadata of a turn", format!("SELECT kb.append_turn('c', 'user', 'x', metadata => {json})")),
        ("tenant", format!("SELECT kb.share('k', {text})")),
        ("fallback", format!("SELECT kb.bind('project', 'k', fallback => {text})")),
        ("id_ref", format!("SELECT kb.bind('project', {text})")),
        ("scope", format!("SELECT kb.bind('agent:' || {text}, 'k')")),
        ("inject_as", format!("SELECT kb.bind('project', 'k', inject_as => {text})")),
        ("filter", format!("SELECT kb.bind('project', 'k', filter => jsonb_build_object('k', {text}))")),
        ("template", format!("SELECT kb.attach_table('k', 't', '{{{{body}}}} ' || {text})")),
    ]
}

/// The bytes in the tables that hold a tenant's data.
fn stored(db: &mut Db) -> i64 {
    let tables = [
        "knowledge_bases",
        "documents",
        "chunks",
        "eval_sets",
        "eval_questions",
        "conversations",
        "turns",
        "summaries",
        "extractions",
        "chat_requests",
        "sources",
        "shares",
        "jobs",
        "bindings",
    ];
    let sizes = tables.map(|table| format!("(SELECT coalesce(sum(length(t::text)), 0) FROM kb.{table} t)"));
    db.one(&format!("SELECT ({})::bigint", sizes.join(" + ")))
}

#[test]
fn every_field_that_a_writer_fills_is_bounded_with_or_without_a_quota() {
    let (cluster, mut db) = crate::connected!();
    db.run("CREATE ROLE a LOGIN IN ROLE kb_writer; SELECT kb.bind_role('a', 'a')");
    let mut a = cluster.connect_as(APP, "a");
    a.run("SELECT kb.create_knowledge_base('k', 'hash'); SELECT kb.create_eval_set('k', 'set'), kb.create_conversation('c')");
    db.run("CREATE TABLE t (id int PRIMARY KEY, body text); ALTER TABLE t OWNER TO a");
    for quota in ["", "SELECT kb.set_quota('a', bytes => 1000)"] {
        db.run(quota);
        let before = stored(&mut db);
        for (what, sql) in too_long() {
            let fault = a.fault(&sql);
            assert!(["54000", "22023", "0A000"].contains(&fault.code.as_str()), "{what}: {fault:?}");
            // The message does not repeat the value that is too long.
            assert!(fault.text.len() < 20_000, "{what}: {} bytes", fault.text.len());
            assert!(stored(&mut db) < before + 1000, "{what}");
        }
    }
    let fault =
        a.fault(&format!("SELECT kb.put_document('k', 'd', 'A text.', title => repeat('x', {LONG}))"));
    assert_eq!(fault.message, "title of document \"d\" is too long");
    assert!(fault.text.contains("It has 5000000 bytes; at most 4000 are allowed."), "{fault:?}");
    assert!(fault.text.contains("Shorten it"), "{fault:?}");
    // Values of the greatest permitted length are accepted.
    db.run("SELECT kb.set_quota('a')");
    a.run(
        "SELECT kb.put_document('k', 'd', 'A text.', title => repeat('x', 4000), uri => repeat('u', 4000))",
    );
}

#[test]
fn a_row_whose_title_is_too_long_is_listed_and_one_that_its_text_has_is_cut() {
    let (_cluster, mut db) = crate::connected!();
    db.run("CREATE TABLE t (id int PRIMARY KEY, title text, body text)");
    db.run(
        "INSERT INTO t VALUES (1, 'Short', 'The first row.'), (2, repeat('x', 3000000), 'The second row.')",
    );
    db.create_kb("k", "hash", r#"{"context": "title > heading"}"#);
    db.run_and_wait("k", "SELECT kb.attach_table('k', 't', 'body', title => 'title')");
    assert_eq!(
        db.all::<String>("SELECT external_id || ' ' || sqlstate || ' ' || error FROM kb.failures"),
        [
            "2 54000 title of document \"2\" is too long: It has 3000000 bytes; at most 4000 are allowed. (Shorten it; text that is to be found belongs in the content.)"
        ]
    );
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 1);
    db.run_and_wait("k", "UPDATE t SET title = 'Shorter' WHERE id = 2");
    assert_eq!(db.count("kb.documents WHERE status = 'ready'"), 2);
    // A title of a page, and a heading.
    let long = "é".repeat(9_000);
    db.put(
        "k",
        "page.html",
        &format!("<html><head><title>{long}</title></head><body><p>A page.</p></body></html>"),
    );
    db.put_and_wait("k", "page.md", &format!("# {long}\n\n{}", texts::text(1, 40, 40)));
    assert_eq!(db.count("kb.documents WHERE octet_length(title) = 4000"), 1);
    assert_eq!(db.one::<i32>("SELECT max(octet_length(locator #>> '{headings,0}')) FROM kb.chunks"), 1000);
}
