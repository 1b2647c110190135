//! Where PostgreSQL enters the background processes.

#![allow(unsafe_code)] // for the attribute no_mangle

use super::{gateway_process, launcher};
use crate::pg::background::{self, Process};
use crate::processes::indexer;
use crate::worker::runner;
use pgrx::pg_sys;
use pgrx::prelude::*;

/// Registers what runs for the whole cluster; from _PG_init under shared_preload_libraries.
pub fn register() {
    background::register_static(Process::Gateway);
    background::register_static(Process::Launcher);
}

#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn kb_gateway_main(_arg: pg_sys::Datum) {
    gateway_process::main();
}

#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn kb_launcher_main(_arg: pg_sys::Datum) {
    launcher::main();
}

#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn kb_worker_main(arg: pg_sys::Datum) {
    runner::main(database(arg));
}

#[pg_guard]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn kb_indexer_main(arg: pg_sys::Datum) {
    indexer::main(database(arg));
}

fn database(arg: pg_sys::Datum) -> pg_sys::Oid {
    pg_sys::Oid::from(arg.value() as u32)
}
