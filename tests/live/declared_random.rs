//! Random files of valid configuration survive kb.apply and kb.export in a database: a file applied over
//! another one leaves what it declares, and what is exported is found unchanged.

use crate::support::{Db, random::Rng};
use serde_json::{Map, Value, json};

/// How many pairs of files are tried, unless KB_DECLARED_ROUNDS says otherwise.
const ROUNDS: u64 = 60;

/// Texts that YAML could read as something else.
const TEXTS: [&str; 14] = [
    "",
    " ",
    "yes",
    "12",
    "1e3",
    "null",
    "~",
    "- a: b",
    "a: b # c",
    "Zeilen\nund\n\n  Zeilen\n",
    "\ttab\r\n",
    "ключ: \"значение\"",
    "{{ .vars.x }}",
    "'|>%@`",
];
const NAMES: [&str; 10] = ["docs", "true", "12", "a b", "Straße", "日本", "a.b:c", "-x", "x#y", "emoji 🦀"];

struct Files(Rng);

impl Files {
    fn chance(&mut self, of: usize) -> bool {
        self.0.usize(..of) == 0
    }

    fn text(&mut self) -> String {
        (0..=self.0.usize(..3)).map(|_| *self.0.choice(&TEXTS).unwrap()).collect()
    }

    fn some(&mut self, from: &[&str]) -> Vec<String> {
        from.iter().filter(|_| self.chance(3)).map(|name| name.to_string()).collect()
    }

    /// Some of these members.
    fn members(&mut self, members: &[(&str, &[Value])]) -> Value {
        let mut object = Map::new();
        for (key, values) in members {
            if self.chance(3) {
                object.insert(key.to_string(), self.0.choice(values).unwrap().clone());
            }
        }
        Value::Object(object)
    }

    fn json(&mut self, depth: usize) -> Value {
        match self.0.usize(..if depth == 0 { 4 } else { 6 }) {
            0 => json!(self.text()),
            1 => json!(self.0.usize(..1_000_000)),
            2 => json!(self.0.usize(..1_000) as f64 / 7.0),
            3 => json!(self.chance(2)),
            4 => (0..self.0.usize(..3)).map(|_| self.json(depth - 1)).collect(),
            _ => Value::Object((0..self.0.usize(..3)).map(|_| (self.text(), self.json(depth - 1))).collect()),
        }
    }

    fn retrieval(&mut self) -> Value {
        let vocabulary: [(&str, &[Value]); 9] = [
            ("top_k", &[json!(1), json!(10_000)]),
            ("min_score", &[json!(0), json!(0.25)]),
            ("mode", &[json!("dense"), json!("keyword"), json!("hybrid")]),
            ("neighbors", &[json!(0), json!(2)]),
            ("mmr", &[json!({"lambda": 0.5})]),
            ("hybrid", &[json!({"fusion": "rrf", "k": 10}), json!({"alpha": 0.75})]),
            ("inject_as", &[json!("docs"), json!("no: 12")]),
            ("allowed_metadata_keys", &[json!(["year", "- x"]), json!(["- x", "year", "12"])]),
            ("rerank", &[json!({"reranker": "r", "retrieval_factor": 5})]),
        ];
        self.members(&vocabulary)
    }

    fn knowledge_base(&mut self, id: &str, retrieval_of_memory: bool) -> Map<String, Value> {
        let mut object = Map::from_iter([("id".into(), json!(id)), ("embedder".into(), json!("e"))]);
        if self.chance(2) {
            object.insert("description".into(), json!(self.text()));
        }
        if self.chance(2) {
            let chunking: [(&str, &[Value]); 3] = [
                ("strategy", &[json!("recursive"), json!("markdown"), json!("fixed")]),
                ("size", &[json!(100), json!(200)]),
                ("overlap", &[json!(0), json!(50)]),
            ];
            object.insert("chunking".into(), self.members(&chunking));
        }
        if !retrieval_of_memory {
            let preprocess: [(&str, &[Value]); 3] = [
                ("dedupe", &[json!(true), json!(false)]),
                ("language", &[json!("german"), json!("simple")]),
                ("remove_html", &[json!(false)]),
            ];
            object.insert("preprocess".into(), self.members(&preprocess));
            object.insert("retrieval".into(), self.retrieval());
        }
        if self.chance(2) {
            object.insert("metadata".into(), Value::Object(Map::from_iter([(self.text(), self.json(3))])));
        }
        let tenants = self.some(&["acme", "zeta", "true"]);
        object.insert("shared_with".into(), json!(tenants));
        object
    }

    fn bindings(&mut self, ids: &[String]) -> Value {
        let mut bindings = Vec::new();
        for id in ids {
            if self.chance(2) {
                let vocabulary: [(&str, &[Value]); 5] = [
                    ("top_k", &[json!(3), json!(7)]),
                    ("min_score", &[json!(0.5), json!(0)]),
                    ("max_tokens", &[json!(1500)]),
                    ("inject_as", &[json!("{{ .vars.docs }}"), json!("12")]),
                    ("fallback", &[json!("nothing: found\n"), json!("no")]),
                ];
                let mut binding = self.members(&vocabulary);
                binding["id"] = json!(id);
                bindings.push(binding);
            }
        }
        Value::Array(bindings)
    }

    /// A file. What kb refuses to change in place (types, dimensions) depends on the id only. JSON is YAML.
    fn file(&mut self) -> String {
        let mut file = Map::new();
        let secret = || json!("kb:key");
        let sizes = [json!({"batch_size": 7}), json!({"query_prefix": "q: "}), json!({})];
        file.insert(
            "embedders".into(),
            json!([{"id": "e", "provider": "hash", "dimension": 16},
                {"id": "other", "provider": "openai", "model": "m", "dimension": 8, "secret": secret(),
                    "base_url": "https://example.com/v1", "config": self.0.choice(&sizes).unwrap()}]),
        );
        file.insert("llms".into(), json!([{"id": "l", "provider": "openai", "model": self.0.choice(&["m", "12"]).unwrap(), "api_key": secret()}]));
        file.insert("rerankers".into(), json!([{"id": "r", "provider": "llm", "config": {"llm": "l", "scoring": self.0.choice(&["single", "batch"]).unwrap()}}]));
        file.insert("vector_dbs".into(), json!([{"id": "v", "dimension": 16, "config": {"min_rows": 5}}]));
        let mut ids = self.some(&NAMES);
        let mut knowledge_bases = Vec::new();
        for id in &ids {
            let mut one = self.knowledge_base(id, false);
            if id.len() % 3 == 0 {
                one.insert("vector_db".into(), json!("v"));
            }
            let sources: Vec<Value> = self
                .some(&["a", "true", "x: y"])
                .into_iter()
                .map(|name| json!({"name": name, "type": "url", "urls": [format!("https://example.com/{}", self.0.usize(..3))],
                    "rate": 1 + self.0.usize(..3)}))
                .collect();
            one.insert("sources".into(), json!(sources));
            let keys = self.some(&["year", "- x"]);
            let indexes: Vec<Value> = keys.iter().map(|key| json!({"key": key, "type": "number"})).collect();
            one.insert("metadata_indexes".into(), json!(indexes));
            if self.chance(4) {
                let content =
                    if self.chance(2) { json!(["title", "body"]) } else { json!("{{title}}: {{body}}") };
                one.insert(
                    "tables".into(),
                    json!([{"table": "public.\"Articles\"", "content": content, "metadata": ["year"]}]),
                );
            }
            knowledge_bases.push(Value::Object(one));
        }
        file.insert("knowledge_bases".into(), json!(knowledge_bases));
        let mut memories = Vec::new();
        for id in self.some(&["memory one", "facts"]) {
            memories.push(Value::Object(self.knowledge_base(&id, true)));
            ids.push(id);
        }
        file.insert("memories".into(), json!(memories));
        file.insert("quotas".into(), json!([{"tenant": self.0.choice(&["acme", "12"]).unwrap(), "documents": self.0.usize(..100) + 1}]));
        file.insert("knowledge".into(), self.bindings(&ids));
        for scope in ["workflows", "tasks", "agents"] {
            let mut members = Vec::new();
            for name in self.some(&["one", "two words", "12"]) {
                let own: Vec<String> = self.some(&["own", "private"]);
                let own_bases: Vec<Value> =
                    own.iter().map(|id| Value::Object(self.knowledge_base(id, false))).collect();
                let all: Vec<String> = ids.iter().chain(&own).cloned().collect();
                members.push(
                    json!({"id": name, "knowledge_bases": own_bases, "knowledge": self.bindings(&all)}),
                );
            }
            file.insert(scope.into(), json!(members));
        }
        Value::Object(file).to_string()
    }
}

fn actions(db: &mut Db, file: &str, seed: u64) -> Vec<String> {
    let query = "SELECT concat_ws(' ', kind, id, action, difference) FROM kb.apply($1, prune => true)";
    db.0.query(query, &[&file])
        .unwrap_or_else(|error| panic!("seed {seed}: {:?}\n{file}", error.as_db_error()))
        .iter()
        .map(|row| row.get(0))
        .collect()
}

#[test]
fn random_files_are_applied_over_each_other_and_exported_as_what_they_declare() {
    let rounds =
        std::env::var("KB_DECLARED_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    for from in (0..rounds).step_by(1_000) {
        let (_cluster, mut db) = crate::connected!();
        db.run(
            "CREATE TABLE public.\"Articles\" (id int PRIMARY KEY, title text, body text, year int);
             SELECT kb.set_secret('key', 'x')",
        );
        let seeds = from..rounds.min(from + 1_000);
        let changes: usize = seeds.clone().map(|seed| changes_of_a_pair(&mut db, seed)).sum();
        assert!(changes > seeds.count(), "{changes} changes");
    }
}

/// Applies two files one after the other, and returns how much the second one changed.
fn changes_of_a_pair(db: &mut Db, seed: u64) -> usize {
    let mut files = Files(Rng::with_seed(seed));
    let (first, second) = (files.file(), files.file());
    db.run("BEGIN");
    actions(db, &first, seed);
    let rows = actions(db, &second, seed);
    let exported: String = db.one("SELECT kb.export()");
    for file in [&second, &exported] {
        let rows = actions(db, file, seed);
        let other: Vec<&String> = rows.iter().filter(|row| !row.ends_with(" unchanged")).collect();
        assert!(other.is_empty(), "seed {seed}: {other:?}\n{file}");
    }
    assert_eq!(db.one::<String>("SELECT kb.export()"), exported, "seed {seed}");
    db.run("ROLLBACK");
    rows.iter().filter(|row| row.contains(" changed") || row.contains(" pruned")).count()
}

#[test]
fn metadata_that_no_file_keeps_is_named_by_the_export_and_left_alone_by_a_file() {
    let (_cluster, mut db) = crate::connected!();
    let number = "12345678901234567890123";
    db.run(&format!("SELECT kb.create_knowledge_base('big', 'hash', metadata => '{{\"n\": {number}}}')"));
    let fault = db.refused("SELECT kb.export()", "55000");
    assert!(fault.message.contains("metadata of knowledge base \"big\""), "{}", fault.text);
    let small = "knowledge_bases:\n  - {id: small, embedder: hash, metadata: {n: 0.14285714285714285}}\n";
    db.run(&format!("SELECT kb.apply('{small}')"));
    assert_eq!(db.one::<String>("SELECT action FROM kb.apply('knowledge_bases: [{id: big}]')"), "unchanged");
    assert!(
        db.one::<String>("SELECT metadata::text FROM kb.knowledge_bases WHERE id = 'big'").contains(number)
    );
    assert_eq!(
        db.one::<String>("SELECT action FROM kb.apply('knowledge_bases: [{id: big, metadata: {n: 1}}]')"),
        "changed"
    );
    let exported: String = db.one("SELECT kb.export()");
    assert!(exported.contains("\"n\": 0.14285714285714285"), "{exported}");
}
