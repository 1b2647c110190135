//! kb.put_objects and kb.relevant: JSON objects are documents, and a question about them is answered even
//! while the embedder is away.

use crate::stub::Fault;
use crate::support::{APP, Db, assert_sound};
use serde_json::{Value, json};

/// External ids with the status of each.
fn put(db: &mut Db, objects: &[Value]) -> Vec<String> {
    let objects: Vec<String> = objects.iter().map(Value::to_string).collect();
    db.all_with(
        "SELECT external_id || ' ' || status FROM kb.put_objects('k', $1::text[]::jsonb[])",
        &[&objects],
    )
}

#[test]
fn an_object_is_one_document_whose_metadata_it_is() {
    let (_cluster, mut db) = crate::connected!();
    db.create_kb("k", "hash", "{}");
    let seoul = json!({"cityName": "Seoul", "country": "South Korea", "population": 9.7});
    let tokyo = json!({"id": "tokyo", "title": "Tokyo", "content": "Capital of Japan.", "tags": ["asia"]});
    let first = put(&mut db, &[seoul.clone(), tokyo.clone(), seoul.clone()]);
    let [seoul_id, other] = first.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        panic!("equal objects are one document: {first:?}")
    };
    assert_eq!((seoul_id.ends_with(" added"), other), (true, "tokyo added"));
    db.wait("k");
    // jsonb ignores the order of members, and so does the hash that names an object.
    let again: Value =
        serde_json::from_str(r#"{"population": 9.7, "country": "South Korea", "cityName": "Seoul"}"#)
            .unwrap();
    assert_eq!(put(&mut db, &[again]), [seoul_id.replace("added", "skipped")]);
    let stored = "SELECT content FROM kb.documents WHERE external_id ";
    assert_eq!(db.one::<String>(&format!("{stored} = 'tokyo'")), "Capital of Japan. Tokyo");
    assert_eq!(db.one::<String>(&format!("{stored} <> 'tokyo'")), "cityName: Seoul country: South Korea");
    assert_eq!(db.count(&format!("kb.documents WHERE metadata = '{tokyo}' OR metadata = '{seoul}'")), 2);
    assert_sound(&mut db, "k", 2, 0);
    let mut edited = tokyo.clone();
    edited["content"] = json!("The capital of Japan.");
    assert_eq!(put(&mut db, &[edited]), ["tokyo updated"]);
    assert_eq!(
        put(&mut db, &[json!({"id": 7, "note": "x"}), json!({"note": "without text", "n": 1})])[0],
        "7 added"
    );
    db.wait("k");
    // An id is not a text of the standard members, but it is one of the strings.
    assert_eq!(db.one::<String>(&format!("{stored} = '7'")), "note: x");
}

#[test]
fn objects_that_cannot_be_stored_are_refused_together_with_all_others() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        r#"SELECT kb.create_knowledge_base('k', 'hash');
           SELECT kb.create_knowledge_base('strict', 'hash', retrieval => '{"allowed_metadata_keys": ["id", "text"]}');
           CREATE ROLE reader LOGIN IN ROLE kb_reader; CREATE ROLE b LOGIN IN ROLE kb_writer; SELECT kb.bind_role('b', 'b')"#,
    );
    let call = |kb: &str, objects: &str, fields: &str| {
        format!("SELECT * FROM kb.put_objects('{kb}', ARRAY[{objects}]::jsonb[], '{fields}')")
    };
    let good = r#"'{"id": "a", "text": "A"}'"#;
    let huge = format!("jsonb_build_object('text', repeat('x', {}))", 1024 * 1024 + 1);
    for (kb, second, fields, code, says) in [
        (
            "k",
            r#"'{"id": "a", "text": "B"}'"#,
            "{}",
            "22023",
            "element 2: another object has the same external_id, \"a\"",
        ),
        ("k", "'[1]'", "{}", "22023", "element 2: must be a JSON object"),
        ("k", "NULL", "{}", "22023", "an element is NULL"),
        ("k", r#"'{"id": " "}'"#, "{}", "22023", "must not be empty"),
        ("k", &huge, "{}", "54000", "metadata"),
        ("k", "'{}'", r#"{"members": "some"}"#, "22023", "fields"),
        ("strict", r#"'{"id": "b", "text": "B", "secret": 1}'"#, "{}", "22023", "secret"),
        ("nope", "'{}'", "{}", "42704", "nope"),
    ] {
        let fault = db.refused(&call(kb, &format!("{good}, {second}"), fields), code);
        assert!(fault.text.contains(says), "{says}: {fault:?}");
    }
    assert_eq!(db.count("kb.documents"), 0);
    cluster.connect_as(APP, "reader").refused(&call("k", good, "{}"), "42501");
    cluster.connect_as(APP, "b").refused(&call("k", good, "{}"), "42704");
    db.refused("SELECT kb.put_objects('k', NULL)", "22004");
    db.run("SELECT kb.put_objects('k', '{}')");
    assert_eq!(db.count("kb.documents"), 0);
}

#[test]
fn relevant_texts_come_in_order_and_without_the_embedder_by_words() {
    let (stub, cluster, mut db) = crate::with_stub!("{}", "{}");
    let harbor = json!({"id": "harbor", "text": "The harbor lies south of the village."});
    let castle = json!({"id": "castle", "text": "The castle stands on a hill."});
    put(&mut db, &[harbor, castle]);
    db.wait("k");
    let texts = |db: &mut Db, question: &str, limit: &str| -> Vec<String> {
        db.all(&format!("SELECT unnest(kb.relevant('k', '{question}', {limit}))"))
    };
    let asked = "the castle on a hill";
    let in_order: Vec<String> =
        db.all(&format!("SELECT content FROM kb.query('k', '{asked}') ORDER BY rank"));
    assert_eq!(in_order.len(), 2);
    assert_eq!(texts(&mut db, asked, "NULL"), in_order);
    assert_eq!(texts(&mut db, asked, "1"), in_order[..1]);
    stub.always(Some(Fault::Status(500)));
    db.refused("SELECT * FROM kb.query('k', 'is the harbor far away?')", "08006");
    assert_eq!(texts(&mut db, "is the harbor far away?", "5"), ["The harbor lies south of the village."]);
    assert_eq!(texts(&mut db, "nothing qualifies", "5"), [""; 0]);
    // A key that is missing, and an embedder that is paused.
    for secret in ["env:KB_NO_SUCH_KEY", "kb:none"] {
        db.run(&format!("SELECT kb.alter_embedder('e', secret => '{secret}')"));
        assert_eq!(texts(&mut db, "harbor", "5").len(), 1, "{secret}");
    }
    db.refused("SELECT kb.relevant('nope', 'harbor')", "42704");
    db.refused("SELECT kb.relevant('k', ' ')", "22023");
    db.refused("SELECT kb.relevant('k', 'harbor', 0)", "22023");
    db.refused("SELECT kb.relevant('k', NULL)", "22004");
    db.run("CREATE ROLE b LOGIN IN ROLE kb_reader; SELECT kb.bind_role('b', 'b'); CREATE ROLE nobody LOGIN");
    cluster.connect_as(APP, "b").refused("SELECT kb.relevant('k', 'harbor')", "42704");
    cluster.connect_as(APP, "nobody").fault("SELECT kb.relevant('k', 'harbor')");
}
