//! Conversations: no turn is lost or given to others, windows fit, and a long conversation costs no more than
//! a short one.

mod extraction;
mod summaries;

use crate::support::{APP, Cluster, Db};
use std::time::Instant;

const WINDOW: &str = "SELECT coalesce(content #>> '{}', '-') FROM kb.window";

fn append(db: &mut Db, conversation: &str, content: &str) -> String {
    db.one_with("SELECT kb.append_turn($1, 'user', $2)", &[&conversation, &content])
}

fn append_to(db: &mut Db, parent: &str, content: &str) -> String {
    db.one_with("SELECT kb.append_turn('c', 'user', $2, parent_id => $1)", &[&parent, &content])
}

fn window(db: &mut Db, id: &str, max_tokens: Option<i32>) -> Vec<String> {
    db.all_with(&format!("{WINDOW}($1, $2) ORDER BY ordinal"), &[&id, &max_tokens])
}

fn is_cut(db: &mut Db, id: &str, max_tokens: i32) -> bool {
    db.one_with("SELECT DISTINCT is_cut FROM kb.window($1, $2)", &[&id, &max_tokens])
}

/// An assistant's turn with these tool calls.
fn call(db: &mut Db, ids: &[&str]) -> String {
    let calls: Vec<String> = ids.iter().map(|id| format!(r#"{{"id": "{id}"}}"#)).collect();
    let calls = format!("[{}]", calls.join(", "));
    let sql =
        "SELECT kb.append_turn('c', 'assistant', NULL, tool_calls => $1::text::jsonb, token_count => 10)";
    db.one_with(sql, &[&calls])
}

fn result(db: &mut Db, call: &str, content: &str) -> String {
    let sql = "SELECT kb.append_turn('c', 'tool', $2, tool_call_id => $1, token_count => 10)";
    db.one_with(sql, &[&call, &content])
}

pub fn sessions(cluster: &Cluster, db: &mut Db, names: &[(&str, &str)]) -> Vec<Db> {
    let session = |(name, group): &(&str, &str)| {
        db.run(&format!("CREATE ROLE {name} LOGIN IN ROLE {group}; SELECT kb.bind_role('{name}', '{name}')"));
        cluster.connect_as(APP, name)
    };
    names.iter().map(session).collect()
}

#[test]
fn a_window_has_the_last_turns_that_fit_and_never_a_result_without_its_call() {
    let (_cluster, mut db) = crate::connected!();
    assert_eq!(db.one::<String>("SELECT kb.create_conversation('c')"), "c");
    assert!(window(&mut db, "c", None).is_empty());
    for turn in ["first", "second"] {
        db.run(&format!("SELECT kb.append_turn('c', 'user', '{turn}', token_count => 10)"));
    }
    let asked = call(&mut db, &["a", "b"]);
    let early = result(&mut db, "b", "of b");
    let late = result(&mut db, "a", "of a");
    db.run("SELECT kb.append_turn('c', 'assistant', 'answer', token_count => 10)");
    let all = ["first", "second", "-", "of b", "of a", "answer"];
    for (budget, begin) in [(1, 5), (10, 5), (39, 5), (40, 2), (49, 2), (50, 1), (60, 0), (1000, 0)] {
        assert_eq!(window(&mut db, "c", Some(budget)), all[begin..], "{budget}");
        assert_eq!(is_cut(&mut db, "c", budget), begin > 0, "{budget}");
    }
    assert_eq!(window(&mut db, "c", None), all);
    // A window that ends with a result begins with its call.
    assert_eq!(window(&mut db, &late, Some(1)), all[2..5]);
    assert_eq!(window(&mut db, &early, Some(1)), all[2..4]);
    assert_eq!(window(&mut db, &asked, Some(1)), all[2..3]);
    assert_eq!(window(&mut db, &early, Some(30)), all[1..4]);
    // Every window of every size, against the definition.
    for budget in 1..70 {
        let found = window(&mut db, "c", Some(budget));
        let has_result = found.iter().any(|turn| turn.starts_with("of "));
        assert_eq!(has_result, found.contains(&"-".to_string()), "{budget}: {found:?}");
    }
    db.run(r#"SELECT kb.alter_conversation('c', settings => '{"token_threshold": 40}')"#);
    assert_eq!(window(&mut db, "c", None), all[2..]);
}

#[test]
fn a_result_follows_its_call_and_answers_it_once() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_conversation('c')");
    let refused = |db: &mut Db, call: &str| {
        let fault = db.fault(&format!("SELECT kb.append_turn('c', 'tool', 'x', tool_call_id => '{call}')"));
        assert_eq!(fault.code, "22023", "{fault:?}");
    };
    refused(&mut db, "a");
    let asked = call(&mut db, &["a", "b"]);
    refused(&mut db, "c");
    result(&mut db, "a", "of a");
    refused(&mut db, "a");
    // On another branch it has another result.
    let sql = "SELECT kb.append_turn('c', 'tool', 'again', tool_call_id => 'a', parent_id => $1)";
    let again: String = db.one_with(sql, &[&asked]);
    assert_eq!(window(&mut db, &again, None), ["-", "again"]);
    result(&mut db, "b", "of b");
    assert_eq!(window(&mut db, "c", None), ["-", "again", "of b"]);
    append(&mut db, "c", "thanks");
    refused(&mut db, "b");
}

#[test]
fn branches_share_what_is_before_them_and_nothing_else() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_conversation('c'), kb.create_conversation('other')");
    let ids: Vec<String> = (0..6).map(|n| append(&mut db, "c", &n.to_string())).collect();
    let two = append_to(&mut db, &ids[1], "1a");
    let three = append_to(&mut db, &two, "1b");
    let fork = append_to(&mut db, &two, "1c");
    assert_eq!(window(&mut db, &ids[5], None), ["0", "1", "2", "3", "4", "5"]);
    assert_eq!(window(&mut db, &ids[2], None), ["0", "1", "2"]);
    assert_eq!(window(&mut db, &three, None), ["0", "1", "1a", "1b"]);
    assert_eq!(window(&mut db, &fork, None), ["0", "1", "1a", "1c"]);
    // The conversation goes on where it was continued last.
    assert_eq!(window(&mut db, "c", None), ["0", "1", "1a", "1c"]);
    append(&mut db, "c", "1d");
    assert_eq!(window(&mut db, "c", None), ["0", "1", "1a", "1c", "1d"]);
    assert_eq!(window(&mut db, "c", Some(2)), ["1c", "1d"]);
    // Depths count along the branches, and the numbers of branches differ.
    let depths: Vec<i64> =
        db.all("SELECT depth FROM kb.turns WHERE conversation_id = 'c' ORDER BY id COLLATE \"C\"");
    assert_eq!(depths, [1, 2, 3, 4, 5, 6, 3, 4, 4, 5]);
    let elsewhere = append(&mut db, "other", "elsewhere");
    for parent in [elsewhere.as_str(), "turn_none", "c", ""] {
        let fault = db.fault(&format!("SELECT kb.append_turn('c', 'user', 'x', parent_id => '{parent}')"));
        assert_eq!(fault.code, "22023", "{fault:?}");
    }
    assert_eq!(db.count("kb.turns WHERE conversation_id = 'c'"), 10);
}

#[test]
fn a_long_chain_of_branches_is_followed_to_its_beginning() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_conversation('c')");
    // Each turn has a sibling before it, so that each begins a branch of its own.
    let mut parent = append(&mut db, "c", "0");
    for n in 1..200 {
        append_to(&mut db, &parent, "sibling");
        parent = append_to(&mut db, &parent, &n.to_string());
    }
    let expected: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    assert_eq!(window(&mut db, "c", None), expected);
    assert_eq!(window(&mut db, &parent, Some(5)), expected[195..]);
}

#[test]
fn of_two_sessions_that_append_one_waits_and_both_turns_are_in_a_row() {
    let (cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_conversation('c')");
    append(&mut db, "c", "0");
    let mut first = cluster.connect(APP);
    first.run("BEGIN");
    append(&mut first, "c", "1");
    let second = cluster.connect(APP);
    let waiting = std::thread::spawn(move || {
        let mut second = second;
        append(&mut second, "c", "2")
    });
    crate::support::until(crate::support::SOON, "the second session waits", || {
        db.count("pg_locks WHERE NOT granted") > 0
    });
    // Readers do not wait.
    assert_eq!(window(&mut db, "c", None), ["0"]);
    first.run("COMMIT");
    waiting.join().unwrap();
    assert_eq!(window(&mut db, "c", None), ["0", "1", "2"]);
    // What is rolled back was not said.
    first.run("BEGIN");
    append(&mut first, "c", "unsaid");
    first.run("ROLLBACK");
    append(&mut db, "c", "3");
    assert_eq!(window(&mut db, "c", None), ["0", "1", "2", "3"]);
    // Many at once: none is lost, and none begins a branch.
    let threads: Vec<_> = (0..4)
        .map(|n| {
            let mut session = cluster.connect(APP);
            std::thread::spawn(move || {
                (0..25).for_each(|i| drop(append(&mut session, "c", &format!("{n}-{i}"))))
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let all = window(&mut db, "c", None);
    assert_eq!(all.len(), 104);
    for n in 0..4 {
        let of_one: Vec<&String> = all.iter().filter(|turn| turn.starts_with(&format!("{n}-"))).collect();
        assert_eq!(
            of_one,
            (0..25).map(|i| format!("{n}-{i}")).collect::<Vec<_>>().iter().collect::<Vec<_>>()
        );
    }
    assert_eq!(db.one::<i64>("SELECT count(DISTINCT branch_no) FROM kb.turns"), 1);
    // A turn follows the last one, also where the snapshot of the transaction is older.
    first.run("BEGIN ISOLATION LEVEL REPEATABLE READ");
    first.one::<i64>("SELECT count(*) FROM kb.turns");
    append(&mut db, "c", "newer");
    append(&mut first, "c", "newest");
    first.run("COMMIT");
    assert_eq!(window(&mut db, "c", Some(4)), ["newer", "newest"]);
}

#[test]
fn no_other_tenant_reads_or_changes_a_conversation_not_even_one_of_tenant_shared() {
    let (cluster, mut db) = crate::connected!();
    let mut both = sessions(&cluster, &mut db, &[("a", "kb_writer"), ("b", "kb_writer")]);
    let [a, b] = &mut both[..] else { panic!("two sessions") };
    a.run("SELECT kb.create_conversation('c', 'of a'), kb.create_conversation('only_a')");
    let turn = append(a, "c", "secret");
    b.run("SELECT kb.create_conversation('c', 'of b')");
    db.run("SET kb.tenant = 'shared'; SELECT kb.create_conversation('s')");
    let shared = append(&mut db, "s", "secret");
    assert_eq!(window(b, "c", None), [""; 0]);
    for id in [turn.as_str(), "only_a", "s", shared.as_str()] {
        let absent = b.fault(&format!("SELECT * FROM kb.window('{}')", "turn_none"));
        let fault = b.fault(&format!("SELECT * FROM kb.window('{id}')"));
        assert_eq!((fault.code.as_str(), absent.code.as_str()), ("42704", "42704"));
        assert!(fault.message.contains("does not exist"), "{fault:?}");
    }
    for sql in [
        "SELECT kb.append_turn('only_a', 'user', 'x')",
        "SELECT kb.alter_conversation('only_a', title => 'x')",
        "SELECT kb.drop_conversation('only_a')",
        "SELECT kb.append_turn('s', 'user', 'x')",
        "SELECT kb.drop_conversation('s')",
    ] {
        assert_eq!(b.fault(sql).code, "42704", "{sql}");
    }
    let fault = b.fault(&format!("SELECT kb.append_turn('c', 'user', 'x', parent_id => '{turn}')"));
    let other = b.fault("SELECT kb.append_turn('c', 'user', 'x', parent_id => 'turn_none')");
    assert_eq!(fault.text.replace(&turn, "turn_none"), other.text);
    for table in ["conversations", "turns"] {
        let tenants: Vec<String> = b.all(&format!("SELECT DISTINCT tenant_id FROM kb.{table}"));
        assert!(tenants.iter().all(|tenant| tenant == "b"), "{table}: {tenants:?}");
        for sql in [format!("DELETE FROM kb.{table}"), format!("UPDATE kb.{table} SET metadata = '{{}}'")] {
            assert_eq!(b.fault(&sql).code, "42501", "{sql}");
        }
    }
    b.run("SELECT kb.drop_conversation('c')");
    assert_eq!(window(a, "c", None), ["secret"]);
}

#[test]
fn a_reader_reads_windows_and_appends_nothing() {
    let (cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_conversation('c')");
    append(&mut db, "c", "0");
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader");
    let mut reader = cluster.connect_as(APP, "reader");
    assert_eq!(window(&mut reader, "c", None), ["0"]);
    reader.run("BEGIN READ ONLY");
    assert_eq!(window(&mut reader, "c", None), ["0"]);
    reader.run("ROLLBACK");
    for sql in [
        "SELECT kb.create_conversation()",
        "SELECT kb.append_turn('c', 'user', 'x')",
        "SELECT kb.alter_conversation('c', 'x')",
        "SELECT kb.drop_conversation('c')",
    ] {
        assert_eq!(reader.fault(sql).code, "42501", "{sql}");
    }
}

#[test]
fn a_dropped_conversation_leaves_no_turn_and_its_id_is_free() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_conversation('c'), kb.create_conversation('d')");
    for n in 0..50 {
        append(&mut db, "c", &n.to_string());
    }
    append(&mut db, "d", "stays");
    db.run("SELECT kb.drop_conversation('c')");
    assert_eq!(db.all::<String>("SELECT conversation_id FROM kb.turns"), ["d"]);
    assert_eq!(db.fault("SELECT * FROM kb.window('c')").code, "42704");
    assert_eq!(db.fault("SELECT kb.drop_conversation('c')").code, "42704");
    db.run("SELECT kb.create_conversation('c')");
    assert_eq!(append(&mut db, "c", "new").len(), "turn_".len() + 32);
    assert_eq!(window(&mut db, "c", None), ["new"]);
    assert_eq!(db.fault("SELECT kb.create_conversation('c')").code, "42710");
}

#[test]
fn tokens_are_counted_by_the_named_tokenizer_or_else_as_characters() {
    let (_cluster, mut db) = crate::connected!();
    db.run(
        r#"SELECT kb.create_conversation('c'), kb.create_conversation('o', settings => '{"tokenizer": "cl100k_base"}')"#,
    );
    let count = |db: &mut Db, sql: &str| -> i32 {
        let id: String = db.one(sql);
        db.one_with("SELECT token_count FROM kb.turns WHERE id = $1", &[&id])
    };
    assert_eq!(count(&mut db, "SELECT kb.append_turn('c', 'user', repeat('é', 9))"), 3);
    assert_eq!(count(&mut db, "SELECT kb.append_turn('c', 'user', '')"), 0);
    assert_eq!(count(&mut db, "SELECT kb.append_turn('c', 'user', 'x', token_count => 7)"), 7);
    assert_eq!(count(&mut db, "SELECT kb.append_turn('o', 'user', 'tiktoken is great!')"), 6);
    let parts = r#"[{"type": "text", "text": "tiktoken is great!"}, {"type": "image_url", "image_url": {"url": "x"}}]"#;
    assert_eq!(count(&mut db, &format!("SELECT kb.append_turn('o', 'user', '{parts}'::jsonb)")), 91);
    // The parts are stored as they were given, with every digit of their numbers.
    let parts = r#"[{"n": 12345678901234567890.5, "type": "other"}]"#;
    db.run(&format!("SELECT kb.append_turn('c', 'user', '{parts}'::jsonb)"));
    assert_eq!(
        db.one::<String>("SELECT content::text FROM kb.window('c') ORDER BY ordinal DESC LIMIT 1"),
        parts
    );
}

#[test]
fn a_long_conversation_costs_a_window_and_a_turn_no_more_than_a_short_one() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_conversation('short'), kb.create_conversation('long')");
    let fill = |db: &mut Db, conversation: &str, turns: i32| {
        let text = "A turn of some length that says what a user might say in a sentence or two. ".repeat(3);
        db.run(&format!(
            "DO $$BEGIN FOR n IN 1..{turns} LOOP PERFORM kb.append_turn('{conversation}', 'user', '{text}'); END LOOP; END$$"
        ));
    };
    // This session keeps the plans that it made while the table was small.
    fill(&mut db, "short", 200);
    let queries = ["count(*) FROM kb.window('{}')", "kb.append_turn('{}', 'user', 'Hello')"];
    let before = queries.map(|query| db.buffers(&query.replace("{}", "short")));
    fill(&mut db, "long", 10_000);
    let rows = |db: &mut Db, id: &str| window(db, id, None).len();
    assert!(rows(&mut db, "long") > 100);
    for (query, before) in queries.into_iter().zip(before) {
        for id in ["short", "long"] {
            let after = db.buffers(&query.replace("{}", id));
            assert!(
                after < 2 * before + 100,
                "{query}, {id}: {before} buffers at 200 turns, {after} at 10,200"
            );
        }
    }
    // The time is printed, because it depends on the machine.
    let begin = Instant::now();
    for _ in 0..100 {
        rows(&mut db, "long");
    }
    println!("a window of 10,000 turns takes {:?}", begin.elapsed() / 100);
    // So is that of a turn, beside a plain INSERT.
    db.run("CREATE TABLE plain (id int PRIMARY KEY, body text)");
    let begin = Instant::now();
    (0..500).for_each(|n| db.run(&format!("INSERT INTO plain VALUES ({n}, 'Hello')")));
    let plain = begin.elapsed() / 500;
    let begin = Instant::now();
    (0..500).for_each(|_| db.run("SELECT kb.append_turn('short', 'user', 'Hello')"));
    println!("kb.append_turn takes {:?}, a plain INSERT {plain:?}", begin.elapsed() / 500);
}

#[test]
fn what_is_wrong_with_a_turn_is_refused() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_conversation('c')");
    for (arguments, code) in [
        ("'robot', 'x'", "22023"),
        ("'user', NULL", "22004"),
        ("'user', NULL::jsonb", "22004"),
        ("'user', '[]'::jsonb", "22023"),
        ("'user', '{}'::jsonb", "22023"),
        ("'user', '[{\"type\": \"text\", \"text\": 1}]'::jsonb", "22023"),
        ("'user', 'x', tool_calls => '[{\"id\": \"a\"}]'", "22023"),
        ("'assistant', 'x', tool_calls => '{}'", "22023"),
        ("'assistant', NULL, tool_calls => '[{\"id\": \"a\"}, {\"id\": \"a\"}]'", "22023"),
        ("'tool', 'x'", "22023"),
        ("'user', 'x', tool_call_id => 'a'", "22023"),
        ("'user', 'x', token_count => -1", "22023"),
        ("'user', 'x', usage => '[]'", "22023"),
        ("'user', 'x', metadata => '1'", "22023"),
    ] {
        let fault = db.fault(&format!("SELECT kb.append_turn('c', {arguments})"));
        assert_eq!(fault.code, code, "{arguments}: {fault:?}");
    }
    assert_eq!(db.count("kb.turns"), 0);
    for (arguments, code) in [
        ("'turn_x'", "22023"),
        ("' '", "22023"),
        ("'d', settings => '{\"token_threshold\": 0, \"tokenizer\": \"none\"}'", "22023"),
        ("'d', metadata => '[]'", "22023"),
    ] {
        let fault = db.fault(&format!("SELECT kb.create_conversation({arguments})"));
        assert_eq!(fault.code, code, "{arguments}: {fault:?}");
    }
    for most in [0, -1, i32::MIN] {
        assert_eq!(db.fault(&format!("SELECT * FROM kb.window('c', {most})")).code, "22023");
    }
    assert_eq!(window(&mut db, "c", Some(i32::MAX)), [""; 0]);
}
