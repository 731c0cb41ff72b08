//! Addresses of this machine. These addresses are trusted because traffic to them does not leave the machine.

use core::net::IpAddr;

/// Whether a host of a URL or of a `Host` header is this machine: `localhost` and its subdomains (RFC 6761, section 6.3: resolvers answer
/// with loopback), and loopback addresses. IPv6 addresses may have brackets.
pub fn is_local_host(host: &str) -> bool {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    if let Ok(address) = bare.unwrap_or(host).parse() {
        return is_loopback(address);
    }
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost")
}

/// Whether an address is a loopback address: 127.0.0.0/8, also mapped to IPv6, or ::1.
pub const fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_of_this_machine_are_local_and_no_others() {
        for (host, expected) in [
            ("localhost", true),
            ("LocalHost", true),
            ("localhost.", true),
            ("receiver.localhost", true),
            ("127.0.0.1", true),
            ("127.9.8.7", true),
            ("::1", true),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]", true),
            // Valid for listening, not for connecting.
            ("0.0.0.0", false),
            ("[::]", false),
            ("10.0.0.7", false),
            ("169.254.169.254", false),
            ("[::2]", false),
            ("[::ffff:10.0.0.7]", false),
            ("[localhost]", false),
            ("localhost.example.com", false),
            ("127.0.0.1.example.com", false),
            ("notlocalhost", false),
            (".", false),
            ("", false),
        ] {
            assert_eq!(is_local_host(host), expected, "{host:?}");
        }
    }

    #[test]
    fn a_host_parsed_from_a_url_gives_the_same_result() {
        for (url, expected) in [
            ("http://LOCALHOST:1/", true),
            ("http://127.1/", true),
            ("http://0x7f000001:7071/", true),
            ("http://[0:0::1]/", true),
            ("http://localhost@example.com/", false),
            ("http://example.com#@localhost/", false),
        ] {
            assert_eq!(
                url::Url::parse(url)
                    .unwrap()
                    .host_str()
                    .is_some_and(is_local_host),
                expected,
                "{url}"
            );
        }
    }
}
