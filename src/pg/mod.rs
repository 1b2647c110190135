//! PostgreSQL's C interface behind safe functions. But for `kernels`, the only room with `unsafe`.

pub mod background;
pub mod condition;
pub mod ddl;
pub mod ddl_event;
pub mod estimate;
pub mod json;
pub mod latch;
pub mod pidfile;
pub mod pinned_settings;
mod plans;
pub mod regclass;
pub mod report;
pub mod role;
pub mod setting;
pub mod spi;
mod start_mark;
mod stored;
pub mod subtransaction;
pub mod tenant_roles;
pub mod text_search;
pub mod time_limit;
pub mod trigger;
pub mod txn;
pub mod uuid;
pub mod vector;
pub mod wake;
pub mod watched;
