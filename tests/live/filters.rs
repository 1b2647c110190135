//! Random filters. This part of the fuzzing of tests/fuzz is here because SQL decides what a filter keeps.

use crate::support::random::Rng;
use crate::support::{Db, Fault, WHOLE};

const KEYS: [&str; 6] = ["a", "b", "é", "", "a b\\\"c", "long key of several words"];
const SCALARS: [&str; 18] = [
    "null",
    "true",
    "false",
    "0",
    "-0.0",
    "1",
    "1.0",
    "0.1",
    "1e3",
    "9007199254740993",
    "18446744073709551615",
    "12345678901234567890123.5",
    "1e400",
    "\"\"",
    "\"a\"",
    "\"A\"",
    "\"\\ud83e\\udd80 '$1\\\\\"",
    "\"1\"",
];

fn value(random: &mut Rng, depth: usize) -> String {
    let items = random.usize(..3);
    match random.usize(..if depth == 0 { 4 } else { 7 }) {
        4 => format!("[{}]", (0..items).map(|_| value(random, depth - 1)).collect::<Vec<_>>().join(", ")),
        5 => object(random, depth - 1),
        6 => format!("[{0}, {0}]", value(random, depth - 1)),
        _ => random.choice(&SCALARS).unwrap().to_string(),
    }
}

fn object(random: &mut Rng, depth: usize) -> String {
    let pairs: Vec<String> = (0..random.usize(..4))
        .map(|_| format!("\"{}\": {}", random.choice(&KEYS).unwrap(), value(random, depth)))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}

fn found(db: &mut Db, sql: &str, filter: &str) -> Result<Vec<String>, Fault> {
    let rows = db.0.query(sql, &[&filter]).map_err(|error| Fault::of(&error))?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// What a filter keeps, computed in another way than kb's: every key of the filter exists and has that value.
const EXPECTED: &str = "SELECT external_id FROM kb.documents d WHERE NOT EXISTS (
    SELECT FROM jsonb_each($1::text::jsonb) f WHERE d.metadata -> f.key IS DISTINCT FROM f.value) ORDER BY 1";
const KEPT: &str =
    "SELECT external_id FROM kb.query('k', 'harbor', 1000, filter => $1::text::jsonb) ORDER BY 1";

#[test]
fn any_filter_keeps_the_documents_that_have_what_it_names_or_is_refused() {
    let (_cluster, mut db) = crate::with_kb!("hash", WHOLE);
    let mut random = Rng::with_seed(1);
    let mut metadata: Vec<String> = (0..120).map(|_| object(&mut random, 2)).collect();
    metadata.push("{}".into());
    for (i, metadata) in metadata.iter().enumerate() {
        let (id, content) = (format!("d{i}"), format!("The harbor of place {i}."));
        let sql = "SELECT kb.put_document('k', $1, $2, metadata => $3::text::jsonb)";
        db.one_with::<String>(sql, &[&id, &content, metadata]);
    }
    db.wait("k");
    let mut kept = 0;
    for round in 0..400 {
        let filter = match round % 2 {
            0 => object(&mut random, 3),
            _ => random.choice(&metadata).unwrap().clone(),
        };
        let expected = found(&mut db, EXPECTED, &filter).unwrap();
        assert_eq!(found(&mut db, KEPT, &filter), Ok(expected.clone()), "{filter}");
        kept += usize::from(!expected.is_empty() && expected.len() < metadata.len());
    }
    assert!(kept > 100, "{kept} filters told documents apart");
    // What is not a filter is refused as such, however large it is.
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(400), close.repeat(400));
    for wrong in ["[]", "1", "\"a\"", "[{\"a\": 1}]", &deep("{\"a\":", "}"), &deep("[", "]")] {
        let fault = found(&mut db, KEPT, wrong).unwrap_err();
        assert_eq!(fault.code, "22023", "{wrong}: {fault:?}");
    }
    let many = |count: usize| {
        let pairs: Vec<String> = (0..count).map(|i| format!("\"k{i}\": {i}")).collect();
        format!("{{{}}}", pairs.join(", "))
    };
    assert_eq!(found(&mut db, KEPT, &many(900)), Ok(vec![]));
    for wrong in [many(5000), format!("{{\"a\": [{{}}{}]}}", ", {}".repeat(5000))] {
        assert_eq!(found(&mut db, KEPT, &wrong).unwrap_err().code, "22023");
    }
}
