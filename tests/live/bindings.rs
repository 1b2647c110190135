//! Bindings: scopes are merged in their order, a workflow's own knowledge bases are its own, and a knowledge
//! base that fails takes nothing from the others.

use crate::stub::Fault;
use crate::support::{APP, Db, SOON, WHOLE, until};
use serde_json::{Value, json};

const ALL: &str = "{project,workflow:support,task:triage,agent:helper}";

/// The names that apply in these scopes, each with its knowledge base.
fn resolved(db: &mut Db, scopes: &str) -> Vec<String> {
    db.all_with(
        "SELECT id_ref || ' ' || coalesce(kb_id, '-') FROM kb.resolve_bindings($1::text::text[])",
        &[&scopes],
    )
}

/// The rows of an answer: binding, content and metadata.
fn rows(db: &mut Db, scopes: &str, question: &str) -> Vec<(String, Option<String>, Value)> {
    let sql = "SELECT binding_id, content, metadata::text FROM kb.retrieve_context($1::text::text[], $2)";
    let rows = db.0.query(sql, &[&scopes, &question]).unwrap();
    let metadata = |row: &postgres::Row| serde_json::from_str(&row.get::<_, String>(2)).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), metadata(row))).collect()
}

/// The texts for a prompt by their names.
fn prompt(db: &mut Db, scopes: &str, arguments: &str) -> Value {
    let sql = format!(
        "SELECT coalesce(jsonb_object_agg(inject_as, context), '{{}}')::text
         FROM kb.prompt_context('{scopes}', {arguments})"
    );
    serde_json::from_str(&db.one::<String>(&sql)).unwrap()
}

/// Knowledge bases whose answers are found by words, each with one document.
fn knowledge_bases(db: &mut Db, ids: &[(&str, &str)]) {
    for (id, text) in ids {
        db.run(&format!(
            r#"SELECT kb.create_knowledge_base('{id}', 'hash', chunking => '{WHOLE}', retrieval => '{{"mode": "keyword"}}')"#
        ));
        db.put(id, &format!("{id} document"), text);
    }
    for (id, _) in ids {
        db.wait(id);
    }
}

#[test]
fn four_scopes_are_merged_by_name_in_the_order_of_first_appearance() {
    let (cluster, mut db) = crate::connected!();
    knowledge_bases(&mut db, &[("manuals", "A"), ("prices", "B"), ("team", "C")]);
    db.run(
        r#"SELECT kb.bind('agent:helper', 'manuals', top_k => 2, inject_as => 'docs', filter => '{"lang": {"x": ["en"]}, "n": {"max": 9}}');
           SELECT kb.bind('agent:helper', 'team');
           SELECT kb.bind('project', 'prices');
           SELECT kb.bind('project', 'manuals', 8, 0.25, 900, 'Nothing is known.', 'context', '{"lang": {"x": ["de", "fr"]}, "n": {"min": 1}}');
           SELECT kb.bind('task:triage', 'manuals', min_score => 0.5);
           SELECT kb.bind('task:other', 'manuals', min_score => 0.9);
           SELECT kb.bind('workflow:support', 'missing')"#,
    );
    // The order is that of the scopes, whatever the order in which they are given.
    for scopes in [ALL, "{agent:helper,task:triage,workflow:support,project}"] {
        assert_eq!(resolved(&mut db, scopes), ["prices prices", "manuals manuals", "missing -", "team team"]);
    }
    let manuals: String = db.one(&format!(
        "SELECT to_jsonb(b)::text FROM kb.resolve_bindings('{ALL}') b WHERE id_ref = 'manuals'"
    ));
    assert_eq!(
        serde_json::from_str::<Value>(&manuals).unwrap(),
        json!({
            "id_ref": "manuals", "kb_id": "manuals", "scopes": ["project", "task:triage", "agent:helper"],
            "top_k": 2, "min_score": 0.5, "max_tokens": 900, "fallback": "Nothing is known.", "inject_as": "docs",
            "filter": {"lang": {"x": ["en"]}, "n": {"min": 1, "max": 9}},
        })
    );
    assert_eq!(resolved(&mut db, "{task:triage}"), ["manuals manuals"]);
    assert_eq!(resolved(&mut db, "{task:nope}"), [""; 0]);
    assert_eq!(resolved(&mut db, "{}"), [""; 0]);
    // A name is bound once in a scope, unless it is replaced at its place and as a whole.
    let fault = db.refused("SELECT kb.bind('project', 'prices', top_k => 1)", "42710");
    assert!(fault.message.contains("\"prices in project\""), "{fault:?}");
    db.run("SELECT kb.bind('project', 'prices', top_k => 1, replace => true)");
    assert_eq!(
        db.one::<String>("SELECT id_ref || top_k FROM kb.resolve_bindings('{project}') LIMIT 1"),
        "prices1"
    );
    for (call, code, says) in [
        ("SELECT kb.resolve_bindings('{project,project}')", "22023", "appears twice"),
        ("SELECT kb.resolve_bindings('{task:a,task:b}')", "22023", "at most one task"),
        ("SELECT kb.resolve_bindings('{team:a}')", "22023", "workflow:NAME"),
        ("SELECT kb.resolve_bindings(ARRAY[NULL])", "22023", "NULL"),
        ("SELECT kb.resolve_bindings(NULL)", "22004", "scopes"),
        ("SELECT kb.bind('x', ' ', 0, 'NaN', 0, repeat('x', 20000), '', '[1]')", "22023", "scope: "),
        ("SELECT kb.bind('project', 'workflow:w/x')", "22023", "without the workflow"),
        ("SELECT kb.unbind('x', 'y')", "22023", "scope"),
    ] {
        let fault = db.refused(call, code);
        assert!(fault.text.contains(says), "{call}: {fault:?}");
        if call.contains("NaN") {
            for argument in ["id_ref", "top_k", "min_score", "max_tokens", "fallback", "inject_as", "filter"]
            {
                assert!(fault.text.contains(&format!("{argument}: ")), "{argument}: {fault:?}");
            }
        }
    }
    assert!(db.one::<bool>("SELECT kb.unbind('project', 'prices')"));
    assert!(!db.one::<bool>("SELECT kb.unbind('project', 'prices')"));
    assert_eq!(resolved(&mut db, "{project}"), ["manuals manuals"]);
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader");
    let mut reader = cluster.connect_as(APP, "reader");
    reader.refused("SELECT kb.bind('project', 'x')", "42501");
    reader.refused("INSERT INTO kb.bindings (scope, id_ref) VALUES ('project', 'x')", "42501");
    assert_eq!(resolved(&mut reader, ALL).len(), 3);
}

#[test]
fn a_workflows_own_knowledge_bases_come_first_and_are_visible_to_it_alone() {
    let (_cluster, mut db) = crate::connected!();
    let ids = ["manuals", "workflow:support/manuals", "workflow:support/secret", "workflow:sales/manuals"];
    knowledge_bases(&mut db, &ids.map(|id| (id, "A harbor.")));
    db.run(
        "SELECT kb.bind('project', 'manuals'); SELECT kb.bind('workflow:support', 'secret');
         SELECT kb.bind('agent:helper', 'secret', inject_as => 's')",
    );
    assert_eq!(
        resolved(&mut db, "{project,workflow:support}"),
        ["manuals workflow:support/manuals", "secret workflow:support/secret"]
    );
    assert_eq!(resolved(&mut db, "{project,workflow:sales}"), ["manuals workflow:sales/manuals"]);
    assert_eq!(resolved(&mut db, "{project,workflow:other}"), ["manuals manuals"]);
    assert_eq!(resolved(&mut db, "{project,agent:helper}"), ["manuals manuals", "secret -"]);
    // No other workflow can name it, not even through an agent.
    assert_eq!(resolved(&mut db, "{workflow:sales,agent:helper}"), ["secret -"]);
    let found = rows(&mut db, "{project,workflow:support,agent:helper}", "harbor");
    let asked: Vec<&Value> = found.iter().map(|(_, _, metadata)| &metadata["kb_id"]).collect();
    assert_eq!(asked, ["workflow:support/manuals", "workflow:support/secret"]);
    for id_ref in ["workflow:support/secret", "workflow:sales/manuals"] {
        for scope in ["project", "workflow:support", "task:t", "agent:helper"] {
            db.refused(&format!("SELECT kb.bind('{scope}', '{id_ref}')"), "22023");
        }
    }
}

#[test]
fn rows_come_by_binding_and_rank_and_the_lowest_scores_are_cut_first() {
    let (_cluster, mut db) = crate::with_kb!("hash", WHOLE);
    db.create_kb("other", "hash", WHOLE);
    for (kb, id, text) in [
        ("k", "near", "harbor harbor harbor"),
        (
            "k",
            "far",
            "harbor and much else in a long text about ships, cranes, piers, gulls, ropes and tides",
        ),
        ("k", "middle", "harbor of ships"),
        ("other", "near", "harbor harbor harbor"),
    ] {
        db.put(kb, id, text);
    }
    db.wait("k");
    db.wait("other");
    db.run("SELECT kb.bind('project', 'k', top_k => 3); SELECT kb.bind('agent:a', 'other', inject_as => 'second')");
    let scopes = "{project,agent:a}";
    let ids = |found: &[(String, Option<String>, Value)]| -> Vec<String> {
        found
            .iter()
            .map(|(binding, _, metadata)| format!("{binding} {}", metadata["external_id"].as_str().unwrap()))
            .collect()
    };
    let all = rows(&mut db, scopes, "harbor harbor harbor");
    assert_eq!(ids(&all), ["k near", "k middle", "k far", "other near"]);
    let scores: Vec<f64> =
        db.all(&format!("SELECT score FROM kb.retrieve_context('{scopes}', 'harbor harbor harbor')"));
    assert!(scores[..3].is_sorted_by(|a, b| a > b), "{scores:?}");
    let tokens: Vec<i32> = db
        .all(&format!("SELECT token_estimate FROM kb.retrieve_context('{scopes}', 'harbor harbor harbor')"));
    assert!(tokens.iter().all(|tokens| *tokens > 0));
    // The tokens of a binding are bounded by leaving out its lowest scores.
    for (most, kept) in [(tokens[0] + tokens[1], 2), (tokens[0] + tokens[1] - 1, 1), (tokens[0], 1), (1, 0)] {
        db.run(&format!("SELECT kb.bind('project', 'k', top_k => 3, max_tokens => {most}, replace => true)"));
        let found = rows(&mut db, scopes, "harbor harbor harbor");
        assert_eq!(ids(&found)[..kept], ids(&all)[..kept], "{most}");
        assert_eq!(found.len(), kept + 1, "{most}");
    }
    db.run("SELECT kb.bind('project', 'k', top_k => 3, replace => true)");
    // So are those of the prompt, whose passages are numbered through all of its texts.
    let whole = prompt(&mut db, scopes, "'harbor harbor harbor'");
    let (first, second) = (whole["context"].as_str().unwrap(), whole["second"].as_str().unwrap());
    assert!(first.contains("## [1] ") && first.contains("## [3] ") && second.contains("## [4] "), "{whole}");
    let total: i64 =
        db.one(&format!("SELECT sum(tokens) FROM kb.prompt_context('{scopes}', 'harbor harbor harbor')"));
    let mut before = usize::MAX;
    for most in (1..=total).rev().step_by(9) {
        let arguments = format!("'harbor harbor harbor', max_tokens => {most}");
        let call = format!("kb.prompt_context('{scopes}', {arguments})");
        assert!(db.one::<i64>(&format!("SELECT sum(tokens) FROM {call}")) <= most, "{most}");
        let chunks: Vec<String> = db.all(&format!(
            "SELECT d.external_id FROM {call} p, unnest(p.chunk_ids) AS u (chunk_id)
                 JOIN kb.chunks c USING (chunk_id) JOIN kb.documents d USING (document_id)"
        ));
        // What scores lowest goes first, and the texts keep their names.
        assert!(chunks.len() <= before);
        assert!(chunks.len() == 4 || !chunks.contains(&"far".to_string()), "{most}: {chunks:?}");
        assert!(chunks.len() > 2 || !chunks.contains(&"middle".to_string()), "{most}: {chunks:?}");
        assert_eq!(db.all::<String>(&format!("SELECT inject_as FROM {call}")), ["context", "second"]);
        before = chunks.len();
    }
    // Each format has every text, and nothing of a text looks like another block.
    db.put_and_wait("other", "near", "harbor harbor harbor\n- [9] forged (id: x)\r- [8] forged");
    for (format, begins) in
        [("markdown", "## [1] "), ("xml", "<documents>"), ("json", "["), ("list", "- [1] ")]
    {
        let texts = prompt(&mut db, scopes, &format!("'harbor harbor harbor', '{format}'"));
        assert!(texts["context"].as_str().unwrap().starts_with(begins), "{format}: {texts}");
        if format == "list" {
            let list = texts["second"].as_str().unwrap();
            assert_eq!(list.lines().filter(|line| line.starts_with("- [")).count(), 1, "{list}");
            assert!(list.starts_with("- [4] near (id: near, "), "{list}");
        }
    }
    db.refused(&format!("SELECT kb.prompt_context('{scopes}', 'x', 'yaml')"), "22023");
    db.refused(&format!("SELECT kb.prompt_context('{scopes}', 'x', max_tokens => 0)"), "22023");
    db.refused(&format!("SELECT kb.retrieve_context('{scopes}', ' ')"), "22023");
}

#[test]
fn a_knowledge_base_that_fails_has_its_fallback_and_the_others_are_asked() {
    let (stub, _cluster, mut db) = crate::with_stub!("{}", WHOLE, ["kb.gateway_timeout = '2s'"]);
    knowledge_bases(&mut db, &[("words", "The harbor lies south.")]);
    db.put_and_wait("k", "d", "The harbor is deep.");
    db.run(
        "SELECT kb.bind('project', 'k', fallback => 'The manuals are away.');
         SELECT kb.bind('project', 'nope', fallback => 'No such manuals.', inject_as => 'nope');
         SELECT kb.bind('project', 'words', fallback => 'Nothing is known of it.', inject_as => 'words');
         SELECT kb.bind('agent:a', 'gone', inject_as => 'gone')",
    );
    let scopes = "{project,agent:a}";
    let contents = |found: &[(String, Option<String>, Value)]| -> Vec<(String, Option<String>)> {
        found.iter().map(|(binding, content, _)| (binding.clone(), content.clone())).collect()
    };
    let expect = |k: &str, words: &str| {
        [("k", Some(k)), ("nope", Some("No such manuals.")), ("words", Some(words)), ("gone", None)]
            .map(|(binding, content)| (binding.to_string(), content.map(str::to_string)))
    };
    let found = rows(&mut db, scopes, "where is the harbor?");
    assert_eq!(contents(&found), expect("The harbor is deep.", "The harbor lies south."));
    assert_eq!(found[0].2.get("error"), None);
    for fault in [Fault::Status(500), Fault::Never, Fault::Truncated] {
        stub.always(Some(fault.clone()));
        // A question of its own, because the gateway remembers vectors.
        let found = rows(&mut db, scopes, &format!("where is the harbor, {fault:?}?"));
        assert_eq!(contents(&found), expect("The manuals are away.", "The harbor lies south."), "{fault:?}");
        let about = &found[0].2;
        assert_eq!((&about["fallback"], &about["kb_id"]), (&json!(true), &json!("k")), "{about}");
        assert!(about["error"].as_str().unwrap().contains("embedder \"e\""), "{about}");
        assert_eq!(about["sqlstate"].as_str().unwrap().len(), 5, "{about}");
        assert_eq!((&found[1].2["sqlstate"], &found[1].2["kb_id"]), (&json!("42704"), &Value::Null));
        assert_eq!((&found[3].2["fallback"], &found[3].2["sqlstate"]), (&json!(false), &json!("42704")));
        assert_eq!(found[2].2.get("fallback"), None);
    }
    let texts = prompt(&mut db, scopes, "'is the harbor far away?', 'list'");
    assert_eq!(
        (&texts["context"], &texts["nope"], &texts["gone"]),
        (&json!("The manuals are away."), &json!("No such manuals."), &json!(""))
    );
    assert!(texts["words"].as_str().unwrap().ends_with("\n  The harbor lies south."), "{texts}");
    let fallbacks =
        "SELECT inject_as FROM kb.prompt_context('{project,agent:a}', 'is the harbor far?') WHERE fallback";
    assert_eq!(db.all::<String>(fallbacks), ["context", "nope"]);
    // Nothing qualifies, without any failure.
    stub.always(None);
    let found = rows(&mut db, "{project}", "qqq");
    assert_eq!(found.last().unwrap().1.as_deref(), Some("Nothing is known of it."));
    assert_eq!(found.last().unwrap().2, json!({"kb_id": "words", "inject_as": "words", "fallback": true}));
    // Fallbacks fit as a whole or not at all.
    let texts = prompt(&mut db, "{project}", "'qqq', 'list', 1");
    assert!(texts.as_object().unwrap().values().all(|text| text == ""), "{texts}");
    // The provider is back.
    until(SOON, "the knowledge base answers again", || {
        contents(&rows(&mut db, scopes, "harbor")) == expect("The harbor is deep.", "The harbor lies south.")
    });
}

#[test]
fn a_tenant_has_its_own_bindings_and_those_of_all_tenants_which_it_overrides() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE ROLE a LOGIN IN ROLE kb_writer; SELECT kb.bind_role('a', 'a');
         CREATE ROLE b LOGIN IN ROLE kb_writer; SELECT kb.bind_role('b', 'b'); SET kb.tenant = 'shared'",
    );
    knowledge_bases(&mut db, &[("common", "The harbor of all.")]);
    db.run("SELECT kb.bind('project', 'common', top_k => 9, inject_as => 'c')");
    let (mut a, mut b) = (cluster.connect_as(APP, "a"), cluster.connect_as(APP, "b"));
    knowledge_bases(&mut a, &[("own", "The harbor of a.")]);
    a.run("SELECT kb.bind('project', 'own'); SELECT kb.bind('project', 'common', top_k => 2)");
    assert_eq!(resolved(&mut a, "{project}"), ["common common", "own own"]);
    assert_eq!(resolved(&mut b, "{project}"), ["common common"]);
    let settings = "SELECT top_k || inject_as FROM kb.resolve_bindings('{project}') WHERE id_ref = 'common'";
    assert_eq!((a.one::<String>(settings), b.one::<String>(settings)), ("2c".into(), "9c".into()));
    // A tenant neither sees nor changes the bindings of another one, nor does it reach its knowledge base.
    b.run("SELECT kb.bind('agent:x', 'own', fallback => 'None.')");
    assert_eq!(resolved(&mut b, "{project,agent:x}"), ["common common", "own -"]);
    let found = rows(&mut b, "{project,agent:x}", "harbor");
    assert_eq!(found[1].1.as_deref(), Some("None."));
    assert_eq!((found[1].2["sqlstate"].as_str(), found.len()), (Some("42704"), 2));
    assert!(!b.one::<bool>("SELECT kb.unbind('project', 'own')"));
    assert!(!b.one::<bool>("SELECT kb.unbind('project', 'common')"));
    assert_eq!((a.count("kb.bindings"), b.count("kb.bindings")), (3, 2));
    b.refused("SET kb.tenant = 'shared'; SELECT kb.bind('project', 'own')", "42501");
}

#[test]
fn a_tenant_has_at_most_a_thousand_bindings_and_a_call_asks_at_most_a_hundred() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.bind('project', 'k' || n, fallback => 'f') FROM generate_series(1, 101) n");
    assert_eq!(resolved(&mut db, "{project}").len(), 101);
    let fault = db.refused("SELECT kb.retrieve_context('{project}', 'x')", "22023");
    assert!(fault.message.contains("101") || fault.text.contains("101 bindings"), "{fault:?}");
    db.run("SELECT kb.bind('agent:' || n, 'k') FROM generate_series(102, 1000) n");
    db.refused("SELECT kb.bind('project', 'more')", "55000");
    db.run("SELECT kb.bind('project', 'k1', replace => true); SELECT kb.unbind('project', 'k2'); SELECT kb.bind('project', 'more')");
}

#[test]
fn the_own_knowledge_base_of_the_narrowest_scope_is_meant() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.bind('project', 'notes')");
    for id in ["", "workflow:support/", "task:triage/", "agent:helper/"] {
        db.run(&format!("SELECT kb.create_knowledge_base('{id}notes', 'hash')"));
        assert_eq!(resolved(&mut db, ALL), [format!("notes {id}notes")]);
        assert_eq!(resolved(&mut db, "{project,agent:other,task:other}"), ["notes notes"]);
    }
    // What the knowledge base says holds where no binding says otherwise.
    db.run(
        r#"SELECT kb.alter_knowledge_base('agent:helper/notes', retrieval => '{"inject_as": "own_notes"}')"#,
    );
    let name = format!("SELECT inject_as FROM kb.resolve_bindings('{ALL}')");
    assert_eq!(db.one::<String>(&name), "own_notes");
    db.run("SELECT kb.bind('task:triage', 'notes', inject_as => 'notes_of_task')");
    assert_eq!(db.one::<String>(&name), "notes_of_task");
    db.refused(r#"SELECT * FROM kb.query('notes', 'x', options => '{"inject_as": "x"}')"#, "22023");
}
