//! Document archives in a container and in a folder that workers share.

use bytes::Bytes;
use evenkeel_model::{BlobName, ContainerName};
use evenkeel_storage::BlobUpload;
use serde_json::{Value, json};

use crate::patterns::site::{Site, key};

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.by_email]
kind = "secondary_index"
source = "Staff§"
table = "ByEmail§"
partition_key = "email_{PartitionKey}"
row_key = "{Email|lower}"
select = ["LastName"]
on_conflict = "reject"

[tables.Plain§]

[archives.blobs]
source = "Staff§"
to = { kind = "blob", container = "former-§", path = "staff/{PartitionKey}/{RowKey}.json", metadata = { last_name = "{LastName}", department = "{PartitionKey|lower}" } }

[archives.files]
source = "Staff§"
to = { kind = "file", dir = "$SHARE" }

[archives.plain]
source = "Plain§"
to = { kind = "blob", container = "former-§", path = "plain/{PartitionKey}/{RowKey}.json" }
"#;

fn hire(email: &str) -> Value {
    json!({"op": "put", "table": "Staff§", "entity":
        {"PartitionKey": "Sales", "RowKey": "한 7", "LastName": "O'Brien 한", "Email": email, "Salary": "5", "Salary@odata.type": "Edm.Int64"}})
}

fn job(op: &str, archive: &str) -> Value {
    json!({"op": op, "archive": archive, "pk": "Sales", "rk": "한 7"})
}

async fn emails(site: &Site) -> Vec<(String, String, String)> {
    site.keys("ByEmail§", "LastName").await
}

pub(crate) async fn an_employee_leaves_into_a_container_and_comes_back(site: &Site) {
    const NAME: &str = "staff/Sales/%ED%95%9C 7.json";
    site.work(hire("ada@contoso.com")).await;
    site.work(hire("Countess@contoso.com")).await;
    assert_eq!(
        emails(site).await,
        [key("email_Sales", "countess@contoso.com", "O'Brien 한")]
    );

    site.work(job("archive", "blobs")).await;
    assert_eq!(
        (
            site.row("Staff§", "Sales", "한 7").await,
            emails(site).await
        ),
        (None, vec![])
    );
    let blob = site
        .blob("former-§", NAME)
        .await
        .expect("the document is there");
    assert_eq!(blob.properties.content_type, "application/json");
    assert_eq!(blob.properties.metadata["last_name"], "O'Brien %ED%95%9C");
    assert_eq!(blob.properties.metadata["department"], "sales");
    let document: Value = serde_json::from_slice(&blob.content).unwrap();
    assert_eq!(
        (
            &document["RowKey"],
            &document["Salary"],
            &document["Salary@odata.type"]
        ),
        (&json!("한 7"), &json!("5"), &json!("Edm.Int64"))
    );
    assert_eq!(
        document["ek_source"],
        json!(site.name(r#"["Staff§","Sales","한 7"]"#))
    );
    assert!(document["ek_archived_at"].is_string() && document["ek_source_etag"].is_string());

    // The employee is hired again while the document still exists, and archived again. The newer document replaces the older one.
    site.work(hire("again@contoso.com")).await;
    site.work(job("archive", "blobs")).await;
    let document: Value =
        serde_json::from_slice(&site.blob("former-§", NAME).await.unwrap().content).unwrap();
    assert_eq!(document["Email"], "again@contoso.com");

    site.work(job("restore", "blobs")).await;
    assert_eq!(site.blobs("former-§").await, [] as [&str; 0]);
    let row = site.row("Staff§", "Sales", "한 7").await.expect("back");
    assert!(
        row.entity.get("ek_archived_at").is_none()
            && row.entity.get("Salary") == Some(&5_i64.into())
    );
    assert_eq!(
        emails(site).await,
        [key("email_Sales", "again@contoso.com", "O'Brien 한")]
    );
    site.in_step("Staff§").await;
}

pub(crate) async fn an_employee_leaves_into_a_folder_and_comes_back(site: &Site) {
    let file = site.folder.path().join("share/Sales/%ED%95%9C 7.json");
    site.work(hire("ada@contoso.com")).await;
    site.work(job("archive", "files")).await;
    assert_eq!(
        (
            site.row("Staff§", "Sales", "한 7").await,
            emails(site).await
        ),
        (None, vec![])
    );
    let document: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(document["Email"], "ada@contoso.com");

    site.work(hire("again@contoso.com")).await;
    site.work(job("archive", "files")).await;
    site.work(job("restore", "files")).await;
    assert!(!file.exists());
    assert_eq!(
        emails(site).await,
        [key("email_Sales", "again@contoso.com", "O'Brien 한")]
    );
    site.in_step("Staff§").await;
}

pub(crate) async fn metadata_over_the_limit_is_refused_with_its_name(site: &Site) {
    let mut put = hire("ada@contoso.com");
    put["entity"]["LastName"] = "x".repeat(8_200).into();
    site.work(put).await;
    let error = site.refused(job("archive", "blobs")).await;
    assert!(
        error.contains("its metadata has 8224 bytes") && error.contains("[archives.blobs]"),
        "{error}"
    );
    assert!(
        site.row("Staff§", "Sales", "한 7").await.is_some(),
        "the entity must stay in place"
    );
    site.in_step("Staff§").await;
}

pub(crate) async fn a_document_that_somebody_deleted_or_spoilt_is_told(site: &Site) {
    let (container, name) = (
        ContainerName::new(site.name("former-§")).unwrap(),
        BlobName::new("staff/Sales/%ED%95%9C 7.json").unwrap(),
    );
    site.work(hire("ada@contoso.com")).await;
    site.work(job("archive", "blobs")).await;
    let spoilt =
        Bytes::from_static(b"{\"PartitionKey\":\"Sales\",\"RowKey\":\"8\",\"ek_format\":1}");
    site.account
        .blobs
        .put(&container, &name, spoilt, &BlobUpload::default())
        .await
        .unwrap();
    let error = site.refused(job("restore", "blobs")).await;
    assert!(
        error.contains("the document belongs to (\"Sales\", \"8\")"),
        "{error}"
    );
    site.account
        .blobs
        .delete(&container, &name, None)
        .await
        .unwrap();
    let evenkeel_engine::Outcome::Skipped { reason, .. } =
        site.attempt(&job("restore", "blobs")).await.unwrap()
    else {
        panic!("the job was not skipped")
    };
    assert!(reason.contains("is not in archive blobs"), "{reason}");
}

pub(crate) async fn archiving_takes_as_many_requests_as_the_documentation_says(site: &Site) {
    let put = json!({"op": "put", "table": "Plain§", "entity": {"PartitionKey": "p", "RowKey": "r", "Name": "x"}});
    site.work(put).await;
    let job = |op: &str| json!({"op": op, "archive": "plain", "pk": "p", "rk": "r"});
    // The requests are a read, a put of the document, and a delete.
    assert_eq!(site.requests_of(job("archive")).await, 3);
    // The requests are two reads, an insert, and a delete.
    assert_eq!(site.requests_of(job("restore")).await, 4);
}
