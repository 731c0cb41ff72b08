//! Required roles and the messages about them. Source: "Azure built-in roles".

use evenkeel_storage::Service;

/// The built-in role with the fewest permissions that suffices for a service.
pub const fn least(service: Service) -> &'static str {
    match service {
        Service::Table => "Storage Table Data Contributor",
        Service::Queue => "Storage Queue Data Contributor",
        Service::Blob => "Storage Blob Data Contributor",
        Service::Search => "Search Index Data Contributor",
    }
}

/// The message of a refusal with this status. `on` names the account or service.
pub fn refusal(status: u16, role: &str, on: &str) -> String {
    match status {
        401 => {
            format!("{on} rejected the token. The token must come from the tenant of the account")
        }
        _ => format!(
            "the identity needs the role {role:?} on {on} (a new assignment takes up to ten minutes). Check also that roles are enabled and the firewall allows this machine"
        ),
    }
}
