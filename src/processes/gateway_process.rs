//! The gateway process: holds the server's threads, and on the main thread only waits.

use crate::pg::pidfile::PidFile;
use crate::pg::{background, latch, report, wake};
use crate::settings;
use kb_gateway::endpoint::access;
use kb_gateway::protocol::SOCKET_PATH;
use kb_gateway::server::{Server, Settings};

fn current_settings() -> Settings {
    Settings {
        model_dir: settings::model_dir(),
        model_threads: settings::model_threads(),
        query_cache_size: settings::query_cache_size(),
        endpoints: access::EgressSettings {
            allowed_hosts: settings::allowed_hosts(),
            secrets: settings::secret_sources(),
        },
    }
}

pub fn main() {
    background::start();
    let _pidfile = match PidFile::acquire(wake::GATEWAY_NAME) {
        Ok(Some(file)) => file,
        // Another gateway runs already. With preload, PostgreSQL starts this one again later, because nobody
        // else would start one then.
        Ok(None) => {
            wake::has_started(wake::GATEWAY_NAME);
            background::exit(i32::from(background::preloaded()))
        }
        Err(e) => {
            report::log(&format!("gateway cannot write its pid file: {e}"));
            background::exit(1)
        }
    };
    let server = match background::without_signals(|| Server::start(SOCKET_PATH, current_settings())) {
        Ok(server) => server,
        Err(error) => {
            report::log(&format!("gateway cannot start: {error}"));
            background::exit(1)
        }
    };
    wake::has_started(wake::GATEWAY_NAME);
    loop {
        latch::wait(latch::LONGEST);
        // SIGTERM ends the process inside this call.
        report::check_interrupts();
        // Its threads may not write there.
        server.log_lines().iter().for_each(|line| report::log(line));
        if background::reload_settings() {
            server.configure(current_settings());
        }
    }
}
