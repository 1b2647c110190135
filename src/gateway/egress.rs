//! Where the gateway may connect to: hosts by pattern, and addresses that are never connected to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use url::{Host, Url};

/// Hosts that may be connected to, from setting kb.allowed_hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedHosts(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    /// A host's name or address; with `below`, any name that ends in "." and this.
    host: String,
    below: bool,
    port: Option<u16>,
}

impl AllowedHosts {
    /// Patterns separated by commas: a host, or `*.` and a domain (its subdomains, not itself), each
    /// with `:port` or for every port. An empty text allows every host that an embedder names.
    pub fn parse(text: &str) -> Result<AllowedHosts, String> {
        let mut patterns = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (host, port) = match part.rsplit_once(':') {
                Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                    let port = port.parse().map_err(|_| format!("\"{part}\" has no valid port"))?;
                    (host, Some(port))
                }
                _ => (part, None),
            };
            let (host, below) = host.strip_prefix("*.").map_or((host, false), |domain| (domain, true));
            if host.is_empty() || host.contains(['*', '/', '@']) {
                return Err(format!(
                    "\"{part}\" is no host; write api.example.com, *.example.com or host:port"
                ));
            }
            patterns.push(Pattern { host: host.to_ascii_lowercase(), below, port });
        }
        Ok(AllowedHosts(patterns))
    }

    /// Allows nothing.
    pub fn none() -> AllowedHosts {
        AllowedHosts(vec![Pattern { host: String::new(), below: false, port: Some(0) }])
    }

    fn allow(&self, host: &str, port: u16) -> bool {
        self.0.is_empty()
            || self.0.iter().any(|pattern| {
                let same = if pattern.below {
                    host.strip_suffix(&pattern.host).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
                } else {
                    host == pattern.host
                };
                same && pattern.port.is_none_or(|p| p == port)
            })
    }

    /// Whether an embedder's address may be used; the error says what is wrong with it.
    pub fn check(&self, address: &str) -> Result<Url, String> {
        let url = Url::parse(address).map_err(|e| format!("it is no URL ({e})"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!("its scheme is {}, not http or https", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(
                "it holds a user name or password; give a key as secret, a reference such as env:NAME".into(),
            );
        }
        let Some(host) = url.host() else { return Err("it names no host".into()) };
        let literal = match host {
            Host::Domain(_) => None,
            Host::Ipv4(ip) => Some(IpAddr::V4(ip)),
            Host::Ipv6(ip) => Some(IpAddr::V6(ip)),
        };
        if literal.is_some_and(is_forbidden) {
            return Err(
                "its address is link-local or a cloud's metadata service, which are never connected to"
                    .into(),
            );
        }
        let port = url.port_or_known_default().unwrap_or(0);
        let name = host.to_string().to_ascii_lowercase();
        if !self.allow(name.trim_end_matches('.'), port) {
            return Err(format!("host {name} is not in kb.allowed_hosts"));
        }
        Ok(url)
    }
}

/// Scheme, host and port of an address, to which a secret is bound (the port only where it is not the scheme's
/// own); None when it is no URL.
pub fn origin(address: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    url.host_str()?;
    Some(url.origin().ascii_serialization())
}

/// Link-local and unspecified addresses, and those where clouds serve credentials to their machines. Loopback
/// and private networks are not among them: self-hosted models live there.
pub fn is_forbidden(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_forbidden_v4(v4),
        IpAddr::V6(v6) => is_forbidden_v6(v6),
    }
}

fn is_forbidden_v4(address: Ipv4Addr) -> bool {
    // Alibaba's, Oracle's and Azure's (WireServer); Amazon's, Google's and others' are link-local.
    const METADATA: [Ipv4Addr; 3] =
        [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(192, 0, 0, 192), Ipv4Addr::new(168, 63, 129, 16)];
    address.is_link_local()
        || address.octets()[0] == 0
        || address.is_broadcast()
        || address.is_multicast()
        || METADATA.contains(&address)
}

fn is_forbidden_v6(address: Ipv6Addr) -> bool {
    const SCALEWAY: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42);
    const ORACLE: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe);
    const GOOGLE: Ipv6Addr = Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254);
    if address == Ipv6Addr::LOCALHOST {
        return false;
    }
    let segments = address.segments();
    let last = |high: u16, low: u16| {
        let [a, b, c, d] = [(high >> 8) as u8, high as u8, (low >> 8) as u8, low as u8];
        is_forbidden_v4(Ipv4Addr::new(a, b, c, d))
    };
    // The same machines by way of addresses that carry an IPv4 one: mapped, translated, compatible, NAT64, 6to4.
    let carried = match segments {
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => last(high, low),
        // ISATAP, under any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => last(high, low),
        [0x64, 0xff9b, 0 | 1, _, _, _, high, low] => last(high, low),
        [0x2002, high, low, ..] => last(high, low),
        _ => false,
    };
    carried
        || address.is_unspecified()
        || address.is_multicast()
        || (segments[0] & 0xffc0) == 0xfe80
        // Amazon's, of all its services.
        || segments[..2] == [0xfd00, 0xec2]
        || [SCALEWAY, ORACLE, GOOGLE].contains(&address)
}

/// The addresses of a name that may be connected to. The connection is made to one of these, so a name
/// that answers differently the next time gains nothing.
pub fn permitted(addresses: impl Iterator<Item = SocketAddr>) -> Result<Vec<SocketAddr>, Forbidden> {
    let all: Vec<SocketAddr> = addresses.collect();
    let kept: Vec<SocketAddr> = all.iter().copied().filter(|address| !is_forbidden(address.ip())).collect();
    if kept.is_empty() && !all.is_empty() { Err(Forbidden) } else { Ok(kept) }
}

/// A name whose addresses are all forbidden.
#[derive(Debug, thiserror::Error)]
#[error("its address is link-local or a cloud's metadata service, which are never connected to")]
pub struct Forbidden;

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(patterns: &str, address: &str) -> bool {
        AllowedHosts::parse(patterns).unwrap().check(address).is_ok()
    }

    #[test]
    fn patterns_mean_a_host_or_the_names_below_a_domain() {
        assert!(allowed("", "https://anything.example"));
        assert!(allowed("api.openai.com", "https://API.openai.com/v1"));
        assert!(allowed("api.openai.com", "https://api.openai.com./v1"));
        assert!(!allowed("api.openai.com", "https://api.openai.com.evil.example/v1"));
        assert!(!allowed("api.openai.com", "https://evil.example/api.openai.com"));
        assert!(allowed("*.openai.com", "https://api.openai.com/v1"));
        assert!(!allowed("*.openai.com", "https://openai.com/v1"));
        assert!(!allowed("*.openai.com", "https://evilopenai.com/v1"));
        assert!(allowed("a.example, localhost:11434", "http://localhost:11434"));
        assert!(!allowed("localhost:11434", "http://localhost:80"));
        assert!(!allowed("localhost:443", "http://localhost"));
        assert!(allowed("[::1]:8080", "http://[::1]:8080/x"));
        assert!(AllowedHosts::parse("http://x").is_err());
        assert!(AllowedHosts::parse("*").is_err());
    }

    #[test]
    fn an_address_with_a_password_or_of_another_scheme_is_refused() {
        for address in
            ["https://user:pass@a.example", "file:///etc/passwd", "gopher://a.example", "a.example"]
        {
            assert!(!allowed("", address), "{address}");
        }
    }

    #[test]
    fn metadata_and_link_local_addresses_are_refused_however_they_are_written() {
        for address in [
            "http://169.254.169.254/latest",
            "http://2852039166/",
            "http://0xa9.0xfe.0xa9.0xfe/",
            "http://0251.0376.0251.0376/",
            "http://169.254.43518/",
            "http://[::ffff:169.254.169.254]/",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[::169.254.169.254]/",
            "http://[64:ff9b::a9fe:a9fe]/",
            "http://[::ffff:0:a9fe:a9fe]/",
            "http://[2001:db8::200:5efe:a9fe:a9fe]/",
            "http://[2002:a9fe:a9fe::]/",
            "http://[fe80::1]/",
            "http://[fd00:ec2::254]/",
            "http://[fd00:ec2::23]/",
            "http://168.63.129.16/",
            "http://100.100.100.200/",
            "http://0.0.0.0/",
            "http://[::]/",
        ] {
            assert!(!allowed("", address), "{address}");
        }
        for address in [
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "http://10.1.2.3",
            "http://192.168.1.1",
            "http://[fd12::1]",
        ] {
            assert!(allowed("", address), "{address}");
        }
    }

    #[test]
    fn forbidden_addresses_are_taken_out_of_an_answer_and_only_of_them_is_an_error() {
        let bad: SocketAddr = "169.254.169.254:80".parse().unwrap();
        let good: SocketAddr = "10.0.0.1:80".parse().unwrap();
        assert_eq!(permitted([bad, good].into_iter()).unwrap(), [good]);
        assert!(permitted([bad].into_iter()).is_err());
        assert!(permitted(std::iter::empty()).unwrap().is_empty());
    }
}
