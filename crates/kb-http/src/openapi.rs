//! The description of the routes in the form of OpenAPI 3.1.

use crate::problem::CONTENT_TYPE;
use crate::routes::{self, Body, Parameter, ParameterKind, ROUTES, Route};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The document, for this version of kb.
pub fn document(version: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = SchemaGenerator::new(settings);
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route, &mut generator);
    }
    let schemas: Map<String, Value> = generator.take_definitions(true).into_iter().collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "kb",
            "version": version,
            "description": "Retrieval inside PostgreSQL, over HTTP. Errors are problem details (RFC 9457).",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key of kb.create_api_key, or a JWT."},
                "login": {"type": "http", "scheme": "basic", "description": "A login of PostgreSQL."},
            },
        },
        "security": [{"key": []}, {"login": []}],
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator) -> Value {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}})
    });
    let conditions = route.condition.iter().map(|name| {
        json!({"name": name, "in": "header", "required": false, "schema": {"type": "string"},
            "description": "An etag, or *."})
    });
    let parameters: Vec<Value> =
        in_path.chain(route.parameters.iter().map(parameter)).chain(conditions).collect();
    let mut responses = Map::new();
    for (status, body) in route.responses {
        let mut response = json!({"description": if *status == 304 { "Not modified" } else { "Success" }});
        if let Some(body) = body {
            response["content"] = content("application/json", *body, generator);
        }
        responses.insert(status.to_string(), response);
    }
    responses.insert(
        "default".into(),
        json!({"description": "A problem", "content": content(CONTENT_TYPE, routes::PROBLEM, generator)}),
    );
    let mut operation = json!({
        "operationId": format!("{:?}", route.operation),
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(scope) = route.scope {
        operation["tags"] = json!([scope.name()]);
    }
    if let Some(body) = route.request {
        operation["requestBody"] = json!({"content": content("application/json", body, generator)});
    }
    operation
}

fn content(media_type: &str, body: Body, generator: &mut SchemaGenerator) -> Value {
    json!({media_type: {"schema": body(generator)}})
}

fn parameter(parameter: &Parameter) -> Value {
    let Parameter { name, about, is_required, kind } = parameter;
    let schema = match kind {
        ParameterKind::Text => json!({"type": "string"}),
        ParameterKind::Texts => json!({"type": "array", "items": {"type": "string"}}),
        ParameterKind::Number { most, default } => {
            json!({"type": "integer", "minimum": 1, "maximum": most, "default": default})
        }
    };
    json!({"name": name, "in": "query", "required": is_required, "description": about, "schema": schema})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_is_described_and_each_reference_leads_somewhere() {
        let document = document("1.2.3");
        for route in ROUTES {
            let described = &document["paths"][route.path][route.method.to_ascii_lowercase()];
            assert_eq!(described["summary"], route.summary);
            assert!(described["responses"]["default"]["content"][CONTENT_TYPE].is_object());
        }
        let text = document.to_string();
        let references: Vec<&str> =
            text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(references.len() > 5);
        for reference in references {
            assert!(document.pointer(reference).is_some(), "{reference}");
        }
    }
}
