//! kb: a PostgreSQL extension that makes a database its own retrieval engine.
//! The table of contents; ARCHITECTURE.md says what the rooms are and what each may use.

mod api;
mod catalog;
mod gateway;
mod pg;
mod retrieve;
mod settings;
mod store;
mod use_cases;
mod worker;

pgrx::pg_module_magic!(name, version);

mod sql {
    //! The schema, in load order; functions are declared in their Rust files.
    use pgrx::extension_sql_file;

    extension_sql_file!("../sql/roles.sql", name = "roles", bootstrap);
    extension_sql_file!(
        "../sql/tables.sql",
        name = "tables",
        requires = [
            "roles",
            kb::api::tenants::current_tenant,
            kb::api::tenants::_watched_changed,
            kb::api::sources::_tables_altered
        ]
    );
    extension_sql_file!(
        "../sql/policies.sql",
        name = "policies",
        requires = [
            "tables",
            kb::api::tenants::visible_tenants,
            kb::api::tenants::readable_tenants,
            kb::api::tenants::bound_tenants
        ]
    );
    extension_sql_file!(
        "../sql/views.sql",
        name = "views",
        requires = [
            "policies",
            kb::api::vector_dbs::_vector_count,
            kb::api::vector_dbs::_index_state,
            kb::api::vector_dbs::_index_progress
        ]
    );
    extension_sql_file!(
        "../sql/embedders.sql",
        name = "embedders",
        requires = ["views", kb::api::embedders::_fingerprint]
    );
    extension_sql_file!("../sql/grants.sql", name = "grants", finalize);
}

/// Called once when the library is loaded, in the postmaster under shared_preload_libraries.
#[pgrx::pg_guard]
#[allow(non_snake_case)]
pub extern "C-unwind" fn _PG_init() {
    pg::report::without_backtraces();
    settings::define();
    if pg::background::preloading() && !pg::background::in_binary_upgrade() {
        worker::register();
    }
}
