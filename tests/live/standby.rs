//! A hot standby answers questions and refuses to write.

use crate::support::{APP, SOON, texts, until};

#[test]
fn a_hot_standby_answers_questions_and_refuses_to_write() {
    let primary = crate::cluster!("wal_level = replica");
    let mut db = primary.connect(APP);
    for (kb, embedder) in [("plain", "hash"), ("model", "minilm")] {
        db.create_kb(kb, embedder, "{}");
        for i in 0..20 {
            db.put(kb, &format!("d{i}"), &texts::paragraph(i, 30));
        }
        db.wait(kb);
    }
    for settings in [&[][..], &[crate::support::cluster::PRELOAD]] {
        let standby = primary.standby(settings);
        let mut replica = standby.connect(APP);
        assert!(replica.one::<bool>("SELECT pg_is_in_recovery()"));
        // What the primary commits from now on arrives, too.
        let late = texts::paragraph(500, 30);
        db.put("plain", "late", &late);
        db.put("model", "late", &late);
        db.wait("plain");
        db.wait("model");
        until(SOON, "the last document has arrived", || {
            replica.count("kb.documents WHERE external_id = 'late' AND status = 'ready'") == 2
        });
        for kb in ["plain", "model"] {
            for i in 0..20 {
                assert_eq!(replica.found(kb, &texts::paragraph(i, 30), 1), [format!("d{i}")], "{kb}");
            }
            assert_eq!(replica.found(kb, &late, 1), ["late"]);
            let question = "where do farmers sell apples?";
            assert_eq!(replica.found(kb, question, 10), db.found(kb, question, 10), "{kb}");
        }
        let vector: String = db.one("SELECT kb.embed('minilm', ARRAY['a river'])::text");
        let count: i64 = replica
            .one_with("SELECT count(*) FROM kb.query_vector('model', $1::text::vector, 3)", &[&vector]);
        assert_eq!(count, 3);
        assert_eq!(replica.count("kb.embed('minilm', '{a river}')"), 1);
        for statement in [
            "SELECT kb.put_document('plain', 'x', 'text')",
            "SELECT * FROM kb.put_documents('plain', ARRAY['{\"external_id\": \"x\", \"content\": \"y\"}'::jsonb])",
            "SELECT kb.delete_document('plain', 'd0')",
            "SELECT * FROM kb.delete_documents('plain', ARRAY['d0'])",
            "SELECT kb.ingest('plain')",
            "SELECT kb.retry('plain')",
            "SELECT kb.wait('plain', 5)",
            "SELECT kb.create_knowledge_base('x', 'hash')",
            "SELECT kb.drop_knowledge_base('plain')",
            "SELECT kb.create_embedder('x', 'hash', dimension => 8)",
        ] {
            replica.refused(statement, "25006");
        }
        // Functions that only read.
        replica.run("SELECT * FROM kb.status; SELECT * FROM kb.failures; SELECT * FROM kb.health()");
        replica.run("SELECT * FROM kb.chunk('A text.'); SELECT kb.count_tokens('A text.')");
        assert!(standby.processes("kb worker", Some(APP)).is_empty());
        assert_ne!(standby.gateway(), primary.gateway());
        db.run("SELECT kb.delete_document('plain', 'late'), kb.delete_document('model', 'late')");
    }
}

#[test]
fn a_promoted_standby_takes_up_the_work() {
    let primary = crate::cluster!("wal_level = replica");
    let mut db = primary.connect(APP);
    db.create_kb("k", "hash", "{}");
    let standby = primary.standby(&[crate::support::cluster::PRELOAD, "kb.launcher_naptime = '1s'"]);
    let mut replica = standby.connect(APP);
    until(SOON, "the knowledge base has arrived", || replica.count("kb.knowledge_bases") == 1);
    replica.run("SELECT pg_promote()");
    replica.put("k", "d", "Written on what was the standby.");
    until(SOON, "the document is ready", || replica.jobs() == 0);
    assert_eq!(replica.found("k", "standby", 5), ["d"]);
}
