//! Tenants: the tenant for which a session acts, the tenants to which roles are bound, and quotas.

mod api;
mod bind_role;
pub mod quota;
mod set_quota;
mod sql;
pub mod upkeep;

pub use sql::meant::Meant;
pub use sql::{bindings, quotas, shares};
