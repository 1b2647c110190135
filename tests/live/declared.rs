//! kb.apply and kb.export: a file is made as a whole or not at all, and what is exported is found unchanged.

use crate::support::{APP, Db, Fault};

/// In the words of the specification that kb follows: a project, and a workflow with its own knowledge base.
const PROJECT: &str = r#"
embedders:
  - id: openai_embedder
    provider: openai
    model: text-embedding-3-small
    api_key: "{{ .env.OPENAI_API_KEY }}"
    config:
      batch_size: 96
vector_dbs:
  - id: pgvector_main
    type: pgvector
    config:
      dsn: "{{ .secrets.PGVECTOR_DSN }}"
      table: knowledge_chunks
      ensure_index: true
knowledge_bases:
  - id: support_docs
    description: Customer support handbook
    embedder: openai_embedder
    vector_db: pgvector_main
    sources:
      - type: url
        urls: ["https://example.com/support.pdf"]
    chunking:
      strategy: recursive_text_splitter
      size: 800
      overlap: 120
    retrieval:
      top_k: 8
      min_score: 0.1
    metadata: {tags: [support], owners: [ann]}
    metadata_indexes:
      - {key: year, type: number}
    shared_with: [acme]
memories:
  - {id: facts, embedder: hash, shared_with: [acme]}
quotas:
  - {tenant: acme, documents: 10}
knowledge:
  - {id: support_docs, top_k: 6}
agents:
  - id: support_agent
    instructions: You are a support expert.
    knowledge:
      - {id: support_docs, inject_as: context_docs, max_tokens: 1500}
---
id: support-assistant
version: 0.1.0
knowledge_bases:
  - id: wf_support_docs
    embedder: openai_embedder
    vector_db: pgvector_main
tasks:
  - id: triage_ticket
    knowledge:
      - {id: wf_support_docs, top_k: 3}
"#;

/// What became of each thing.
fn apply(db: &mut Db, yaml: &str, options: &str) -> Vec<String> {
    db.all(&format!("SELECT concat_ws(' ', kind, id, action) FROM kb.apply($yaml${yaml}$yaml${options})"))
}

/// The problems that an error lists.
fn detail(fault: &Fault) -> String {
    let listed = fault.text.strip_prefix(&fault.message).unwrap_or_default().trim_start();
    listed.lines().take_while(|line| line.starts_with("line ")).collect::<Vec<_>>().join("\n")
}

/// How many rows there are in everything that can be declared.
const THINGS: &str = "(SELECT (SELECT count(*) FROM kb.embedders WHERE NOT seeded) + (SELECT count(*) FROM kb.vector_dbs)
    + (SELECT count(*) FROM kb.knowledge_bases) + (SELECT count(*) FROM kb.sources) + (SELECT count(*) FROM kb.shares)
    + (SELECT count(*) FROM kb.bindings) + (SELECT count(*) FROM kb.quotas WHERE tenant_id <> '')
    + (SELECT count(*) FROM kb.metadata_indexes) + (SELECT count(*) FROM kb.llms) AS n) t";

fn things(db: &mut Db) -> i64 {
    db.one(&format!("SELECT n FROM {THINGS}"))
}

#[test]
fn a_file_of_another_system_is_made_and_made_again_without_a_change() {
    let (_cluster, mut db) = crate::connected!();
    let made = apply(&mut db, PROJECT, "");
    assert_eq!(
        made,
        [
            "embedder openai_embedder created",
            "vector_db pgvector_main created",
            "knowledge_base support_docs created",
            "knowledge_base workflow:support-assistant/wf_support_docs created",
            "memory facts created",
            "metadata_index support_docs/year (number) created",
            "source support_docs/url created",
            "share support_docs/acme created",
            "share facts/acme created",
            "binding project/support_docs created",
            "binding agent:support_agent/support_docs created",
            "binding task:triage_ticket/wf_support_docs created",
            "quota acme created",
        ]
    );
    // The vector database has the dimension of its embedder, and no key is stored.
    assert_eq!(
        db.one::<String>("SELECT dimension || ' ' || config::jsonb::text FROM kb.vector_dbs")
            .split(' ')
            .next(),
        Some("1536")
    );
    assert_eq!(
        db.one::<String>("SELECT secret FROM kb.embedders WHERE id = 'openai_embedder'"),
        "env:OPENAI_API_KEY"
    );
    let chunking: String =
        db.one("SELECT chunking ->> 'size' FROM kb.knowledge_bases WHERE id = 'support_docs'");
    assert_eq!(chunking, "800");
    let etags =
        "SELECT string_agg(kb.get_knowledge_base(id) ->> 'etag', ' ' ORDER BY kb_no) FROM kb.knowledge_bases";
    let before: String = db.one(etags);
    let again = apply(&mut db, PROJECT, "");
    assert_eq!(again, made.iter().map(|row| row.replace("created", "unchanged")).collect::<Vec<_>>());
    assert_eq!(db.one::<String>(etags), before);
    // What is exported is found unchanged, by another database, too.
    let exported: String = db.one("SELECT kb.export()");
    let unchanged = apply(&mut db, &exported, ", prune => true");
    assert_eq!(unchanged.len(), made.len());
    assert!(unchanged.iter().all(|row| row.ends_with("unchanged")), "{unchanged:?}");
    db.run("SELECT kb.drop_knowledge_base(id) FROM kb.knowledge_bases ORDER BY kb_no");
    db.run("SELECT kb.drop_vector_db('pgvector_main'), kb.drop_embedder('openai_embedder'); SELECT kb.unbind(scope, id_ref) FROM kb.bindings; SELECT kb.set_quota('acme')");
    assert_eq!(things(&mut db), 0);
    assert!(apply(&mut db, &exported, "").iter().all(|row| row.ends_with("created")));
    assert_eq!(db.one::<String>("SELECT kb.export()"), exported);
}

#[test]
fn every_problem_is_reported_with_its_place_and_nothing_is_made() {
    let (cluster, mut db) = crate::connected!();
    let yaml = r#"
embedders:
  - {id: good, provider: hash, dimension: 16}
  - id: bad
    provider: nowhere
vector_dbs:
  - {id: wide, dimension: 32}
knowledge_bases:
  - {id: fine, embedder: good}
  - id: lost
    embedder: good
    vector_db: missing
  - id: narrow
    embedder: good
    vector_db: wide
    chunking:
      size: -1
      flavour: 3
  - {id: unmade, embedder: bad}
knowledge:
  - id: nothing
memories:
  - id: m
    settings:
      decay:
        half_life_days: never
"#;
    let fault = db.refused(&format!("SELECT * FROM kb.apply($yaml${yaml}$yaml$)"), "22023");
    let listed = detail(&fault);
    let lines: Vec<&str> = listed.lines().collect();
    let expected = [
        "line 4, column 5: embedder \"bad\": ",
        "line 12, column 5: knowledge base \"lost\": vector_db: \"missing\" does not exist",
        "line 15, column 5: knowledge base \"narrow\": vector_db: \"wide\" has dimension 32, embedder \"good\" has 16",
        "line 17, column 7: knowledge base \"narrow\": chunking.size: ",
        "line 18, column 7: knowledge base \"narrow\": chunking.flavour: unknown key",
        "line 21, column 5: binding \"project/nothing\": knowledge base \"nothing\" does not exist",
        "line 26, column 9: memory \"m\": settings.decay.half_life_days: ",
    ];
    assert_eq!(lines.len(), expected.len(), "{listed}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\n{expected}");
    }
    assert_eq!(things(&mut db), 0);
    // A key is refused and not repeated, in the message or in the server's log.
    let fault = db.refused(
        "SELECT kb.apply(E'llms:\\n  - {id: l, provider: openai, model: m, api_key: sk-0123456789}')",
        "22023",
    );
    assert!(
        detail(&fault).starts_with("line 2, column 50: api_key is no reference to a key"),
        "{}",
        detail(&fault)
    );
    assert!(!detail(&fault).contains("0123456789"));
    assert!(!cluster.log().contains("0123456789"));
}

#[test]
fn a_dry_run_shows_what_a_run_does_and_does_nothing() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.set_secret('key', 'x'); SELECT kb.create_knowledge_base('k', 'hash', description => 'Old.'); SELECT kb.create_knowledge_base('other', 'hash')");
    let yaml = "knowledge_bases:\n  - {id: k, description: New., retrieval: {top_k: 7}}\n  - {id: fresh, embedder: hash}\nllms:\n  - {id: l, provider: openai, model: m, api_key: kb:key}\n";
    let state = "SELECT md5(string_agg(k::text, '' ORDER BY kb_no)) FROM kb.knowledge_bases k";
    let before: String = db.one(state);
    let query = |dry_run: bool| {
        format!(
            "SELECT concat_ws(' ', kind, id, action, difference) FROM kb.apply($yaml${yaml}$yaml$, {dry_run}, true)"
        )
    };
    let shown: Vec<String> = db.all(&query(true));
    assert_eq!((db.one::<String>(state), db.count("kb.llms")), (before, 0));
    assert_eq!(db.all::<String>(&query(false)), shown);
    assert_eq!(shown.len(), 4);
    assert!(shown[0].starts_with("llm l created + provider: openai\n+ model: m"), "{}", shown[0]);
    assert!(
        shown[1].starts_with("knowledge_base k changed - description: Old.\n- retrieval:"),
        "{}",
        shown[1]
    );
    assert!(shown[1].contains("\n+ description: New.\n+ retrieval:"), "{}", shown[1]);
    assert!(shown[2].starts_with("knowledge_base fresh created"), "{}", shown[2]);
    assert!(shown[3].starts_with("knowledge_base other pruned - embedder: hash"), "{}", shown[3]);
    assert_eq!(db.all::<String>("SELECT id FROM kb.knowledge_bases ORDER BY kb_no"), ["k", "fresh"]);
}

#[test]
fn what_is_pruned_is_of_the_declared_kinds_knowledge_bases_and_scopes_only() {
    let (_cluster, mut db) = crate::connected!();
    apply(&mut db, PROJECT, "");
    // No kind but bindings is declared here, and of these only the scope of an agent.
    let agent = "agents:\n  - id: support_agent\n    knowledge:\n      - {id: wf, max_tokens: 9}\n";
    db.run("SELECT kb.create_knowledge_base('wf', 'hash')");
    assert_eq!(
        apply(&mut db, agent, ", prune => true"),
        ["binding agent:support_agent/wf created", "binding agent:support_agent/support_docs pruned"]
    );
    let one = "knowledge_bases:\n  - id: support_docs\n    shared_with: [zeta]\n";
    assert_eq!(
        apply(&mut db, one, ", prune => true"),
        [
            "knowledge_base support_docs unchanged",
            "share support_docs/zeta created",
            "knowledge_base workflow:support-assistant/wf_support_docs pruned",
            "knowledge_base wf pruned",
            "metadata_index support_docs/year (number) pruned",
            "source support_docs/url pruned",
            "share support_docs/acme pruned",
        ]
    );
    assert_eq!(db.count("kb.memories"), 0);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM kb.memory_stores"), 1);
}

#[test]
fn what_a_file_does_not_name_stays_as_it_is() {
    let (_cluster, mut db) = crate::connected!();
    apply(&mut db, PROJECT, "");
    db.run("SELECT kb.set_quota('acme', documents => 10, bytes => 5000)");
    let less = "quotas:\n  - {tenant: acme, documents: 20}\nagents:\n  - id: support_agent\n    knowledge:\n      - {id: support_docs, max_tokens: 9}\n";
    let rows = apply(&mut db, less, "");
    assert!(rows.iter().all(|row| row.ends_with("changed")), "{rows:?}");
    assert_eq!(
        db.one::<String>("SELECT documents || ' ' || bytes FROM kb.quotas WHERE tenant_id = 'acme'"),
        "20 5000"
    );
    let binding = "SELECT inject_as || ' ' || max_tokens FROM kb.bindings WHERE scope LIKE 'agent%'";
    assert_eq!(db.one::<String>(binding), "context_docs 9");
}

#[test]
fn what_cannot_be_changed_is_refused_and_a_source_is_read_again_only_if_it_changed() {
    let (_cluster, mut db) = crate::connected!();
    apply(&mut db, PROJECT, "");
    for (yaml, problem) in [
        (
            "vector_dbs:\n  - {id: pgvector_main, metric: l2}",
            "line 2, column 25: vector db \"pgvector_main\": metric: is \"cosine\"",
        ),
        (
            "embedders:\n  - {id: openai_embedder, provider: hash}",
            "line 2, column 27: embedder \"openai_embedder\": provider: is",
        ),
        (
            "knowledge_bases:\n  - {id: support_docs, sources: [{name: url, type: query, sql: x}]}",
            "source \"support_docs/url\": type: is",
        ),
        (
            "embedders:\n  - {id: openai_embedder, model: text-embedding-3-large, dimension: 3072}",
            "is still used",
        ),
        ("embedders:\n  - {id: minilm, provider: local, model: x}", "embedder \"minilm\""),
    ] {
        let fault = db.refused(&format!("SELECT kb.apply($yaml${yaml}$yaml$)"), "22023");
        assert!(detail(&fault).contains(problem), "{}\n{problem}", detail(&fault));
    }
    let source = "SELECT md5(s::text) FROM kb.sources s";
    let before: String = db.one(source);
    let same = "knowledge_bases:\n  - id: support_docs\n    sources:\n      - {type: url, urls: ['https://example.com/support.pdf']}\n";
    assert_eq!(apply(&mut db, same, "")[1], "source support_docs/url unchanged");
    assert_eq!(db.one::<String>(source), before);
    let other = same.replace("support.pdf", "other.pdf");
    assert_eq!(apply(&mut db, &other, "")[1], "source support_docs/url changed");
    assert!(db.one::<String>("SELECT config::text FROM kb.sources").contains("other.pdf"));
}

#[test]
fn a_tenant_declares_and_exports_its_own_with_the_privileges_that_it_has() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "CREATE ROLE a LOGIN IN ROLE kb_writer; CREATE ROLE b LOGIN IN ROLE kb_writer; CREATE ROLE r LOGIN IN ROLE kb_reader;
         SELECT kb.bind_role('a', 'a'), kb.bind_role('b', 'b'), kb.bind_role('r', 'a')",
    );
    let mut a = cluster.connect_as(APP, "a");
    let mut b = cluster.connect_as(APP, "b");
    let mut reader = cluster.connect_as(APP, "r");
    let yaml = "knowledge_bases:\n  - {id: k, embedder: hash, description: SECRET OF A, shared_with: [b]}\nknowledge:\n  - id: k\n";
    assert_eq!(apply(&mut a, yaml, "").len(), 3);
    // What is of one tenant is not in another's export, and is not pruned by it.
    assert!(!b.one::<String>("SELECT kb.export()").contains("SECRET OF A"));
    assert_eq!(
        apply(&mut b, "knowledge_bases:\n  - {id: mine, embedder: hash}\n", ", prune => true"),
        ["knowledge_base mine created"]
    );
    assert_eq!(a.count("kb.knowledge_bases WHERE id = 'k'"), 1);
    // A binding may be of what is shared.
    assert_eq!(apply(&mut b, "knowledge:\n  - id: k\n", ""), ["binding project/k created"]);
    // Services are the business of kb_admin, and one of a reader is nothing.
    let admin = "embedders:\n  - {id: e, provider: hash}\nknowledge_bases:\n  - {id: x, embedder: e}\n";
    let fault = a.refused(&format!("SELECT kb.apply('{admin}')"), "22023");
    assert_eq!(
        detail(&fault),
        "line 2, column 5: embedder \"e\": permission denied for function create_embedder"
    );
    assert_eq!(
        reader.one::<String>("SELECT kb.export('knowledge_base', 'k')"),
        a.one::<String>("SELECT kb.export('knowledge_base', 'k')")
    );
    reader.refused(&format!("SELECT kb.apply('{}')", yaml), "42501");
    a.refused("SELECT kb.export('colour')", "22023");
    a.refused("SELECT kb.export('all', 'nothing')", "22023");
}

#[test]
fn a_large_file_is_applied_and_one_that_is_too_large_or_too_deep_is_refused() {
    let (_cluster, mut db) = crate::connected!();
    db.run("SELECT kb.set_secret('key', 'x')");
    let file = |count: usize| -> String {
        let items: Vec<String> = (0..count)
            .map(|n| format!("  - {{id: l{n}, provider: openai, model: m{n}, api_key: kb:key}}\n"))
            .collect();
        format!("llms:\n{}", items.concat())
    };
    assert_eq!(apply(&mut db, &file(2_000), "").len(), 2_000);
    assert!(apply(&mut db, &file(2_000), "").iter().all(|row| row.ends_with("unchanged")));
    let large = format!("# {}\n", "x".repeat(5_000_000));
    db.refused(&format!("SELECT kb.apply($yaml${large}$yaml$)"), "22023");
    for hostile in [
        "[".repeat(100_000),
        "a: &a [x]\nb: *a".into(),
        "{".repeat(100_000),
        "? ".repeat(50_000),
        "- ".repeat(100_000),
    ] {
        db.refused(&format!("SELECT kb.apply($yaml${hostile}$yaml$)"), "22023");
    }
}

/// A knowledge base of rows, and an agent that knows objects.
const TABLES: &str = r#"
knowledge_bases:
  - id: articles
    embedder: hash
    retrieval: {inject_as: articles}
    tables:
      - table: public."Articles"
        content: [title, body]
        published_when: published
        metadata: [year]
        title: title
      - table: public.notes
        content: "{{head}}: {{body}}"
        json_fields: {include: ["$.text"]}
        replicated: true
agents:
  - name: TravelAgent
    model: openai/gpt-4o
    knowledge_bases:
      - {id: knowledge, embedder: hash}
    knowledge:
      - cityName: Seoul
        aliases: Seoul, SEOUL, KOR, Korea
        info: Capital city of South Korea
      - cityName: Tokyo
        info: Capital city of Japan
      - {id: articles, top_k: 2}
"#;

fn tables(db: &mut Db) {
    db.run(
        "CREATE TABLE public.\"Articles\" (id int PRIMARY KEY, title text, body text, published boolean, year int);
         CREATE TABLE public.notes (id int PRIMARY KEY, head text, body jsonb);
         INSERT INTO public.\"Articles\" SELECT i, 'Title', 'Body ' || i, i % 2 = 0, 2000 + i FROM generate_series(1, 20) i",
    );
}

#[test]
fn tables_and_what_agents_know_are_declared_and_read_again_only_if_they_changed() {
    let (_cluster, mut db) = crate::connected!();
    tables(&mut db);
    let made = apply(&mut db, TABLES, "");
    assert_eq!(
        made,
        [
            "knowledge_base articles created",
            "knowledge_base agent:TravelAgent/knowledge created",
            "table articles/public.\"Articles\" created",
            "table articles/public.notes created",
            "binding agent:TravelAgent/articles created",
            "binding agent:TravelAgent/knowledge created",
            "objects agent:TravelAgent/knowledge created",
        ]
    );
    db.wait("articles");
    db.wait("agent:TravelAgent/knowledge");
    assert_eq!(db.count("kb.documents WHERE kb_id = 'articles'"), 10);
    // The agent is given both, each under the name of its knowledge base or of its binding.
    let bound = "SELECT concat_ws(' ', kb_id, inject_as) FROM kb.resolve_bindings('{agent:TravelAgent}')";
    assert_eq!(db.all::<String>(bound), ["articles articles", "agent:TravelAgent/knowledge"]);
    let known = "SELECT kb.relevant('agent:TravelAgent/knowledge', 'Tokyo', 1)::text";
    assert!(db.one::<String>(known).contains("Capital city of Japan"));
    // Nothing is attached or put again.
    let state = "SELECT string_agg(s.xmin::text || s.config::text, ' ' ORDER BY source_no) FROM kb.sources s";
    let before: String = db.one(state);
    let again = apply(&mut db, TABLES, "");
    assert!(again.iter().all(|row| row.ends_with("unchanged")), "{again:?}");
    assert_eq!(db.one::<String>(state), before);
    let exported: String = db.one("SELECT kb.export()");
    let unchanged = apply(&mut db, &exported, ", prune => true");
    assert!(unchanged.iter().all(|row| row.ends_with("unchanged")) && unchanged.len() == 6, "{unchanged:?}");
    // What the list no longer has, the agent no longer knows.
    let less = TABLES
        .replace("cityName: Tokyo\n        info: Capital city of Japan", "cityName: Busan")
        .replace("[title, body]", "body");
    let rows = apply(&mut db, &less, "");
    assert_eq!(rows[2], "table articles/public.\"Articles\" changed");
    assert_eq!(rows[6], "objects agent:TravelAgent/knowledge changed");
    db.wait("agent:TravelAgent/knowledge");
    let names = "SELECT string_agg(metadata ->> 'cityName', ' ' ORDER BY 1) FROM kb.documents WHERE kb_id LIKE 'agent%'";
    assert_eq!(db.one::<String>(names).len(), "Busan Seoul".len());
    // A table that is not declared is detached where tables are pruned.
    let one = less.split("      - table: public.notes").next().unwrap().to_string();
    let rows = apply(&mut db, &one, ", prune => true");
    assert!(rows.contains(&"table articles/public.notes pruned".to_string()), "{rows:?}");
    assert_eq!(db.count("kb.sources"), 1);
}

#[test]
fn problems_of_tables_and_objects_have_their_places_and_undo_everything() {
    let (_cluster, mut db) = crate::connected!();
    tables(&mut db);
    for (from, to, problem) in [
        ("public.notes", "notes", "line 12, column 9: table \"notes\" must be named with its schema"),
        (
            "public.notes",
            "public.none",
            "line 12, column 9: table \"articles/public.none\": relation \"public.none\" does not exist",
        ),
        (
            "public.notes",
            "public.\"Articles\"",
            "line 12, column 9: table \"articles/public.\"Articles\"\" is declared twice",
        ),
        (
            "metadata: [year]",
            "metadata: [colour]",
            "line 10, column 9: table \"articles/public.\"Articles\"\": metadata: column \"colour\" does not exist",
        ),
        (
            "published_when: published",
            "published_when: now() > '2020-01-01'",
            "published_when: it calls a function that is not IMMUTABLE",
        ),
        ("replicated: true", "replicated: 7", "replicated must be true or false"),
        ("info: Capital city of Japan", "external_id: ' '", "its id must not be empty"),
    ] {
        assert!(TABLES.contains(from));
        let yaml = TABLES.replace(from, to);
        let fault = db.refused(&format!("SELECT kb.apply($yaml${yaml}$yaml$)"), "22023");
        assert!(detail(&fault).contains(problem), "{to}: {}", detail(&fault));
        assert_eq!(things(&mut db), 0);
    }
}

#[test]
fn a_file_is_applied_only_if_its_resource_is_what_was_read() {
    let (_cluster, mut db) = crate::connected!();
    let yaml = "knowledge_bases:\n  - {id: k, embedder: hash, description: One., shared_with: [acme]}\n";
    apply(&mut db, yaml, "");
    let etag = |db: &mut Db| db.one::<String>("SELECT kb.get_knowledge_base('k') ->> 'etag'");
    let first = etag(&mut db);
    let changed = yaml.replace("One.", "Two.");
    let with = |etag: &str| format!(", if_match => '{etag}'");
    assert_eq!(apply(&mut db, &changed, &with(&first))[0], "knowledge_base k changed");
    let second = etag(&mut db);
    assert_ne!(second, first);
    let fault = db.fault(&format!("SELECT kb.apply($yaml${yaml}$yaml${})", with(&first)));
    assert_eq!(fault.code, "KB412", "{}", fault.text);
    assert_eq!(etag(&mut db), second);
    let two = format!("{yaml}embedders:\n  - {{id: e, provider: hash}}\n");
    db.refused(&format!("SELECT kb.apply($yaml${two}$yaml${})", with(&second)), "22023");
}

#[test]
fn twice_the_file_costs_twice_as_much() {
    let (_cluster, mut db) = crate::connected!();
    let file = |count: usize| -> String {
        let items: Vec<String> = (0..count)
            .map(|n| format!("  - {{id: agent {n}, knowledge_bases: [{{id: own, embedder: hash}}], knowledge: [{{id: own}}]}}\n"))
            .collect();
        format!("agents:\n{}", items.concat())
    };
    let mut cost = |count: usize| {
        db.run("BEGIN");
        let buffers = db.buffers(&format!("count(*) FROM kb.apply($yaml${}$yaml$)", file(count)));
        db.run("ROLLBACK");
        buffers
    };
    cost(5);
    let (one, two) = (cost(50), cost(100));
    assert!(two < one * 5 / 2, "{one} {two}");
}
