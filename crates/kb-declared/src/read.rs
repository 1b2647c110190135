//! Reads what a file declares. Every problem is reported with its place, all of them together.

use crate::declaration::{Declaration, Identity, Kind};
use crate::names::{Form, LISTS, OF_AGENT, OF_PROJECT, Property, properties};
use crate::places::{Place, Problem};
use crate::secret;
use crate::tree::{self, Member, Node, Tree};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// What the documents of a YAML file declare, in the order in which it is to be made. A document is a project
/// (lists of embedders, knowledge bases and so on) or, if it has an id, a workflow.
pub fn declarations(text: &str) -> Result<Vec<Declaration>, Vec<Problem>> {
    let mut reader = Reader::default();
    for document in tree::documents(text)? {
        if !document.is_null() {
            reader.document(&document);
        }
    }
    reader.problems.sort();
    if !reader.problems.is_empty() {
        return Err(reader.problems);
    }
    // Things of a kind stay in the order of the file.
    reader.declared.sort_by_key(|declaration| declaration.identity.kind);
    Ok(reader.declared)
}

#[derive(Default)]
struct Reader {
    declared: Vec<Declaration>,
    /// Where each was declared first.
    known: HashMap<Identity, Place>,
    problems: Vec<Problem>,
}

/// A mapping of which some members were read.
struct Item<'a> {
    place: Place,
    rest: Vec<&'a Member>,
    /// Names that were asked for.
    known: Vec<&'static str>,
}

impl<'a> Item<'a> {
    /// The member of one of these names.
    fn take(&mut self, names: &[&'static str], problems: &mut Vec<Problem>) -> Option<&'a Member> {
        self.known.extend(names);
        let mut found: Option<&Member> = None;
        for member in self.rest.extract_if(.., |member| names.contains(&member.name.as_str())) {
            if let Some(first) = found {
                let problem =
                    format!("\"{}\" and \"{}\" are the same; write one of them", first.name, member.name);
                problems.push(member.place.problem(problem));
            }
            found = found.or(Some(member));
        }
        found
    }

    /// What was not asked for is a problem.
    fn finish(self, problems: &mut Vec<Problem>) {
        for member in self.rest {
            let known = self.known.join(", ");
            problems.push(
                member.place.problem(format!("\"{}\" is not known here; known are {known}", member.name)),
            );
        }
    }
}

impl Reader {
    fn document(&mut self, node: &Node) {
        let Some(mut item) = self.mapping(node, "a document") else { return };
        if item.rest.iter().any(|member| member.name == "id") {
            return self.workflow(item);
        }
        for (name, kind) in LISTS {
            if let Some(list) = item.take(&[name], &mut self.problems) {
                self.each(list, |reader, item| match kind {
                    Kind::KnowledgeBase | Kind::Memory => reader.knowledge_base(*kind, "", item),
                    Kind::Quota => reader.named(*kind, &["tenant"], item),
                    _ => reader.named(*kind, &["id"], item),
                });
            }
        }
        self.knowledge(&mut item, "project");
        if let Some(list) = item.take(&["workflows"], &mut self.problems) {
            self.each(list, Reader::workflow);
        }
        self.tasks_and_agents(&mut item);
        item.take(OF_PROJECT, &mut Vec::new());
        item.finish(&mut self.problems);
    }

    fn tasks_and_agents(&mut self, item: &mut Item) {
        for (name, level) in [("tasks", "task"), ("agents", "agent")] {
            let Some(list) = item.take(&[name], &mut self.problems) else { continue };
            self.each(list, |reader, mut item| {
                let Some((id, _)) = reader.name(&mut item, &["id", "name"]) else { return };
                let scope = format!("{level}:{id}");
                reader.own_knowledge_bases(&mut item, &scope);
                reader.knowledge(&mut item, &scope);
            });
        }
    }

    /// What else a workflow, task or agent has is the business of the program that runs it.
    fn workflow(&mut self, mut item: Item) {
        let Some((id, _)) = self.name(&mut item, &["id"]) else { return };
        let scope = format!("workflow:{id}");
        self.own_knowledge_bases(&mut item, &scope);
        self.knowledge(&mut item, &scope);
        self.tasks_and_agents(&mut item);
    }

    /// The knowledge bases that only a workflow, task or agent knows under their name.
    fn own_knowledge_bases(&mut self, item: &mut Item, scope: &str) {
        let Some(list) = item.take(&["knowledge_bases"], &mut self.problems) else { return };
        self.each(list, |reader, item| {
            reader.knowledge_base(Kind::KnowledgeBase, &format!("{scope}/"), item);
        });
    }

    /// The bindings of a scope. An agent may also have objects there, which have neither id nor id_ref.
    fn knowledge(&mut self, item: &mut Item, scope: &str) {
        let Some(list) = item.take(&["knowledge"], &mut self.problems) else { return };
        let is_agent = scope.starts_with("agent:");
        let mut objects = Vec::new();
        self.each(list, |reader, mut item| {
            let place = item.place;
            let is_name = |member: &&Member| ["id", "id_ref"].contains(&member.name.as_str());
            if is_agent && !item.rest.is_empty() && !item.rest.iter().any(is_name) {
                let members = item.rest.iter().map(|member| (member.name.clone(), member.node.to_json()));
                objects.push(Value::Object(members.collect()));
                return;
            }
            let Some((id, _)) = reader.name(&mut item, &["id", "id_ref"]) else { return };
            reader.declare(Identity::new(Kind::Binding, scope, id), place, item);
        });
        if objects.is_empty() {
            return;
        }
        // The knowledge base and the binding, unless the agent declares them with settings.
        let kb_id = format!("{scope}/{OF_AGENT}");
        for identity in
            [Identity::new(Kind::KnowledgeBase, "", &kb_id), Identity::new(Kind::Binding, scope, OF_AGENT)]
        {
            if !self.known.contains_key(&identity) {
                self.add(identity, list.place, Map::new(), BTreeMap::new());
            }
        }
        let properties = Map::from_iter([("objects".to_string(), Value::Array(objects))]);
        self.add(Identity::new(Kind::Objects, kb_id, ""), list.place, properties, BTreeMap::new());
    }

    fn named(&mut self, kind: Kind, name: &[&'static str], mut item: Item) {
        let place = item.place;
        let Some((id, _)) = self.name(&mut item, name) else { return };
        self.declare(Identity::new(kind, "", id), place, item);
    }

    /// A knowledge base or a memory, with what belongs to it.
    fn knowledge_base(&mut self, kind: Kind, prefix: &str, mut item: Item) {
        let place = item.place;
        let Some((id, _)) = self.name(&mut item, &["id"]) else { return };
        let id = format!("{prefix}{id}");
        if let Some(list) = item.take(&["sources"], &mut self.problems) {
            self.sources(&id, list);
        }
        if let Some(list) = item.take(&["tables"], &mut self.problems) {
            self.each(list, |reader, mut item| {
                let place = item.place;
                let Some((table, at)) = reader.name(&mut item, &["table"]) else { return };
                // The search_path of a session decides nothing about a file.
                if !table.contains('.') {
                    let problem = format!("table \"{table}\" must be named with its schema");
                    reader.problems.push(at.problem(problem));
                }
                reader.declare(Identity::new(Kind::Table, &id, table), place, item);
            });
        }
        if let Some(list) = item.take(&["metadata_indexes"], &mut self.problems) {
            self.each(list, |reader, mut item| {
                let place = item.place;
                let key = reader.name(&mut item, &["key"]);
                let index_type = reader.name(&mut item, &["type"]);
                item.finish(&mut reader.problems);
                let (Some((key, _)), Some((index_type, _))) = (key, index_type) else { return };
                let properties =
                    Map::from_iter([("key".into(), json!(key)), ("type".into(), json!(index_type))]);
                let identity = Identity::new(Kind::MetadataIndex, &id, format!("{key} ({index_type})"));
                reader.add(identity, place, properties, BTreeMap::new());
            });
        }
        if let Some(list) = item.take(&["shared_with"], &mut self.problems) {
            for node in self.list(list) {
                match &node.value {
                    Tree::Scalar(Value::String(tenant)) if !tenant.is_empty() => {
                        let identity = Identity::new(Kind::Share, &id, tenant);
                        self.add(identity, node.place, Map::new(), BTreeMap::new());
                    }
                    _ => self.problems.push(node.place.problem("must be the name of a tenant")),
                }
            }
        }
        self.declare(Identity::new(kind, "", id), place, item);
    }

    /// A source without a name is called by its type, and the second of a type has a number.
    fn sources(&mut self, kb_id: &str, list: &Member) {
        let mut of_type: HashMap<String, usize> = HashMap::new();
        self.each(list, |reader, mut item| {
            let place = item.place;
            let given = item.take(&["name", "id"], &mut reader.problems);
            let name = given.and_then(|member| reader.text(member));
            let Some((source_type, _)) = reader.name(&mut item, &["type"]) else { return };
            let count = of_type.entry(source_type.clone()).or_default();
            *count += 1;
            let name = name.unwrap_or_else(|| match *count {
                1 => source_type.clone(),
                more => format!("{source_type}-{more}"),
            });
            let mut places = BTreeMap::new();
            let mut config = Map::new();
            for member in item.rest {
                put_places(&format!("config.{}", member.name), member, &mut places);
                config.insert(member.name.clone(), member.node.to_json());
            }
            let properties = Map::from_iter([
                ("type".into(), json!(source_type)),
                ("config".into(), Value::Object(config)),
            ]);
            reader.add(Identity::new(Kind::Source, kb_id, name), place, properties, places);
        });
    }

    /// Reads the properties of a kind.
    fn declare(&mut self, identity: Identity, place: Place, mut item: Item) {
        let (mut read, mut places) = (Map::new(), BTreeMap::new());
        if identity.kind == Kind::Memory
            && let Some(member) = item.take(&["llm"], &mut self.problems)
            && let Some(llm) = self.text(member)
        {
            read.insert("settings".into(), json!({"llm": llm}));
            places.insert("settings.llm".into(), member.place);
        }
        for property in properties(identity.kind) {
            let mut names = vec![property.name];
            names.extend(property.others);
            let Some(member) = item.take(&names, &mut self.problems) else { continue };
            put_places(property.name, member, &mut places);
            let Some(value) = self.value(property, member) else { continue };
            match (read.get_mut(property.name), value) {
                (Some(Value::Object(before)), Value::Object(more)) => before.extend(more),
                (_, value) => {
                    read.insert(property.name.into(), value);
                }
            }
        }
        item.finish(&mut self.problems);
        match identity.kind {
            Kind::Embedder => self.lift(&["dimension"], &mut read, &mut places),
            Kind::VectorDb => {
                self.lift(&["dimension", "metric"], &mut read, &mut places);
                self.of_other_systems(&mut read, &places);
            }
            _ => {}
        }
        self.add(identity, place, read, places);
    }

    /// Other systems have these properties within `config`.
    fn lift(&mut self, names: &[&str], read: &mut Map<String, Value>, places: &mut BTreeMap<String, Place>) {
        for name in names {
            let Some(value) =
                read.get_mut("config").and_then(Value::as_object_mut).and_then(|c| c.remove(*name))
            else {
                continue;
            };
            let place = places.get(&format!("config.{name}")).copied().unwrap_or_default();
            if read.contains_key(*name) {
                self.problems
                    .push(place.problem(format!("\"{name}\" is given twice, also outside of config")));
            }
            read.insert((*name).into(), value);
            places.insert((*name).into(), place);
        }
    }

    /// The words of other systems for a vector database in PostgreSQL. Vectors are in this very database, so
    /// a connection is accepted where it holds no password, and means nothing.
    fn of_other_systems(&mut self, read: &mut Map<String, Value>, places: &BTreeMap<String, Place>) {
        let is_pgvector = read.get("type").is_none_or(|name| name == "pgvector" || name == "memory");
        let Some(config) = read.get_mut("config").and_then(Value::as_object_mut).filter(|_| is_pgvector)
        else {
            return;
        };
        let place = |name: &str| places.get(&format!("config.{name}")).copied().unwrap_or_default();
        if let Some(dsn) = config.remove("dsn")
            && dsn.as_str().is_none_or(|dsn| secret::reference(dsn).is_err())
        {
            let problem = "must be a reference such as {{ .secrets.NAME }}; kb stores vectors in this database and connects to no other";
            self.problems.push(place("dsn").problem(problem));
        }
        config.remove("consistency");
        if let Some(index) = config.remove("index")
            && index != "hnsw"
        {
            self.problems.push(place("index").problem("must be hnsw"));
        }
        match config.remove("ensure_index") {
            None | Some(Value::Bool(true)) => {}
            // Nothing has so many rows, so no index is made.
            Some(Value::Bool(false)) => drop(config.insert("min_rows".into(), json!(i64::MAX))),
            Some(_) => self.problems.push(place("ensure_index").problem("must be true or false")),
        }
    }

    fn add(
        &mut self,
        identity: Identity,
        place: Place,
        properties: Map<String, Value>,
        places: BTreeMap<String, Place>,
    ) {
        if let Some(first) = self.known.get(&identity) {
            let problem = format!(
                "{} \"{}\" is declared twice, first in line {}",
                identity.kind.name().replace('_', " "),
                identity.text(),
                first.line
            );
            self.problems.push(place.problem(problem));
            return;
        }
        self.known.insert(identity.clone(), place);
        self.declared.push(Declaration { identity, place, properties, places });
    }

    /// A required name.
    fn name(&mut self, item: &mut Item, names: &[&'static str]) -> Option<(String, Place)> {
        let Some(member) = item.take(names, &mut self.problems) else {
            self.problems.push(item.place.problem(format!("\"{}\" is missing", names[0])));
            return None;
        };
        match self.text(member)? {
            name if name.is_empty() => {
                self.problems.push(member.node.place.problem(format!("{} must not be empty", member.name)));
                None
            }
            name => Some((name, member.place)),
        }
    }

    fn text(&mut self, member: &Member) -> Option<String> {
        match &member.node.value {
            Tree::Scalar(Value::String(text)) => Some(text.clone()),
            Tree::Scalar(Value::Number(number)) => Some(number.to_string()),
            _ => {
                self.problems.push(member.node.place.problem(format!("{} must be a text", member.name)));
                None
            }
        }
    }

    fn value(&mut self, property: &Property, member: &Member) -> Option<Value> {
        let value = member.node.to_json();
        let (is_right, form) = match property.form {
            _ if value.is_null() => return Some(value),
            Form::Text => return self.text(member).map(Value::String),
            Form::Secret => {
                return match value
                    .as_str()
                    .ok_or_else(|| "must be a text".to_string())
                    .and_then(secret::reference)
                {
                    Ok(reference) => Some(Value::String(reference)),
                    Err(problem) => {
                        self.problems.push(member.node.place.problem(format!("{} {problem}", member.name)));
                        None
                    }
                };
            }
            Form::WholeNumber => (value.is_i64(), "a whole number"),
            Form::Number => (value.is_number(), "a number"),
            Form::Boolean => (value.is_boolean(), "true or false"),
            Form::Texts => {
                let are_texts = |list: &Vec<Value>| list.iter().all(Value::is_string);
                let is_right = value.is_string() || value.as_array().is_some_and(are_texts);
                (is_right, "a text or a list of texts")
            }
            Form::Object => (value.is_object(), "a mapping"),
        };
        if !is_right {
            self.problems.push(member.node.place.problem(format!("{} must be {form}", member.name)));
        }
        is_right.then_some(value)
    }

    fn mapping<'a>(&mut self, node: &'a Node, what: &str) -> Option<Item<'a>> {
        match &node.value {
            Tree::Mapping(members) => {
                Some(Item { place: node.place, rest: members.iter().collect(), known: Vec::new() })
            }
            _ => {
                self.problems.push(node.place.problem(format!("{what} must be a mapping")));
                None
            }
        }
    }

    fn list<'a>(&mut self, member: &'a Member) -> &'a [Node] {
        match &member.node.value {
            Tree::List(nodes) => nodes,
            Tree::Scalar(Value::Null) => &[],
            _ => {
                self.problems.push(member.node.place.problem(format!("{} must be a list", member.name)));
                &[]
            }
        }
    }

    /// Reads each mapping of a list.
    fn each(&mut self, list: &Member, mut read: impl FnMut(&mut Self, Item)) {
        for node in self.list(list) {
            if let Some(item) = self.mapping(node, &format!("each of {}", list.name)) {
                read(self, item);
            }
        }
    }
}

/// Notes the place of a member and of those within it.
fn put_places(path: &str, member: &Member, places: &mut BTreeMap<String, Place>) {
    places.insert(path.into(), member.place);
    if let Tree::Mapping(members) = &member.node.value {
        for inner in members {
            put_places(&format!("{path}.{}", inner.name), inner, places);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification that these names come from.
    const PROJECT: &str = r#"
embedders:
  - id: openai_embedder
    provider: openai
    model: text-embedding-3-small
    api_key: "{{ .env.OPENAI_API_KEY }}"
    config:
      batch_size: 96
      dimension: 1536
vector_dbs:
  - id: pgvector_main
    type: pgvector
    config:
      dsn: "{{ .secrets.PGVECTOR_DSN }}"
      table: knowledge_chunks
      ensure_index: true
      consistency: strong
      index: hnsw
      dimension: 1536
knowledge_bases:
  - id: support_docs
    description: Customer support handbook
    embedder_ref: openai_embedder
    vector_db: pgvector_main
    sources:
      - type: url
        urls:
          - "https://example.com/support.pdf"
      - type: markdown_glob
        path: "docs/support/**/*.md"
      - {type: url, urls: [], every: 1 day}
    chunking:
      strategy: recursive_text_splitter
      size: 800
    retrieval:
      top_k: 8
      inject_as: support
    metadata: {tags: [a], owners: [b]}
    shared_with: [other]
agents:
  - resource: agent
    id: support_agent
    instructions: |
      You are a support expert.
    knowledge:
      - id: support_docs
        inject_as: context_docs
        max_tokens: 1500
---
id: support-assistant
version: 0.1.0
knowledge_bases:
  - id: own
    embedder: openai_embedder
tasks:
  - id: triage
    type: basic
    knowledge:
      - id: own
        top_k: 3
"#;

    fn names(text: &str) -> Vec<String> {
        let declared = declarations(text).unwrap();
        declared.iter().map(|one| format!("{} {}", one.identity.kind.name(), one.identity.text())).collect()
    }

    #[test]
    fn a_project_of_another_system_and_a_workflow_are_read() {
        assert_eq!(
            names(PROJECT),
            [
                "embedder openai_embedder",
                "vector_db pgvector_main",
                "knowledge_base support_docs",
                "knowledge_base workflow:support-assistant/own",
                "source support_docs/url",
                "source support_docs/markdown_glob",
                "source support_docs/url-2",
                "share support_docs/other",
                "binding agent:support_agent/support_docs",
                "binding task:triage/own",
            ]
        );
        let declared = declarations(PROJECT).unwrap();
        let properties = |n: usize| Value::Object(declared[n].properties.clone());
        assert_eq!(
            properties(1),
            json!({"type": "pgvector", "dimension": 1536, "config": {"table": "knowledge_chunks"}})
        );
        assert_eq!(
            properties(0),
            json!({"provider": "openai", "model": "text-embedding-3-small", "secret": "env:OPENAI_API_KEY",
                   "dimension": 1536, "config": {"batch_size": 96}})
        );
        assert_eq!(properties(2)["embedder"], "openai_embedder");
        assert_eq!(properties(6), json!({"type": "url", "config": {"urls": [], "every": "1 day"}}));
        assert_eq!(properties(8), json!({"inject_as": "context_docs", "max_tokens": 1500}));
    }

    #[test]
    fn messages_stand_where_their_property_is() {
        let declared = declarations(PROJECT).unwrap();
        let line = |message: &str| declared[2].place_of(message).line;
        assert_eq!(line("chunking.size: is too large"), 34);
        assert_eq!(line("chunking.overlap: is too large"), 32);
        assert_eq!(line("vector_db: \"x\" does not exist"), 24);
        assert_eq!(line("anything"), 21);
    }

    #[test]
    fn every_problem_is_reported_with_its_line() {
        let text = r#"
embedders:
  - id: e
    provider: openai
    api_key: sk-abcdef
    dimension: many
  - id: e
    provider: hash
  - provider: hash
vector_dbs: 7
knowledge_bases:
  - id: k
    embedder: e
    embedder_ref: e
    chunking: small
    size: 3
    shared_with: [1]
  - just a text
  - id: ""
agents:
  - knowledge: []
  - id: a
    knowledge_bases: []
knowledge:
  - {id: k, top_k: 1.5}
colour: red
"#;
        let problems: Vec<String> = declarations(text).unwrap_err().iter().map(Problem::to_string).collect();
        assert!(!problems.join("").contains("abcdef"));
        let starts = [
            "line 5, column 14: api_key is no reference to a key",
            "line 6, column 16: dimension must be a whole number",
            "line 7, column 5: embedder \"e\" is declared twice, first in line 3",
            "line 9, column 5: \"id\" is missing",
            "line 10, column 13: vector_dbs must be a list",
            "line 14, column 5: \"embedder\" and \"embedder_ref\" are the same; write one of them",
            "line 15, column 15: chunking must be a mapping",
            "line 16, column 5: \"size\" is not known here; known are id, sources,",
            "line 17, column 19: must be the name of a tenant",
            "line 18, column 5: each of knowledge_bases must be a mapping",
            "line 19, column 9: id must not be empty",
            "line 21, column 5: \"id\" is missing",
            "line 25, column 20: top_k must be a whole number",
            "line 26, column 1: \"colour\" is not known here; known are llms,",
        ];
        assert_eq!(problems.len(), starts.len(), "{problems:#?}");
        for (problem, start) in problems.iter().zip(starts) {
            assert!(problem.starts_with(start), "{problem}\n{start}");
        }
    }
}
