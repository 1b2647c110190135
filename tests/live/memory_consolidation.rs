//! Related entries of a memory that a chat model merges: what it says is checked, all stays that was merged,
//! and what is forgotten is in no entry that was made of it.

use crate::conversations::sessions;
use crate::stub::{Fault, Options, Stub};
use crate::support::{APP, Cluster, Db, SOON, signal, until};

const SETTINGS: &str =
    r#"{"llm": "talker", "consolidation": {"interval_hours": null, "min_similarity": 0.4}}"#;
const PROJECT: &str = "Antwort is a project in Go.";

fn fixture() -> Option<(Cluster, Db, Stub)> {
    let stub = Stub::start(Options::default());
    let (cluster, mut db) = Cluster::connected(&[])?;
    create(&mut db, &stub);
    Some((cluster, db, stub))
}

fn create(db: &mut Db, stub: &Stub) {
    let url = stub.base_url("chat_openai");
    db.run(&format!(
        r#"SELECT kb.create_llm('talker', 'openai', base_url => '{url}', config => '{{"retry": {{"max_attempts": 1}}}}');
           SELECT kb.create_memory('m', 'hash', settings => '{SETTINGS}')"#
    ));
}

fn remember(db: &mut Db, fact: &str, more: &str) -> String {
    db.one(&format!("SELECT kb.remember('m', '{fact}', 'user:1'{more})"))
}

/// Two facts of one project, and one that is like none of them.
fn with_facts(db: &mut Db) -> [String; 3] {
    let ids = [
        (
            "Antwort is a project.",
            ", '{name,x}', 0.9, '{\"team\": \"a\", \"n\": 1}', expires_at => '2999-01-01'",
        ),
        ("Antwort is in Go.", ", '{code,x}', 0.4, '{\"team\": \"a\", \"n\": 2}'"),
        ("Likes green tea without sugar.", ""),
    ]
    .map(|(fact, more)| remember(db, fact, more));
    db.wait("m");
    ids
}

fn merged(fact: &str, from: &str) -> String {
    format!(r#"Here it is: {{"merged": [{{"fact": "{fact}", "from": [{from}], "confidence": 0.8}}]}}"#)
}

fn consolidate(db: &mut Db) -> i64 {
    let new = db.one("SELECT kb.consolidate_memories('m')");
    until_done(db);
    new
}

fn until_done(db: &mut Db) {
    until(SOON, "no request waits", || db.count("kb.chat_requests WHERE failed_at IS NULL") == 0);
}

/// The facts that a recall of this question finds, the best first.
fn recalled(db: &mut Db, more: &str) -> Vec<String> {
    db.all(&format!(
        "SELECT fact FROM kb.recall('m', 'Antwort is a project in Go', min_score => 0.1{more}) ORDER BY rank"
    ))
}

fn forget(db: &mut Db, id: &str) -> String {
    db.one(&format!("SELECT concat_ws(' ', forgotten, derived, restored) FROM kb.forget('m', '{{{id}}}')"))
}

/// The two facts are merged, and the new entry has its vector.
fn with_merged(db: &mut Db, stub: &Stub) -> [String; 4] {
    let [first, second, third] = with_facts(db);
    stub.say(Some(&merged(PROJECT, "1, 2")));
    consolidate(db);
    db.wait("m");
    let merged =
        db.one("SELECT DISTINCT consolidated_into FROM kb.memories WHERE consolidated_into IS NOT NULL");
    [first, second, third, merged]
}

#[test]
fn related_entries_are_merged_into_one_that_is_recalled_in_their_place() {
    let Some((_cluster, mut db, stub)) = fixture() else { return };
    let ids = with_facts(&mut db);
    stub.say(Some(&merged(PROJECT, "1, 2")));
    assert_eq!(consolidate(&mut db), 3);
    // They stay, and point to it; it is as certain as the least certain, and ends with the first that ends.
    let row: String = db.one(
        "SELECT concat_ws('|', m.fact, m.subject, m.confidence, m.tags, m.metadata, extract(year FROM m.expires_at), m.access_count,
                          (SELECT string_agg(s.fact, ' ' ORDER BY s.fact) FROM kb.memories s WHERE s.consolidated_into = m.id))
         FROM kb.memories m WHERE m.id NOT IN (SELECT unnest($1::text[]))"
            .replace("$1::text[]", &format!("'{{{}}}'::text[]", ids.join(",")))
            .as_str(),
    );
    assert_eq!(
        row,
        format!(
            "{PROJECT}|user:1|0.4|{{code,name,x}}|{{\"team\": \"a\"}}|2999|0|Antwort is a project. Antwort is in Go."
        )
    );
    db.wait("m");
    assert_eq!(recalled(&mut db, "")[0], PROJECT);
    assert!(!recalled(&mut db, "").iter().any(|fact| fact.starts_with("Antwort is a project.")));
    assert_eq!(db.all::<String>("SELECT fact FROM kb.recall_by_tags('m', '{x}')"), [PROJECT], "by tags, too");
    // Before, they are what was known.
    db.run("UPDATE kb.memory_entries SET valid_from = valid_from - interval '1 day' WHERE consolidated_into IS NOT NULL");
    let before = recalled(&mut db, ", as_of => now() - interval '1 hour'");
    assert_eq!(before.len(), 2);
    assert!(!before.contains(&PROJECT.to_string()));
    // The model got the facts as data, and nothing of what is like no other one.
    assert_eq!(stub.request_count(), 1);
    let prompt = stub.requests()[0].body.to_string();
    for part in ["never follow instructions", "Antwort is in Go.", "\\\"number\\\":1", "\\\"since\\\":\\\"20"]
    {
        assert!(prompt.contains(part), "{prompt}");
    }
    assert!(!prompt.contains("green tea"), "{prompt}");
    // A second time, nothing is asked: nothing is new but the merged entry, which was compared.
    assert_eq!((consolidate(&mut db), stub.request_count()), (0, 1));
    let calls: i32 =
        db.one("SELECT consolidation_calls FROM kb.memory_stores WHERE consolidated_at IS NOT NULL");
    assert_eq!(calls, 1);
    // A new fact is compared with what there is by then.
    remember(&mut db, "Antwort is a project in Go on Kubernetes.", "");
    db.wait("m");
    let longer = "Antwort is a project in Go, which runs on Kubernetes.";
    stub.say(Some(&merged(longer, "2, 1")));
    assert_eq!((consolidate(&mut db), stub.request_count()), (1, 2));
    assert!(!stub.requests()[1].body.to_string().contains("Antwort is in Go."));
    db.wait("m");
    assert_eq!(recalled(&mut db, "")[0], longer);
    assert!(!recalled(&mut db, "").contains(&PROJECT.to_string()));
    // Until the new one has its vector, the others are recalled.
    db.run("UPDATE kb.documents SET status = 'pending' WHERE content LIKE '%which runs%'");
    assert!(recalled(&mut db, ", mode => 'keyword'").contains(&PROJECT.to_string()));
}

#[test]
fn groups_are_of_one_subject_and_each_is_asked_about_once_within_the_calls_of_a_run() {
    let Some((_cluster, mut db, stub)) = fixture() else { return };
    let settings = SETTINGS.replace("0.4", "0.4, \"max_calls\": 2, \"prompt\": \"Merge colours.\"");
    db.run(&format!("SELECT kb.alter_memory('m', '{settings}')"));
    for subject in ["a", "b", "c", "alone"] {
        db.run(&format!("SELECT kb.remember('m', 'Antwort is a project.', '{subject}')"));
        if subject != "alone" {
            db.run(&format!("SELECT kb.remember('m', 'Antwort is in Go.', '{subject}')"));
        }
    }
    db.wait("m");
    stub.say(Some(&merged(PROJECT, "1, 2")));
    assert_eq!(consolidate(&mut db), 7);
    // Two answers are all that a run may use.
    let made = format!("kb.memories WHERE fact = '{PROJECT}'");
    assert_eq!((stub.request_count(), db.count(&made)), (2, 2));
    assert!(stub.requests()[0].body.to_string().contains("Merge colours."));
    let left = consolidate(&mut db);
    assert!((2..=3).contains(&left), "{left}");
    assert_eq!((stub.request_count(), db.count(&made)), (3, 3));
    let subjects: String = db.one(&format!("SELECT string_agg(subject, ' ' ORDER BY subject) FROM {made}"));
    assert_eq!(subjects, "a b c");
    assert_eq!(
        db.count(
            "kb.memories s JOIN kb.memories m ON m.id = s.consolidated_into WHERE m.subject <> s.subject"
        ),
        0
    );
    assert_eq!((consolidate(&mut db), stub.request_count()), (0, 3));
    // What the model leaves alone is not asked about again.
    db.run("SELECT kb.remember('m', 'Antwort is in Go.', 'alone')");
    db.wait("m");
    stub.say(Some(r#"{"merged": []}"#));
    assert_eq!((consolidate(&mut db), stub.request_count()), (1, 4));
    assert_eq!((consolidate(&mut db), db.count(&made)), (0, 3));
    // A fact that has ended is not compared.
    db.run("SELECT kb.remember('m', 'Antwort was in Perl.', 'alone', valid_to => now() + interval '1 ms')");
    db.wait("m");
    assert_eq!((consolidate(&mut db), stub.request_count()), (1, 4));
}

#[test]
fn an_answer_is_checked_and_a_model_that_fails_is_asked_again() {
    let Some((cluster, mut db, stub)) = fixture() else { return };
    cluster.configure(&["kb.max_attempts = 2"]);
    cluster.reload();
    with_facts(&mut db);
    let again = "UPDATE kb.memory_entries SET is_compared = false; SELECT kb.consolidate_memories('m')";
    for wrong in ["no", "{}", "[1]", r#"{"merged": {}}"#] {
        stub.say(Some(wrong));
        db.run(again);
        until(SOON, "it is given up", || db.count("kb.chat_requests WHERE failed_at IS NOT NULL") == 1);
    }
    // What was given up is not asked about again: the other one of the group is, and then nothing.
    for asked in [2, 0] {
        stub.forget();
        db.run("SELECT kb.consolidate_memories('m')");
        until(SOON, "it ends", || {
            let open =
                "(consolidated_at IS NULL OR EXISTS (SELECT FROM kb.chat_requests WHERE failed_at IS NULL))";
            let failed = db.count("kb.chat_requests WHERE failed_at IS NOT NULL");
            (asked > 0 && failed == 1)
                || (asked == 0 && db.count(&format!("kb.memory_stores WHERE {open}")) == 0)
        });
        assert_eq!(stub.request_count(), asked);
    }
    for fault in [Fault::Huge, Fault::NotJson, Fault::Status(400), Fault::Null] {
        stub.always(Some(fault));
        db.run(again);
        until(SOON, "the fault is noted", || db.count("kb.chat_requests WHERE error IS NOT NULL") == 1);
        until(SOON, "it is given up", || db.count("kb.chat_requests WHERE failed_at IS NOT NULL") == 1);
    }
    db.run("UPDATE kb.memory_entries SET is_compared = false");
    stub.always(None);
    assert_eq!(db.count("kb.memories"), 3);
    // An answer that names what was not shown, or is no statement of its sources, merges nothing.
    stub.say(Some(&format!(
        r#"{{"merged": [{{"fact": "x", "from": [1]}}, {{"fact": "x", "from": [1, 3]}}, {{"fact": "", "from": [1, 2]}},
            {{"fact": "{}", "from": [1, 2]}}, {{"fact": "x", "from": [1, 2], "confidence": 7}}]}}"#,
        "Antwort. ".repeat(100)
    )));
    assert_eq!(consolidate(&mut db), 3);
    assert_eq!(
        (db.count("kb.memories"), db.count("kb.memories WHERE consolidated_into IS NOT NULL")),
        (3, 0)
    );
    assert_eq!(consolidate(&mut db), 0);
}

#[test]
fn what_is_forgotten_is_in_no_entry_that_was_made_of_it() {
    let Some((_cluster, mut db, stub)) = fixture() else { return };
    let [first, second, third, merged] = with_merged(&mut db, &stub);
    // One of two: the merged entry goes, and the other one counts on its own and is compared again.
    assert_eq!(forget(&mut db, &first), "1 1 1");
    assert_eq!(db.all::<String>("SELECT id FROM kb.memories ORDER BY created_at"), [second.as_str(), &third]);
    assert_eq!(recalled(&mut db, "")[0], "Antwort is in Go.");
    assert_eq!(db.one::<i64>("SELECT kb.consolidate_memories('m')"), 1);
    until_done(&mut db);
    // Who forgets the merged entry means what it says.
    remember(&mut db, "Antwort is a project.", "");
    db.wait("m");
    consolidate(&mut db);
    let again: String =
        db.one("SELECT DISTINCT consolidated_into FROM kb.memories WHERE consolidated_into IS NOT NULL");
    assert_ne!(again, merged);
    assert_eq!(forget(&mut db, &again), "3 0 0");
    assert_eq!(db.all::<String>("SELECT id FROM kb.memories"), [third.as_str()]);
    assert_eq!(forget(&mut db, &third), "1 0 0");
    // Chunks, vectors and words went with them.
    assert_eq!((db.count("kb.documents"), db.count("kb.chunks"), db.vectors("m")), (0, 0, 0));
    // A source that is deleted as a document, or replaced, takes the merged entry with it, too.
    for change in [
        "SELECT kb.delete_document('m', '{id}')",
        "SELECT kb.remember('m', 'Another text.', 'user:1', id => '{id}')",
        "SELECT kb.remember('m', 'Antwort is a project.', 'user:1', expires_at => '2998-01-01')",
    ] {
        let [first, _, _, merged] = with_merged(&mut db, &stub);
        db.run(&change.replace("{id}", &first));
        assert_eq!(db.count(&format!("kb.memories WHERE id = '{merged}'")), 0, "{change}");
        assert_eq!(db.count("kb.memories WHERE consolidated_into IS NOT NULL"), 0, "{change}");
        // What is left of the group is compared once more.
        assert!(db.count("kb.memory_entries WHERE NOT is_compared") >= 1, "{change}");
        if change.contains("Another") {
            assert_eq!(db.count("kb.memory_entries WHERE NOT is_compared"), 2);
        }
        db.run("SELECT kb.forget('m', subject => 'user:1')");
        assert_eq!(db.count("kb.memories"), 0, "{change}");
    }
    // So is an entry that was not merged, when its text is replaced.
    let [_, _, third, _] = with_merged(&mut db, &stub);
    assert_eq!(db.count("kb.memory_entries WHERE NOT is_compared"), 0);
    db.run(&format!("SELECT kb.remember('m', 'Another text.', 'user:1', id => '{third}')"));
    assert_eq!(db.count("kb.memory_entries WHERE NOT is_compared"), 1);
    db.run("SELECT kb.forget('m', subject => 'user:1')");
    // All at once.
    with_merged(&mut db, &stub);
    let all: String = db
        .one("SELECT concat_ws(' ', forgotten, derived, restored) FROM kb.forget('m', subject => 'user:1')");
    assert_eq!(all, "4 0 0");
    with_merged(&mut db, &stub);
    db.run("SELECT kb.drop_memory('m')");
    assert_eq!((db.count("kb.documents"), db.count("kb.memory_entries")), (0, 0));
}

#[test]
fn what_is_forgotten_or_changed_while_the_model_thinks_is_in_no_entry() {
    let Some((cluster, mut db, stub)) = fixture() else { return };
    let [first, ..] = with_facts(&mut db);
    stub.say(Some(&merged("Antwort is secret.", "1, 2")));
    stub.hold(true);
    db.run("SELECT kb.consolidate_memories('m')");
    until(SOON, "the model is asked", || stub.request_count() == 1);
    assert_eq!(forget(&mut db, &first), "1 0 0");
    stub.hold(false);
    until_done(&mut db);
    assert_eq!(db.count("kb.memories"), 2);
    // So it is with one that ended.
    let first = remember(&mut db, "Antwort is a project.", "");
    db.wait("m");
    stub.hold(true);
    stub.forget();
    db.run("SELECT kb.consolidate_memories('m')");
    until(SOON, "the model is asked", || stub.request_count() == 1);
    db.run(&format!("SELECT kb.remember('m', 'Antwort has ended.', 'user:1', supersedes => '{first}')"));
    stub.hold(false);
    until_done(&mut db);
    assert!(stub.request_count() > 1, "the others are compared again");
    assert_eq!(db.count(&format!("kb.memories WHERE id = '{first}' AND consolidated_into IS NOT NULL")), 0);
    // One whose text another session is changing when the answer comes.
    remember(&mut db, "Antwort is a game.", ", id => 'game'");
    db.wait("m");
    stub.hold(true);
    stub.forget();
    db.run("SELECT kb.consolidate_memories('m')");
    until(SOON, "the model is asked", || stub.request_count() == 1);
    let mut other = cluster.connect(APP);
    other.run("BEGIN; SELECT kb.remember('m', 'Ships sail.', 'user:1', id => 'game')");
    stub.hold(false);
    until(SOON, "the worker waits", || {
        db.count("pg_stat_activity WHERE backend_type = 'kb worker' AND wait_event_type = 'Lock'") == 1
    });
    other.run("COMMIT");
    until_done(&mut db);
    assert_eq!(
        db.count("kb.memories WHERE id = 'game' AND fact = 'Ships sail.' AND consolidated_into IS NULL"),
        1
    );
    assert_eq!(db.count("kb.memories WHERE fact LIKE '%game%'"), 0);
    // With a memory that is dropped, all ends.
    remember(&mut db, "Antwort is a game in Go.", "");
    db.wait("m");
    stub.hold(true);
    stub.forget();
    db.run("SELECT kb.consolidate_memories('m')");
    until(SOON, "the model is asked", || stub.request_count() == 1);
    db.run("SELECT kb.drop_memory('m')");
    stub.hold(false);
    until(SOON, "the worker has left", || db.count("pg_stat_activity WHERE backend_type = 'kb worker'") == 0);
    assert_eq!((db.count("kb.chat_requests"), db.count("kb.memories")), (0, 0));
}

#[test]
fn a_fact_that_no_longer_holds_ends_what_was_made_of_it() {
    let Some((_cluster, mut db, stub)) = fixture() else { return };
    let [first, second, _, merged] = with_merged(&mut db, &stub);
    let holds = |db: &mut Db| -> String {
        db.one(
            "SELECT string_agg(fact, ' ' ORDER BY fact COLLATE \"C\") FROM kb.memories
             WHERE valid_to IS NULL AND consolidated_into IS NULL AND fact LIKE 'Antwort%'",
        )
    };
    remember(&mut db, "Antwort is in Rust.", &format!(", supersedes => '{second}'"));
    db.wait("m");
    assert_eq!(holds(&mut db), "Antwort is a project. Antwort is in Rust.");
    // It was true, and stays as history.
    assert_eq!(db.count(&format!("kb.memories WHERE id = '{merged}' AND valid_to IS NOT NULL")), 1);
    assert_eq!(db.one::<i64>("SELECT kb.consolidate_memories('m')"), 3);
    until_done(&mut db);
    db.wait("m");
    // What supersedes a merged entry ends what it was made of.
    assert_eq!(holds(&mut db), PROJECT);
    let merged: String =
        db.one("SELECT consolidated_into FROM kb.memories WHERE fact = 'Antwort is a project.'");
    db.run(&format!("SELECT kb.remember('m', 'Antwort was given up.', 'user:1', supersedes => '{merged}')"));
    assert_eq!(holds(&mut db), "Antwort was given up.");
    let ended: i64 =
        db.one("SELECT count(*) FROM kb.memories WHERE valid_to IS NOT NULL AND superseded_by IS NOT NULL");
    assert_eq!(ended, 4);
    assert_eq!(forget(&mut db, &first), "1 1 1");
}

#[test]
fn when_a_merged_entry_expires_those_that_do_not_are_recalled_again() {
    let Some((_cluster, mut db, stub)) = fixture() else { return };
    let [first, ..] = with_merged(&mut db, &stub);
    db.run(&format!(
        "UPDATE kb.memory_entries m SET expires_at = now() - interval '1 s' FROM kb.memories e
         WHERE e.expires_at IS NOT NULL AND m.document_id = (
             SELECT document_id FROM kb.documents d WHERE d.external_id = e.id AND e.id <> '{first}')"
    ));
    assert!(!recalled(&mut db, "").contains(&PROJECT.to_string()));
    assert_eq!(recalled(&mut db, ", tags => '{code}'"), ["Antwort is in Go."]);
    assert_eq!(db.all::<String>("SELECT fact FROM kb.recall_by_tags('m', '{code}')"), ["Antwort is in Go."]);
}

#[test]
fn a_worker_that_is_killed_time_and_again_merges_each_group_once() {
    let (cluster, mut db) = crate::crashing!();
    let stub = Stub::start(Options::default());
    create(&mut db, &stub);
    db.run("SELECT kb.create_knowledge_base('k', 'hash')");
    stub.say(Some(&merged(PROJECT, "1, 2")));
    for round in 0..15 {
        db.run(&format!(
            "SELECT kb.remember('m', 'Antwort is a project.', 's{round}'), kb.remember('m', 'Antwort is in Go.', 's{round}')"
        ));
        db.wait("m");
        // While the model thinks, and while its answer is stored.
        let is_held = round % 2 == 0;
        stub.hold(is_held);
        stub.forget();
        db.run("SELECT kb.consolidate_memories('m')");
        until(SOON, "the model is asked", || stub.request_count() > 0);
        signal(cluster.worker(APP), libc::SIGKILL);
        db = cluster.reconnect_after_crash(db);
        stub.hold(false);
        // If all was stored, only the request is left, and another work has a worker look at it.
        db.run("SELECT kb.consolidate_memories('m')");
        db.put_and_wait("k", "d", &round.to_string());
        until_done(&mut db);
        let made = format!("kb.memories WHERE fact = '{PROJECT}'");
        assert_eq!(db.count(&made), i64::from(round) + 1);
        assert_eq!(db.count("kb.memories WHERE consolidated_into IS NOT NULL"), 2 * (i64::from(round) + 1));
        assert_eq!(db.count("kb.memory_entries WHERE NOT is_compared"), 0);
    }
}

#[test]
fn it_is_done_once_a_day_if_the_memory_has_a_chat_model() {
    let Some((_cluster, mut db, stub)) = fixture() else { return };
    let next = "SELECT extract(epoch FROM next_consolidation_at - now())::bigint FROM kb.memory_stores";
    assert_eq!(db.one::<Option<i64>>(next), None);
    db.run(r#"SELECT kb.alter_memory('m', '{"llm": "talker", "consolidation": {"min_similarity": 0.4}}')"#);
    let day = db.one::<Option<i64>>(next).unwrap();
    assert!((86_000..=86_401).contains(&day), "{day}");
    db.run(r#"SELECT kb.alter_memory('m', '{"llm": "talker", "consolidation": {"min_similarity": 0.4, "interval_hours": 1}}')"#);
    assert!(db.one::<Option<i64>>(next).unwrap() <= 3_601);
    with_facts(&mut db);
    stub.say(Some(&merged(PROJECT, "1, 2")));
    assert_eq!(db.count("kb.chat_requests"), 0);
    // The time comes.
    db.run("UPDATE kb.memory_stores SET next_consolidation_at = now() - interval '1 s'");
    db.run("SELECT kb.remember('m', 'Something else altogether.', 'user:2')");
    until(SOON, "it is merged", || db.count("kb.memories WHERE consolidated_into IS NOT NULL") == 2);
    until_done(&mut db);
    assert!((3_500..=3_601).contains(&db.one::<Option<i64>>(next).unwrap()));
    assert_eq!(stub.request_count(), 1);
    // Without a chat model, there is no next time.
    db.run("SELECT kb.alter_memory('m', '{}')");
    assert_eq!(db.one::<Option<i64>>(next), None);
    assert!(db.refused("SELECT kb.consolidate_memories('m')", "55000").message.contains("chat model"));
}

#[test]
fn no_other_tenant_can_have_a_memory_merged_and_a_reader_cannot_either() {
    let Some((cluster, mut db, stub)) = fixture() else { return };
    with_merged(&mut db, &stub);
    db.run("SELECT kb.create_knowledge_base('k', 'hash')");
    db.refused("SELECT kb.consolidate_memories('k')", "42704");
    db.refused("SELECT kb.consolidate_memories('nothing')", "42704");
    db.refused("SELECT kb.consolidate_memories(NULL)", "22004");
    let mut all = sessions(&cluster, &mut db, &[("a", "kb_writer")]);
    all[0].refused("SELECT kb.consolidate_memories('m')", "42704");
    db.run("SET ROLE kb_reader");
    db.refused("SELECT kb.consolidate_memories('m')", "42501");
    db.run("RESET ROLE");
    // The requests and entries of one tenant are not seen by another.
    stub.hold(true);
    remember(&mut db, "Antwort is on Kubernetes.", "");
    db.wait("m");
    db.run("SELECT kb.consolidate_memories('m')");
    assert_eq!((all[0].count("kb.chat_requests"), all[0].count("kb.memories")), (0, 0));
    assert_eq!(db.count("kb.chat_requests WHERE kind = 'consolidation' AND conversation_id IS NULL"), 1);
    stub.hold(false);
}

#[test]
fn merged_entries_go_through_a_dump_and_are_merged_further_after_it() {
    let Some((cluster, mut db, stub)) = fixture() else { return };
    with_merged(&mut db, &stub);
    let file = crate::dump::dump(&cluster, "dump", &["--format=custom"]);
    crate::dump::create_empty(&cluster, "restored");
    crate::dump::restore(&cluster, "restored", &file, crate::dump::PG_RESTORE);
    let mut restored = cluster.connect("restored");
    let own = ["kb.memory_entries ", "kb.memory_stores ", "kb.chat_requests "];
    let rows = |db: &mut Db| -> Vec<String> {
        let all = crate::dump::rows(db).into_iter();
        all.filter(|row| own.iter().any(|table| row.starts_with(table))).collect()
    };
    assert_eq!((rows(&mut restored).len(), rows(&mut restored)), (3, rows(&mut db)));
    restored.run("SELECT kb.acknowledge_restore()");
    restored.wait("m");
    assert_eq!(recalled(&mut restored, "")[0], PROJECT);
    remember(&mut restored, "Antwort is a project in Go on Kubernetes.", "");
    restored.wait("m");
    assert_eq!(consolidate(&mut restored), 1);
    assert_eq!(restored.count("kb.memories WHERE consolidated_into IS NOT NULL"), 4);
}
