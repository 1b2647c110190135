//! Words in every form: in scripts without blanks, with invisible marks, joined to others.

use crate::support::{Db, SOON, until};
use std::collections::BTreeMap;

/// Sentences of six languages, each with two questions that it answers.
const UNSPACED: &str = include_str!("../../data/unspaced.tsv");

fn create(db: &mut Db, language: &str) {
    db.run(&format!(
        "SELECT kb.create_knowledge_base('k', 'hash', preprocess => '{{\"language\": \"{language}\"}}',
             chunking => '{{\"strategy\": \"none\", \"size\": 1000000}}', retrieval => '{{\"mode\": \"keyword\"}}')"
    ));
}

/// The rows' ids, sorted.
fn ids(db: &mut Db, question: &str) -> Vec<String> {
    db.all_with("SELECT external_id FROM kb.query('k', $1, 50) ORDER BY 1", &[&question])
}

/// Puts other documents until all are in a segment.
fn fold(db: &mut Db) {
    db.run(
        "SELECT count(*) FROM kb.put_documents('k', ARRAY(
             SELECT jsonb_build_object('external_id', 'f' || i, 'content', 'filler ' || i) FROM generate_series(1, 300) i))",
    );
    db.wait("k");
    until(SOON, "chunks are folded", || db.count("kb.bm25_segments") > 0);
}

#[test]
fn sentences_without_blanks_are_found_by_their_words_and_by_questions() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "english");
    let rows: Vec<Vec<&str>> = UNSPACED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
        .collect();
    for (n, row) in rows.iter().enumerate() {
        db.put("k", &n.to_string(), row[1]);
    }
    db.wait("k");
    // For each language: the questions, those whose sentence is the first row, and those whose sentence is
    // one of the first three.
    let mut figures: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    for (n, row) in rows.iter().enumerate() {
        for question in &row[2..] {
            let first: Vec<String> =
                db.all_with("SELECT external_id FROM kb.query('k', $1, 3) ORDER BY rank", &[question]);
            let figures = figures.entry(row[0]).or_default();
            figures[0] += 1;
            figures[1] += usize::from(first.first() == Some(&n.to_string()));
            figures[2] += usize::from(first.contains(&n.to_string()));
        }
    }
    assert_eq!(figures.len(), 6);
    for (language, [questions, first, among_three]) in figures {
        assert!(questions >= 16 && first * 100 >= questions * 90, "{language}: {first} of {questions}");
        assert_eq!(among_three, questions, "{language}");
    }
}

#[test]
fn a_run_without_blanks_is_found_by_each_part_before_and_after_folding() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "english");
    for (id, text) in [
        ("test", "这是一个测试文档"),
        ("manage", "PostgreSQL数据库管理"),
        ("year", "2024年のデータベース"),
        ("korean", "PostgreSQL은 데이터베이스이다"),
        ("thai", "ภาษาไทย"),
    ] {
        db.put("k", id, text);
    }
    db.wait("k");
    for folded in [false, true] {
        for (question, expected) in [
            ("测试", "test"),
            ("测", "test"),
            ("数据库", "manage"),
            ("管理", "manage"),
            ("\"数据库管理\"", "manage"),
            ("\"库\"", "manage"),
            ("2024", "year"),
            ("ﾃﾞｰﾀﾍﾞｰｽ", "year"),
            ("\"データ\"", "year"),
            ("ไทย", "thai"),
        ] {
            assert_eq!(ids(&mut db, question), [expected], "{question}");
        }
        assert_eq!(ids(&mut db, "PostgreSQL"), ["korean", "manage"]);
        assert_eq!(ids(&mut db, "数据 -\"库管\""), [""; 0]);
        assert_eq!(ids(&mut db, "\"数库\" 测试"), ["test"]);
        if !folded {
            fold(&mut db);
        }
    }
}

#[test]
fn words_that_look_alike_match_and_offsets_are_those_of_the_text() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "simple");
    let same = [
        ("hyphen", "das Ge\u{ad}samt\u{ad}kon\u{ad}zept", "das Gesamtkonzept"),
        ("letters", "in Mu\u{308}nchen", "in M\u{fc}nchen"),
        ("width", "eine ＤＡＴＥＮＢＡＮＫ", "eine Datenbank"),
        ("ligature", "ﬁnal", "final"),
        ("space", "no\u{200b}where now\u{2060}he\u{feff}re", "nowhere nowhere"),
        ("both", "e\u{ad}\u{301}tude", "\u{e9}tude"),
    ];
    for (id, hidden, plain) in same {
        db.put("k", id, hidden);
        db.put("k", &format!("{id}-plain"), plain);
    }
    db.wait("k");
    for (id, hidden, plain) in same {
        let both = [id.to_string(), format!("{id}-plain")];
        let last = |text: &str| text.split(' ').next_back().unwrap().to_string();
        for question in [last(hidden), last(plain), format!("\"{hidden}\""), format!("\"{plain}\"")] {
            assert_eq!(ids(&mut db, &question), both, "{question}");
        }
        let is_as_put: bool = db.one_with(
            "SELECT bool_and(c.content = d.content AND c.start_char = 0 AND c.end_char = length($2) AND d.content = $2)
             FROM kb.chunks c JOIN kb.documents d USING (document_id) WHERE d.external_id = $1",
            &[&id, &hidden],
        );
        assert!(is_as_put, "{id}");
    }
}

const JOINED: [(&str, &str, &[&str]); 9] = [
    ("slash", "a TCP/IP stack", &["TCP", "IP", "tcp/ip", "\"IP stack\"", "\"TCP IP\"", "\"TCP/IP stack\""]),
    ("host", "runs on Node.js now", &["node", "js", "Node.js", "\"node js\""]),
    ("path", "see /etc/postgresql/main.conf", &["etc", "conf", "\"main.conf\"", "/etc/postgresql/main.conf"]),
    ("call", "call kb.query(x) twice", &["query", "kb.query", "\"kb query\""]),
    ("mail", "write to john.smith@mail.example.com", &["smith", "example", "john.smith@mail.example.com"]),
    ("camel", "see getUserName there", &["user name", "getUserName", "getusername", "\"getUserName\""]),
    ("snake", "see old_snake_case there", &["snake", "old_snake_case", "\"snake case\""]),
    ("url", "at https://docs.kestrel.org/a-b/file_x.html?q=1", &["docs", "file", "html", "\"file x\""]),
    ("hyphen", "a well-known one", &["known", "well-known", "\"well known\"", "\"well-known\""]),
];

#[test]
fn parts_of_joined_words_are_found_and_so_is_the_whole() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "english");
    for (id, text, _) in JOINED {
        db.put("k", id, text);
    }
    db.wait("k");
    for folded in [false, true] {
        for (id, _, questions) in JOINED {
            for question in questions {
                let first: Vec<String> =
                    db.all_with("SELECT external_id FROM kb.query('k', $1, 1)", &[question]);
                assert_eq!(first, [id], "{question}");
            }
        }
        assert_eq!(ids(&mut db, "see -\"snake case\""), ["camel", "path"]);
        assert_eq!(ids(&mut db, "see -old_snake_case"), ["camel", "path"]);
        if !folded {
            fold(&mut db);
        }
    }
}

#[test]
fn parts_of_joined_words_lengthen_no_text_and_weigh_as_one_word_in_a_question() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "simple");
    let path = (0..40).map(|n| format!("/part{n}")).collect::<String>();
    db.put("k", "path", &format!("needle {path}"));
    db.put("k", "words", "needle straw");
    db.put("k", "parts", "part1 part2 part3 part4 part5 part6 part7 part8");
    db.put_and_wait("k", "rare", "quite rare indeed");
    let scores: Vec<f64> = db.all("SELECT rank_score FROM kb.query('k', 'needle', 9)");
    assert_eq!((scores.len(), scores[0]), (2, scores[1]), "{scores:?}");
    // Eight of forty parts weigh less than one word.
    let question = format!("rare {path}");
    let ids: Vec<String> =
        db.all_with("SELECT external_id FROM kb.query('k', $1, 9) ORDER BY rank", &[&question]);
    assert_eq!(ids, ["path", "rare", "parts"]);
}

#[test]
fn a_megabyte_without_blanks_is_cut_and_its_parts_are_found() {
    let (_cluster, mut db) = crate::connected!();
    create(&mut db, "english");
    for (id, part, end) in [
        ("han", "数据库管理系统", "终点"),
        ("path", "some/Long.path_", "lastPart"),
        ("camel", "aB", "endHere"),
    ] {
        db.run(&format!("SELECT kb.put_document('k', '{id}', repeat('{part}', 900000 / octet_length('{part}')) || '{end}')"));
    }
    db.run("SELECT kb.wait('k', 300)");
    assert_eq!(ids(&mut db, "终点"), ["han"]);
    assert_eq!(ids(&mut db, "\"管理系统\""), ["han"]);
    assert_eq!(ids(&mut db, "path"), ["path"]);
    assert_eq!(ids(&mut db, "\"long path\""), ["path"]);
}
