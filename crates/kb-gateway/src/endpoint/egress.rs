//! The rules for outbound connections: allowed hosts, addresses that are never connected to, and addresses
//! that only some providers may use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use url::{Host, Url};

/// The hosts that setting kb.allowed_hosts allows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedHosts(Vec<Pattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    /// The name or address of a host. With `below` it matches the names of its subdomains.
    host: String,
    below: bool,
    port: Option<u16>,
}

/// The addresses that the host of an endpoint may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// All except those that are never connected to.
    Anywhere,
    /// Also no address of this machine or of a private network.
    Public,
}

impl AllowedHosts {
    /// Parses patterns separated by commas: a host, or `*.` and a domain (for its subdomains but not itself),
    /// with `:port` or for every port. An empty text allows every host.
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
            // Normalised like the host of a URL, with which it is compared.
            let known = Host::parse(host.trim_end_matches('.')).ok().filter(|_| !host.contains('*'));
            let Some(host) = known.map(|host| host.to_string()) else {
                let write = "write api.example.com, *.example.com or host:port, an IPv6 address as [::1]";
                return Err(format!("\"{part}\" is not a host name; {write}"));
            };
            patterns.push(Pattern { host, below, port });
        }
        Ok(AllowedHosts(patterns))
    }

    /// Allows nothing.
    pub fn none() -> AllowedHosts {
        AllowedHosts(vec![Pattern { host: String::new(), below: false, port: Some(0) }])
    }

    /// The reach of an endpoint that [`AllowedHosts::check`] has accepted. `is_free_form` means that the
    /// endpoint's row decides what is sent. Such a request could control any service that does not ask for a
    /// key, so hosts of this machine or of a private network must be named in the setting.
    pub fn reach(&self, is_free_form: bool) -> Reach {
        if is_free_form && self.0.is_empty() { Reach::Public } else { Reach::Anywhere }
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

    /// Checks whether the address of an endpoint may be used. For `is_free_form` see [`AllowedHosts::reach`].
    /// The addresses to which a name resolves are checked when a connection is made.
    pub fn check(&self, address: &str, is_free_form: bool) -> Result<Url, AddressError> {
        let invalid = |problem: &str| Err(AddressError::Invalid(problem.into()));
        let url =
            Url::parse(address).map_err(|e| AddressError::Invalid(format!("it is not a valid URL ({e})")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return invalid(&format!("its scheme must be http or https, not {}", url.scheme()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return invalid(
                "it must not contain a user name or password; specify the key as secret, a reference such as env:NAME",
            );
        }
        let Some(host) = url.host() else { return invalid("it does not name a host") };
        let literal = match host {
            Host::Domain(_) => None,
            Host::Ipv4(ip) => Some(IpAddr::V4(ip)),
            Host::Ipv6(ip) => Some(IpAddr::V6(ip)),
        };
        let name = host.to_string().to_ascii_lowercase();
        let name = name.trim_end_matches('.');
        let reach = self.reach(is_free_form);
        if let Some(address) = literal {
            refusal(address, reach).map_or(Ok(()), |refusal| Err(AddressError::Forbidden(refusal)))?;
        }
        if reach == Reach::Public && (name == "localhost" || name.ends_with(".localhost")) {
            return Err(AddressError::Forbidden(Forbidden::Private));
        }
        let port = url.port_or_known_default().unwrap_or(0);
        if !self.allow(name, port) {
            return Err(AddressError::NotListed(name.to_string()));
        }
        Ok(url)
    }
}

/// Why the address of an endpoint may not be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    Forbidden(Forbidden),
    #[error("host {0} is not in kb.allowed_hosts")]
    NotListed(String),
}

impl AddressError {
    /// Whether an entry in kb.allowed_hosts would allow it.
    pub fn can_be_allowed(&self) -> bool {
        matches!(self, AddressError::NotListed(_) | AddressError::Forbidden(Forbidden::Private))
    }
}

/// The scheme, host and port of an address, to which a secret is bound (the port only if it is not the
/// default of the scheme). None if it is not a URL.
pub fn origin(address: &str) -> Option<String> {
    let url = Url::parse(address).ok()?;
    url.host_str()?;
    Some(url.origin().ascii_serialization())
}

/// Whether an address is link-local, unspecified, or one at which clouds serve credentials to their machines.
/// Loopback and private networks are allowed, because self-hosted models run there.
pub fn is_forbidden(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_forbidden_v4(v4),
        IpAddr::V6(v6) => is_forbidden_v6(v6),
    }
}

fn is_forbidden_v4(address: Ipv4Addr) -> bool {
    // Alibaba, Oracle and Azure (WireServer). Those of Amazon, Google and others are link-local.
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
    let segments = address.segments();
    carried(address).is_some_and(is_forbidden_v4)
        || address.is_unspecified()
        || address.is_multicast()
        || (segments[0] & 0xffc0) == 0xfe80
        // Amazon, for all its services.
        || segments[..2] == [0xfd00, 0xec2]
        || [SCALEWAY, ORACLE, GOOGLE].contains(&address)
}

/// The IPv4 address that is embedded in an IPv6 address: mapped, translated, compatible, NAT64, 6to4 or
/// ISATAP.
fn carried(address: Ipv6Addr) -> Option<Ipv4Addr> {
    if address == Ipv6Addr::LOCALHOST {
        return None;
    }
    let of = |high: u16, low: u16| {
        let [a, b, c, d] = [(high >> 8) as u8, high as u8, (low >> 8) as u8, low as u8];
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff | 0, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => of(high, low),
        // ISATAP, with any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => of(high, low),
        [0x64, 0xff9b, 0 | 1, _, _, _, high, low] => of(high, low),
        [0x2002, high, low, ..] => of(high, low),
        _ => None,
    }
}

/// Whether the internet does not route an address: those of this machine and of private networks, shared
/// addresses (100.64.0.0/10) and reserved ones.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_private_v4(v4),
        IpAddr::V6(v6) => {
            let first = v6.segments()[0];
            v6 == Ipv6Addr::LOCALHOST
                || carried(v6).is_some_and(is_private_v4)
                // Unique local addresses, and the site-local ones that they replaced.
                || (first & 0xfe00) == 0xfc00
                || (first & 0xffc0) == 0xfec0
        }
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    address.is_loopback()
        || address.is_private()
        || (a == 100 && b & 0xc0 == 64)
        || [a, b, c] == [192, 0, 0]
        || (a == 198 && b & 0xfe == 18)
        || a >= 240
}

/// Why an address is not connected to.
fn refusal(address: IpAddr, reach: Reach) -> Option<Forbidden> {
    match reach {
        _ if is_forbidden(address) => Some(Forbidden::Always),
        Reach::Public if is_private(address) => Some(Forbidden::Private),
        _ => None,
    }
}

/// The addresses of a name that may be connected to. The connection is made to one of these, so a name that
/// resolves differently the next time gains nothing.
pub fn permitted(
    addresses: impl Iterator<Item = SocketAddr>,
    reach: Reach,
) -> Result<Vec<SocketAddr>, Forbidden> {
    let (mut kept, mut refused) = (Vec::new(), None);
    for address in addresses {
        match refusal(address.ip(), reach) {
            None => kept.push(address),
            some => refused = some,
        }
    }
    match refused {
        Some(refused) if kept.is_empty() => Err(refused),
        _ => Ok(kept),
    }
}

/// Why none of a host's addresses is connected to.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    #[error("its address is link-local or that of a cloud metadata service, to which kb never connects")]
    Always,
    #[error(
        "its address belongs to this machine or to a private network, where provider http and sources connect only to \
         hosts that are listed in kb.allowed_hosts"
    )]
    Private,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(patterns: &str, address: &str) -> bool {
        AllowedHosts::parse(patterns).unwrap().check(address, false).is_ok()
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
        assert!(allowed("[FD12::0:1]", "http://[fd12::1]"));
        for pattern in ["::1:8080", "fd12::1", "*", "*.", "a.*", "a b", "user@a", "http://x"] {
            assert!(AllowedHosts::parse(pattern).is_err(), "{pattern}");
        }
        assert!(AllowedHosts::parse("::1").unwrap_err().contains("an IPv6 address as [::1]"));
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
    fn forbidden_addresses_are_removed_and_an_error_if_none_is_left() {
        let bad: SocketAddr = "169.254.169.254:80".parse().unwrap();
        let good: SocketAddr = "10.0.0.1:80".parse().unwrap();
        let anywhere = Reach::Anywhere;
        assert_eq!(permitted([bad, good].into_iter(), anywhere).unwrap(), [good]);
        assert_eq!(permitted([bad].into_iter(), anywhere), Err(Forbidden::Always));
        assert!(permitted(std::iter::empty(), anywhere).unwrap().is_empty());
    }

    const PRIVATE: [&str; 22] = [
        "127.0.0.1",
        "127.8.9.10",
        "2130706433",
        "0x7f.1",
        "10.1.2.3",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "100.127.255.254",
        "198.18.0.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:10.0.0.1]",
        "[::127.0.0.1]",
        "[::ffff:0:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::c0a8:101]",
        "[2002:7f00:1::]",
        "[fc00::1]",
        "[fd12:3456::1]",
        "[fec0::1]",
    ];

    #[test]
    fn a_free_form_provider_reaches_this_machine_and_private_networks_only_by_name() {
        let none = AllowedHosts::parse("").unwrap();
        for host in PRIVATE.iter().chain(&["localhost", "LOCALHOST.", "a.localhost"]) {
            let address = format!("http://{host}:8500/v1");
            let problem = none.check(&address, true).unwrap_err().to_string();
            assert!(problem.contains("kb.allowed_hosts"), "{host}: {problem}");
            assert!(none.check(&address, false).is_ok(), "{host}");
        }
        for address in ["http://192.168.1.1:8500/v1", "http://localhost:8500/", "http://[::1]:8500/"] {
            let hosts = AllowedHosts::parse("192.168.1.1:8500, localhost:8500, [::1]").unwrap();
            assert!(hosts.check(address, true).is_ok(), "{address}");
            assert!(AllowedHosts::parse("api.example.com").unwrap().check(address, true).is_err());
        }
        for address in ["http://172.32.0.1", "http://100.128.0.1", "http://8.8.8.8", "http://[2606:4700::1]"]
        {
            assert!(none.check(address, true).is_ok(), "{address}");
        }
        assert!(none.check("http://169.254.169.254", true).is_err());
    }

    #[test]
    fn a_name_that_resolves_to_a_private_address_is_not_public() {
        let address = |text: &str| SocketAddr::new(text.parse().unwrap(), 80);
        let private = ["127.0.0.1", "10.0.0.1", "100.64.0.1", "::1", "fd12::1", "::ffff:192.168.0.1"];
        for text in private {
            let refused = permitted([address(text)].into_iter(), Reach::Public);
            assert_eq!(refused, Err(Forbidden::Private), "{text}");
        }
        let good = address("93.184.216.34");
        assert_eq!(permitted([address("127.0.0.1"), good].into_iter(), Reach::Public).unwrap(), [good]);
    }
}
