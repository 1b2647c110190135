//! The Model Context Protocol: what a client sees by `kb mcp` and by /mcp of kb serve, and what scopes allow.

use crate::program::program;
use crate::serve::{Served, key, prepare};
use crate::support::{Cluster, Db};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

const OLD: &str = "2025-11-25";
const NEW: &str = "2026-07-28";

fn message(number: u32, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
}

/// A process of kb mcp.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    number: u32,
}

impl Client {
    fn start(cluster: &Cluster, user: &str, arguments: &[&str]) -> Client {
        let mut command = program(cluster);
        command.args(["-U", user, "mcp"]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Client { child, input, output, number: 0 };
        let hello = json!({"protocolVersion": OLD, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        assert_eq!(client.ask("initialize", hello)["result"]["protocolVersion"], OLD);
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input, "{message}").unwrap();
        self.input.flush().unwrap();
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        self.send(&message(self.number, method, params));
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["id"], self.number, "{answer}");
        answer
    }

    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))["result"].take()
    }

    /// Closes its input, which ends the process.
    fn ended(mut self) -> Option<i32> {
        drop(self.input);
        self.child.wait().unwrap().code()
    }
}

fn tools(answer: &Value) -> Vec<String> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_string()).collect()
}

fn fill(db: &mut Db) {
    db.run(
        "SELECT kb.create_knowledge_base('manual', 'hash', retrieval => '{\"mode\": \"keyword\"}');
         SELECT kb.create_knowledge_base('private', 'hash', retrieval => '{\"mode\": \"keyword\"}');
         SELECT kb.create_memory('notes', 'hash');
         SELECT kb.put_document('manual', 'guide/a b.md', 'Install the extension with make install.', title => 'Guide');
         SELECT kb.put_document('manual', 'n' || n, 'Number ' || n) FROM generate_series(1, 120) n;
         SELECT kb.put_document('private', 'secret.md', 'Install nothing here.');
         CREATE ROLE writer LOGIN IN ROLE kb_writer; CREATE ROLE reader LOGIN IN ROLE kb_reader",
    );
    db.wait("manual");
    db.wait("private");
}

#[test]
fn a_client_on_standard_input_gets_tools_documents_and_a_prompt() {
    let (cluster, mut db) = crate::connected!();
    fill(&mut db);
    let mut client = Client::start(&cluster, "writer", &["--knowledge-base", "manual", "--memory", "notes"]);
    let listed = tools(&client.ask("tools/list", json!({})));
    for tool in
        ["search_semantic_knowledge", "file_search", "memory_store", "memory_search", "kb_query", "kb_put"]
    {
        assert!(listed.iter().any(|name| name == tool), "{tool}: {listed:?}");
    }
    assert!(!listed.contains(&"kb_answer".to_string()), "there is no chat model");
    let found = client.call("kb_query", json!({"kb_id": "manual", "query": "install"}));
    assert_eq!(found["structuredContent"]["results"][0]["external_id"], "guide/a b.md", "{found}");
    let context = client.call("kb_context", json!({"query": "install"}));
    assert!(context["content"][0]["text"].as_str().unwrap().contains("make install"), "{context}");
    // What is wrong with a call is told to the model; no call reaches another knowledge base.
    for arguments in [json!({"kb_id": "private", "query": "install"}), json!({"kb_id": "manual"})] {
        let refused = client.call("kb_query", arguments);
        assert_eq!(refused["isError"], true, "{refused}");
    }
    assert!(client.ask("resources/read", json!({"uri": "kb://private/secret.md"})).get("error").is_some());
    let put = client.call("kb_put", json!({"kb_id": "manual", "external_id": "new.md", "content": "New."}));
    assert_eq!(put["structuredContent"]["result"], "added", "{put}");
    // Every document is listed once.
    let (mut uris, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let params = if cursor.is_null() { json!({}) } else { json!({"cursor": cursor}) };
        let mut page = client.ask("resources/list", params)["result"].take();
        uris.extend(page["resources"].as_array().unwrap().iter().map(|row| row["uri"].to_string()));
        cursor = page["nextCursor"].take();
        if cursor.is_null() {
            break;
        }
    }
    let count = uris.len();
    uris.sort();
    uris.dedup();
    assert_eq!((uris.len(), count), (122, 122));
    let read = client.ask("resources/read", json!({"uri": "kb://manual/guide/a%20b.md"}));
    assert_eq!(read["result"]["contents"][0]["text"], "Install the extension with make install.");
    let arguments = json!({"kb_id": "manual", "question": "How do I install?"});
    let prompt = client.ask("prompts/get", json!({"name": "answer_with_context", "arguments": arguments}));
    assert!(prompt["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("make install"));
    assert_eq!(client.ended(), Some(0));
    let mut reader = Client::start(&cluster, "reader", &["--memory", "notes"]);
    let listed = tools(&reader.ask("tools/list", json!({})));
    assert!(!listed.iter().any(|name| name == "kb_put" || name == "memory_store"), "{listed:?}");
    let refused = reader.call("kb_put", json!({"kb_id": "manual", "external_id": "x", "content": "x"}));
    assert_eq!(refused["isError"], true, "{refused}");
}

#[test]
fn over_http_each_request_acts_as_its_caller_within_its_scopes() {
    let (cluster, mut db) = crate::connected!();
    prepare(&mut db);
    db.run("SET kb.tenant = 'acme'");
    db.put_and_wait("of-acme", "a.md", "Acme installs it.");
    db.run("RESET kb.tenant");
    let served = Served::start(&cluster, &[]);
    let all = key(&mut db, "acme", "");
    let search = key(&mut db, "acme", ", scopes => '{search}'");
    let globex = key(&mut db, "globex", "");
    let post = |key: &str, version: &str, method: &str, mut params: Value| {
        let mut headers = vec![
            ("authorization", key.to_string()),
            ("content-type", "application/json".to_string()),
            ("accept", "application/json, text/event-stream".to_string()),
            ("mcp-protocol-version", version.to_string()),
        ];
        if version == NEW {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": NEW,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            });
            headers.push(("mcp-method", method.to_string()));
            headers.extend(params["name"].as_str().map(|name| ("mcp-name", name.to_string())));
            headers.extend(params["uri"].as_str().map(|uri| ("mcp-name", uri.to_string())));
        }
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        served.ask("POST", "/mcp", &headers, &message(1, method, params).to_string())
    };
    let discovered = post(&all, NEW, "server/discover", json!({}));
    assert_eq!(discovered.status, 200, "{}", discovered.body);
    let result = discovered.json()["result"].take();
    assert_eq!(result["resultType"], "complete", "{result}");
    assert!(result["supportedVersions"].as_array().unwrap().contains(&NEW.into()), "{result}");
    for version in [OLD, NEW] {
        let call = json!({"name": "kb_query", "arguments": {"kb_id": "of-acme", "query": "installs"}});
        let found = post(&search, version, "tools/call", call.clone()).json();
        assert_eq!(found["result"]["structuredContent"]["results"][0]["external_id"], "a.md", "{found}");
        // The other tenant has no such knowledge base.
        let hidden = post(&globex, version, "tools/call", call).json();
        assert_eq!(hidden["result"]["isError"], true, "{hidden}");
        let scoped = tools(&post(&search, version, "tools/list", json!({})).json());
        assert!(scoped.contains(&"kb_query".to_string()) && !scoped.contains(&"memory_search".to_string()));
        let read = json!({"uri": "kb://of-acme/a.md"});
        assert!(post(&search, version, "resources/read", read.clone()).json().get("error").is_some());
        let read = post(&all, version, "resources/read", read).json();
        assert_eq!(read["result"]["contents"][0]["text"], "Acme installs it.", "{read}");
    }
    assert_eq!(post("Bearer kb_wrong", OLD, "tools/list", json!({})).status, 401);
    let headers = [("authorization", all.as_str()), ("origin", "https://evil.example.com")];
    assert_eq!(served.ask("POST", "/mcp", &headers, "{}").status, 403);
}
