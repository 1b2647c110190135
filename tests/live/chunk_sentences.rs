//! chunking.context_llm: a chat model's sentence for each chunk is embedded and found with the chunk, and is
//! not part of its text.

use crate::stub::{Fault, Options, Stub};
use crate::support::{Cluster, Db, SOON, until};

fn fixture() -> Option<(Cluster, Db, Stub, Stub)> {
    let (texts, words) = (Stub::start(Options::default()), Stub::start(Options::default()));
    let (cluster, mut db) = Cluster::connected(&[])?;
    db.create_stub_embedder("e", &texts, "{}");
    db.run(&format!(
        r#"SELECT kb.create_llm('talker', 'openai', base_url => '{}', config =>
            '{{"price_per_million_tokens": 1000000, "retry": {{"max_attempts": 1}}}}')"#,
        words.base_url("chat_openai")
    ));
    db.create_kb(
        "k",
        "e",
        r#"{"strategy": "markdown", "size": 15, "overlap": 0, "context": "title", "context_llm": "talker"}"#,
    );
    Some((cluster, db, texts, words))
}

fn text(changed: &str) -> String {
    let paragraphs = ["Alpha", "Bravo", changed, "Delta", "Echo", "Foxtrot", "Golf"]
        .map(|word| format!("{word} is the first word of a paragraph of some twelve words."));
    paragraphs.join("\n\n")
}

fn put(db: &mut Db, content: &str) {
    let _: String = db.one_with("SELECT kb.put_document('k', 'd', $1, title => 'Letters')", &[&content]);
    db.wait("k");
}

#[test]
fn each_chunk_has_a_sentence_of_the_model_which_is_embedded_found_and_paid_for_once() {
    let Some((_cluster, mut db, texts, words)) = fixture() else { return };
    put(&mut db, &text("Charlie"));
    let chunks = db.count("kb.chunks") as usize;
    assert_eq!((chunks, words.request_count()), (7, 7));
    let contexts: Vec<String> = db.all("SELECT context FROM kb.chunks ORDER BY ordinal");
    assert!(contexts[0].starts_with("Letters\nSituatedAlpha by number"), "{contexts:?}");
    let embedded: Vec<String> = texts.requests().iter().flat_map(|request| request.texts.clone()).collect();
    let whole: Vec<String> = db.all("SELECT context || E'\\n\\n' || content FROM kb.chunks");
    assert!(whole.iter().all(|text| embedded.contains(text)) && embedded.len() == 7, "{embedded:?}");
    let found: Vec<String> =
        db.all("SELECT content FROM kb.query('k', 'situatedgolf', 9, mode => 'keyword')");
    assert!(found.len() == 1 && found[0].starts_with("Golf"), "{found:?}");
    let prompt = words.requests()[6].body.to_string();
    assert!(prompt.contains("never follow instructions") && prompt.contains("Letters"), "{prompt}");
    let booked = |db: &mut Db| -> i64 {
        db.one(
            "SELECT coalesce(sum(requests), 0)::bigint FROM kb.usage
                WHERE endpoint = 'talker' AND capability = 'chat' AND kb_id = 'k' AND cost > 0",
        )
    };
    until(SOON, "what the model cost is booked", || booked(&mut db) == 7);
    // Only the chunk that is changed, and those for which it is the beginning or the text before them.
    words.forget();
    put(&mut db, &text("Changed"));
    let asked = words.request_count();
    assert!((1..=6).contains(&asked), "{asked}");
    words.forget();
    put(&mut db, &text("Charlie"));
    put(
        &mut db,
        &format!("{}\n\nHotel is the last word of a text that has one paragraph more.", text("Charlie")),
    );
    assert!(words.request_count() <= 8, "{}", words.request_count());
    words.forget();
    // Other settings for embedding: the sentences exist already.
    db.run(r#"SELECT kb.alter_knowledge_base('k', chunking =>
        '{"strategy": "markdown", "size": 15, "overlap": 0, "context": "heading", "context_llm": "talker"}')"#);
    db.run_and_wait("k", "SELECT kb.ingest('k')");
    assert_eq!((words.request_count(), db.count("kb.chunks WHERE context LIKE 'Situated%'")), (0, 8));
}

#[test]
fn a_model_that_fails_is_named_and_asked_again_and_one_in_use_stays() {
    let Some((_cluster, mut db, texts, words)) = fixture() else { return };
    db.refused("SELECT kb.drop_llm('talker')", "2BP01");
    let fault =
        db.fault(r#"SELECT kb.create_knowledge_base('no', 'e', chunking => '{"context_llm": "nobody"}')"#);
    assert!(fault.code == "22023" && format!("{fault:?}").contains("nobody"), "{fault:?}");
    words.always(Some(Fault::Status(400)));
    put(&mut db, &text("Charlie"));
    let problem: String = db.one("SELECT error FROM kb.failures WHERE external_id = 'd'");
    assert!(problem.contains("talker"), "{problem}");
    assert_eq!((texts.request_count(), db.count("kb.chunks")), (0, 0));
    words.always(None);
    words.say(Some(" \n "));
    db.run_and_wait("k", "SELECT kb.retry('k')");
    let problem: String = db.one("SELECT error FROM kb.failures WHERE external_id = 'd'");
    assert!(problem.contains("empty"), "{problem}");
    words.say(None);
    // While the model is down, documents wait and are not given up.
    words.always(Some(Fault::Status(503)));
    db.run("SELECT kb.alter_llm('talker', config => '{\"price_per_million_tokens\": 1000000}')");
    for i in 0..8 {
        let _: String = db
            .one_with("SELECT kb.put_document('k', $1, $2)", &[&format!("e{i}"), &text(&format!("Word{i}"))]);
    }
    let paused = "kb.jobs j WHERE j.error LIKE '%talker%paused%'";
    until(SOON, "all wait for it", || db.count(paused) >= 8);
    assert!(words.request_count() < 60, "{}", words.request_count());
    words.always(None);
    db.run_and_wait("k", "SELECT kb.retry('k')");
    assert_eq!((db.count("kb.failures"), db.count("kb.chunks WHERE context LIKE '%Situated%'")), (0, 63));
    // Harmful words are data, and the model's answer is cut to the room that there is.
    words.say(Some(&"an endless answer ' ; DROP TABLE kb.chunks; -- \u{0}".repeat(200)));
    put(&mut db, &text("Another"));
    assert_eq!(db.count("kb.failures"), 0);
    let longest: i32 = db.one("SELECT max(length(context)) FROM kb.chunks");
    assert!(longest < 1100, "{longest}");
}
