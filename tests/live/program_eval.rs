//! kb eval and kb tune measure what kb.evaluate and kb.tune measure, with a folder in the format of BEIR
//! as well as with an evaluation set.

use crate::program::{program, said};
use crate::support::Cluster;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const ANIMALS: [&str; 12] =
    ["ant", "bear", "cat", "dog", "eagle", "fox", "goat", "horse", "ibis", "jackal", "koala", "lynx"];

/// A collection of a document and a question for each animal, and a question that is not judged.
fn collection(cluster: &Cluster) -> PathBuf {
    let folder = cluster.path("animals");
    fs::create_dir_all(folder.join("qrels")).unwrap();
    let lines = |line: &dyn Fn(&str) -> Value| -> String {
        ANIMALS.iter().map(|animal| format!("{}\n", line(animal))).collect()
    };
    let document = |animal: &str| {
        serde_json::json!({"_id": format!("d-{animal}"), "title": format!("The {animal}"),
                           "text": format!("It is said of the {animal} that it sleeps at noon.")})
    };
    let question =
        |animal: &str| serde_json::json!({"_id": animal, "text": format!("when does the {animal} sleep?")});
    fs::write(folder.join("corpus.jsonl"), lines(&document)).unwrap();
    let queries = lines(&question) + "{\"_id\": \"none\", \"text\": \"not judged\"}\n";
    fs::write(folder.join("queries.jsonl"), queries).unwrap();
    let judged: String = ANIMALS.iter().map(|animal| format!("{animal}\td-{animal}\t2\n")).collect();
    fs::write(folder.join("qrels/test.tsv"), format!("query-id\tcorpus-id\tscore\n{judged}")).unwrap();
    folder
}

fn svg(file: &Path) -> String {
    let svg = fs::read_to_string(file).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("nDCG"), "{svg}");
    svg
}

#[test]
fn a_folder_of_beir_becomes_documents_questions_and_measures_of_each_mode() {
    let (cluster, mut db) = crate::with_kb!("minilm", "{}");
    let folder = collection(&cluster);
    let plot = cluster.path("plot.svg");
    let run = |arguments: &[&str]| said(program(&cluster).args(["eval", "k"]).arg(&folder).args(arguments));
    let measured = run(&["--json", "-k", "3", "--plot", plot.to_str().unwrap()]);
    let rows = measured.json()["rows"].clone();
    let modes: Vec<&str> =
        rows.as_array().unwrap().iter().map(|row| row["options"]["mode"].as_str().unwrap()).collect();
    assert_eq!(modes, ["dense", "keyword", "hybrid"]);
    // The same by SQL, except for times.
    let of = |row: &Value| ["ndcg", "recall", "mrr", "questions", "k"].map(|key| row[key].clone());
    let sql = "SELECT json_agg(e)::text FROM kb.evaluate('k', 'animals', ARRAY['{\"mode\": \"dense\", \"k\": 3}']::jsonb[]) e";
    let by_sql: Value = serde_json::from_str(&db.one::<String>(sql)).unwrap();
    assert_eq!(of(&rows[0]), of(&by_sql[0]));
    assert_eq!(rows[1]["questions"], 12);
    assert_eq!(rows[1]["recall"], 1.0);
    assert!(svg(&plot).contains("keyword"));
    let document: String = db.one("SELECT content FROM kb.documents WHERE external_id = 'd-fox'");
    assert_eq!(document, "The fox It is said of the fox that it sleeps at noon.");
    // The same again puts nothing, and is a table for people.
    let again = run(&["--mode", "keyword"]);
    assert!(again.err.contains("0 documents put, 12 unchanged"), "{}", again.err);
    let table = again.ended(0);
    assert!(table.starts_with("MODE") && table.contains("\nkeyword") && table.contains("1.000"), "{table}");
    // Other documents are not mixed with those of a benchmark by accident.
    db.put_and_wait("k", "mine", "My own");
    let refused = run(&[]).complained(1);
    assert!(
        refused.contains("has 1 documents that are not in") && refused.contains("--no-corpus"),
        "{refused}"
    );
    run(&["--no-corpus", "--mode", "keyword"]).ended(0);
    run(&["--corpus", "--mode", "keyword", "--name", "other"]).ended(0);
    assert_eq!(db.all::<String>("SELECT name FROM kb.eval_sets ORDER BY 1"), ["animals", "other"]);
    // An evaluation set by its name; what there is not.
    said(program(&cluster).args(["eval", "k", "other", "--mode", "keyword"])).ended(0);
    said(program(&cluster).args(["eval", "k", "nothing"])).complained(1);
    said(program(&cluster).args(["eval", "k", "no/folder"])).complained(2);
    let split = run(&["--split", "train"]).complained(1);
    assert!(split.contains("qrels/train.tsv"), "{split}");
    fs::write(folder.join("queries.jsonl"), "{\"_id\": \"ant\"}\nnonsense\n").unwrap();
    let broken = run(&["--no-corpus"]).complained(1);
    assert!(broken.contains("queries.jsonl, line 2"), "{broken}");
}

#[test]
fn tune_shows_every_setting_and_what_is_proposed_and_applies_it_if_asked() {
    let (cluster, mut db) = crate::with_kb!("hash", "{}");
    let folder = collection(&cluster);
    let plot = cluster.path("plot.svg");
    let tuned =
        said(program(&cluster).args(["tune", "k"]).arg(&folder).args(["--json", "--plot"]).arg(&plot));
    let rows = tuned.json()["rows"].as_array().unwrap().clone();
    let settings: i64 = db.one("SELECT count(*) FROM kb.tune('k', 'animals')");
    assert_eq!(rows.len() as i64, settings, "{rows:?}");
    assert_eq!(rows.iter().filter(|row| row["present"] == true).count(), 1);
    assert_eq!(rows.iter().filter(|row| row["proposed"] == true).count(), 1);
    assert_eq!(svg(&plot).matches("<circle").count(), rows.len());
    let table = said(program(&cluster).args(["tune", "k", "animals", "-k", "5"])).ended(0);
    assert!(table.starts_with("SETTINGS") && table.contains("hybrid rrf"), "{table}");
    assert_eq!(table.matches("proposed").count(), 1, "{table}");
    let before: String = db.one("SELECT retrieval::text FROM kb.knowledge_bases WHERE id = 'k'");
    db.run("SELECT kb.alter_knowledge_base('k', retrieval => '{\"mode\": \"dense\"}')");
    let applied = said(program(&cluster).args(["tune", "k", "animals", "--apply", "--json"]));
    assert_eq!(applied.json()["applied"], true);
    let proposed = applied.json()["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["proposed"] == true)
        .unwrap()["options"]
        .clone();
    let after: Value = serde_json::from_str(
        &db.one::<String>("SELECT retrieval::text FROM kb.knowledge_bases WHERE id = 'k'"),
    )
    .unwrap();
    if let Some(mode) = proposed["mode"].as_str() {
        assert_eq!(after["mode"], mode, "{before}");
    }
}
