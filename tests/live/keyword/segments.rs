//! Segments stay few, whatever is added and deleted, and answers stay those of the model.

use super::{compare, create, question, statistics_are_true, text};
use crate::keyword::model::Model;
use crate::support::random::Rng;
use crate::support::{APP, Cluster, Db, Document, PENDING_CHUNKS, SOON, until};

/// The number of chunks that are folded into a segment.
const FOLDED: usize = 256;
const COMMITS: usize = 14;

/// The chunks of segments, including deleted ones, the oldest segment first.
fn sizes(db: &mut Db) -> Vec<i64> {
    db.all("SELECT (came + went)::bigint FROM kb.bm25_segments ORDER BY age")
}

/// Each has at least twice as many chunks as all younger ones together (crates/kb-search/src/levels.rs), so
/// their number grows with the logarithm of the chunks.
fn are_few(sizes: &[i64]) -> bool {
    (0..sizes.len()).all(|n| sizes[n] >= 2 * sizes[n + 1..].iter().sum::<i64>())
}

#[test]
fn many_small_commits_leave_few_segments_and_scores_that_are_true() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "k");
    let (mut random, mut model) = (Rng::with_seed(23), Model::default());
    for commit in 0..COMMITS {
        let before: i64 = db.one("SELECT coalesce(max(segment_no), 0) FROM kb.bm25_segments");
        let mut documents = Vec::new();
        for n in 0..FOLDED {
            let id = format!("d{commit}x{n}");
            let text = text(&mut random, &id);
            model.0.insert(id.clone(), text.clone());
            documents.push(Document::new(id, text));
        }
        db.put_all_and_wait("k", &documents);
        // Each commit is a segment of its own first.
        until(SOON, "the commit is folded, and segments are merged", || {
            let is_folded = db.count(&format!("kb.bm25_segments WHERE segment_no > {before}")) > 0;
            is_folded && db.count(PENDING_CHUNKS) < FOLDED as i64 && are_few(&sizes(&mut db))
        });
        let segments = sizes(&mut db);
        // Each has 256 chunks or more: 3 to the power of their number is at most three times the number of
        // chunks in units of 256.
        assert!(3_usize.pow(segments.len() as u32) <= 3 * (commit + 1), "{commit}: {segments:?}");
        compare(&mut db, "k", &model, &question(&mut random), 20);
    }
    statistics_are_true(&mut db);
    // Deletions become segments, too; most of what is deleted is not kept.
    let ids: Vec<String> = model.0.keys().filter(|id| !id.ends_with("x7")).cloned().collect();
    for ids in ids.chunks(FOLDED + 50) {
        db.0.execute("SELECT kb.delete_documents('k', $1)", &[&ids]).unwrap();
        ids.iter().for_each(|id| drop(model.0.remove(id)));
    }
    until(SOON, "what is gone is folded, and segments are merged", || {
        let of_gone: bool = db.one("SELECT sum(went) * 5 <= sum(came) FROM kb.bm25_segments");
        of_gone && db.count(PENDING_CHUNKS) < FOLDED as i64 && are_few(&sizes(&mut db))
    });
    assert_eq!(model.0.len(), COMMITS);
    compare(&mut db, "k", &model, &question(&mut random), 20);
    statistics_are_true(&mut db);
}

#[test]
fn a_chunk_that_came_and_went_before_and_behind_the_end_of_a_fold_leaves_no_trace() {
    let (_cluster, mut db) = crate::connected!();
    super::create(&mut db, "k");
    db.put_and_wait("k", "a", "The ferry leaves the harbor.");
    // As many as are folded at once lie between, of chunks that do not exist.
    let noted = |ids: &str, terms: &str| {
        format!(
            "INSERT INTO kb.bm25_pending (build_no, tenant_id, chunk_ids, terms)
             SELECT c.build_no, c.tenant_id, {ids}, {terms} FROM kb.chunks c"
        )
    };
    let one = "ARRAY['11111111-1111-1111-1111-111111111111'::uuid]";
    let others = "(SELECT array_agg(gen_random_uuid()) FROM generate_series(1, 100 + 0 * i)) FROM generate_series(1, 200) i, kb.chunks c";
    let (came, went) = (noted(one, "NULL"), noted(one, "c.terms"));
    db.run(&format!(
        "BEGIN; {came}; {went};
         INSERT INTO kb.bm25_pending (build_no, tenant_id, chunk_ids) SELECT c.build_no, c.tenant_id, {others};
         {came}; {went}; COMMIT"
    ));
    db.put_and_wait("k", "b", "The ferry enters the harbor.");
    until(SOON, "all are folded", || db.count(PENDING_CHUNKS) < FOLDED as i64);
    super::statistics_are_true(&mut db);
    // Each of the two has five words.
    assert!(db.one::<bool>("SELECT sum(sum_length) = 5 * sum(came - went) FROM kb.bm25_segments"));
}

#[test]
fn folding_looks_up_chunks_one_by_one_even_with_outdated_statistics() {
    let cluster =
        crate::cluster!("shared_preload_libraries = 'kb, auto_explain'", "auto_explain.log_min_duration = 0");
    let mut db = cluster.connect(APP);
    let mut random = Rng::with_seed(5);
    for kb in ["old", "new"] {
        create(&mut db, kb);
        let document = |n| Document::new(format!("d{n}"), text(&mut random, &format!("{kb}{n}")));
        db.put_all_and_wait(kb, &(0..FOLDED).map(document).collect::<Vec<_>>());
        let segments =
            format!("kb.bm25_segments s JOIN kb.knowledge_bases k ON k.kb_no = s.kb_no WHERE k.id = '{kb}'");
        until(SOON, "what came is folded", || {
            db.count(&segments) > 0 && db.count(PENDING_CHUNKS) < FOLDED as i64
        });
        // According to these statistics, all chunks belong to the old build.
        db.run("ANALYZE kb.chunks");
    }
    let plans = plans_with_lookups(
        &cluster,
        "DELETE FROM kb.bm25_pending p WHERE p.build_no = $1 AND p.tenant_id = $2 AND p.pending_no <= $3",
    );
    assert!(plans >= 2, "{plans}");
    // Nothing else of a chunk is looked up by reading all chunks, either.
    let log = cluster.log();
    let joins = log.lines().filter(|line| line.contains("Join Filter:") && line.contains("chunk_id"));
    assert_eq!(joins.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_question_looks_up_the_chunks_that_wait_to_be_folded_one_by_one() {
    let cluster = crate::cluster!(
        "shared_preload_libraries = 'kb, auto_explain'",
        "auto_explain.log_min_duration = 0",
        "auto_explain.log_nested_statements = on"
    );
    let mut db = cluster.connect(APP);
    create(&mut db, "k");
    // They are so short that a plan would rather read all than look up some.
    let document = |n| Document::new(format!("d{n}"), format!("Ship {n} is at sea."));
    db.put_all_and_wait("k", &(0..20 * FOLDED).map(document).collect::<Vec<_>>());
    until(SOON, "what came is folded", || db.count(PENDING_CHUNKS) < FOLDED as i64);
    let mut n = 0;
    until(SOON, "60 chunks wait to be folded", || {
        db.put("k", &format!("one{n}"), &format!("Ferry {n} waits."));
        db.wait("k");
        n += 1;
        db.count(PENDING_CHUNKS) >= 60
    });
    db.run("ANALYZE");
    assert_eq!(db.count("kb.query('k', 'ferry', 3, mode => 'keyword')"), 3);
    let plans = plans_with_lookups(&cluster, "SELECT u.chunk_id, p.terms AS went, c.terms AS here");
    assert!(plans >= 1, "{plans}");
}

/// How many plans of a statement are in the log. Each of them looks up chunks by their identifiers.
fn plans_with_lookups(cluster: &Cluster, statement: &str) -> usize {
    let mut plans = 0;
    for after in cluster.log().split("plan:\n").skip(1) {
        let plan: Vec<&str> = after.lines().take_while(|line| line.starts_with('\t')).collect();
        if !plan.iter().any(|line| line.contains(statement)) {
            continue;
        }
        let is_looked_up =
            |line: &&str| line.contains("Index Cond:") && line.contains("(chunk_id = u.chunk_id)");
        assert!(plan.iter().any(is_looked_up), "{}", plan.join("\n"));
        plans += 1;
    }
    plans
}
