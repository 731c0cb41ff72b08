//! What an identity needs, and what a refusal says of it. Source: "Azure built-in roles".

use evenkeel_storage::Service;

/// The least built-in role that covers everything that is asked of a service.
pub const fn least(service: Service) -> &'static str {
    match service {
        Service::Table => "Storage Table Data Contributor",
        Service::Queue => "Storage Queue Data Contributor",
        Service::Blob => "Storage Blob Data Contributor",
        Service::Search => "Search Index Data Contributor",
    }
}

/// The message of a refusal by `status`; `on` names the account or service.
pub fn refusal(status: u16, role: &str, on: &str) -> String {
    match status {
        401 => format!("{on} refused the token: its tenant must be that of the identity"),
        _ => format!(
            "the identity may not: it needs the role {role:?} on {on} (a new assignment takes up to ten minutes), which has to allow access by roles, and this machine through its firewall"
        ),
    }
}
