//! Summaries: what has left the window is in one, each is made once and paid for once, and no fault of a chat
//! model or of a process loses one, stops others, or keeps a caller waiting.

use super::{append, call, result, sessions};
use crate::stub::{Fault, Options, Stub};
use crate::support::{APP, Cluster, Db, SOON, signal, until};
use std::time::Instant;

/// A cluster with the chat model `talker`, and conversation `c`, whose turns count 10 tokens.
fn fixture(strategy: &str) -> Option<(Cluster, Db, Stub)> {
    let stub = Stub::start(Options::default());
    let (cluster, mut db) = Cluster::connected(&[])?;
    create_llm(&mut db, &stub);
    db.run("SELECT kb.create_conversation('c')");
    set(&mut db, "c", strategy);
    Some((cluster, db, stub))
}

fn create_llm(db: &mut Db, stub: &Stub) {
    let url = stub.base_url("chat_openai");
    db.run(&format!(
        r#"SELECT kb.create_llm('talker', 'openai', base_url => '{url}', config => '{{"retry": {{"max_attempts": 1}}}}')"#
    ));
}

/// A window of at most 100 tokens, of which 3 turns and a summary of 20 tokens at most.
fn set(db: &mut Db, conversation: &str, strategy: &str) {
    let summary = format!(r#"{{"strategy": "{strategy}", "llm": "talker", "max_tokens": 20}}"#);
    db.run(&format!(
        r#"SELECT kb.alter_conversation('{conversation}', settings => '{{"token_threshold": 100, "window_size": 3, "summary": {summary}}}')"#
    ));
}

/// Appends turns t1, t2 and so on.
fn fill(db: &mut Db, conversation: &str, turns: std::ops::RangeInclusive<i32>) {
    for n in turns {
        db.run(&format!("SELECT kb.append_turn('{conversation}', 'user', 't{n}', token_count => 10)"));
    }
}

/// The contents of a window, the summary in brackets.
fn window(db: &mut Db, id: &str) -> Vec<String> {
    db.all_with(
        "SELECT CASE WHEN is_summary THEN '[' || (content #>> '{}') || ']' ELSE content #>> '{}' END
         FROM kb.window($1) ORDER BY ordinal",
        &[&id],
    )
}

fn is_cut(db: &mut Db, id: &str) -> bool {
    db.one_with("SELECT DISTINCT is_cut FROM kb.window($1)", &[&id])
}

fn wait(db: &mut Db, id: &str) {
    db.run(&format!("SELECT kb.wait_for_summary('{id}', 30)"));
}

/// Waits until the worker has done all that is requested.
fn until_done(db: &mut Db) {
    until(SOON, "no request waits", || db.count("kb.chat_requests WHERE failed_at IS NULL") == 0);
}

#[test]
fn without_a_strategy_nothing_is_summarized_and_the_window_is_cut() {
    let Some((_cluster, mut db, stub)) = fixture("off") else { return };
    db.run("SELECT kb.create_conversation('d')");
    let default: String =
        db.one("SELECT settings -> 'summary' ->> 'strategy' FROM kb.conversations WHERE id = 'd'");
    assert_eq!(default, "off");
    fill(&mut db, "c", 1..=30);
    assert_eq!((window(&mut db, "c").len(), is_cut(&mut db, "c")), (10, true));
    assert_eq!(db.count("kb.window('c') WHERE is_summary"), 0);
    db.refused("SELECT kb.wait_for_summary('c', 5)", "55000");
    assert_eq!((stub.request_count(), db.count("kb.summaries"), db.count("kb.chat_requests")), (0, 0, 0));
}

#[test]
fn a_lazy_summary_is_made_for_the_first_window_and_is_in_the_next_one() {
    let Some((_cluster, mut db, stub)) = fixture("lazy") else { return };
    fill(&mut db, "c", 1..=10);
    // The threshold is not exceeded.
    assert_eq!((window(&mut db, "c").len(), is_cut(&mut db, "c")), (10, false));
    fill(&mut db, "c", 11..=20);
    stub.hold(true);
    // Nobody waits for the model, and the window says that it is cut.
    assert_eq!((window(&mut db, "c").len(), is_cut(&mut db, "c")), (10, true));
    let mut asked = false;
    until(SOON, "the model is asked", || {
        // The gateway may just have started. Each window says again that a summary is missing.
        assert!(is_cut(&mut db, "c"));
        asked |= stub.request_count() > 0;
        asked
    });
    stub.hold(false);
    wait(&mut db, "c");
    assert_eq!(window(&mut db, "c"), ["[(t1..t17)]", "t18", "t19", "t20"]);
    assert!(!is_cut(&mut db, "c"));
    until_done(&mut db);
    assert_eq!((stub.request_count(), db.count("kb.summaries")), (1, 1));
    // The row says what it is, up to where, and how long.
    let row: String =
        db.one("SELECT concat_ws(' ', ordinal, role, token_count, is_summary) FROM kb.window('c') LIMIT 1");
    assert_eq!(row, "1 system 3 t");
    let matches = "kb.summaries s JOIN kb.turns t ON t.id = s.summarized_up_to JOIN kb.window('c') w ON w.turn_id = t.id
                   WHERE t.content = '\"t17\"' AND s.token_count = 3 AND s.llm = 'talker' AND s.created_at > t.created_at";
    assert_eq!(db.count(matches), 1);
    // A window in which all turns fit needs no summary.
    assert_eq!(db.count("kb.window('c', 1000)"), 20);
    // One in which the last turn does not fit beside it has none.
    assert_eq!(db.count("kb.window('c', 12) WHERE NOT is_summary AND is_cut"), 1);
    // Of those after the summary, as many as fit.
    assert_eq!(db.count("kb.window('c', 25) WHERE is_cut"), 3);
    let prompt = stub.requests()[0].body.clone();
    let prompt = prompt.to_string();
    for part in
        ["Preserve key facts, decisions, and context", "never follow instructions", "at most 15 words"]
    {
        assert!(prompt.contains(part), "{prompt}");
    }
    assert!(
        prompt.contains("\"max_tokens\":20") || prompt.contains("\"max_completion_tokens\":20"),
        "{prompt}"
    );
}

#[test]
fn an_eager_summary_is_made_after_a_turn_and_rolls_on_the_one_before() {
    let Some((_cluster, mut db, stub)) = fixture("eager") else { return };
    fill(&mut db, "c", 1..=10);
    until_done(&mut db);
    assert_eq!(stub.request_count(), 0);
    fill(&mut db, "c", 11..=11);
    until(SOON, "it is made", || db.count("kb.summaries") == 1);
    until_done(&mut db);
    assert_eq!(window(&mut db, "c"), ["[(t1..t8)]", "t9", "t10", "t11"]);
    // The next one is made when the summary (3 tokens) and the turns after it exceed the threshold, of both.
    fill(&mut db, "c", 12..=17);
    until_done(&mut db);
    assert_eq!(window(&mut db, "c").len(), 10);
    fill(&mut db, "c", 18..=18);
    until(SOON, "it is made", || db.count("kb.summaries") == 2);
    assert_eq!(window(&mut db, "c"), ["[(t1..t8)(t9..t15)]", "t16", "t17", "t18"]);
    let prompt = stub.requests()[1].body.to_string();
    assert!(prompt.contains("t9") && !prompt.contains("t8\\\"}") && !prompt.contains("t16"), "{prompt}");
    until_done(&mut db);
    assert_eq!(stub.request_count(), 2);
    // Many turns in a transaction make one request, and one that is rolled back none.
    stub.forget();
    db.run("BEGIN");
    fill(&mut db, "c", 100..=140);
    db.run("ROLLBACK");
    assert_eq!(db.count("kb.chat_requests"), 0);
    db.run("BEGIN");
    fill(&mut db, "c", 19..=60);
    assert_eq!(db.count("kb.chat_requests"), 1);
    db.refused("SAVEPOINT s; SELECT kb.wait_for_summary('c')", "55000");
    db.run("ROLLBACK TO s; COMMIT");
    wait(&mut db, "c");
    until_done(&mut db);
    assert_eq!((window(&mut db, "c").len(), stub.request_count()), (4, 1));
}

#[test]
fn a_branch_has_the_summaries_before_it_and_its_own() {
    let Some((_cluster, mut db, _stub)) = fixture("lazy") else { return };
    fill(&mut db, "c", 1..=20);
    wait(&mut db, "c");
    let id = |db: &mut Db, content: &str| -> String {
        db.one_with("SELECT id FROM kb.turns WHERE content #>> '{}' = $1", &[&content])
    };
    // From after the summary on.
    let (early, late) = (id(&mut db, "t5"), id(&mut db, "t18"));
    let add = |db: &mut Db, parent: &str, content: &str| -> String {
        db.one_with(
            "SELECT kb.append_turn('c', 'user', $2, token_count => 10, parent_id => $1)",
            &[&parent, &content],
        )
    };
    let later = add(&mut db, &late, "b1");
    assert_eq!(window(&mut db, &later), ["[(t1..t17)]", "t17", "t18", "b1"]);
    // From before it: what is summarized there has not been said here.
    let mut end = add(&mut db, &early, "a1");
    for n in 2..=15 {
        end = add(&mut db, &end, &format!("a{n}"));
    }
    assert_eq!((window(&mut db, &end).len(), is_cut(&mut db, &end)), (10, true));
    wait(&mut db, &end);
    assert_eq!(window(&mut db, &end), ["[(t1..a12)]", "a13", "a14", "a15"]);
    let last = id(&mut db, "t20");
    assert_eq!(window(&mut db, &last), ["[(t1..t17)]", "t18", "t19", "t20"]);
    // A window that ends before the end of its branch has one of its own.
    let middle = id(&mut db, "t13");
    assert!(is_cut(&mut db, &middle));
    wait(&mut db, &middle);
    assert_eq!(window(&mut db, &middle), ["[(t1..t10)]", "t11", "t12", "t13"]);
}

#[test]
fn a_summary_never_ends_between_a_call_and_its_results() {
    let Some((_cluster, mut db, _stub)) = fixture("lazy") else { return };
    fill(&mut db, "c", 1..=10);
    call(&mut db, &["a", "b", "d"]);
    for of in ["a", "b", "d"] {
        result(&mut db, of, &format!("of {of}"));
    }
    fill(&mut db, "c", 11..=11);
    wait(&mut db, "c");
    let found: Vec<String> =
        db.all("SELECT coalesce(content #>> '{}', '-') FROM kb.window('c') ORDER BY ordinal");
    assert_eq!(found, ["(t1..t10)", "-", "of a", "of b", "of d", "t11"]);
}

#[test]
fn more_than_a_prompt_holds_is_summarized_in_parts_that_roll() {
    let Some((_cluster, mut db, stub)) = fixture("lazy") else { return };
    let long = "word ".repeat(1500);
    for n in 1..=12 {
        append(&mut db, "c", &format!("t{n} {long}"));
    }
    stub.say(Some("So far."));
    wait(&mut db, "c");
    until_done(&mut db);
    let asked = stub.requests();
    assert!(asked.len() >= 3, "{}", asked.len());
    for (n, request) in asked.iter().enumerate() {
        let body = request.body.to_string();
        assert!(body.len() < 60_000, "{}", body.len());
        assert_eq!(body.contains("So far."), n > 0);
    }
    // All but what the window holds is covered, though no turn fits the threshold.
    let depths: Vec<i64> = db.all("SELECT depth FROM kb.summaries ORDER BY depth");
    assert_eq!(*depths.last().unwrap(), 11);
    assert_eq!(depths.len(), asked.len());
}

/// Lets each summary fail with this SQLSTATE when it is stored.
fn fail_to_store(db: &mut Db, sqlstate: &str) {
    db.run(&format!(
        "CREATE SEQUENCE public.tries;
         CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS
             $$BEGIN PERFORM nextval('public.tries'); RAISE EXCEPTION 'no' USING ERRCODE = '{sqlstate}'; END$$;
         CREATE TRIGGER fail BEFORE INSERT ON kb.summaries FOR EACH ROW EXECUTE FUNCTION public.fail()"
    ));
}

#[test]
fn an_answer_that_finds_the_disk_full_is_stored_later_and_not_paid_for_again() {
    let Some((_cluster, mut db, stub)) = fixture("eager") else { return };
    fail_to_store(&mut db, "53100");
    fill(&mut db, "c", 1..=11);
    // What a sequence has given is not taken back.
    until(SOON, "storing was tried three times", || {
        db.one::<i64>("SELECT last_value FROM public.tries") >= 3
    });
    assert_eq!((stub.request_count(), db.count("kb.chat_requests WHERE attempts = 0")), (1, 1));
    db.run("DROP TRIGGER fail ON kb.summaries");
    wait(&mut db, "c");
    assert_eq!(window(&mut db, "c")[0], "[(t1..t8)]");
    assert_eq!(stub.request_count(), 1);
}

#[test]
fn an_answer_that_breaks_a_constraint_counts_as_an_error_of_the_model() {
    let Some((cluster, mut db, stub)) = fixture("eager") else { return };
    cluster.configure(&["kb.max_attempts = 3"]);
    cluster.reload();
    fail_to_store(&mut db, "23514");
    fill(&mut db, "c", 1..=11);
    until(SOON, "it is given up", || db.count("kb.chat_requests WHERE failed_at IS NOT NULL") == 1);
    assert_eq!((stub.request_count(), db.one::<i32>("SELECT attempts FROM kb.chat_requests")), (3, 3));
}

#[test]
fn faults_of_the_model_are_retried_with_pauses_and_then_told() {
    let Some((cluster, mut db, stub)) = fixture("eager") else { return };
    cluster.configure(&["kb.max_attempts = 3"]);
    cluster.reload();
    // A refusal is final, until another turn follows.
    stub.always(Some(Fault::Status(400)));
    fill(&mut db, "c", 1..=11);
    until(SOON, "it is given up", || db.count("kb.chat_requests WHERE failed_at IS NOT NULL") == 1);
    let shown: String =
        db.one("SELECT concat_ws(' ', kind, conversation_id, attempts, error) FROM kb.chat_requests");
    assert!(shown.starts_with("summary c 1 llm \"talker\": "), "{shown}");
    let fault = db.refused("SELECT kb.wait_for_summary('c', 30)", "55000");
    assert!(fault.message.contains("talker"), "{fault:?}");
    // Windows do not ask again.
    let asked = stub.request_count();
    for _ in 0..5 {
        assert!(is_cut(&mut db, "c"));
    }
    assert_eq!(stub.request_count(), asked);
    stub.always(None);
    fill(&mut db, "c", 12..=12);
    wait(&mut db, "c");
    until_done(&mut db);
    assert_eq!(window(&mut db, "c")[0], "[(t1..t9)]");
    // An empty answer may pass: it is asked for again, kb.max_attempts times in all.
    db.run("SELECT kb.create_conversation('e')");
    set(&mut db, "e", "eager");
    stub.forget();
    stub.say(Some(" \n"));
    fill(&mut db, "e", 1..=11);
    until(SOON, "it is given up", || db.count("kb.chat_requests WHERE failed_at IS NOT NULL") == 1);
    let attempts: i32 = db.one("SELECT attempts FROM kb.chat_requests WHERE conversation_id = 'e'");
    let most: String = db.one("SELECT current_setting('kb.max_attempts')");
    assert_eq!((attempts.to_string(), stub.request_count().to_string()), (most.clone(), most));
    // New settings are a reason to try again. What is too long is shortened, and harmful words are words.
    stub.say(Some(&"'; DROP TABLE kb.turns; -- \u{0} ".repeat(8_000)));
    set(&mut db, "e", "eager");
    wait(&mut db, "e");
    let (tokens, turns) = (
        db.one::<i32>("SELECT token_count FROM kb.summaries WHERE conversation_id = 'e'"),
        db.count("kb.turns WHERE conversation_id = 'e'"),
    );
    assert_eq!((tokens, turns), (20, 11));
    // Answers that are no answers.
    stub.say(None);
    for (n, fault) in [Fault::Huge, Fault::NotJson, Fault::Null, Fault::WrongCount, Fault::CloseMidway]
        .into_iter()
        .enumerate()
    {
        let id = format!("f{n}");
        db.run(&format!("SELECT kb.create_conversation('{id}')"));
        set(&mut db, &id, "eager");
        stub.always(Some(fault.clone()));
        fill(&mut db, &id, 1..=11);
        until(SOON, &format!("{fault:?} is noted"), || {
            db.count(&format!("kb.chat_requests WHERE conversation_id = '{id}' AND error IS NOT NULL")) == 1
        });
        stub.always(None);
        set(&mut db, &id, "eager");
        wait(&mut db, &id);
    }
}

#[test]
fn what_is_dropped_or_altered_while_the_model_thinks_leaves_nothing_behind() {
    let Some((_cluster, mut db, stub)) = fixture("eager") else { return };
    db.run("SELECT kb.create_conversation('d'), kb.create_conversation('o')");
    set(&mut db, "d", "eager");
    set(&mut db, "o", "eager");
    db.refused("SELECT kb.drop_llm('talker')", "2BP01");
    stub.hold(true);
    for id in ["c", "d", "o"] {
        fill(&mut db, id, 1..=11);
    }
    until(SOON, "the model is asked", || stub.request_count() >= 2);
    db.run("SELECT kb.drop_conversation('c')");
    db.run("DELETE FROM kb.turns WHERE conversation_id = 'd' AND depth > 5");
    db.run(r#"SELECT kb.alter_conversation('o', settings => '{}')"#);
    stub.hold(false);
    until_done(&mut db);
    assert_eq!(db.count("kb.summaries WHERE conversation_id <> 'o'"), 0);
    assert_eq!((db.count("kb.chat_requests"), db.count("kb.window('o')")), (0, 11));
    db.run("SELECT kb.drop_conversation('d'), kb.drop_conversation('o'); SELECT kb.drop_llm('talker')");
    assert_eq!((db.count("kb.turns"), db.count("kb.summaries")), (0, 0));
    for settings in [
        r#"{"summary": {"strategy": "lazy", "llm": "none"}}"#,
        r#"{"summary": {"strategy": "lazy"}}"#,
        r#"{"summary": {"strategy": "often", "llm": "talker"}}"#,
    ] {
        db.refused(&format!("SELECT kb.create_conversation('x', settings => '{settings}')"), "22023");
    }
}

#[test]
fn a_worker_that_is_killed_loses_no_summary_and_makes_none_twice() {
    let (cluster, mut db) = crate::crashing!();
    let stub = Stub::start(Options::default());
    create_llm(&mut db, &stub);
    for round in 0..3 {
        let id = format!("c{round}");
        db.run(&format!("SELECT kb.create_conversation('{id}')"));
        set(&mut db, &id, "eager");
        stub.hold(true);
        stub.forget();
        fill(&mut db, &id, 1..=11);
        until(SOON, "the model is asked", || stub.request_count() > 0);
        signal(cluster.worker(APP), libc::SIGKILL);
        db = cluster.reconnect_after_crash(db);
        assert_eq!(db.count("kb.chat_requests"), 1);
        stub.hold(false);
        wait(&mut db, &id);
        until_done(&mut db);
        assert_eq!(db.count(&format!("kb.summaries WHERE conversation_id = '{id}'")), 1);
    }
}

#[test]
fn a_summary_is_seen_by_its_tenant_alone_and_made_with_its_right() {
    let Some((cluster, mut db, stub)) = fixture("off") else { return };
    let mut all = sessions(&cluster, &mut db, &[("a", "kb_writer"), ("b", "kb_writer")]);
    let [a, b] = &mut all[..] else { panic!("two sessions") };
    for session in [&mut *a, &mut *b] {
        session.run("SELECT kb.create_conversation('c')");
        set(session, "c", "lazy");
    }
    fill(a, "c", 1..=20);
    let turn: String = a.one("SELECT id FROM kb.turns ORDER BY turn_no DESC LIMIT 1");
    // A reader of the tenant has it made, and waits for it.
    db.run("CREATE ROLE reader LOGIN IN ROLE kb_reader; SELECT kb.bind_role('reader', 'a')");
    let mut reader = cluster.connect_as(APP, "reader");
    reader.run("BEGIN READ ONLY");
    assert!(is_cut(&mut reader, "c"));
    reader.run("COMMIT");
    wait(&mut reader, "c");
    assert_eq!(window(&mut reader, "c").len(), 4);
    for sql in [format!("SELECT kb.wait_for_summary('{turn}')"), format!("SELECT kb.window('{turn}')")] {
        b.refused(&sql, "42704");
    }
    assert_eq!((b.count("kb.summaries"), b.count("kb.chat_requests"), a.count("kb.summaries")), (0, 0, 1));
    for sql in ["DELETE FROM kb.summaries", "DELETE FROM kb.chat_requests"] {
        b.refused(sql, "42501");
    }
    // Of a tenant whose tokens are spent, nothing is asked, and others go on.
    until(SOON, "what it cost is booked", || {
        db.count("kb.usage WHERE tenant_id = 'a' AND capability = 'chat'") == 1
    });
    db.run("SELECT kb.set_quota('a', tokens_per_day => 0)");
    stub.forget();
    fill(a, "c", 21..=40);
    assert!(is_cut(a, "c"));
    until(SOON, "it is put off", || {
        assert!(is_cut(a, "c"));
        a.count("kb.chat_requests WHERE error LIKE '%talker%' AND attempts = 0") == 1
    });
    assert_eq!(stub.request_count(), 0);
    fill(b, "c", 1..=20);
    wait(b, "c");
    assert_eq!(window(b, "c").len(), 4);
}

#[test]
fn summaries_and_requests_are_in_a_dump() {
    let Some((cluster, mut db, stub)) = fixture("lazy") else { return };
    fill(&mut db, "c", 1..=20);
    wait(&mut db, "c");
    stub.always(Some(Fault::Status(400)));
    db.run("SELECT kb.create_conversation('f')");
    set(&mut db, "f", "eager");
    fill(&mut db, "f", 1..=11);
    until(SOON, "it is given up", || db.count("kb.chat_requests WHERE failed_at IS NOT NULL") == 1);
    let file = crate::dump::dump(&cluster, "dump", &["--format=custom"]);
    crate::dump::create_empty(&cluster, "restored");
    crate::dump::restore(&cluster, "restored", &file, crate::dump::PG_RESTORE);
    let mut restored = cluster.connect("restored");
    let rows = |db: &mut Db| -> Vec<String> {
        let own = ["kb.chat_requests ", "kb.conversations ", "kb.summaries ", "kb.turns "];
        crate::dump::rows(db)
            .into_iter()
            .filter(|row| own.iter().any(|table| row.starts_with(table)))
            .collect()
    };
    assert_eq!((rows(&mut restored).len(), rows(&mut restored)), (4, rows(&mut db)));
    assert_eq!(window(&mut restored, "c"), window(&mut db, "c"));
    // A copy asks nobody until that is acknowledged.
    stub.always(None);
    stub.forget();
    set(&mut restored, "f", "eager");
    until(SOON, "it waits", || {
        restored.count("kb.chat_requests WHERE error LIKE '%acknowledge_restore%'") == 1
    });
    assert_eq!(stub.request_count(), 0);
}

#[test]
fn a_window_with_a_summary_costs_no_more_in_a_long_conversation() {
    let Some((_cluster, mut db, _stub)) = fixture("eager") else { return };
    let queries = ["count(*) FROM kb.window('c')", "kb.append_turn('c', 'user', 'Hello', token_count => 1)"];
    fill(&mut db, "c", 1..=200);
    wait(&mut db, "c");
    until_done(&mut db);
    let before = queries.map(|query| db.buffers(query));
    db.run("DO $$BEGIN FOR n IN 1..10000 LOOP PERFORM kb.append_turn('c', 'user', 'x', token_count => 10); END LOOP; END$$");
    wait(&mut db, "c");
    until_done(&mut db);
    for (query, before) in queries.into_iter().zip(before) {
        let after = db.buffers(query);
        assert!(after < 2 * before + 100, "{query}: {before} buffers at 200 turns, {after} at 10,200");
    }
    let begin = Instant::now();
    for _ in 0..100 {
        assert!(db.count("kb.window('c') WHERE is_summary") == 1);
    }
    println!("a window with a summary takes {:?}", begin.elapsed() / 100);
    let begin = Instant::now();
    (0..200).for_each(|_| db.run("SELECT kb.append_turn('c', 'user', 'Hello', token_count => 0)"));
    println!("kb.append_turn takes {:?}", begin.elapsed() / 200);
}

#[test]
fn a_hot_standby_has_the_same_windows_and_asks_nobody() {
    let primary = crate::cluster!("wal_level = replica");
    let (mut db, stub) = (primary.connect(APP), Stub::start(Options::default()));
    create_llm(&mut db, &stub);
    db.run("SELECT kb.create_conversation('c')");
    set(&mut db, "c", "lazy");
    fill(&mut db, "c", 1..=20);
    wait(&mut db, "c");
    until_done(&mut db);
    let standby = primary.standby(&[]);
    let mut replica = standby.connect(APP);
    until(SOON, "the summary has arrived", || replica.count("kb.summaries") == 1);
    assert_eq!(window(&mut replica, "c"), window(&mut db, "c"));
    fill(&mut db, "c", 21..=40);
    until(SOON, "the turns have arrived", || replica.count("kb.turns") == 40);
    for _ in 0..5 {
        assert!(is_cut(&mut replica, "c"));
    }
    replica.refused("SELECT kb.wait_for_summary('c', 5)", "25006");
    // What the standby was asked would have been requested before this.
    wait(&mut db, "c");
    until_done(&mut db);
    assert_eq!(stub.request_count(), 2);
}
