//! kb: a PostgreSQL extension that makes a database its own retrieval engine. This file is the table of
//! contents; ARCHITECTURE.md says what the rooms are and what each may use.

#![deny(unsafe_code)]

mod answers;
mod api_keys;
mod bindings;
mod builds;
mod chat_requests;
mod conversations;
mod declared;
mod documents;
mod evaluate;
mod extract;
mod filters;
mod gateway;
mod health;
mod http;
mod jobs;
mod keyword;
mod knowledge_bases;
mod memory;
mod models;
#[allow(unsafe_code)]
mod pg;
mod processes;
mod query;
mod resources;
mod settings;
mod sources;
mod sql;
mod tables;
mod tenants;
mod tools;
mod upkeep;
mod vectors;
mod work;
mod worker;

pgrx::pg_module_magic!(name, version);

mod schema {
    //! The schema, in load order; functions are declared in their Rust files.
    use pgrx::extension_sql_file;

    extension_sql_file!("../sql/roles.sql", name = "roles", bootstrap);
    extension_sql_file!(
        "../sql/tables.sql",
        name = "tables",
        requires = [
            "roles",
            kb::tenants::api::current_tenant,
            kb::tenants::api::_watched_changed,
            kb::tables::api::_tables_altered
        ]
    );
    extension_sql_file!(
        "../sql/policies.sql",
        name = "policies",
        requires = [
            "tables",
            kb::tenants::api::visible_tenants,
            kb::tenants::api::readable_tenants,
            kb::tenants::api::bound_tenants
        ]
    );
    extension_sql_file!(
        "../sql/views.sql",
        name = "views",
        requires = [
            "policies",
            kb::vectors::api::_vector_count,
            kb::vectors::api::_index_state,
            kb::vectors::api::_index_progress
        ]
    );
    extension_sql_file!(
        "../sql/embedders.sql",
        name = "embedders",
        requires = ["views", kb::models::api::_fingerprint]
    );
    extension_sql_file!("../sql/grants.sql", name = "grants", finalize);
}

/// Called once when the library is loaded; under shared_preload_libraries, that is in the postmaster.
#[pgrx::pg_guard]
#[allow(non_snake_case)]
pub extern "C-unwind" fn _PG_init() {
    pg::report::without_backtraces();
    settings::define();
    if pg::background::preloading() && !pg::background::in_binary_upgrade() {
        processes::entry::register();
    }
}
