//! The Azure adapter against a scripted server, which imitates behavior of Azure that Azurite lacks, and network failures.

#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

mod answers;
mod blobs;
mod facts;
mod messages;
mod networks;
mod refusals;
mod requests;
mod rotation;
mod secrets;

use std::error::Error as _;
use std::time::Duration;

use crate::support::azurite::{self, Ports};
use crate::support::stub::{Reply, Request, Stub};
use bytes::Bytes;
use evenkeel_azure::{AzureAccount, EndpointOverrides, Timeouts};
use evenkeel_model::{
    AccountName, BlobName, ContainerName, ETag, Entity, EntityKey, Key, QueueName, TableName,
};
use evenkeel_storage::{
    Account, BlobCondition, BlobCopy, BlobUpload, BlockId, ClockSkew, ErrorClass, IfMatch,
    MessageText, Missing, Query, StoreError, TableOperation, Ttl,
};
use secrecy::SecretString;

const TRANSIENT: ErrorClass = ErrorClass::Transient { retry_after: None };
const MINUTE: Duration = Duration::from_mins(1);

fn connect(stub: &Stub) -> Account {
    Ports::same(stub.port()).connect()
}

fn table() -> TableName {
    TableName::new("Employees").unwrap()
}

fn queue() -> QueueName {
    QueueName::new("evenkeel-jobs").unwrap()
}

fn blob() -> (ContainerName, BlobName) {
    (
        ContainerName::new("large").unwrap(),
        BlobName::new("a/b.bin").unwrap(),
    )
}

fn entity(pk: &str, rk: &str) -> Entity {
    Entity::new(EntityKey::new(pk, rk).unwrap()).with("Name", "x")
}

fn insert() -> TableOperation {
    TableOperation::Insert(entity("p", "r"))
}

fn replace() -> TableOperation {
    TableOperation::Replace(
        entity("p", "r"),
        IfMatch::Matches(ETag::new("W/\"datetime'1'\"").unwrap()),
    )
}

/// The body of an error of the Azure table service, which omits the header `x-ms-error-code`.
fn odata(code: &str) -> String {
    format!(
        r#"{{"odata.error":{{"code":"{code}","message":{{"lang":"en-US","value":"Words.\nRequestId:7d6eb5c1\nTime:2026-11-20T15:00:00Z"}}}}}}"#
    )
}

fn xml(code: &str) -> String {
    format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code><Message>Words.\nRequestId:7d6eb5c1</Message></Error>"
    )
}

async fn write(stub: &Stub, operation: TableOperation) -> StoreError {
    connect(stub)
        .tables
        .apply(&table(), &operation)
        .await
        .unwrap_err()
}

async fn read(stub: &Stub) -> StoreError {
    connect(stub)
        .tables
        .get(&table(), &EntityKey::new("p", "r").unwrap(), None)
        .await
        .unwrap_err()
}

fn everything(error: &StoreError) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.fold(format!("{error} {error:?}"), |text, cause| {
        format!("{text} {cause} {cause:?}")
    })
}
