//! Scratch clusters. Each has a directory, is reached only by a Unix socket in it, and is stopped when it is
//! dropped.

use super::watchdog::Watchdog;
use super::{Db, SOON, signal, until};
use std::fs;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const PORT: u16 = 54329;

/// The database in which tests work. `postgres` exists, too, for watching without touching this one.
pub const APP: &str = "app";

/// Words in the server's log that no test may cause, unless it kills processes.
const FORBIDDEN: &[&str] =
    &["PANIC", "panicked at", "terminated by signal", "ERROR:  deadlock detected", "kb internal error"];

struct Environment {
    bin: PathBuf,
    model_dir: PathBuf,
    scratch: PathBuf,
    /// The user as whom the server runs, if the tests run as root.
    server_user: Option<String>,
}

/// Returns None if live tests are switched off, and otherwise panics with what is missing.
fn environment() -> Option<&'static Environment> {
    static ENVIRONMENT: OnceLock<Option<Environment>> = OnceLock::new();
    ENVIRONMENT
        .get_or_init(|| {
            if std::env::var_os("KB_SKIP_LIVE").is_some() {
                return None;
            }
            let given = |name: &str| {
                PathBuf::from(std::env::var_os(name).unwrap_or_else(|| {
                    panic!(
                        "{name} is not set: the tests of tests/live need a server with kb installed. `make test` \
                         sets everything; unit tests alone are `cargo test --lib`; KB_SKIP_LIVE=1 skips \
                         these."
                    )
                }))
            };
            // SAFETY: the call takes no arguments and always succeeds.
            let root = unsafe { libc::geteuid() } == 0;
            let user = std::env::var("KB_SERVER_USER").unwrap_or_else(|_| "postgres".into());
            Some(Environment {
                bin: given("PG_BIN"),
                model_dir: given("KB_MODEL_DIR"),
                scratch: given("KB_SCRATCH"),
                server_user: root.then_some(user),
            })
        })
        .as_ref()
}

impl Environment {
    /// A command run as the server's user.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let program = program.as_ref();
        let mut command = match &self.server_user {
            Some(user) => {
                let mut command = Command::new("runuser");
                command.args(["-u", user, "--"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.current_dir("/").env("LC_ALL", "C.UTF-8").env_remove("PGHOST").env_remove("PGPORT");
        // The tests must not spend the caller's keys.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().ends_with("_KEY") || name.to_string_lossy().ends_with("_TOKEN") {
                command.env_remove(name);
            }
        }
        command
    }

    /// A directory under scratch that belongs to the server's user.
    fn make_dir(&self, name: &str) -> PathBuf {
        let dir = self.scratch.join(name);
        let mut install = Command::new("install");
        install.args(["-d", "-m", "700"]);
        if let Some(user) = &self.server_user {
            install.args(["-o", user]);
        }
        succeed(install.arg(&dir));
        dir
    }

    /// A data directory with kb in the database [`APP`], made once per process and copied.
    fn template(&'static self) -> &'static Path {
        static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
        TEMPLATE.get_or_init(|| {
            let dir = self.make_dir(&format!("live-{}", std::process::id()));
            let data = dir.join("data");
            succeed(self.command(self.bin.join("initdb")).arg("--pgdata").arg(&data).args([
                "--username=postgres",
                "--auth=trust",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
            ]));
            let conf = data.join("postgresql.conf");
            let text = fs::read_to_string(&conf).unwrap();
            fs::write(&conf, text + "\ninclude 'scratch.conf'\n").unwrap();
            let cluster = ManuallyDrop::new(Cluster::in_dir(self, dir));
            cluster.configure(&[]);
            cluster.up();
            cluster.create_database(APP);
            cluster.stop("fast", 60);
            // Statics are not dropped, so it is removed at exit.
            extern "C" fn remove() {
                if let Some(data) = TEMPLATE.get() {
                    let _ = fs::remove_dir_all(data.parent().unwrap());
                }
            }
            // SAFETY: the function stays loaded and cannot unwind.
            unsafe { libc::atexit(remove) };
            data
        })
    }
}

/// Runs a command. Returns its output, or panics with its error output.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

pub struct Cluster {
    environment: &'static Environment,
    dir: PathBuf,
    /// Variables for the server's environment.
    variables: Vec<(&'static str, String)>,
    /// Whether the test kills processes, which the log may report.
    pub expects_crashes: bool,
    watchdog: Option<Watchdog>,
}

/// Settings of a cluster that preloads kb.
pub const PRELOAD: &str = "shared_preload_libraries = 'kb'";

impl Cluster {
    /// A running cluster with kb in the database [`APP`], or None if live tests are off.
    pub fn start(settings: &[&str]) -> Option<Cluster> {
        let cluster = Cluster::made(|environment, dir| {
            succeed(environment.command("cp").arg("-a").arg(environment.template()).arg(dir.join("data")));
        })?;
        cluster.configure(settings);
        cluster.up();
        Some(cluster)
    }

    /// A cluster as [`Cluster::start`] gives it, and a connection to its database.
    pub fn connected(settings: &[&str]) -> Option<(Cluster, Db)> {
        let cluster = Cluster::start(settings)?;
        let db = cluster.connect(APP);
        Some((cluster, db))
    }

    fn made(fill: impl FnOnce(&'static Environment, &Path)) -> Option<Cluster> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let environment = environment()?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = environment.make_dir(&format!("live-{}-{number}", std::process::id()));
        fill(environment, &dir);
        let mut cluster = Cluster::in_dir(environment, dir);
        cluster.watchdog = Some(cluster.watched());
        Some(cluster)
    }

    fn in_dir(environment: &'static Environment, dir: PathBuf) -> Cluster {
        Cluster { environment, dir, variables: Vec::new(), expects_crashes: false, watchdog: None }
    }

    fn watched(&self) -> Watchdog {
        let mut sessions = self.program("psql");
        // A stopped process may hold a lock that each session needs.
        sessions.args(["--no-psqlrc", "--expanded", "--dbname=postgres", "--command"]).arg(
            "SELECT pid, backend_type, state, wait_event_type, wait_event, pg_blocking_pids(pid) AS blocked_by,
                    left(query, 200) AS query
             FROM pg_stat_activity WHERE datname IS NOT NULL",
        );
        let mut bounded = Command::new("timeout");
        bounded.args(["--kill-after=5", "20"]).arg(sessions.get_program()).args(sessions.get_args());
        bounded.current_dir("/").envs(sessions.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let stop = self.pg_ctl(&["stop", "--mode=immediate", "--wait", "--timeout=30"]);
        Watchdog::begin(self.dir.clone(), bounded, stop)
    }

    /// A running hot standby of this cluster.
    pub fn standby(&self, settings: &[&str]) -> Cluster {
        let standby = Cluster::made(|environment, dir| {
            let mut backup = environment.command(environment.bin.join("pg_basebackup"));
            backup.arg("--host").arg(&self.dir).arg("--port").arg(PORT.to_string());
            backup.args(["--username=postgres", "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
            succeed(backup.arg("--pgdata").arg(dir.join("data")));
        })
        .unwrap();
        standby.configure(settings);
        standby.up();
        standby
    }

    /// Writes the configuration; [`Cluster::up`] or [`Cluster::reload`] applies it.
    pub fn configure(&self, settings: &[&str]) {
        let text = format!(
            "listen_addresses = ''\nport = {PORT}\nunix_socket_directories = '{}'\nkb.model_dir = '{}'\n\
             fsync = off\nshared_buffers = 64MB\nlog_line_prefix = '%m [%p] %b %d '\n{}\n",
            self.dir.display(),
            self.environment.model_dir.display(),
            settings.join("\n")
        );
        let path = self.data().join("scratch.conf");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    }

    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn pg_ctl(&self, arguments: &[&str]) -> Command {
        let mut command = self.environment.command(self.environment.bin.join("pg_ctl"));
        command.args(arguments).arg("--pgdata").arg(self.data());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn up(&self) {
        let mut command = self.pg_ctl(&["start", "--wait", "--timeout=60"]);
        let output = command.arg("--log").arg(self.dir.join("log")).output().unwrap();
        assert!(output.status.success(), "the cluster does not start:\n{}", self.log());
    }

    /// Stops it, or fails after this many seconds.
    pub fn stop(&self, mode: &str, seconds: u32) {
        succeed(self.pg_ctl(&["stop", "--mode", mode, "--timeout", &seconds.to_string()]).arg("--wait"));
    }

    /// From the next [`Cluster::up`] on the server trusts this certificate (PEM) and no other.
    pub fn trust(&mut self, certificate: &str) {
        let path = self.path("trusted.pem");
        fs::write(&path, certificate).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        self.give("SSL_CERT_FILE", path.to_str().unwrap());
    }

    /// From the next [`Cluster::up`] on the server's environment has this variable.
    pub fn give(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.to_string()));
    }

    pub fn reload(&self) {
        succeed(&mut self.pg_ctl(&["reload"]));
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    /// One of PostgreSQL's client programs, with the variables that lead to this cluster.
    pub fn program(&self, name: &str) -> Command {
        let mut command = self.environment.command(self.environment.bin.join(name));
        command.env("PGHOST", &self.dir).env("PGPORT", PORT.to_string()).env("PGUSER", "postgres");
        command
    }

    /// A path that the server and its client programs can write.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn create_database(&self, name: &str) {
        self.connect("postgres").run(&format!("CREATE DATABASE {name}"));
        self.connect(name).run("CREATE EXTENSION kb CASCADE");
    }

    pub fn connect(&self, database: &str) -> Db {
        self.connect_as(database, "postgres")
    }

    pub fn connect_as(&self, database: &str, user: &str) -> Db {
        self.try_connect(database, user).unwrap_or_else(|e| panic!("connecting to {database}: {e}"))
    }

    pub fn connect_as_tenant(&self, user: &str, tenant: &str) -> Db {
        let mut db = self.connect_as(APP, user);
        db.run(&format!("SET kb.tenant = '{tenant}'"));
        db
    }

    fn try_connect(&self, database: &str, user: &str) -> Result<Db, postgres::Error> {
        let mut config = postgres::Config::new();
        config.host_path(&self.dir).port(PORT).user(user).dbname(database);
        config.connect(postgres::NoTls).map(Db)
    }

    /// Connects as soon as the server takes connections again.
    pub fn reconnect(&self, database: &str) -> Db {
        let mut db = None;
        until(SOON, "the server takes connections again", || {
            db = self.try_connect(database, "postgres").ok();
            db.is_some()
        });
        db.unwrap()
    }

    /// Connects again, once the server has ended this connection because a process was killed.
    pub fn reconnect_after_crash(&self, mut db: Db) -> Db {
        until(SOON, "the server notices", || db.0.simple_query("SELECT 1").is_err());
        self.reconnect(APP)
    }

    /// The pids of one kind of process (`kb worker`, say) in one database, or of those in none. Seen from
    /// the database `postgres`.
    pub fn processes(&self, kind: &str, database: Option<&str>) -> Vec<i32> {
        let rows = self.connect("postgres").0.query(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = $1 AND datname IS NOT DISTINCT FROM $2",
            &[&kind, &database],
        );
        rows.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// The pid of a database's worker, once there is just one: a second one leaves soon.
    pub fn worker(&self, database: &str) -> i32 {
        let mut pids = Vec::new();
        until(SOON, &format!("{database} has a worker"), || {
            pids = self.processes("kb worker", Some(database));
            pids.len() == 1
        });
        pids[0]
    }

    /// Stops a database's worker (SIGSTOP) while it is in no transaction, so that no session waits for its
    /// locks. Returns its pid, to which SIGCONT must be sent.
    pub fn stop_worker(&self, database: &str) -> i32 {
        let worker = self.worker(database);
        let mut db = self.connect("postgres");
        let mut rests = || {
            db.count(&format!(
                "pg_stat_activity WHERE pid = {worker} AND wait_event_type = 'Extension' AND xact_start IS NULL"
            )) == 1
        };
        until(SOON, "the worker is in no transaction", || {
            if !rests() {
                return false;
            }
            signal(worker, libc::SIGSTOP);
            let stopped = rests();
            if !stopped {
                signal(worker, libc::SIGCONT);
            }
            stopped
        });
        worker
    }

    /// The contents of the pid file of a database's worker: its pid, the job that it prepares, and the job
    /// that it writes alone; 0 stands for none.
    pub fn worker_notes(&self, db: &mut Db) -> Vec<i64> {
        let database: u32 = db.one("SELECT oid FROM pg_database WHERE datname = current_database()");
        let file = self.data().join(format!("pg_stat_tmp/kb.worker.{database}.pid"));
        let text = fs::read_to_string(file).unwrap_or_default();
        text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// The gateway's pid from its pid file, or None if there is none.
    pub fn try_gateway(&self) -> Option<i32> {
        let text = fs::read_to_string(self.data().join("pg_stat_tmp/kb.gateway.pid")).ok()?;
        let pid = text.split_whitespace().next()?.parse::<i32>().ok()?;
        let parent = self.postmaster()?;
        // The file of a killed gateway may name a process of another program by now.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().any(|line| line.split_whitespace().eq(["PPid:", &parent.to_string()])).then_some(pid)
    }

    pub fn gateway(&self) -> i32 {
        let mut pid = None;
        until(SOON, "there is a gateway", || {
            pid = self.try_gateway();
            pid.is_some()
        });
        pid.unwrap()
    }

    fn postmaster(&self) -> Option<i32> {
        fs::read_to_string(self.data().join("postmaster.pid")).ok()?.lines().next()?.trim().parse().ok()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let log = self.log();
        if self.postmaster().is_some() {
            let _ = self.pg_ctl(&["stop", "--mode=immediate", "--wait", "--timeout=30"]).output();
        }
        if std::thread::panicking() {
            let lines: Vec<&str> = log.lines().collect();
            eprintln!(
                "the last of {}/log:\n{}",
                self.dir.display(),
                lines[lines.len().saturating_sub(40)..].join("\n")
            );
            if std::env::var_os("KB_KEEP").is_some() {
                return;
            }
        }
        let _ = fs::remove_dir_all(&self.dir);
        if !self.expects_crashes && !std::thread::panicking() {
            let bad: Vec<&str> =
                log.lines().filter(|l| FORBIDDEN.iter().any(|word| l.contains(word))).collect();
            assert!(bad.is_empty(), "the server's log says:\n{}", bad.join("\n"));
        }
    }
}
