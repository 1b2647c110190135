//! TLS of the server: the certificate and its key, which SIGHUP reads again.

use crate::connect::tls_files::{certificates, private_key};
use rustls::ServerConfig;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use tokio_rustls::TlsAcceptor;

pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    pub fn new(certificate: PathBuf, key: PathBuf) -> Result<Tls, String> {
        let config = RwLock::new(read(&certificate, &key)?);
        Ok(Tls { certificate, key, config })
    }

    /// Reads the files again. If they are wrong, the present ones stay.
    pub fn reload(&self) -> Result<(), String> {
        let config = read(&self.certificate, &self.key)?;
        *self.config.write().map_err(|e| e.to_string())? = config;
        Ok(())
    }

    pub fn acceptor(&self) -> Option<TlsAcceptor> {
        self.config.read().ok().map(|config| TlsAcceptor::from(config.clone()))
    }
}

fn read(certificate: &std::path::Path, key: &std::path::Path) -> Result<Arc<ServerConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS: {e}"))?
        .with_no_client_auth()
        .with_single_cert(certificates(certificate)?, private_key(key)?)
        .map_err(|e| format!("{} and {}: {e}", certificate.display(), key.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
