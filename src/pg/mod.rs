//! The only room with `unsafe`: PostgreSQL's C interface behind safe functions.

pub mod background;
pub mod ddl;
pub mod json;
pub mod pidfile;
mod plans;
pub mod report;
pub mod role;
pub mod setting;
pub mod spi;
pub mod txn;
pub mod uuid;
pub mod vector;
pub mod wait;
pub mod wake;
