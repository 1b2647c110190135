//! The words of a text are those that PostgreSQL's text search finds, although kb remembers words that it has
//! met.

use crate::support::random::Rng;
use crate::support::{APP, Db};

/// Configurations like `english` and `simple`, but with templates of their own, so that nothing of their
/// dictionaries is remembered.
const UNREMEMBERED: &str = "
    CREATE TEXT SEARCH TEMPLATE own_snowball (INIT = dsnowball_init, LEXIZE = dsnowball_lexize);
    CREATE TEXT SEARCH DICTIONARY own_stem (TEMPLATE = own_snowball, LANGUAGE = english, STOPWORDS = english);
    CREATE TEXT SEARCH CONFIGURATION own (COPY = pg_catalog.english);
    ALTER TEXT SEARCH CONFIGURATION own ALTER MAPPING REPLACE english_stem WITH own_stem;
    CREATE TEXT SEARCH TEMPLATE own_simple (INIT = dsimple_init, LEXIZE = dsimple_lexize);
    CREATE TEXT SEARCH DICTIONARY own_simple (TEMPLATE = own_simple);
    ALTER TEXT SEARCH CONFIGURATION own ALTER MAPPING REPLACE simple WITH own_simple;
    CREATE TEXT SEARCH CONFIGURATION own_simple (COPY = pg_catalog.simple);
    ALTER TEXT SEARCH CONFIGURATION own_simple ALTER MAPPING REPLACE simple WITH own_simple;";

/// Parts of texts that begin, end or continue a token for PostgreSQL's parser.
const PARTS: &[&str] = &[
    "the", "Running", "ran", "wölfe", "naïve", "cat", "x", "a", "I", "1", "2.5", "-3", "+4e5", "e", "v1",
    "http", "www", "com", "index", "html", "mailto", "amp", "b", "br", "href", "日本", "Straße", "ﬁ",
    "\u{301}", "\u{a0}", "\u{2003}", "\u{200b}", "\u{feff}", " ", " ", " ", " ", "\n", "\t", "\r\n", "\u{b}",
    "\u{c}", ".", ",", ";", ":", "!", "?", "(", ")", "[", "]", "{", "}", "\"", "'", "`", "-", "--", "_", "/",
    "//", "\\", "@", "#", "$", "%", "^", "&", "*", "=", "+", "~", "|", "<", ">", "</", "/>", "<!--", "-->",
    "&#", ";", "://",
];

fn text(random: &mut Rng) -> String {
    (0..random.usize(..24)).map(|_| PARTS[random.usize(..PARTS.len())]).collect()
}

#[test]
fn words_are_those_of_postgresql_whatever_surrounds_them() {
    let (_cluster, mut db) = crate::connected!();
    db.run(UNREMEMBERED);
    let mut random = Rng::with_seed(7);
    // Every two parts around a word, and many at random.
    let mut texts: Vec<String> = PARTS
        .iter()
        .flat_map(|a| PARTS.iter().flat_map(move |b| [format!("dogs{a}{b} ran"), format!("ran {a}{b}dogs")]))
        .collect();
    texts.extend((0..30_000).map(|_| text(&mut random)));
    // Twice: a word that is met first is learned, and one that is met again is remembered.
    for _ in 0..2 {
        for (own, its) in [("public.own", "english"), ("public.own_simple", "simple")] {
            let differ: Vec<String> = db.all_with(
                "SELECT t FROM unnest($1::text[]) t WHERE kb._terms(t, $2) <> kb._terms(t, $3) LIMIT 5",
                &[&texts, &own, &its],
            );
            assert_eq!(differ, [""; 0], "{its}");
        }
    }
}

#[test]
fn a_text_with_more_words_than_are_remembered_has_each_word_with_its_count() {
    let (_cluster, mut db) = crate::connected!();
    db.run(UNREMEMBERED);
    let letters = |n: usize| -> String {
        [n / 676 / 26, n / 676, n / 26, n].iter().map(|i| (b'a' + (i % 26) as u8) as char).collect()
    };
    let text: String = (0..120_000).map(|n| format!("{} ", letters(n * 7 % 60_000 + 1))).collect();
    for _ in 0..2 {
        assert!(
            db.one_with::<bool>("SELECT kb._terms($1, 'english') = kb._terms($1, 'public.own')", &[&text])
        );
    }
}

fn is_stemmed(db: &mut Db) -> bool {
    db.one("SELECT kb._terms('dogs', 'public.mine') = kb._terms('dog', 'public.mine')")
}

#[test]
fn an_altered_configuration_applies_at_once_in_every_session_and_after_a_rollback() {
    let cluster = crate::cluster!();
    let (mut db, mut other) = (cluster.connect(APP), cluster.connect(APP));
    db.run("CREATE TEXT SEARCH CONFIGURATION mine (COPY = pg_catalog.english)");
    assert!(is_stemmed(&mut db) && is_stemmed(&mut other));
    db.run("ALTER TEXT SEARCH CONFIGURATION mine ALTER MAPPING FOR asciiword WITH simple");
    assert!(!is_stemmed(&mut db) && !is_stemmed(&mut other));
    db.run("BEGIN; ALTER TEXT SEARCH CONFIGURATION mine ALTER MAPPING FOR asciiword WITH english_stem");
    assert!(is_stemmed(&mut db) && !is_stemmed(&mut other));
    db.run("ROLLBACK");
    assert!(!is_stemmed(&mut db) && !is_stemmed(&mut other));
    db.run(
        "CREATE TEXT SEARCH DICTIONARY stops (TEMPLATE = pg_catalog.simple, STOPWORDS = english);
         ALTER TEXT SEARCH CONFIGURATION mine ALTER MAPPING FOR asciiword WITH stops",
    );
    let words = |db: &mut Db| -> i32 { db.one("SELECT length(kb._terms('the dog', 'public.mine'))") };
    let (before, seen) = (words(&mut db), words(&mut other));
    assert_eq!(before, seen);
    db.run("ALTER TEXT SEARCH DICTIONARY stops (STOPWORDS)");
    assert!(words(&mut db) > before && words(&mut other) > before);
}

/// Of the chunks that the worker wrote, those whose words differ from what PostgreSQL finds under a
/// configuration of which nothing is remembered.
fn wrong(db: &mut Db, configuration: &str) -> Vec<String> {
    db.run("SELECT kb.wait('k', 120)");
    db.all_with(
        "SELECT content FROM kb.chunks WHERE terms <> kb._terms(content, $1) LIMIT 5",
        &[&configuration],
    )
}

#[test]
fn words_of_chunks_are_those_of_postgresql_before_and_after_a_configuration_change() {
    let (_cluster, mut db) = crate::connected!();
    db.run(UNREMEMBERED);
    db.run("CREATE TEXT SEARCH CONFIGURATION mine (COPY = pg_catalog.english)");
    db.run(
        "SELECT kb.create_knowledge_base('k', 'hash', chunking => '{\"strategy\": \"none\"}',
             preprocess => '{\"language\": \"public.mine\"}')",
    );
    let mut random = Rng::with_seed(11);
    let mut put = |db: &mut Db, round: usize| {
        // Some consist of words that were all met before, some contain others, too.
        let one = |i: usize, random: &mut Rng| match i % 3 {
            0 => format!("the dogs ran with cats {}", ["index", "running", "wolves"][i / 3 % 3]),
            _ => format!("dogs {} ran", text(random)),
        };
        let texts: Vec<String> = (0..300).map(|i| one(i, &mut random)).collect();
        db.all_with::<i64>(
            "SELECT count(*) FROM kb.put_documents('k', ARRAY(SELECT jsonb_build_object(
                 'external_id', n::text, 'content', t) FROM unnest($1::text[]) WITH ORDINALITY u (t, n)))",
            &[&texts],
        );
        assert_eq!(db.one::<i64>("SELECT count(*) FROM kb.documents"), 300, "round {round}");
    };
    for round in 0..3 {
        put(&mut db, round);
        assert_eq!(wrong(&mut db, "public.own"), [""; 0], "round {round}");
    }
    db.run("ALTER TEXT SEARCH CONFIGURATION mine ALTER MAPPING REPLACE english_stem WITH simple");
    db.run("DELETE FROM kb.documents");
    put(&mut db, 3);
    assert_eq!(wrong(&mut db, "public.own_simple"), [""; 0]);
    assert!(db.one::<bool>(
        "SELECT EXISTS (SELECT FROM kb.chunks WHERE terms <> kb._terms(content, 'public.own'))"
    ));
}
