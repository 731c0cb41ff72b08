//! Kind and replication of an account ("Get Account Information", Azure Storage REST API).

use bytes::Bytes;
use jiff::Timestamp;
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderValue};

use crate::http::{Authentication, Exchange, Far, HttpAnswer};
use crate::sas::VERSION;
use crate::settings::AzureAccount;
use evenkeel_model::ports::{AccountFacts, Service};

/// Asks the blob service, once. `None` where it does not answer, or not to these credentials. Identities are not asked for: the operation
/// is no part of a worker's roles.
pub async fn account_facts(account: &AzureAccount, now: Timestamp) -> Option<AccountFacts> {
    let secrets = Authentication::Secrets(account.keyring()?, Service::Blob);
    let far = if account.endpoints.are_azure() { Far::Azure } else { Far::Local };
    let exchange = Exchange::new(far, account.timeouts.connect, account.timeouts.request).ok()?.with(secrets);
    let mut url = account.endpoints.blob.clone();
    url.set_query(Some("restype=account&comp=properties"));
    let mut headers = HeaderMap::new();
    headers.insert("x-ms-version", HeaderValue::from_static(VERSION));
    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    headers.insert("x-ms-date", HeaderValue::from_str(&date).ok()?);
    let answer = exchange.send(Method::GET, url, headers, Bytes::new()).await.ok();
    let answer = answer.filter(HttpAnswer::is_success)?;
    let [kind, sku] = ["x-ms-account-kind", "x-ms-sku-name"].map(|name| answer.header(name).map(str::to_owned));
    Some(AccountFacts { kind: kind?, sku: sku? })
}
