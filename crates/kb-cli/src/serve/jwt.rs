//! JSON Web Tokens. The key fixes the algorithm, and the token has no say in it. jsonwebtoken reads and
//! checks them; ring, which rustls uses, too, verifies the signatures.

use super::config::Jwt;
use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, KeyAlgorithm};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey, Validation};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde_json::Value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use x509_cert::der::Decode;
use x509_cert::spki::{ObjectIdentifier, SubjectPublicKeyInfoRef};

/// The variable of the environment with the secret. No option has it: every user of the machine sees these.
const SECRET_VARIABLE: &str = "KB_SERVE_JWT_SECRET";
/// Bytes that a secret must have at least (RFC 7518, section 3.2).
const LEAST_SECRET: usize = 32;
/// Seconds by which clocks may differ.
const LEEWAY: u64 = 30;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");

/// What a token says of its bearer.
#[derive(Debug, PartialEq, Eq)]
pub struct Bearer {
    pub role: String,
    pub tenant: Option<String>,
    /// Names with spaces between them; empty means all.
    pub scopes: String,
    /// The claim `sub`.
    pub subject: Option<String>,
}

struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

enum Source {
    Fixed,
    Set(PathBuf),
}

pub struct Tokens {
    source: Source,
    keys: RwLock<Arc<Vec<Key>>>,
    audience: Vec<String>,
    issuer: Vec<String>,
    role_claim: String,
    tenant_claim: String,
    scope_claim: String,
}

impl Tokens {
    /// The check of tokens, if the options name a key.
    pub fn new(options: Jwt, problems: &mut Vec<String>) -> Option<Tokens> {
        let variable = std::env::var(SECRET_VARIABLE).ok().filter(|secret| !secret.is_empty());
        let named = [
            options.secret_file.is_some(),
            variable.is_some(),
            options.public_key.is_some(),
            options.jwks.is_some(),
        ];
        match named.iter().filter(|is_named| **is_named).count() {
            0 => return None,
            1 => {}
            _ => {
                problems.push(format!(
                    "only one of --jwt-secret-file, {SECRET_VARIABLE}, --jwt-public-key and --jwt-jwks may be given"
                ));
                return None;
            }
        }
        let keys = if let Some(secret) = variable {
            secret_key(secret.as_bytes(), SECRET_VARIABLE).map(|key| vec![key])
        } else if let Some(file) = &options.secret_file {
            read(file)
                .and_then(|text| Ok(vec![secret_key(text.trim_ascii_end(), &file.display().to_string())?]))
        } else if let Some(file) = &options.public_key {
            read(file).and_then(|text| Ok(vec![public_key(&text, &file.display().to_string())?]))
        } else {
            options.jwks.as_ref().map_or_else(|| Ok(Vec::new()), |file| set(file))
        };
        let keys = keys.unwrap_or_else(|problem| {
            problems.push(problem);
            Vec::new()
        });
        Some(Tokens {
            source: options.jwks.map_or(Source::Fixed, Source::Set),
            keys: RwLock::new(Arc::new(keys)),
            audience: options.audience,
            issuer: options.issuer,
            role_claim: options.role_claim,
            tenant_claim: options.tenant_claim,
            scope_claim: options.scope_claim,
        })
    }

    /// Reads the set of keys again. If it cannot be read, the present keys stay.
    pub fn reload(&self) -> Result<(), String> {
        if let Source::Set(file) = &self.source {
            let keys = Arc::new(set(file)?);
            *self.keys.write().map_err(|e| e.to_string())? = keys;
        }
        Ok(())
    }

    /// Checks a token. The error says what is wrong with it, and repeats nothing of it.
    pub fn check(&self, token: &str) -> Result<Bearer, String> {
        // It fails if another test of this process has installed it.
        let _ = PROVIDER.install_default();
        let header = jsonwebtoken::decode_header(token).map_err(|_| "it is not a JSON Web Token")?;
        let keys = self.keys.read().map_err(|e| e.to_string())?.clone();
        let mut fitting = keys.iter().filter(|key| match (&header.kid, &key.id) {
            (Some(wanted), Some(id)) => wanted == id,
            // A key without an id, or a token that names none: there must be only one key.
            _ => keys.len() == 1,
        });
        let key = fitting.next().ok_or("no key has its kid")?;
        let mut rules = Validation::new(key.algorithm);
        rules.leeway = LEEWAY;
        rules.validate_nbf = true;
        let mut required = HashSet::from(["exp".to_string()]);
        if !self.audience.is_empty() {
            rules.set_audience(&self.audience);
            required.insert("aud".into());
        }
        if !self.issuer.is_empty() {
            rules.set_issuer(&self.issuer);
            required.insert("iss".into());
        }
        rules.required_spec_claims = required;
        let claims = jsonwebtoken::decode::<Value>(token, &key.key, &rules)
            .map_err(|error| explained(&error, key.algorithm))?
            .claims;
        self.bearer(&claims)
    }

    fn bearer(&self, claims: &Value) -> Result<Bearer, String> {
        let claim = |name: &str| match claims.get(name) {
            None if name.starts_with('/') => claims.pointer(name),
            found => found,
        };
        let role = claim(&self.role_claim).and_then(Value::as_str).filter(|role| !role.is_empty());
        let tenant = match claim(&self.tenant_claim) {
            None | Some(Value::Null) => None,
            Some(Value::String(tenant)) => Some(tenant.clone()),
            Some(Value::Number(tenant)) => Some(tenant.to_string()),
            Some(_) => return Err(format!("its claim {} is not a text", self.tenant_claim)),
        };
        let scopes = match claim(&self.scope_claim) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(scopes)) => scopes.clone(),
            Some(Value::Array(scopes)) if scopes.iter().all(Value::is_string) => {
                scopes.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
            }
            Some(_) => return Err(format!("its claim {} is not a list of scopes", self.scope_claim)),
        };
        Ok(Bearer {
            role: role.ok_or_else(|| format!("it has no claim {} with a role", self.role_claim))?.into(),
            tenant,
            scopes,
            subject: claims.get("sub").and_then(Value::as_str).map(str::to_string),
        })
    }
}

fn explained(error: &Error, algorithm: Algorithm) -> String {
    match error.kind() {
        ErrorKind::ExpiredSignature => "it has expired".into(),
        ErrorKind::ImmatureSignature => "it is not valid yet".into(),
        ErrorKind::InvalidAudience => "it is for another audience".into(),
        ErrorKind::InvalidIssuer => "it is from another issuer".into(),
        ErrorKind::InvalidAlgorithm => format!("it is not signed by {algorithm:?}"),
        ErrorKind::InvalidSignature => "its signature is wrong".into(),
        ErrorKind::MissingRequiredClaim(claim) => format!("it has no claim {claim}"),
        _ => "it cannot be read".into(),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(file).map_err(|e| format!("{}: {e}", file.display()))
}

fn secret_key(secret: &[u8], origin: &str) -> Result<Key, String> {
    if secret.len() < LEAST_SECRET {
        return Err(format!("{origin}: the secret of tokens must have at least {LEAST_SECRET} bytes"));
    }
    let key = DecodingKey::from_secret(secret).map_err(|e| format!("{origin}: {e}"))?;
    Ok(Key { id: None, algorithm: Algorithm::HS256, key })
}

/// The key of a PEM file, which says itself of which kind it is.
fn public_key(pem: &[u8], origin: &str) -> Result<Key, String> {
    let problem = |what: &str| format!("{origin}: {what}");
    let der = SubjectPublicKeyInfoDer::from_pem_slice(pem)
        .map_err(|_| problem("it is no public key (-----BEGIN PUBLIC KEY-----)"))?;
    let info = SubjectPublicKeyInfoRef::from_der(&der).map_err(|_| problem("the key cannot be read"))?;
    let bits = info.subject_public_key.as_bytes().ok_or_else(|| problem("the key cannot be read"))?;
    match info.algorithm.oid {
        RSA => Ok(Key { id: None, algorithm: Algorithm::RS256, key: DecodingKey::from_rsa_der(bits) }),
        EC if info.algorithm.parameters_oid().is_ok_and(|curve| curve == P256) => {
            Ok(Key { id: None, algorithm: Algorithm::ES256, key: DecodingKey::from_ec_der(bits) })
        }
        _ => Err(problem("the key must be of RSA, or of the elliptic curve P-256")),
    }
}

/// The keys of a set that can be used.
fn set(file: &Path) -> Result<Vec<Key>, String> {
    let problem = |what: String| format!("{}: {what}", file.display());
    let set: JwkSet =
        serde_json::from_slice(&read(file)?).map_err(|e| problem(format!("it is no set of keys: {e}")))?;
    let keys: Vec<Key> = set.keys.iter().filter_map(key_of_set).collect();
    if keys.is_empty() {
        return Err(problem("it has no key for HS256, RS256 or ES256".into()));
    }
    Ok(keys)
}

fn key_of_set(jwk: &Jwk) -> Option<Key> {
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => Algorithm::ES256,
        AlgorithmParameters::OctetKey(_) => Algorithm::HS256,
        _ => return None,
    };
    let fits = match jwk.common.key_algorithm {
        None => true,
        Some(KeyAlgorithm::RS256) => algorithm == Algorithm::RS256,
        Some(KeyAlgorithm::ES256) => algorithm == Algorithm::ES256,
        Some(KeyAlgorithm::HS256) => algorithm == Algorithm::HS256,
        Some(_) => false,
    };
    let key = DecodingKey::from_jwk(jwk).ok()?;
    if let (Algorithm::HS256, DecodingKeyKind::SecretOrDer(secret)) = (algorithm, key.kind())
        && secret.len() < LEAST_SECRET
    {
        return None;
    }
    fits.then(|| Key { id: jwk.common.key_id.clone(), algorithm, key })
}

/// ring's part in jsonwebtoken.
static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: no_signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// The server signs nothing.
fn no_signer(_: &Algorithm, _: &EncodingKey) -> Result<Box<dyn JwtSigner>, Error> {
    Err(ErrorKind::UnsupportedAlgorithm.into())
}

fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>, Error> {
    let fits = match algorithm {
        Algorithm::HS256 | Algorithm::RS256 | Algorithm::ES256 => {
            key.family() == algorithm_family(*algorithm)
        }
        _ => false,
    };
    if !fits {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(Signed { algorithm: *algorithm, key: key.clone() }))
}

fn algorithm_family(algorithm: Algorithm) -> jsonwebtoken::AlgorithmFamily {
    match algorithm {
        Algorithm::RS256 => jsonwebtoken::AlgorithmFamily::Rsa,
        Algorithm::ES256 => jsonwebtoken::AlgorithmFamily::Ec,
        _ => jsonwebtoken::AlgorithmFamily::Hmac,
    }
}

struct Signed {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for Signed {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let verified = match (self.algorithm, self.key.kind()) {
            (Algorithm::HS256, DecodingKeyKind::SecretOrDer(secret)) => {
                let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
                ring::hmac::verify(&key, message, signature)
            }
            (Algorithm::RS256, DecodingKeyKind::SecretOrDer(der)) => {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, der).verify(message, signature)
            }
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(point)) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            _ => return Err(signature::Error::new()),
        };
        verified.map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for Signed {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    use ring::rand::SystemRandom;
    use ring::rsa::PublicKeyComponents;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
    };
    use rustls::pki_types::PrivatePkcs8KeyDer;
    use serde_json::json;
    use x509_cert::der::Encode;
    use x509_cert::der::asn1::{Any, BitString};
    use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

    const SECRET: &str = "a secret of more than thirty-two bytes";

    /// A key of RSA for tests, since ring makes none itself.
    const RSA_KEY: &[u8] = include_bytes!("../../../../tests/stub/google_test_key.pem");

    fn rsa() -> RsaKeyPair {
        RsaKeyPair::from_pkcs8(PrivatePkcs8KeyDer::from_pem_slice(RSA_KEY).unwrap().secret_pkcs8_der())
            .unwrap()
    }

    fn pem(algorithm: ObjectIdentifier, parameters: Option<Any>, key: &[u8]) -> String {
        let info = SubjectPublicKeyInfoOwned {
            algorithm: AlgorithmIdentifierOwned { oid: algorithm, parameters },
            subject_public_key: BitString::from_bytes(key).unwrap(),
        };
        let text = STANDARD.encode(info.to_der().unwrap());
        format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
    }

    fn rsa_pem() -> String {
        pem(RSA, Some(Any::null()), rsa().public_key().as_ref())
    }

    fn part(value: &Value) -> String {
        URL_SAFE_NO_PAD.encode(value.to_string())
    }

    fn message(algorithm: &str, claims: &Value) -> String {
        format!("{}.{}", part(&json!({"alg": algorithm, "typ": "JWT"})), part(claims))
    }

    fn by_secret(secret: &[u8], claims: &Value) -> String {
        let message = message("HS256", claims);
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        let tag = ring::hmac::sign(&key, message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    fn by_rsa(header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", part(header), part(claims));
        let key = rsa();
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message.as_bytes(), &mut signature).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    fn tokens(key: Key) -> Tokens {
        Tokens {
            source: Source::Fixed,
            keys: RwLock::new(Arc::new(vec![key])),
            audience: Vec::new(),
            issuer: Vec::new(),
            role_claim: "role".into(),
            tenant_claim: "tenant".into(),
            scope_claim: "scope".into(),
        }
    }

    fn by_hs256() -> Tokens {
        tokens(secret_key(SECRET.as_bytes(), "test").unwrap_or_else(|e| panic!("{e}")))
    }

    fn by_rs256() -> Tokens {
        tokens(public_key(rsa_pem().as_bytes(), "test").unwrap_or_else(|e| panic!("{e}")))
    }

    fn in_seconds(seconds: i64) -> i64 {
        i64::try_from(jsonwebtoken::get_current_timestamp()).unwrap() + seconds
    }

    fn claims() -> Value {
        json!({"role": "reader", "tenant": "acme", "scope": "search files", "sub": "ann", "exp": in_seconds(600)})
    }

    fn with(name: &str, value: Value) -> Value {
        let mut claims = claims();
        claims[name] = value;
        claims
    }

    fn wrong(tokens: &Tokens, token: &str) -> String {
        tokens.check(token).unwrap_err()
    }

    #[test]
    fn a_token_says_role_tenant_scopes_and_subject() {
        let bearer = Bearer {
            role: "reader".into(),
            tenant: Some("acme".into()),
            scopes: "search files".into(),
            subject: Some("ann".into()),
        };
        assert_eq!(by_hs256().check(&by_secret(SECRET.as_bytes(), &claims())), Ok(bearer));
        let rsa = by_rsa(&json!({"alg": "RS256"}), &with("scope", json!(["search", "files"])));
        assert_eq!(by_rs256().check(&rsa).unwrap().scopes, "search files");
        let mut nested = by_hs256();
        nested.role_claim = "/app/role".into();
        let token = by_secret(SECRET.as_bytes(), &with("app", json!({"role": "writer"})));
        assert_eq!(nested.check(&token).unwrap().role, "writer");
    }

    #[test]
    fn the_key_fixes_the_algorithm() {
        let none = format!("{}.", message("none", &claims()));
        assert!(by_hs256().check(&none).is_err() && by_rs256().check(&none).is_err());
        // The classic attack: the public key, which everybody has, as the secret of HS256.
        for secret in [rsa_pem().into_bytes(), rsa().public_key().as_ref().to_vec()] {
            let forged = by_secret(&secret, &claims());
            assert_eq!(wrong(&by_rs256(), &forged), "it is not signed by RS256");
        }
        let rsa = by_rsa(&json!({"alg": "RS256"}), &claims());
        assert_eq!(wrong(&by_hs256(), &rsa), "it is not signed by HS256");
        let longer = by_rsa(&json!({"alg": "RS512"}), &claims());
        assert_eq!(wrong(&by_rs256(), &longer), "it is not signed by RS256");
        // A key that the token brings along is not asked.
        let own = json!({"alg": "HS256", "jwk": {"kty": "oct", "k": URL_SAFE_NO_PAD.encode(SECRET)}});
        assert!(by_rs256().check(&by_rsa(&own, &claims())).is_err());
    }

    #[test]
    fn a_signature_is_of_the_key_and_of_these_claims() {
        assert_eq!(wrong(&by_hs256(), &by_secret(&[b'x'; 40], &claims())), "its signature is wrong");
        let token = by_secret(SECRET.as_bytes(), &claims());
        let (_, signature) = token.rsplit_once('.').unwrap();
        let forged = format!("{}.{signature}", message("HS256", &with("role", "writer".into())));
        assert_eq!(wrong(&by_hs256(), &forged), "its signature is wrong");
        for broken in ["", "a.b", "a.b.c", "..", &token[..token.len() - 5], &format!("{token}.x")] {
            assert!(by_hs256().check(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_token_is_valid_for_its_time_its_audience_and_its_issuer() {
        let says = |tokens: &Tokens, claims: &Value| wrong(tokens, &by_secret(SECRET.as_bytes(), claims));
        let mut tokens = by_hs256();
        assert_eq!(says(&tokens, &with("exp", in_seconds(-60).into())), "it has expired");
        assert_eq!(says(&tokens, &with("exp", Value::Null)), "it has no claim exp");
        assert_eq!(says(&tokens, &with("nbf", in_seconds(600).into())), "it is not valid yet");
        // A token for somebody else is not for this server, which has no name unless it is given one.
        assert_eq!(says(&tokens, &with("aud", "other".into())), "it is for another audience");
        tokens.audience = vec!["kb".into()];
        tokens.issuer = vec!["https://id.example.com".into()];
        assert!(says(&tokens, &with("aud", "kb".into())).contains("iss"));
        let mut good = with("aud", json!(["x", "kb"]));
        good["iss"] = "https://id.example.com".into();
        assert!(tokens.check(&by_secret(SECRET.as_bytes(), &good)).is_ok());
        good["iss"] = "https://evil.example.com".into();
        assert_eq!(says(&tokens, &good), "it is from another issuer");
        good["iss"] = "https://id.example.com".into();
        good["aud"] = "other".into();
        assert_eq!(says(&tokens, &good), "it is for another audience");
        good["iss"] = Value::Null;
        assert!(tokens.check(&by_secret(SECRET.as_bytes(), &good)).is_err());
    }

    #[test]
    fn a_token_without_a_role_is_refused() {
        let says = |claims: &Value| wrong(&by_hs256(), &by_secret(SECRET.as_bytes(), claims));
        for role in [Value::Null, "".into(), json!(["reader"]), 1.into()] {
            assert_eq!(says(&with("role", role)), "it has no claim role with a role");
        }
        assert!(says(&with("tenant", json!({}))).contains("tenant"));
        assert!(says(&with("scope", json!([1]))).contains("scope"));
    }

    #[test]
    fn a_key_of_a_set_is_chosen_by_its_id() {
        let made =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
        let random = SystemRandom::new();
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, made.as_ref(), &random).unwrap();
        let point = ec.public_key().as_ref();
        let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let PublicKeyComponents::<Vec<u8>> { n, e } = rsa().public().into();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("jwks.json");
        let keys = json!({"keys": [
            {"kty": "EC", "crv": "P-256", "x": encoded(&point[1..33]), "y": encoded(&point[33..]), "kid": "ec"},
            {"kty": "RSA", "n": encoded(&n), "e": encoded(&e), "kid": "rsa", "alg": "RS256", "use": "sig"},
            {"kty": "RSA", "n": encoded(&n), "e": encoded(&e), "kid": "other", "alg": "PS256"},
        ]});
        std::fs::write(&file, keys.to_string()).unwrap();
        let mut tokens = by_hs256();
        tokens.source = Source::Set(file.clone());
        tokens.reload().unwrap();
        assert!(tokens.check(&by_rsa(&json!({"alg": "RS256", "kid": "rsa"}), &claims())).is_ok());
        let message = format!("{}.{}", part(&json!({"alg": "ES256", "kid": "ec"})), part(&claims()));
        let signature = ec.sign(&random, message.as_bytes()).unwrap();
        assert!(tokens.check(&format!("{message}.{}", encoded(signature.as_ref()))).is_ok());
        for header in [
            json!({"alg": "RS256", "kid": "ec"}),
            json!({"alg": "RS256", "kid": "other"}),
            json!({"alg": "RS256", "kid": "nix"}),
            json!({"alg": "RS256"}),
        ] {
            assert!(tokens.check(&by_rsa(&header, &claims())).is_err(), "{header}");
        }
        // A file that is broken meanwhile takes nothing away.
        std::fs::write(&file, "{").unwrap();
        assert!(tokens.reload().is_err());
        assert!(tokens.check(&by_rsa(&json!({"alg": "RS256", "kid": "rsa"}), &claims())).is_ok());
    }

    #[test]
    fn a_key_that_is_too_short_or_none_at_all_is_refused() {
        assert!(secret_key(b"short", "x").err().unwrap().contains("at least 32 bytes"));
        assert!(public_key(SECRET.as_bytes(), "x").is_err());
        assert_eq!(public_key(rsa_pem().as_bytes(), "x").ok().unwrap().algorithm, Algorithm::RS256);
    }
}
