//! The order in which texts are sent to a provider.

use crate::stub::{Options, Stub};
use crate::support::{Document, SOON, WHOLE, texts, until};

#[test]
fn an_edit_is_sent_without_waiting_for_a_full_request_during_an_ingestion() {
    let stub = Stub::start(Options::default());
    stub.hold(true);
    let (_cluster, mut db) = crate::connected!();
    db.create_stub_embedder("e", &stub, r#"{"batch_size": 8, "max_concurrency": 4, "timeout_ms": 60000}"#);
    db.create_kb(
        "edited",
        "e",
        r#"{"strategy": "fixed", "tokenizer": "cl100k_base", "size": 40, "overlap": 0}"#,
    );
    db.create_kb("filled", "hash", WHOLE);
    // The provider holds as many texts of the knowledge base as a request takes, and has room for one more
    // request.
    db.put_all("edited", &[Document::new("large", texts::text(1, 5, 100))]);
    until(SOON, "the provider has three requests", || stub.request_count() == 3);
    db.put_all("filled", &texts::documents(0..6000, 12));
    db.put_all("edited", &[Document::new("edit", "one short text")]);
    until(SOON, "the provider has the edit", || stub.request_count() == 4);
    let left = db.count("kb.jobs j JOIN kb.knowledge_bases k USING (kb_no) WHERE k.id = 'filled'");
    assert!(left > 1000, "only {left} documents were still to be done");
    stub.hold(false);
    db.wait("edited");
}

#[test]
fn the_first_documents_of_many_are_cut_alone_so_that_their_vectors_come_early() {
    let (_cluster, mut db) = crate::with_kb!("hash", "{}");
    let documents: Vec<Document> =
        (0..24).map(|i| Document::new(format!("{i:02}"), texts::text(i, 10, 150))).collect();
    assert!(documents.iter().all(|document| (9_000..16_000).contains(&document.content.len())));
    // The same for a second load as for the first.
    for load in 0..2 {
        db.put_all_and_wait("k", &documents);
        // The documents whose chunks were written in each transaction.
        let groups: Vec<String> = db.all(
            "SELECT string_agg(DISTINCT d.external_id, ' ') FROM kb.chunks c JOIN kb.documents d USING (document_id)
             GROUP BY c.xmin::text ORDER BY min(d.document_id)",
        );
        assert_eq!(groups[0], "00", "load {load}: {groups:?}");
        assert!((3..=8).contains(&groups.len()), "load {load}: {groups:?}");
        db.run("SELECT count(kb.delete_document('k', external_id)) FROM kb.documents");
    }
}
