//! Background processes: how kb registers them, and what all of them do when they start, wait and end.

use pgrx::pg_sys;
use std::ffi::{CStr, c_char};
use std::sync::atomic::{AtomicBool, Ordering};

/// A kind of background process of this extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    Gateway,
    Launcher,
    Worker,
    /// Builds the HNSW indexes of one database, so that the worker need not wait for them.
    Indexer,
}

impl Process {
    fn type_name(self) -> &'static CStr {
        match self {
            Process::Gateway => c"kb gateway",
            Process::Launcher => c"kb launcher",
            Process::Worker => c"kb worker",
            Process::Indexer => c"kb indexer",
        }
    }

    fn function(self) -> &'static CStr {
        match self {
            Process::Gateway => c"kb_gateway_main",
            Process::Launcher => c"kb_launcher_main",
            Process::Worker => c"kb_worker_main",
            Process::Indexer => c"kb_indexer_main",
        }
    }
}

/// Seconds until the postmaster restarts a gateway or launcher that was started by shared_preload_libraries
/// and exited with an error. Any other process is started again by the session or process that needs it.
const RESTART_SECONDS: i32 = 1;

fn describe(process: Process, database: pg_sys::Oid) -> pg_sys::BackgroundWorker {
    let mut worker = pg_sys::BackgroundWorker::default();
    copy(&mut worker.bgw_name, process.type_name());
    copy(&mut worker.bgw_type, process.type_name());
    copy(&mut worker.bgw_library_name, c"kb");
    copy(&mut worker.bgw_function_name, process.function());
    worker.bgw_flags = pg_sys::BGWORKER_SHMEM_ACCESS as i32;
    worker.bgw_main_arg = pg_sys::Datum::from(database);
    // A commit, a question or the launcher starts it when it is needed; its database may have been dropped by
    // then.
    worker.bgw_restart_time = pg_sys::BGW_NEVER_RESTART;
    match process {
        Process::Gateway => {
            // The gateway serves queries on a hot standby, too.
            worker.bgw_start_time = pg_sys::BgWorkerStartTime::BgWorkerStart_ConsistentState;
        }
        Process::Launcher | Process::Worker | Process::Indexer => {
            worker.bgw_flags |= pg_sys::BGWORKER_BACKEND_DATABASE_CONNECTION as i32;
            worker.bgw_start_time = pg_sys::BgWorkerStartTime::BgWorkerStart_RecoveryFinished;
        }
    }
    worker
}

fn copy(to: &mut [c_char], from: &CStr) {
    for (to, from) in to.iter_mut().zip(from.to_bytes_with_nul()) {
        *to = *from as c_char;
    }
}

/// Registers a process from _PG_init under shared_preload_libraries.
pub fn register_static(process: Process) {
    let mut worker = describe(process, pg_sys::InvalidOid);
    worker.bgw_restart_time = RESTART_SECONDS;
    // SAFETY: called in the postmaster while preloading; the struct is copied.
    unsafe { pg_sys::RegisterBackgroundWorker(&mut worker) };
}

/// The number of background processes that the server can run at a time (max_worker_processes).
pub fn most_processes() -> i32 {
    // SAFETY: set when the server starts.
    unsafe { pg_sys::max_worker_processes }
}

/// Asks the postmaster to start a process. Returns false if no slot is free (max_worker_processes). The call
/// allocates nothing and raises nothing, so it may be made while a transaction commits.
pub fn register_dynamic(process: Process, database: pg_sys::Oid) -> bool {
    request(describe(process, database))
}

fn request(mut worker: pg_sys::BackgroundWorker) -> bool {
    // SAFETY: the struct is valid and copied; no handle is asked for.
    unsafe { pg_sys::RegisterDynamicBackgroundWorker(&mut worker, std::ptr::null_mut()) }
}

/// The most tables that an indexer can be asked for: the number of oids for which a registration has room.
pub const MOST_ASKED: usize = pg_sys::BGW_EXTRALEN as usize / size_of::<u32>();

/// Does what [`register_dynamic`] does, for an indexer that is to build the indexes of these tables, at most
/// [`MOST_ASKED`] of them.
pub fn register_indexer(database: pg_sys::Oid, tables: &[u32]) -> bool {
    let mut worker = describe(Process::Indexer, database);
    let bytes = tables.iter().flat_map(|table| table.to_ne_bytes());
    for (to, from) in worker.bgw_extra.iter_mut().zip(bytes) {
        *to = from as c_char;
    }
    request(worker)
}

/// The tables that this indexer was asked for.
pub fn asked_tables() -> Vec<u32> {
    // SAFETY: points to the registration of this process for all of its life; copied.
    let extra = unsafe { (*pg_sys::MyBgworkerEntry).bgw_extra };
    let bytes = extra.map(|byte| byte as u8);
    let (oids, _) = bytes.as_chunks::<4>();
    oids.iter().map(|oid| u32::from_ne_bytes(*oid)).take_while(|oid| *oid != 0).collect()
}

unsafe extern "C-unwind" {
    /// PostgreSQL's own SIGTERM handler. Declared here because pgrx's binding is a guarded Rust
    /// function, which cannot be a signal handler.
    fn die(signal: i32);
}

static RELOAD: AtomicBool = AtomicBool::new(false);
/// Whether this process is one of those that kb registers.
static IS_KB_PROCESS: AtomicBool = AtomicBool::new(false);

unsafe extern "C-unwind" fn on_sighup(_signal: i32) {
    RELOAD.store(true, Ordering::SeqCst);
    // SAFETY: SetLatch is async-signal-safe.
    unsafe { pg_sys::SetLatch(pg_sys::MyLatch) };
}

/// Installs signal handlers and unblocks signals. SIGTERM is handled by PostgreSQL's own `die`, so that it
/// also ends lock waits and running statements. SIGHUP is remembered for [`reload_settings`].
pub fn start() {
    IS_KB_PROCESS.store(true, Ordering::Relaxed);
    // SAFETY: once, at the start of a background process's main.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        {
            pg_sys::pqsignal(pg_sys::SIGTERM as i32, Some(die));
            pg_sys::pqsignal(pg_sys::SIGHUP as i32, Some(on_sighup));
        }
        #[cfg(feature = "pg18")]
        {
            pg_sys::pqsignal_be(pg_sys::SIGTERM as i32, Some(die));
            pg_sys::pqsignal_be(pg_sys::SIGHUP as i32, Some(on_sighup));
        }
        pg_sys::BackgroundWorkerUnblockSignals();
    }
}

/// Whether this is a background process of kb.
pub fn is_kb_process() -> bool {
    IS_KB_PROCESS.load(Ordering::Relaxed)
}

/// Ends a background process of kb that was asked to end and has no transaction open. CHECK_FOR_INTERRUPTS
/// would raise a FATAL error instead, which would leave an alarming line in the log at every clean shutdown.
/// Exit status 1 makes the postmaster start the process again if a restart time is set and the server is not
/// shutting down.
pub fn end_if_terminated() {
    // SAFETY: flags and the transaction's state of this process.
    let is_over = unsafe { pg_sys::ProcDiePending != 0 && !pg_sys::IsTransactionOrTransactionBlock() };
    if is_kb_process() && is_over {
        exit(1);
    }
}

/// Reads the configuration files again if SIGHUP has arrived. Returns whether it did.
pub fn reload_settings() -> bool {
    if !RELOAD.swap(false, Ordering::SeqCst) {
        return false;
    }
    // SAFETY: called on the main thread of a background process, outside signal handlers.
    unsafe { pg_sys::ProcessConfigFile(pg_sys::GucContext::PGC_SIGHUP) };
    true
}

/// Connects to a database as the bootstrap superuser. With InvalidOid it connects to the shared catalogs
/// only.
pub fn connect(database: pg_sys::Oid) {
    // SAFETY: called once, after `start`; a failure is FATAL and ends the process. If the database sets
    // another session_authorization, the process may become the bootstrap superuser again, because it
    // connected as that role; `setting` pins the role.
    unsafe {
        pg_sys::BackgroundWorkerInitializeConnectionByOid(database, pg_sys::InvalidOid, 0);
        pg_sys::SetSessionAuthorization(pg_sys::Oid::from(pg_sys::BOOTSTRAP_SUPERUSERID), true);
    }
}

/// Ends the process. Exit status 1 makes the postmaster start it again if a restart time is set.
#[allow(unreachable_code)] // Only some versions' bindings say that proc_exit does not return.
pub fn exit(status: i32) -> ! {
    // SAFETY: runs the exit callbacks and does not return.
    unsafe { pg_sys::proc_exit(status) };
    std::process::abort()
}

/// Identifies the data of this server. A standby has the same identifier as its primary.
pub fn system_identifier() -> i64 {
    // SAFETY: reads shared memory that is there from the start.
    unsafe { pg_sys::GetSystemIdentifier() as i64 }
}

/// Whether the postmaster runs for pg_upgrade, in which case no process may be started.
pub fn in_binary_upgrade() -> bool {
    // SAFETY: a plain global set at start.
    unsafe { pg_sys::IsBinaryUpgrade }
}

static PRELOADED: AtomicBool = AtomicBool::new(false);

/// Whether shared_preload_libraries loaded the library. The postmaster sets this, and its children inherit
/// it.
pub fn preloaded() -> bool {
    PRELOADED.load(Ordering::Relaxed)
}

/// Whether shared_preload_libraries is being processed.
pub fn preloading() -> bool {
    // SAFETY: a plain global.
    let preloading = unsafe { pg_sys::process_shared_preload_libraries_in_progress };
    PRELOADED.fetch_or(preloading, Ordering::Relaxed);
    preloading
}

/// The database to which this process is connected.
pub fn my_database() -> pg_sys::Oid {
    // SAFETY: a plain global.
    unsafe { pg_sys::MyDatabaseId }
}

/// Whether some session holds the lock under which DROP DATABASE, ALTER DATABASE … RENAME and CREATE DATABASE
/// … TEMPLATE wait for the sessions of this database to leave. Must be called within a transaction.
pub fn database_is_wanted() -> bool {
    // SAFETY: the lock tag is the one that SET_LOCKTAG_OBJECT makes for the row of pg_database. The lock is
    // taken without waiting, and released with the transaction.
    unsafe {
        let tag = pg_sys::LOCKTAG {
            locktag_field1: 0,
            locktag_field2: pg_sys::DatabaseRelationId.to_u32(),
            locktag_field3: pg_sys::MyDatabaseId.to_u32(),
            locktag_field4: 0,
            locktag_type: pg_sys::LockTagType::LOCKTAG_OBJECT as u8,
            locktag_lockmethodid: pg_sys::DEFAULT_LOCKMETHOD as u8,
        };
        pg_sys::LockAcquire(&tag, pg_sys::RowExclusiveLock as i32, false, true)
            == pg_sys::LockAcquireResult::LOCKACQUIRE_NOT_AVAIL
    }
}

/// The value of datconnlimit in a database whose DROP was interrupted. Nobody can connect to it.
const INVALID_DATABASE: i32 = -2;

/// The oids of the databases that accept connections, without templates. Needs a transaction and only the
/// shared catalogs.
pub fn databases() -> Vec<pg_sys::Oid> {
    let mut oids = Vec::new();
    // SAFETY: a catalog scan of pg_database under a lock, as in autovacuum's get_database_list. Each tuple is
    // read before the next is fetched.
    unsafe {
        let relation =
            pg_sys::table_open(pg_sys::DatabaseRelationId, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
        let scan = pg_sys::table_beginscan_catalog(relation, 0, std::ptr::null_mut());
        loop {
            let tuple = pg_sys::heap_getnext(scan, pg_sys::ScanDirection::ForwardScanDirection);
            if tuple.is_null() {
                break;
            }
            let header = (*tuple).t_data;
            let row =
                (header as *const u8).add((*header).t_hoff as usize) as *const pg_sys::FormData_pg_database;
            if (*row).datallowconn && !(*row).datistemplate && (*row).datconnlimit != INVALID_DATABASE {
                oids.push((*row).oid);
            }
        }
        if let Some(end) = (*(*(*scan).rs_rd).rd_tableam).scan_end {
            end(scan);
        }
        pg_sys::table_close(relation, pg_sys::AccessShareLock as pg_sys::LOCKMODE);
    }
    oids
}

/// Sets the latch of this process from any of its threads.
pub fn wake_main_thread() {
    // SAFETY: all other threads block all signals (see [`without_signals`]), so the main thread receives this
    // one, and PostgreSQL's SIGUSR1 handler sets the latch.
    unsafe { libc::kill(libc::getpid(), libc::SIGUSR1) };
}

/// Blocks every signal while `make` creates threads. The threads inherit the mask, so PostgreSQL's handlers
/// run on the main thread only.
pub fn without_signals<T>(make: impl FnOnce() -> T) -> T {
    // SAFETY: plain sigset calls on local values; the old mask is restored.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let made = make();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        made
    }
}
