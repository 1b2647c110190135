//! The comments of SQL functions and the pages of the reference name the providers that there are.

use kb_gateway::provider::{Address, Auth, all_names, find, names};
use kb_types::ServiceKind;
use std::path::Path;

const KINDS: [ServiceKind; 3] = [ServiceKind::Embedder, ServiceKind::Reranker, ServiceKind::Llm];

fn text(page: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap()
}

/// What is between `begin` and the next `end`.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap_or_else(|| panic!("there is no {begin:?}"));
    rest.split(end).next().unwrap()
}

fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn the_comment_of_each_create_function_lists_its_providers() {
    let grants = text("sql/grants.sql");
    for kind in KINDS {
        let comment = between(&grants, &format!("COMMENT ON FUNCTION kb.create_{kind}("), ";\n");
        let listed = between(comment, "provider: ", ".").replace(" or ", ", ");
        assert_eq!(listed.split(", ").collect::<Vec<_>>(), all_names(kind), "kb.create_{kind}");
    }
}

#[test]
fn the_reference_lists_the_providers_of_each_kind() {
    let (functions, tables) = (text("docs/reference/functions.md"), text("docs/reference/tables.md"));
    for kind in KINDS {
        let function = quoted(between(&functions, &format!("\n### kb.create_{kind}\n"), "\n### "));
        // Those of embedders that are reached over HTTP have a page of their own.
        let here = all_names(kind)
            .into_iter()
            .filter(|name| kind != ServiceKind::Embedder || find(kind, name).is_none());
        for name in here {
            assert!(function.contains(&name), "kb.create_{kind} does not name {name}");
        }
    }
    for (kind, table) in [(ServiceKind::Reranker, "rerankers"), (ServiceKind::Llm, "llms")] {
        let row = between(between(&tables, &format!("\n### kb.{table}\n"), "\n### "), "| `provider` |", "\n");
        assert_eq!(quoted(row), all_names(kind), "kb.{table}");
    }
}

#[test]
fn the_page_of_providers_says_where_each_is_and_what_it_is_asked_by_default() {
    let page = text("docs/reference/providers.md");
    let table = between(&page, "\n| provider |", "\n\n");
    let rows: Vec<Vec<&str>> = table.lines().skip(2).map(|row| row.split(" | ").collect()).collect();
    let listed: Vec<&str> = rows.iter().map(|row| quoted(row[0])[0]).collect();
    assert_eq!(listed, names(ServiceKind::Embedder));
    for row in rows {
        let provider = find(ServiceKind::Embedder, quoted(row[0])[0]).unwrap();
        let api = provider.embed.unwrap();
        let base_url = match provider.address {
            Address::Default(url) => format!("`{url}`"),
            Address::Given(_) => "must be given".into(),
        };
        let model = match (api.facts().model, api.facts().dimension) {
            (Some(model), Some(dimension)) => format!("`{model}` ({dimension})"),
            (Some(_), _) => "none needed; dimension must be given".into(),
            (None, _) => "both must be given".into(),
        };
        let key = match provider.auth {
            Auth::Bearer => "Bearer".into(),
            Auth::Header(name) => format!("`{name}`"),
        };
        assert_eq!(row[1..4], [base_url, model, key], "{}", provider.name);
    }
}

#[test]
fn the_how_to_has_a_line_to_copy_for_every_provider() {
    for (kind, page) in [
        (ServiceKind::Embedder, "docs/how-to/hosted-models.md"),
        (ServiceKind::Reranker, "docs/how-to/rerank.md"),
    ] {
        let page = text(page);
        let call = format!("kb.create_{kind}(");
        let called: Vec<&str> =
            page.split(&call).skip(1).map(|arguments| arguments.split(", ").nth(1).unwrap()).collect();
        for name in names(kind) {
            let is_called = called.iter().any(|provider| provider.starts_with(&format!("'{name}'")));
            assert!(is_called, "{name}");
        }
    }
}
