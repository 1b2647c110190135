//! TLS as sslmode and its like ask for it. A certificate is checked by rustls; this file says how much of it.

use super::conninfo::Parameters;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Disable,
    Allow,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl Mode {
    pub fn read(parameters: &Parameters) -> Result<Mode, String> {
        let is_system = parameters.get("sslrootcert").is_some_and(|file| file == "system");
        let mode = match parameters.get("sslmode").map(String::as_str) {
            None if is_system => Mode::VerifyFull,
            None | Some("prefer") => Mode::Prefer,
            Some("disable") => Mode::Disable,
            Some("allow") => Mode::Allow,
            Some("require") => Mode::Require,
            Some("verify-ca") => Mode::VerifyCa,
            Some("verify-full") => Mode::VerifyFull,
            Some(other) => return Err(format!("sslmode \"{other}\" is not known")),
        };
        if is_system && mode != Mode::VerifyFull {
            return Err("sslrootcert=system needs sslmode=verify-full".into());
        }
        Ok(mode)
    }
}

/// How much of a server's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Nothing,
    /// That a root certificate vouches for it.
    Root,
    /// This, and that it is made out to the host.
    RootAndName,
}

/// The client's side of TLS, for a connection that may use it.
pub fn connector(
    parameters: &Parameters,
    mode: Mode,
    home: Option<&Path>,
) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let own = |name: &str| home.map(|home| home.join(".postgresql").join(name));
    let named = |key: &str| parameters.get(key).map(PathBuf::from);
    let root_file = named("sslrootcert").or_else(|| own("root.crt"));
    let has_root_file = root_file.as_ref().is_some_and(|file| file.exists());
    let is_system = root_file.as_ref().is_some_and(|file| file.as_os_str() == "system");
    let check = match mode {
        Mode::VerifyFull => Check::RootAndName,
        Mode::VerifyCa => Check::Root,
        // As libpq: a root certificate that is there counts in every mode (`require` is `verify-ca`).
        _ if has_root_file => Check::Root,
        _ => Check::Nothing,
    };
    let roots = match (check, root_file) {
        (Check::Nothing, _) => Vec::new(),
        (_, Some(_)) if is_system => rustls_native_certs::load_native_certs().certs,
        (_, Some(file)) if has_root_file => certificates(&file)?,
        (_, file) => {
            let file = file.map_or("root.crt".into(), |file| file.display().to_string());
            return Err(format!(
                "the root certificate file {file} does not exist: provide it, use the system's with \
                 sslrootcert=system, or change sslmode"
            ));
        }
    };
    let verifier = Verifier::new(check, roots, &provider)?;
    let versions = versions(parameters)?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|e| format!("TLS: {e}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let certificate = named("sslcert").or_else(|| own("postgresql.crt").filter(|file| file.exists()));
    let mut config = match certificate {
        Some(certificate) => {
            let key = named("sslkey").or_else(|| own("postgresql.key"));
            let key = key.ok_or("there is a client certificate, and no sslkey")?;
            builder
                .with_client_auth_cert(certificates(&certificate)?, private_key(&key)?)
                .map_err(|e| format!("{}: {e}", certificate.display()))?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok(MakeRustlsConnect::new(config))
}

fn versions(parameters: &Parameters) -> Result<Vec<&'static rustls::SupportedProtocolVersion>, String> {
    let of = |key: &str, default: u8| match parameters.get(key).map(String::as_str) {
        None | Some("") => Ok(default),
        Some("TLSv1" | "TLSv1.1") => Ok(1),
        Some("TLSv1.2") => Ok(2),
        Some("TLSv1.3") => Ok(3),
        Some(other) => Err(format!("{key} \"{other}\" is not known")),
    };
    let (least, most) = (of("ssl_min_protocol_version", 2)?, of("ssl_max_protocol_version", 3)?);
    let known = [(2, &rustls::version::TLS12), (3, &rustls::version::TLS13)];
    let versions: Vec<_> = known
        .iter()
        .filter(|(number, _)| (least..=most).contains(number))
        .map(|(_, version)| *version)
        .collect();
    if versions.is_empty() {
        Err("no version of TLS is allowed that kb knows (1.2 and 1.3)".into())
    } else {
        Ok(versions)
    }
}

pub fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let problem = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let all = CertificateDer::pem_file_iter(file).map_err(|e| problem(&e))?;
    let all: Vec<_> = all.collect::<Result<_, _>>().map_err(|e| problem(&e))?;
    if all.is_empty() { Err(problem(&"it has no certificate")) } else { Ok(all) }
}

/// As libpq does, refuses a key that others may read; root's may be readable for its group.
pub fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let problem = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let metadata = std::fs::metadata(file).map_err(|e| problem(&e))?;
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & forbidden != 0 {
        return Err(problem(&"others may read the private key; its mode must be 0600 or less"));
    }
    PrivateKeyDer::from_pem_file(file).map_err(|e| problem(&e))
}

#[derive(Debug)]
struct Verifier {
    check: Check,
    roots: Vec<CertificateDer<'static>>,
    by_roots: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(
        check: Check,
        roots: Vec<CertificateDer<'static>>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Verifier, String> {
        let by_roots = match check {
            Check::Nothing => None,
            _ => {
                let mut store = RootCertStore::empty();
                store.add_parsable_certificates(roots.iter().cloned());
                let builder = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider.clone());
                Some(builder.build().map_err(|e| format!("the root certificates: {e}"))?)
            }
        };
        Ok(Verifier { check, roots, by_roots, provider: provider.clone() })
    }
}

/// Whether an error says only that the certificate is made out to another host, which rustls checks last.
fn is_about_name(error: &rustls::Error) -> bool {
    matches!(
        error,
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        )
    )
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(by_roots) = &self.by_roots else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified =
            by_roots.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(error) if self.check == Check::Root && is_about_name(&error) => {
                Ok(ServerCertVerified::assertion())
            }
            // OpenSSL takes a certificate that signs itself, as those of PostgreSQL's manual do, if it is
            // the root certificate. rustls calls it one of an authority, and refuses it for a server.
            Err(_) if self.roots.iter().any(|root| root == end_entity) => {
                self_signed::verify(end_entity, server_name, now, self.check == Check::RootAndName)
            }
            // One that signs itself and is no root certificate.
            Err(error) if error.to_string().contains("CaUsedAsEndEntity") => {
                Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer))
            }
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// A server's certificate that is itself one of the root certificates.
mod self_signed {
    use rustls::CertificateError;
    use rustls::client::danger::ServerCertVerified;
    use rustls::client::verify_server_name;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::server::ParsedCertificate;
    use x509_cert::der::Decode;

    /// Checks when it is valid and, if `names_host`, for which hosts.
    pub fn verify(
        certificate: &CertificateDer<'_>,
        server_name: &ServerName<'_>,
        now: UnixTime,
        names_host: bool,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let invalid = rustls::Error::InvalidCertificate;
        let read = x509_cert::Certificate::from_der(certificate)
            .map_err(|_| invalid(CertificateError::BadEncoding))?;
        let validity = read.tbs_certificate.validity;
        if now.as_secs() < validity.not_before.to_unix_duration().as_secs() {
            return Err(invalid(CertificateError::NotValidYet));
        }
        if now.as_secs() > validity.not_after.to_unix_duration().as_secs() {
            return Err(invalid(CertificateError::Expired));
        }
        if names_host {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Parameters {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    #[test]
    fn the_systems_roots_are_used_only_where_the_name_is_checked() {
        assert_eq!(Mode::read(&of(&[])), Ok(Mode::Prefer));
        assert_eq!(Mode::read(&of(&[("sslrootcert", "system")])), Ok(Mode::VerifyFull));
        assert!(Mode::read(&of(&[("sslrootcert", "system"), ("sslmode", "require")])).is_err());
        assert!(Mode::read(&of(&[("sslmode", "REQUIRE")])).is_err());
    }

    #[test]
    fn a_mode_that_verifies_needs_a_root_certificate() {
        let missing = of(&[("sslrootcert", "/nonexistent/root.crt")]);
        let problem = connector(&missing, Mode::VerifyFull, None).err().unwrap();
        assert!(problem.contains("/nonexistent/root.crt does not exist"), "{problem}");
        assert!(connector(&missing, Mode::VerifyCa, None).is_err());
        assert!(connector(&missing, Mode::Require, None).is_ok());
    }

    #[test]
    fn versions_of_tls_are_limited_as_asked() {
        let count = |pairs: &[(&str, &str)]| versions(&of(pairs)).map(|versions| versions.len());
        assert_eq!(count(&[]), Ok(2));
        assert_eq!(count(&[("ssl_min_protocol_version", "TLSv1.3")]), Ok(1));
        assert!(count(&[("ssl_max_protocol_version", "TLSv1.1")]).is_err());
        assert!(count(&[("ssl_min_protocol_version", "1.3")]).is_err());
    }
}
