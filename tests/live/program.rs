//! The program kb, as people and scripts start it: what it writes, its exit codes, what it says if something
//! is missing, and that neither a document nor an interrupt does harm.

use crate::stub::{Options, Stub};
use crate::support::{APP, Cluster, Db, SOON, signal, until};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// What a run of the program wrote, and how it ended.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Said {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}{}", self.out, self.err))
    }

    /// The standard output of a command that ended with this code.
    pub fn ended(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self.out
    }

    /// The standard error of a command that ended with this code.
    pub fn complained(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self.err
    }
}

/// The installed program with an environment that leads to this cluster, and nothing else in it.
pub fn program(cluster: &Cluster) -> Command {
    let installed = Path::new(&std::env::var_os("PG_BIN").unwrap()).join("kb");
    assert!(installed.exists(), "{} is missing: make build installs it", installed.display());
    let mut command = Command::new(installed);
    let psql = cluster.program("psql");
    let leading = psql.get_envs().filter(|(name, _)| name.to_string_lossy().starts_with("PG"));
    command.env_clear().envs(leading.filter_map(|(name, value)| Some((name, value?))));
    command.env("PGDATABASE", APP).env("HOME", cluster.path("home")).current_dir("/").stdin(Stdio::null());
    command
}

pub fn said(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn kb(cluster: &Cluster, arguments: &[&str]) -> Said {
    said(program(cluster).args(arguments))
}

fn with_input(command: &mut Command, input: &str) -> Said {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn write(cluster: &Cluster, name: &str, text: &str) -> PathBuf {
    let path = cluster.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

/// A knowledge base `handbook` of two documents.
fn fill(db: &mut Db) {
    db.run(
        "SELECT kb.create_knowledge_base('handbook', 'hash', retrieval => '{\"mode\": \"keyword\"}');
         SELECT kb.put_document('handbook', 'leave.md', 'Everybody has thirty days of annual leave.', title => 'Leave');
         SELECT kb.put_document('handbook', 'travel.md', 'Journeys by train are paid in full.', title => 'Travel')",
    );
    db.wait("handbook");
}

const DECLARED: &str = "
knowledge_bases:
  - id: handbook
    description: What applies to everybody
    embedder: hash
    retrieval: {mode: keyword, top_k: 5}
";

#[test]
fn a_configuration_is_applied_compared_listed_exported_and_dropped() {
    let (cluster, mut db) = crate::connected!();
    let file = write(&cluster, "conf/kb.yaml", DECLARED);
    let file = file.to_str().unwrap();
    let diff = kb(&cluster, &["diff", "-f", file]).ended(3);
    assert!(diff.contains("created   knowledge_base handbook"), "{diff}");
    assert_eq!(db.count("kb.knowledge_bases"), 0);
    assert_eq!(kb(&cluster, &["list"]).ended(0), "");
    assert_eq!(kb(&cluster, &["list", "--json"]).ended(0), "[]\n");
    let applied = kb(&cluster, &["apply", "-f", file, "--exit-code"]).ended(3);
    assert_eq!(applied, "created   knowledge_base handbook\n1 created, 0 unchanged\n");
    assert_eq!(kb(&cluster, &["apply", "--exit-code", "-f", file]).ended(0), "1 unchanged\n");
    assert_eq!(kb(&cluster, &["diff", "-f", file]).ended(0), "1 unchanged\n");

    let listed = kb(&cluster, &["list"]).ended(0);
    assert!(listed.starts_with("ID        EMBEDDER  VECTOR DB  DESCRIPTION\nhandbook  hash "), "{listed}");
    let listed = kb(&cluster, &["list", "--json"]).json();
    assert_eq!((&listed[0]["id"], listed.as_array().unwrap().len()), (&Value::from("handbook"), 1));
    assert!(kb(&cluster, &["list", "--kind", "embedder"]).ended(0).contains("all-MiniLM-L6-v2"));
    let got = kb(&cluster, &["get", "handbook"]).ended(0);
    assert!(got.starts_with("id: handbook\nembedder: hash\n") && got.contains("  top_k: 5\n"), "{got}");
    assert_eq!(
        kb(&cluster, &["get", "handbook", "--json"]).json()["description"],
        "What applies to everybody"
    );
    let none = kb(&cluster, &["get", "nothing"]).complained(1);
    assert!(none.contains("\"nothing\" does not exist"), "{none}");

    // What is exported is found unchanged, from standard input, too.
    let exported = kb(&cluster, &["export", "knowledge_base", "handbook"]).ended(0);
    let again = with_input(program(&cluster).args(["diff", "-f", "-"]), &exported);
    assert_eq!(again.ended(0), "1 unchanged\n");
    let changed =
        with_input(program(&cluster).args(["diff", "-f", "-"]), &exported.replace("everybody", "all"));
    let changed = changed.ended(3);
    assert!(
        changed
            .contains("  - description: What applies to everybody\n  + description: What applies to all\n"),
        "{changed}"
    );

    // Without a terminal, nothing is dropped unless it was said.
    let refused = kb(&cluster, &["delete", "handbook"]).complained(2);
    assert!(refused.contains("--yes"), "{refused}");
    assert_eq!(kb(&cluster, &["delete", "handbook", "--yes"]).ended(0), "dropped knowledge base handbook\n");
    assert_eq!(db.count("kb.knowledge_bases"), 0);
}

#[test]
fn etags_protect_what_others_have_changed() {
    let (cluster, mut db) = crate::connected!();
    fill(&mut db);
    let etag = kb(&cluster, &["get", "handbook", "--json"]).json()["etag"].as_str().unwrap().to_string();
    assert!(kb(&cluster, &["get", "handbook"]).ended(0).contains(&format!("# etag: {etag}")));
    assert_eq!(kb(&cluster, &["get", "handbook", "--if-none-match", &etag]).ended(3), "");
    let file = write(&cluster, "conf/kb.yaml", DECLARED);
    let applies = |etag: &str| kb(&cluster, &["apply", "-f", file.to_str().unwrap(), "--if-match", etag]);
    applies(&etag).ended(0);
    let stale = applies(&etag).complained(1);
    assert!(stale.contains("KB412"), "{stale}");
    kb(&cluster, &["delete", "handbook", "--yes", "--if-match", &etag]).complained(1);
    assert_eq!(db.count("kb.knowledge_bases"), 1);
    let etag = kb(&cluster, &["get", "handbook", "--json"]).json()["etag"].as_str().unwrap().to_string();
    kb(&cluster, &["delete", "handbook", "--yes", "--if-match", &etag]).ended(0);
}

#[test]
fn files_of_a_folder_are_one_configuration_and_problems_name_file_and_line() {
    let (cluster, _db) = crate::connected!();
    write(
        &cluster,
        "conf/10-bases.yaml",
        "knowledge_bases:\n  - id: a\n    embedder: own\n    vector_db: shared\n",
    );
    write(&cluster, "conf/20-nothing.yml", "# Nothing yet.\n");
    write(&cluster, "conf/sub/stores.yaml", "---\nvector_dbs:\n  - {id: shared, type: pgvector}\n");
    let models = write(
        &cluster,
        "conf/sub/models.yaml",
        "embedders:\n  - id: own\n    provider: local\n    model: all-MiniLM-L6-v2\n",
    );
    let folder = cluster.path("conf");
    let folder = folder.to_str().unwrap();
    let applied = kb(&cluster, &["apply", "-f", folder]).ended(0);
    assert!(applied.ends_with("3 created, 0 unchanged\n"), "{applied}");
    std::fs::write(
        &models,
        "embedders:\n  - id: own\n    provider: local\n    api_key: sk-12345\n  - id: own\n",
    )
    .unwrap();
    let wrong = kb(&cluster, &["apply", "-f", folder]).complained(1);
    let name = models.to_str().unwrap();
    assert!(wrong.contains(&format!("{name}:4:14: api_key is no reference to a key")), "{wrong}");
    assert!(
        wrong.contains(&format!("{name}:5:5: embedder \"own\" is declared twice, first in {name}:2")),
        "{wrong}"
    );
    assert!(!wrong.contains("sk-12345"), "{wrong}");
    let json = kb(&cluster, &["apply", "--json", "-f", folder]);
    let error: Value = serde_json::from_str(&json.err).unwrap();
    assert_eq!((json.code, &error["error"]["sqlstate"]), (Some(1), &Value::from("22023")));
}

#[test]
fn questions_are_answered_by_passages_with_their_places() {
    let (cluster, mut db) = crate::connected!();
    fill(&mut db);
    let found = kb(&cluster, &["query", "handbook", "-q", "annual leave"]).ended(0);
    assert!(found.starts_with("1. ") && found.contains(" leave.md  Leave\n"), "{found}");
    assert!(found.ends_with("\nEverybody has thirty days of annual leave.\n"), "{found}");
    assert!(!found.contains('\u{1b}'), "colours without a terminal: {found}");
    let painted = kb(&cluster, &["--color", "always", "query", "handbook", "-q", "annual leave"]).ended(0);
    assert!(painted.contains("\u{1b}[1m\u{1b}[33mannual\u{1b}[0m"), "{painted:?}");
    let rows = kb(&cluster, &["query", "handbook", "-q", "annual leave", "--json", "--top-k", "1"]).json();
    assert_eq!((&rows[0]["external_id"], rows.as_array().unwrap().len()), (&Value::from("leave.md"), 1));
    let nothing = kb(&cluster, &["query", "handbook", "-q", "quantum"]);
    assert!(nothing.err.contains("nothing was found"), "{}", nothing.err);
    assert_eq!(nothing.ended(3), "");
    let filter = [
        "query",
        "handbook",
        "-q",
        "leave",
        "--filter",
        r#"{"type": "eq", "key": "$external_id", "value": "travel.md"}"#,
    ];
    kb(&cluster, &filter).ended(3);
    let wrong = kb(&cluster, &["query", "handbook", "-q", "leave", "--filter", "{"]).complained(2);
    assert!(wrong.contains("--filter is not JSON"), "{wrong}");
    kb(&cluster, &["query", "handbook", "-q", "annual", "--min-score", "-1", "--mode", "dense"]).ended(0);
    let several = kb(&cluster, &["query", "handbook", "handbook", "-q", "annual"]);
    assert_eq!(several.code, Some(0), "{}", several.err);
    let explained = kb(&cluster, &["query", "handbook", "-q", "annual leave", "--explain"]).ended(0);
    assert!(explained.starts_with("Mode: keyword\n") && explained.contains("leave.md"), "{explained}");
    let explained = kb(&cluster, &["query", "handbook", "-q", "annual leave", "--explain", "--json"]).json();
    assert_eq!(explained["hits"][0]["external_id"], "leave.md");
    let error = kb(&cluster, &["query", "none", "-q", "x"]).complained(1);
    assert!(error.contains("SQLSTATE 42704"), "{error}");
}

#[test]
fn an_operator_sees_the_state_and_what_to_do() {
    let (cluster, mut db) = crate::connected!();
    fill(&mut db);
    let run = kb(&cluster, &["ingest", "handbook", "--strategy", "replace", "--watch"]).ended(0);
    assert!(run.starts_with("run ") && run.contains(" 0 failed"), "{run}");
    let run = kb(&cluster, &["ingest", "handbook", "--json", "--watch"]).json();
    assert_eq!((&run["state"], &run["strategy"]), (&Value::from("done"), &Value::from("upsert")));
    let status = kb(&cluster, &["status"]).ended(0);
    assert!(
        status.starts_with("ID        DOCS  READY  PENDING") && status.contains("\nhandbook"),
        "{status}"
    );
    let status = kb(&cluster, &["status", "handbook", "--json"]).json();
    assert_eq!(status["knowledge_bases"][0]["ready"], 2);
    kb(&cluster, &["status", "none"]).complained(1);
    let health = kb(&cluster, &["doctor", "--json"]);
    let rows: Value = serde_json::from_str(&health.out).unwrap();
    let has_problems = rows.as_array().unwrap().iter().any(|row| row["status"] != "ok");
    assert_eq!(health.code, Some(if has_problems { 3 } else { 0 }));
    assert!(kb(&cluster, &["doctor"]).out.contains("gateway"));
    // A problem comes with what to do about it.
    db.run("SELECT kb.put_file('handbook', 'bad.pdf', '%PDF-1.7 and nothing else')");
    db.wait("handbook");
    let problems = kb(&cluster, &["doctor", "--problems"]).ended(3);
    assert!(problems.contains("warning  failures    failed documents: 1"), "{problems}");
}

#[test]
fn vectors_are_those_of_the_embedder() {
    let (cluster, mut db) = crate::connected!();
    let expected: String = db.one("SELECT kb.embed('hash', ARRAY['leave'])::text");
    let written = kb(&cluster, &["embed", "--embedder", "hash", "leave"]).ended(0);
    let numbers = |text: &str| serde_json::from_str::<Vec<f32>>(text).unwrap();
    assert_eq!(numbers(&written), numbers(&expected));
    let two =
        with_input(program(&cluster).args(["embed", "--embedder", "hash", "--json"]), "leave\n\ntravel\n");
    let two: Vec<Vec<f32>> = serde_json::from_str(&two.ended(0)).unwrap();
    assert_eq!((two.len(), &two[0]), (2, &numbers(&expected)));
    let wrong = kb(&cluster, &["embed", "--embedder", "none", "x"]).complained(1);
    assert!(wrong.contains("42704"), "{wrong}");
}

#[test]
fn an_answer_cites_its_documents_and_a_conversation_goes_on() {
    let (cluster, mut db) = crate::connected!();
    let stub = Stub::start(Options::default());
    fill(&mut db);
    assert!(kb(&cluster, &["ask", "handbook", "-q", "x"]).complained(1).contains("there is no chat model"));
    db.run(&format!("SELECT kb.create_llm('talker', 'openai', 'model', '{}')", stub.base_url("chat_openai")));
    let answer = kb(&cluster, &["ask", "handbook", "-q", "How many days of annual leave?"]).ended(0);
    assert!(answer.contains("[1]") && answer.contains("\nSources\n[1] leave.md  Leave\n"), "{answer}");
    let refused = kb(&cluster, &["ask", "handbook", "-q", "quantum", "--json"]);
    assert_eq!((refused.json()["refused"].clone(), refused.code), (Value::from(true), Some(3)));
    let arguments = ["ask", "handbook", "--llm", "talker", "--conversation", "visit"];
    with_input(program(&cluster).args(arguments), "How many days of annual leave?\n").ended(0);
    kb(&cluster, &[&arguments[..], &["-q", "And annual leave in May?"]].concat()).ended(0);
    assert_eq!(db.count("kb.turns WHERE conversation_id = 'visit'"), 4);
    let silent = with_input(program(&cluster).args(arguments), " \n").complained(2);
    assert!(silent.contains("what is the question?"), "{silent}");
    db.run(&format!("SELECT kb.create_llm('other', 'openai', 'model', '{}')", stub.base_url("chat_openai")));
    let which = kb(&cluster, &["ask", "handbook", "-q", "x"]).complained(2);
    assert!(which.contains("--llm is one of other, talker"), "{which}");
}

#[test]
fn a_role_without_rights_is_told_which_role_to_get() {
    let (cluster, mut db) = crate::connected!();
    fill(&mut db);
    db.run("CREATE ROLE nobody LOGIN; CREATE ROLE \"Ann O\" LOGIN IN ROLE kb_reader");
    for command in [&["list"][..], &["query", "handbook", "-q", "x"], &["status"], &["doctor"], &["export"]] {
        let error = said(program(&cluster).args(command).env("PGUSER", "nobody")).complained(1);
        assert!(
            error.contains("42501") && error.contains("GRANT kb_reader TO \"nobody\";"),
            "{command:?}: {error}"
        );
    }
    let as_reader = |arguments: &[&str]| said(program(&cluster).args(["-U", "Ann O"]).args(arguments));
    as_reader(&["query", "handbook", "-q", "annual leave"]).ended(0);
    let error = as_reader(&["ingest", "handbook"]).complained(1);
    assert!(
        error.contains("may not call kb.ingest") && error.contains("GRANT kb_writer TO \"Ann O\";"),
        "{error}"
    );
    let error = as_reader(&["delete", "hash", "--kind", "embedder", "--yes"]).complained(1);
    assert!(error.contains("GRANT kb_admin TO \"Ann O\";"), "{error}");
}

#[test]
fn another_tenant_is_served_only_if_the_role_may_act_for_it() {
    let (cluster, mut db) = crate::connected!();
    db.run(
        "SET kb.tenant = 'acme'; SELECT kb.create_knowledge_base('plans', 'hash'); RESET kb.tenant;
         CREATE ROLE free LOGIN IN ROLE kb_reader;
         CREATE ROLE bound LOGIN IN ROLE kb_reader; SELECT kb.bind_role('bound', 'globex')",
    );
    let list =
        |tenant: &str| said(program(&cluster).args(["-U", "free", "list", "--json", "--project", tenant]));
    assert_eq!(list("acme").json()[0]["id"], "plans");
    assert_eq!(list("globex").ended(0), "[]\n");
    let refused = said(program(&cluster).args(["-U", "bound", "--project", "acme", "list", "--json"]));
    assert!(!refused.out.contains("plans"), "{}", refused.out);
    assert_eq!(refused.code, Some(1), "{}", refused.err);
}

#[test]
fn a_database_without_the_extension_and_a_server_that_is_not_there_are_told_apart() {
    let (cluster, mut db) = crate::connected!();
    let error = said(program(&cluster).args(["list"]).env("PGDATABASE", "postgres")).complained(1);
    assert!(error.contains("the database \"postgres\" does not have the extension kb"), "{error}");
    assert!(error.contains("CREATE EXTENSION kb CASCADE"), "{error}");
    let error = kb(&cluster, &["-d", "none", "list"]).complained(4);
    assert!(error.contains("database \"none\" does not exist") && error.contains("3D000"), "{error}");
    let error = kb(&cluster, &["-p", "1", "list"]).complained(4);
    assert!(
        error.contains("cannot connect to the server on socket") && error.contains(".s.PGSQL.1"),
        "{error}"
    );
    let wrong = kb(&cluster, &["-d", "postgresql://u:hunter2@h/?pasword=hunter2", "list"]).complained(4);
    assert!(wrong.contains("\"pasword\"") && !wrong.contains("hunter2"), "{wrong}");
    assert!(kb(&cluster, &["lost"]).complained(2).contains("lost"));
    assert!(kb(&cluster, &["list", "--help"]).ended(0).contains("Usage: kb list"));
    // No server is needed for these.
    let lost = |arguments: &[&str]| said(program(&cluster).args(["-p", "1"]).args(arguments));
    for shell in ["bash", "zsh", "fish"] {
        assert!(lost(&["completions", shell]).ended(0).contains("query"), "{shell}");
    }
    lost(&["man", cluster.path("man").to_str().unwrap()]).ended(0);
    let page = std::fs::read_to_string(cluster.path("man").join("kb-query.1")).unwrap();
    assert!(page.contains("min\\-score"), "{page}");
    db.run("SELECT 1");
}

#[test]
fn an_older_or_newer_extension_is_named_and_used_as_far_as_it_goes() {
    let (cluster, mut db) = crate::connected!();
    fill(&mut db);
    // As an extension without these functions would be.
    let listed: Vec<String> = db.all(
        "SELECT format('ALTER EXTENSION kb DROP FUNCTION %s; DROP FUNCTION %1$s', oid::regprocedure) FROM pg_proc
         WHERE pronamespace = 'kb'::regnamespace AND proname ~ '^(list|get)_|^default_embedder$|^export$'",
    );
    listed.iter().for_each(|drop| db.run(drop));
    db.run("UPDATE pg_extension SET extversion = '0.1.9' WHERE extname = 'kb'");
    let older = kb(&cluster, &["list"]);
    assert!(older.out.contains("\nhandbook  hash"), "{}{}", older.out, older.err);
    assert_eq!(older.err.matches("older").count(), 1, "{}", older.err);
    assert!(older.err.contains("kb 0.1.9"), "{}", older.err);
    assert!(kb(&cluster, &["get", "handbook"]).ended(0).starts_with("id: handbook\n"));
    kb(&cluster, &["get", "none"]).complained(1);
    for kind in ["embedder", "vector-db", "llm", "reranker", "extractor"] {
        kb(&cluster, &["list", "--kind", kind]).ended(0);
        kb(&cluster, &["get", "none", "--kind", kind]).complained(1);
    }
    kb(&cluster, &["list", "--kind", "source", "--kb", "handbook"]).ended(0);
    let lacking = kb(&cluster, &["export"]).complained(1);
    assert!(
        lacking.contains("has no function kb.export") && lacking.contains("ALTER EXTENSION kb UPDATE"),
        "{lacking}"
    );
    kb(&cluster, &["embed", "x"]).complained(2);
    db.run("UPDATE pg_extension SET extversion = '99.0' WHERE extname = 'kb'");
    let newer = kb(&cluster, &["list", "--json"]);
    assert!(newer.err.contains("newer") && newer.json()[0]["id"] == "handbook", "{}", newer.err);
}

#[test]
fn no_document_commands_the_terminal() {
    let (cluster, mut db) = crate::connected!();
    let evil = "\u{1b}]0;owned\u{7}\u{1b}[2Jleave\u{9b}31m\u{202e}";
    db.run("SELECT kb.create_knowledge_base('handbook', 'hash', retrieval => '{\"mode\": \"keyword\"}')");
    let put = "SELECT kb.put_document('handbook', $1, $1 || ' is leave', title => $1, metadata => jsonb_build_object('a', $1))";
    db.one_with::<String>(put, &[&evil]);
    db.one_with::<bool>("SELECT kb.create_knowledge_base($1, 'hash', description => $1) IS NULL", &[&evil]);
    db.wait("handbook");
    let is_harmful = |text: &str| text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}');
    for command in [
        &["query", "handbook", "-q", "leave"][..],
        &["query", "handbook", "-q", "leave", "--json"],
        &["query", "handbook", "-q", "leave", "--explain"],
        &["list"],
        &["list", "--json"],
        &["get", evil],
        &["get", evil, "--json"],
        &["status"],
        &["export"],
        &["get", "\u{1b}[2J"],
        &["query", "\u{1b}[2J", "-q", "x", "--json"],
        &["--\u{1b}[2J"],
    ] {
        let said = kb(&cluster, command);
        assert!(
            !is_harmful(&said.out) && !is_harmful(&said.err),
            "{command:?}: {:?} {:?}",
            said.out,
            said.err
        );
    }
    let rows = kb(&cluster, &["query", "handbook", "-q", "leave", "--json"]).json();
    assert_eq!(rows[0]["title"], evil);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let (cluster, mut db) = crate::connected!();
    fill(&mut db);
    for command in [
        &["query", "handbook", "-q", "leave"][..],
        &["list", "--json"],
        &["export"],
        &["completions", "bash"],
    ] {
        let mut child =
            program(&cluster).args(command).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), complaint.as_str()), (Some(0), ""), "{command:?}");
    }
}

/// A running program, whose standard output is read line by line.
fn started(command: &mut Command) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

fn interrupted(mut child: Child) -> (Option<i32>, String) {
    signal(i32::try_from(child.id()).unwrap(), libc::SIGINT);
    let mut complaint = String::new();
    child.stderr.take().unwrap().read_to_string(&mut complaint).unwrap();
    (child.wait().unwrap().code(), complaint)
}

#[test]
fn an_interrupt_cancels_the_statement_on_the_server() {
    let (cluster, mut db) = crate::connected!();
    fill(&mut db);
    // The program's statement waits for this lock as long as the transaction is open.
    let mut other = cluster.connect(APP);
    other.run("BEGIN; LOCK TABLE kb.knowledge_bases IN ACCESS EXCLUSIVE MODE");
    let (child, _out) = started(program(&cluster).args(["query", "handbook", "-q", "leave"]));
    let mut watching = cluster.connect("postgres");
    let waits = "pg_stat_activity WHERE application_name = 'kb' AND wait_event_type = 'Lock'";
    until(SOON, "the program's statement waits", || watching.count(waits) == 1);
    let (code, complaint) = interrupted(child);
    assert_eq!((code, complaint.as_str()), (Some(130), "kb: interrupted\n"));
    until(SOON, "its statement is cancelled", || watching.count(waits) == 0);
    assert!(cluster.log().contains("canceling statement due to user request"));
    other.run("ROLLBACK");
}

#[test]
fn a_watched_status_is_written_each_second_until_an_interrupt() {
    let (cluster, mut db) = crate::connected!();
    fill(&mut db);
    let (child, mut out) = started(program(&cluster).args(["status", "--watch", "--json"]));
    for _ in 0..2 {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let state: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(state["knowledge_bases"][0]["kb_id"], "handbook");
    }
    assert_eq!(interrupted(child), (Some(0), String::new()));
}

/// A certificate for this host that signs itself, and its key, both as PEM.
fn certificate(host: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed([host.to_string()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// An address of this machine that no other test uses at this moment.
fn own_address() -> String {
    let pid = std::process::id();
    format!("127.{}.{}.{}", 1 + pid / 65_025 % 250, 1 + pid / 255 % 250, 1 + pid % 250)
}

/// The server takes connections of ann by TLS only, and those of plain only without it.
fn take_tls(cluster: &Cluster, db: &mut Db, pem: &str, key: &str) {
    // The server reads both as its own user.
    let hba = "local all all trust\nhostssl all ann 127.0.0.0/8 scram-sha-256\nhostnossl all plain 127.0.0.0/8 scram-sha-256\n";
    std::fs::write(cluster.data().join("pg_hba.conf"), hba).unwrap();
    let quoted = |text: &str| text.replace('\'', "''");
    db.run(&format!(
        "COPY (SELECT unnest(string_to_array('{}', E'\\n'))) TO PROGRAM 'umask 077; cat > \"{1}/server.key\"';
         COPY (SELECT unnest(string_to_array('{2}', E'\\n'))) TO PROGRAM 'cat > \"{1}/server.crt\"'",
        quoted(key),
        cluster.data().display(),
        quoted(pem)
    ));
    db.run("ALTER SYSTEM SET ssl = on");
    cluster.reload();
}

#[test]
fn connections_follow_sslmode_and_passwords_come_from_where_libpq_has_them() {
    let address = own_address();
    let (cluster, mut db) = crate::connected!(&format!("listen_addresses = '{address}'"));
    db.run("CREATE ROLE ann LOGIN PASSWORD 's3cret:\\x' IN ROLE kb_reader; CREATE ROLE plain LOGIN PASSWORD 'p' IN ROLE kb_reader");
    let (pem, key) = certificate("db.test");
    let give = |name: &str, text: &str, mode: u32| {
        let path = cluster.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        path
    };
    take_tls(&cluster, &mut db, &pem, &key);
    let root = give("root.crt", &pem, 0o644);
    let (other, _) = certificate("db.test");
    let wrong_root = give("wrong.crt", &other, 0o644);
    let port =
        program(&cluster).get_envs().find(|(name, _)| *name == "PGPORT").unwrap().1.unwrap().to_owned();
    let connect = |more: &str, variables: &[(&str, &str)]| {
        let dbname = format!("host=db.test hostaddr={address} dbname={APP} {more}");
        said(
            program(&cluster)
                .env("PGPORT", &port)
                .envs(variables.iter().copied())
                .args(["-d", &dbname, "-w", "list", "--json"]),
        )
    };
    until(SOON, "the server takes connections by TLS", || {
        connect("user=ann sslmode=require", &[("PGPASSWORD", "s3cret:\\x")]).code == Some(0)
    });
    let root = format!("sslrootcert={}", root.display());
    let wrong_root = format!("sslrootcert={}", wrong_root.display());
    let given = [("PGPASSWORD", "s3cret:\\x")];
    connect(&format!("user=ann sslmode=verify-full {root}"), &given).ended(0);
    connect(&format!("user=ann sslmode=verify-ca channel_binding=require {root}"), &given).ended(0);
    connect("user=ann", &given).ended(0);
    connect("user=ann sslmode=allow", &given).ended(0);
    for refused in [
        format!("user=ann sslmode=verify-full {wrong_root}"),
        format!("user=ann sslmode=verify-ca {wrong_root}"),
        format!("user=ann sslmode=require {wrong_root}"),
        format!("user=ann sslmode=verify-full {root} host=other.test"),
        "user=ann sslmode=disable".into(),
        "user=ann sslmode=verify-full".into(),
        "user=plain sslmode=require password=p".into(),
    ] {
        let error = connect(&refused, &given).complained(4);
        assert!(!error.contains("s3cret"), "{error}");
    }
    connect(&format!("user=ann sslmode=verify-ca {root} host=other.test"), &given).ended(0);
    // As libpq, `prefer` and `allow` try both ways.
    connect("user=plain password=p", &[]).ended(0);
    connect("user=plain password=p sslmode=allow", &[]).ended(0);

    let missing = connect("user=ann", &[]).complained(4);
    assert!(missing.contains("wants a password for role"), "{missing}");
    let line = format!("db.test:{}:*:ann:s3cret\\:\\\\x\n", port.to_str().unwrap());
    let passfile = give("pgpass", &line, 0o600);
    let passfile = passfile.to_str().unwrap().to_string();
    connect("user=ann", &[("PGPASSFILE", &passfile)]).ended(0);
    std::fs::set_permissions(&passfile, PermissionsExt::from_mode(0o644)).unwrap();
    let open = connect("user=ann", &[("PGPASSFILE", &passfile)]).complained(4);
    assert!(open.contains("others may read it"), "{open}");
    let dbname = format!("host=db.test hostaddr={address} dbname={APP} user=ann");
    let mut asked =
        Terminal::start(program(&cluster).env("PGPORT", &port).args(["-d", &dbname, "list", "--json"]));
    asked.shows("Password for user ann: ");
    asked.type_in("s3cret:\\x\n");
    assert!(!asked.shows("[]").contains("s3cret"));
    assert_eq!(asked.ended(), Some(0));
    let wrong = connect("user=ann password=wrong", &[]).complained(4);
    assert!(wrong.contains("28P01"), "{wrong}");
    let service =
        format!("[app]\nhost=db.test\nhostaddr={address}\nuser=ann\npassword=s3cret:\\x\ndbname={APP}\n");
    let service = give("service.conf", &service, 0o600);
    let by_service = said(
        program(&cluster)
            .env_remove("PGHOST")
            .env_remove("PGUSER")
            .env_remove("PGDATABASE")
            .env("PGSERVICEFILE", service)
            .env("PGSERVICE", "app")
            .args(["list", "--json"]),
    );
    assert_eq!(by_service.ended(0), "[]\n");
    // The first host of a list that answers is taken.
    let list = format!("host=/nonexistent,db.test hostaddr=,{address} user=ann dbname={APP}");
    said(program(&cluster).env("PGPORT", &port).env("PGPASSWORD", given[0].1).args(["-d", &list, "list"]))
        .ended(0);
    let standby = connect("user=ann target_session_attrs=standby", &given).complained(4);
    assert!(standby.contains("is no standby"), "{standby}");
    connect("user=ann target_session_attrs=prefer-standby", &given).ended(0);
    let shown = connect(
        "user=ann options='-c default_transaction_read_only=on' target_session_attrs=read-write",
        &given,
    );
    assert!(shown.complained(4).contains("gives no session that writes"));
    assert!(!cluster.log().contains("s3cret"));
}

/// The program on a terminal of its own, and what it has shown there.
struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    fn start(command: &mut Command) -> Terminal {
        let (mut ours, mut theirs) = (0, 0);
        let null = std::ptr::null_mut();
        // SAFETY: both numbers are written, and the other arguments may be null.
        let opened = unsafe { libc::openpty(&mut ours, &mut theirs, null, null.cast(), null.cast()) };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: both descriptors were opened just now and belong to nobody else.
        let (keyboard, end) = unsafe { (File::from_raw_fd(ours), File::from_raw_fd(theirs)) };
        command
            .env("TERM", "xterm")
            .stdin(end.try_clone().unwrap())
            .stdout(end.try_clone().unwrap())
            .stderr(end);
        // SAFETY: the child only calls the system, and makes the terminal its own.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        // Our copies of the other end close with the command, so that reading ends with the program.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let screen = Arc::new(Mutex::new(String::new()));
        let (shown, mut from) = (screen.clone(), keyboard.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = from.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        });
        Terminal { child, keyboard, screen }
    }

    /// Waits until this is on the screen, and returns all that is.
    fn shows(&self, text: &str) -> String {
        until(SOON, &format!("the terminal shows {text:?}"), || self.screen.lock().unwrap().contains(text));
        self.screen.lock().unwrap().clone()
    }

    fn type_in(&mut self, keys: &str) {
        self.screen.lock().unwrap().clear();
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    fn ended(mut self) -> Option<i32> {
        let mut code = None;
        until(SOON, "the program ends", || {
            code = self.child.try_wait().unwrap();
            code.is_some()
        });
        code.unwrap().code()
    }
}

#[test]
fn a_terminal_has_colours_questions_and_a_chat() {
    let (cluster, mut db) = crate::connected!();
    let stub = Stub::start(Options::default());
    fill(&mut db);
    db.run(&format!("SELECT kb.create_llm('talker', 'openai', 'model', '{}')", stub.base_url("chat_openai")));
    let query = ["query", "handbook", "-q", "annual leave"];
    let painted = Terminal::start(program(&cluster).args(query));
    assert!(painted.shows("thirty days").contains("\u{1b}[36mleave.md\u{1b}[0m"));
    assert_eq!(painted.ended(), Some(0));
    let plain = Terminal::start(program(&cluster).env("NO_COLOR", "1").args(query));
    assert!(!plain.shows("thirty days").contains('\u{1b}'));
    assert_eq!(plain.ended(), Some(0));

    let mut kept = Terminal::start(program(&cluster).args(["delete", "handbook"]));
    kept.shows("Drop knowledge base handbook with its 2 documents? [y/N]");
    kept.type_in("\n");
    kept.shows("nothing was dropped");
    assert_eq!((kept.ended(), db.count("kb.knowledge_bases")), (Some(1), 1));

    let mut chat = Terminal::start(program(&cluster).args(["ask", "handbook", "--conversation", "visit"]));
    chat.shows("> ");
    chat.type_in("How many days of annual leave?\r");
    chat.shows("Sources");
    chat.type_in("And quantum?\r");
    chat.shows("The documents do not answer this question.");
    chat.type_in("\u{4}");
    assert_eq!((chat.ended(), db.count("kb.turns WHERE conversation_id = 'visit'")), (Some(0), 4));

    let mut watched = Terminal::start(program(&cluster).args(["status", "--watch"]));
    watched.shows("handbook");
    watched.type_in("\u{3}");
    assert_eq!(watched.ended(), Some(0));

    let mut dropped = Terminal::start(program(&cluster).args(["delete", "handbook"]));
    dropped.shows("[y/N]");
    dropped.type_in("y\n");
    dropped.shows("dropped knowledge base handbook");
    assert_eq!((dropped.ended(), db.count("kb.knowledge_bases")), (Some(0), 0));
}
