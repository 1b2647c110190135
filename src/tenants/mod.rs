//! Tenants: the tenant for which a session acts, the tenants to which roles are bound, and quotas.

mod api;
mod bind_role;
mod current_tenant;
pub mod quota;
mod set_quota;
mod sql;
pub mod upkeep;
mod watched_changed;

pub use sql::{bindings, quotas, shares};
