//! Made-up dialogues in which people say what holds, repeat it, change it and return to it: at every time,
//! what held then is recalled, and nothing else.

use crate::support::Db;
use crate::support::random::Rng;
use std::collections::BTreeMap;

const PEOPLE: [&str; 6] = ["Ann", "Bo", "Chen", "Dov", "Elif", "Femi"];
const ATTRIBUTES: [(&str, &str, &[&str]); 4] = [
    ("city", "lives in", &["Turin", "Oslo", "Lima", "Pune"]),
    ("work", "works as a", &["baker", "pilot", "nurse"]),
    ("pet", "has a", &["cat", "dog"]),
    ("tongue", "prefers to speak", &["Welsh", "Thai", "Farsi"]),
];
const DAYS: usize = 400;
const TURNS: usize = 300;

/// The values that held of somebody's attribute, each from a day on.
type History = BTreeMap<(usize, usize), Vec<(usize, &'static str)>>;

fn on(day: usize) -> String {
    format!("timestamptz '2025-01-01 12:00:00Z' + interval '{day} days'")
}

/// Says so many turns, in the order of their days, and keeps what held when.
fn converse(db: &mut Db, rng: &mut Rng) -> History {
    let mut days: Vec<usize> = (0..TURNS).map(|_| rng.usize(..DAYS)).collect();
    days.sort_unstable();
    let mut history = History::new();
    let mut ids: BTreeMap<(usize, usize), String> = BTreeMap::new();
    for (turn, day) in days.into_iter().enumerate() {
        let (person, attribute) = (rng.usize(..PEOPLE.len()), rng.usize(..ATTRIBUTES.len()));
        let (tag, says, values) = ATTRIBUTES[attribute];
        if rng.usize(..4) == 0 {
            // What has nothing to do with any attribute.
            db.run(&format!(
                "SELECT kb.remember('m', 'The weather of turn {turn} is fine.', '{}', '{{talk}}', valid_from => {})",
                PEOPLE[person],
                on(day)
            ));
            continue;
        }
        let value = *rng.choice(values).unwrap();
        let said = history.entry((person, attribute)).or_default();
        let last = said.last().copied();
        // Two statements of one day contradict each other: the later one counts, and the former held at no
        // time.
        let supersedes = match last {
            Some((_, before)) if before != value => {
                format!(", supersedes => '{}'", ids[&(person, attribute)])
            }
            _ => String::new(),
        };
        let id: String = db.one(&format!(
            "SELECT kb.remember('m', '{} {says} {value}.', '{}', '{{{tag}}}', valid_from => {}{supersedes})",
            PEOPLE[person],
            PEOPLE[person],
            on(day)
        ));
        match last {
            Some((_, before)) if before == value => assert_eq!(id, ids[&(person, attribute)], "said again"),
            _ => {
                said.retain(|(since, _)| *since != day);
                said.push((day, value));
            }
        }
        ids.insert((person, attribute), id);
    }
    history
}

fn held(history: &History, person: usize, attribute: usize, day: usize) -> Option<String> {
    let (_, says, _) = ATTRIBUTES[attribute];
    let said = history.get(&(person, attribute))?;
    let (_, value) = said.iter().rev().find(|(since, _)| *since <= day)?;
    Some(format!("{} {says} {value}.", PEOPLE[person]))
}

#[test]
fn of_dialogues_with_updates_and_contradictions_what_held_at_a_time_is_recalled() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.create_memory('m', 'hash')");
    let mut rng = Rng::with_seed(40);
    let history = converse(&mut db, &mut rng);
    db.wait("m");
    let changed = history.values().filter(|said| said.len() > 2).count();
    assert!(changed > 12, "a made-up dialogue without changes shows nothing: {changed}");
    for _ in 0..300 {
        let (person, day) = (rng.usize(..PEOPLE.len()), rng.usize(..DAYS));
        let name = PEOPLE[person];
        let mut expected: Vec<String> =
            (0..ATTRIBUTES.len()).filter_map(|attribute| held(&history, person, attribute, day)).collect();
        expected.sort();
        for mode in ["dense", "keyword"] {
            let mut recalled: Vec<String> = db.all(&format!(
                "SELECT fact FROM kb.recall('m', '{name} lives works has prefers', 100, 0, subject => '{name}', mode => '{mode}',
                     as_of => {}) WHERE tags <> '{{talk}}'",
                on(day)
            ));
            recalled.sort();
            assert_eq!(recalled, expected, "{name} on day {day}, {mode}");
        }
        let attribute = rng.usize(..ATTRIBUTES.len());
        let (tag, _, _) = ATTRIBUTES[attribute];
        let recalled: Vec<String> = db.all(&format!(
            "SELECT fact FROM kb.recall('m', '{name}', 100, 0, '{{{tag}}}', '{name}', as_of => {})",
            on(day)
        ));
        assert_eq!(
            recalled,
            Vec::from_iter(held(&history, person, attribute, day)),
            "{tag} of {name} on day {day}"
        );
    }
    // Nothing was deleted: each value that held, and those that another of the same day contradicted.
    let kept: i64 = db.count("kb.memories WHERE tags <> '{talk}'");
    let held_at_some_time: usize = history.values().map(Vec::len).sum();
    assert!(kept >= held_at_some_time as i64, "{kept} of {held_at_some_time}");
    // What holds now.
    for (person, name) in PEOPLE.iter().enumerate() {
        for (attribute, (tag, _, _)) in ATTRIBUTES.iter().enumerate() {
            let recalled: Vec<String> = db.all(&format!(
                "SELECT fact FROM kb.recall('m', '{name}', 100, 0, '{{{tag}}}', '{name}', archived => true)"
            ));
            assert_eq!(recalled, Vec::from_iter(held(&history, person, attribute, DAYS)));
        }
    }
}
