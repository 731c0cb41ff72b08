//! Kind and replication of an account ("Get Account Information", Azure Storage REST API).

use bytes::Bytes;
use jiff::Timestamp;
use reqwest::Method;

use crate::blob_service;
use crate::http::{Authentication, HttpAnswer};
use crate::settings::AzureAccount;
use evenkeel_storage::{AccountFacts, Service};

/// Sends one request to the blob service. Returns `None` if the request fails. It also returns `None` for an identity, without
/// a request, because the roles of an identity do not include this operation.
pub async fn account_facts(account: &AzureAccount, now: Timestamp) -> Option<AccountFacts> {
    let secrets = Authentication::Secrets(account.keyring()?, Service::Blob);
    let exchange = account.exchange(secrets).ok()?;
    let (url, headers) = blob_service::request(account, "restype=account&comp=properties", now);
    let answer = exchange
        .send(Method::GET, url, headers, Bytes::new())
        .await
        .ok();
    let answer = answer.filter(HttpAnswer::is_success)?;
    let [kind, sku] =
        ["x-ms-account-kind", "x-ms-sku-name"].map(|name| answer.header(name).map(str::to_owned));
    Some(AccountFacts {
        kind: kind?,
        sku: sku?,
    })
}
