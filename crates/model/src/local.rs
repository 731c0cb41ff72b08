//! Addresses of this machine. One rule for all who trust an address because nothing leaves the machine on the way to it.

use core::net::IpAddr;

/// Whether a host of a URL or of a `Host` header is this machine: `localhost` and names below it (RFC 6761, section 6.3: resolvers answer
/// them with loopback), and addresses of loopback, those of IPv6 with brackets or without.
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

/// Whether an address is one of loopback: 127.0.0.0/8, ::1, or the former as an address of IPv6.
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
            // An address to listen at, not one to connect to.
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
    fn what_a_url_makes_of_a_host_is_judged_alike() {
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
