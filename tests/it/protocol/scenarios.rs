//! The jobs that are disturbed, and what other workers and clients do in between.

use evenkeel_account::company::{BLOB_ARCHIVE, FILE_ARCHIVE, LOG_ARCHIVE};
use evenkeel_model::Job;
use futures::future::BoxFuture;
use serde_json::json;

use crate::protocol::world::{Lab, employee, job, sync};

type Step = fn(Lab) -> BoxFuture<'static, ()>;

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) prepare: Step,
    pub(crate) job: fn() -> Job,
    pub(crate) verify: Step,
}

fn put(entity: &serde_json::Value, mode: &str) -> Job {
    job(&json!({"op": "put", "table": "Employees", "entity": entity, "mode": mode}))
}

fn on_archive(op: &str, archive: &str) -> Job {
    job(&json!({"op": op, "archive": archive, "pk": "Sales", "rk": "1"}))
}

fn move_to(pk: &str, rk: &str) -> Job {
    job(
        &json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": pk, "to_rk": rk}),
    )
}

fn on_key(op: &str) -> Job {
    match op {
        "archive" | "restore" => on_archive(op, "former"),
        _ => job(&json!({"op": op, "table": "Employees", "pk": "Sales", "rk": "1"})),
    }
}

pub(crate) fn sync_of_one() -> Job {
    sync("Sales", "1")
}

async fn settled(lab: &Lab) {
    lab.write(employee("1", "Ada@Contoso.com", "King").with("IsManager", true))
        .await;
    lab.work(&sync("Sales", "1")).await.unwrap();
}

fn anything(_: Lab) -> BoxFuture<'static, ()> {
    Box::pin(async {})
}

pub(crate) fn all() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "sync of a new employee",
            prepare: |lab| {
                Box::pin(async move {
                    lab.write(employee("1", "ada@contoso.com", "King").with("IsManager", true))
                        .await;
                })
            },
            job: || sync("Sales", "1"),
            verify: anything,
        },
        Scenario {
            name: "sync after the e-mail address changed",
            prepare: |lab| {
                Box::pin(async move {
                    settled(&lab).await;
                    lab.write(employee("1", "countess@contoso.com", "Lovelace"))
                        .await;
                })
            },
            job: || sync("Sales", "1"),
            verify: anything,
        },
        Scenario {
            name: "sync after a change that moves no key",
            prepare: |lab| {
                Box::pin(async move {
                    settled(&lab).await;
                    lab.write(
                        employee("1", "Ada@Contoso.com", "King")
                            .with("IsManager", true)
                            .with("FirstName", "Augusta"),
                    )
                    .await;
                })
            },
            job: || sync("Sales", "1"),
            verify: anything,
        },
        Scenario {
            name: "sync after the e-mail address was removed",
            prepare: |lab| {
                Box::pin(async move {
                    settled(&lab).await;
                    lab.write(employee("1", "", "King")).await;
                })
            },
            job: || sync("Sales", "1"),
            verify: anything,
        },
        Scenario {
            name: "sync after the employee was deleted",
            prepare: |lab| {
                Box::pin(async move {
                    settled(&lab).await;
                    lab.remove("Sales", "1").await;
                })
            },
            job: || sync("Sales", "1"),
            verify: anything,
        },
        Scenario {
            name: "sync of an employee who takes over a freed e-mail address",
            prepare: |lab| {
                Box::pin(async move {
                    settled(&lab).await;
                    lab.write(employee("1", "other@contoso.com", "King")).await;
                    lab.write(employee("2", "ada@contoso.com", "Byron")).await;
                    lab.sync_later.lock().unwrap().push(sync("Sales", "1"));
                })
            },
            job: || sync("Sales", "2"),
            verify: |lab| {
                Box::pin(async move {
                    let row = lab
                        .read("ByEmail", "email_Sales", "ada@contoso.com")
                        .await
                        .expect("the address has an owner");
                    assert_eq!(
                        row.entity.text("ek_source"),
                        Some("[\"Employees\",\"Sales\",\"2\"]")
                    );
                })
            },
        },
        Scenario {
            name: "backfill of what nobody sent jobs for",
            prepare: unsent,
            job: || job(&json!({"op": "backfill", "table": "employees"})),
            verify: caught_up,
        },
        Scenario {
            name: "audit that repairs what nobody sent jobs for",
            prepare: unsent,
            job: || job(&json!({"op": "audit", "table": "employees", "repair": true})),
            verify: caught_up,
        },
        Scenario {
            name: "put of a new employee",
            prepare: anything,
            job: || {
                put(
                    &json!({"PartitionKey": "Sales", "RowKey": "1", "Email": "ada@contoso.com", "LastName": "King"}),
                    "replace",
                )
            },
            verify: |lab| {
                Box::pin(
                    async move { assert!(lab.read("Employees", "Sales", "1").await.is_some()) },
                )
            },
        },
        Scenario {
            name: "put that changes every key",
            prepare: |lab| Box::pin(async move { settled(&lab).await }),
            job: || {
                put(
                    &json!({"PartitionKey": "Sales", "RowKey": "1", "Email": "countess@contoso.com", "LastName": "Lovelace"}),
                    "replace",
                )
            },
            verify: |lab| {
                Box::pin(async move {
                    let row = lab
                        .read("Employees", "Sales", "1")
                        .await
                        .expect("the employee exists");
                    assert_eq!(row.entity.text("LastName"), Some("Lovelace"));
                })
            },
        },
        Scenario {
            name: "put that merges one property",
            prepare: |lab| Box::pin(async move { settled(&lab).await }),
            job: || {
                put(
                    &json!({"PartitionKey": "Sales", "RowKey": "1", "LastName": "Lovelace"}),
                    "merge",
                )
            },
            verify: |lab| {
                Box::pin(async move {
                    let row = lab
                        .read("Employees", "Sales", "1")
                        .await
                        .expect("the employee exists");
                    assert_eq!(
                        (row.entity.text("LastName"), row.entity.text("FirstName")),
                        (Some("Lovelace"), Some("Ada"))
                    );
                })
            },
        },
        Scenario {
            name: "delete",
            prepare: |lab| Box::pin(async move { settled(&lab).await }),
            job: || on_key("delete"),
            verify: |lab| {
                Box::pin(
                    async move { assert!(lab.read("Employees", "Sales", "1").await.is_none()) },
                )
            },
        },
        Scenario {
            name: "erasure of one who was archived twice and hired again",
            prepare: |lab| {
                Box::pin(async move {
                    for archive in ["former", BLOB_ARCHIVE] {
                        settled(&lab).await;
                        lab.work(&on_archive("archive", archive)).await.unwrap();
                    }
                    settled(&lab).await;
                })
            },
            job: || on_key("erase"),
            verify: |lab| {
                Box::pin(async move {
                    for table in ["Employees", "FormerEmployees", "ByEmail"] {
                        assert_eq!(lab.rows(table).await.len(), 0, "{table}");
                    }
                    assert_eq!(lab.document("1").await, None);
                })
            },
        },
        Scenario {
            name: "delete of those who satisfy a condition",
            prepare: two_and_another,
            job: || {
                job(
                    &json!({"op": "delete_where", "table": "employees", "when": "LastName == \"King\" and Timestamp < now + 1h"}),
                )
            },
            verify: |lab| Box::pin(async move { only_the_other_is_left(&lab).await }),
        },
        Scenario {
            name: "archive of those who satisfy a condition",
            prepare: two_and_another,
            job: || {
                job(
                    &json!({"op": "archive_where", "archive": "former", "range": {"pk": "Sales"}, "when": "LastName == \"King\""}),
                )
            },
            verify: |lab| {
                Box::pin(async move {
                    only_the_other_is_left(&lab).await;
                    assert_eq!(lab.rows("FormerEmployees").await.len(), 2);
                })
            },
        },
        Scenario {
            name: "archive",
            prepare: |lab| Box::pin(async move { settled(&lab).await }),
            job: || on_key("archive"),
            verify: archived,
        },
        Scenario {
            name: "archive over an earlier archiving",
            prepare: |lab| {
                Box::pin(async move {
                    lab.write(employee("1", "old@contoso.com", "Old")).await;
                    lab.work(&on_key("archive")).await.unwrap();
                    settled(&lab).await;
                })
            },
            job: || on_key("archive"),
            verify: archived,
        },
        Scenario {
            name: "archive to a blob",
            prepare: |lab| Box::pin(async move { settled(&lab).await }),
            job: || on_archive("archive", BLOB_ARCHIVE),
            verify: documented,
        },
        Scenario {
            name: "archive to a file over an earlier archiving",
            prepare: |lab| {
                Box::pin(async move {
                    lab.write(employee("1", "old@contoso.com", "Old")).await;
                    lab.work(&on_archive("archive", FILE_ARCHIVE))
                        .await
                        .unwrap();
                    settled(&lab).await;
                })
            },
            job: || on_archive("archive", FILE_ARCHIVE),
            verify: documented,
        },
        Scenario {
            name: "archive to a log",
            prepare: |lab| Box::pin(async move { settled(&lab).await }),
            job: || on_archive("archive", LOG_ARCHIVE),
            verify: logged,
        },
        Scenario {
            name: "archive to a log that has lines",
            prepare: |lab| {
                Box::pin(async move {
                    lab.write(employee("2", "old@contoso.com", "Old")).await;
                    lab.work(&job(
                        &json!({"op": "archive", "archive": LOG_ARCHIVE, "pk": "Sales", "rk": "2"}),
                    ))
                    .await
                    .unwrap();
                    settled(&lab).await;
                })
            },
            job: || on_archive("archive", LOG_ARCHIVE),
            verify: logged,
        },
        Scenario {
            name: "restore from a blob",
            prepare: |lab| {
                Box::pin(async move {
                    settled(&lab).await;
                    lab.work(&on_archive("archive", BLOB_ARCHIVE))
                        .await
                        .unwrap();
                })
            },
            job: || on_archive("restore", BLOB_ARCHIVE),
            verify: back_from_a_document,
        },
        Scenario {
            name: "restore from a file",
            prepare: |lab| {
                Box::pin(async move {
                    settled(&lab).await;
                    lab.work(&on_archive("archive", FILE_ARCHIVE))
                        .await
                        .unwrap();
                })
            },
            job: || on_archive("restore", FILE_ARCHIVE),
            verify: back_from_a_document,
        },
        Scenario {
            name: "move to another partition",
            prepare: |lab| Box::pin(async move { settled(&lab).await }),
            job: || move_to("Ops", "1"),
            verify: |lab| moved(lab, "Ops", "1"),
        },
        Scenario {
            name: "move to another row key, which takes the e-mail address along",
            prepare: |lab| Box::pin(async move { settled(&lab).await }),
            job: || move_to("Sales", "2"),
            verify: |lab| moved(lab, "Sales", "2"),
        },
        Scenario {
            name: "restore",
            prepare: |lab| {
                Box::pin(async move {
                    settled(&lab).await;
                    lab.work(&on_key("archive")).await.unwrap();
                })
            },
            job: || on_key("restore"),
            verify: |lab| {
                Box::pin(async move {
                    assert!(lab.read("FormerEmployees", "Sales", "1").await.is_none());
                    let row = lab
                        .read("Employees", "Sales", "1")
                        .await
                        .expect("the employee is back");
                    assert_eq!(row.entity.text("Email"), Some("Ada@Contoso.com"));
                    assert!(row.entity.get("ek_archived_at").is_none());
                })
            },
        },
    ]
}

/// A client creates, deletes and changes entities without sending jobs, and another writer deletes a copy.
fn unsent(lab: Lab) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        settled(&lab).await;
        for rk in ["3", "4", "5"] {
            lab.write(employee(rk, &format!("{rk}@contoso.com"), "Byron"))
                .await;
            lab.work(&sync("Sales", rk)).await.unwrap();
        }
        lab.write(employee("2", "new@contoso.com", "Menabrea"))
            .await;
        lab.remove("Sales", "3").await;
        lab.write(employee("4", "changed@contoso.com", "Byron"))
            .await;
        lab.delete_row("ByEmail", "email_Sales", "5@contoso.com")
            .await;
    })
}

fn caught_up(lab: Lab) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        for (rk, there) in [
            ("new@contoso.com", true),
            ("3@contoso.com", false),
            ("changed@contoso.com", true),
            ("5@contoso.com", true),
        ] {
            assert_eq!(
                lab.read("ByEmail", "email_Sales", rk).await.is_some(),
                there,
                "{rk}"
            );
        }
    })
}

/// Two employees who satisfy the conditions of the sweeps, and one who does not.
fn two_and_another(lab: Lab) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        settled(&lab).await;
        for (rk, name) in [("2", "King"), ("3", "Byron")] {
            lab.write(employee(rk, &format!("{rk}@contoso.com"), name))
                .await;
            lab.work(&sync("Sales", rk)).await.unwrap();
        }
    })
}

async fn only_the_other_is_left(lab: &Lab) {
    for (rk, there) in [("1", false), ("2", false), ("3", true)] {
        assert_eq!(
            lab.read("Employees", "Sales", rk).await.is_some(),
            there,
            "{rk}"
        );
    }
}

fn logged(lab: Lab) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        assert!(lab.read("Employees", "Sales", "1").await.is_none());
        let lines = lab.lines().await;
        assert_eq!(
            lines
                .iter()
                .filter(|line| line["Email"] == "Ada@Contoso.com")
                .count(),
            1,
            "{lines:?}"
        );
    })
}

fn documented(lab: Lab) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        assert!(lab.read("Employees", "Sales", "1").await.is_none());
        let document = lab.document("1").await.expect("the employee is archived");
        assert_eq!(document.text("Email"), Some("Ada@Contoso.com"));
        assert!(document.get("ek_archived_at").is_some());
    })
}

fn back_from_a_document(lab: Lab) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        assert_eq!(lab.document("1").await, None);
        let row = lab
            .read("Employees", "Sales", "1")
            .await
            .expect("the employee is back");
        assert_eq!(row.entity.text("Email"), Some("Ada@Contoso.com"));
        assert!(row.entity.get("ek_archived_at").is_none());
    })
}

fn moved(lab: Lab, pk: &'static str, rk: &'static str) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        assert!(lab.read("Employees", "Sales", "1").await.is_none());
        let row = lab
            .read("Employees", pk, rk)
            .await
            .expect("the employee is there");
        assert_eq!(
            row.entity.text("ek_source"),
            Some("[\"Employees\",\"Sales\",\"1\"]")
        );
        let row = lab
            .read("ByEmail", &format!("email_{pk}"), "ada@contoso.com")
            .await
            .expect("the address follows");
        assert_eq!(
            row.entity.text("ek_source"),
            Some(format!("[\"Employees\",\"{pk}\",\"{rk}\"]").as_str())
        );
    })
}

fn archived(lab: Lab) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        assert!(lab.read("Employees", "Sales", "1").await.is_none());
        let row = lab
            .read("FormerEmployees", "Sales", "1")
            .await
            .expect("the employee is archived");
        assert_eq!(row.entity.text("Email"), Some("Ada@Contoso.com"));
        assert!(row.entity.get("ek_archived_at").is_some());
    })
}

pub(crate) fn meddlers() -> Vec<(&'static str, Step)> {
    vec![
        ("an update and its sync", |lab| {
            Box::pin(async move {
                lab.client_writes("1", "meddled@contoso.com").await;
                drop(lab.work(&sync("Sales", "1")).await);
            })
        }),
        ("an update whose sync comes later", |lab| {
            Box::pin(async move {
                lab.client_writes("1", "meddled@contoso.com").await;
                lab.sync_later.lock().unwrap().push(sync("Sales", "1"));
            })
        }),
        ("a deletion and its sync", |lab| {
            Box::pin(async move {
                lab.remove("Sales", "1").await;
                drop(lab.work(&sync("Sales", "1")).await);
            })
        }),
        ("a deletion, a new employee and their syncs", |lab| {
            Box::pin(async move {
                lab.remove("Sales", "1").await;
                drop(lab.work(&sync("Sales", "1")).await);
                lab.client_writes("1", "anew@contoso.com").await;
                drop(lab.work(&sync("Sales", "1")).await);
            })
        }),
        (
            "another employee who wants the address, and their sync",
            |lab| {
                Box::pin(async move {
                    lab.write(employee("9", "ada@contoso.com", "Nine")).await;
                    drop(lab.work(&sync("Sales", "9")).await);
                    lab.sync_later.lock().unwrap().push(sync("Sales", "9"));
                })
            },
        ),
        ("others of the same name and their syncs", |lab| {
            Box::pin(async move {
                for (rk, name) in [("8", "King"), ("9", "Lovelace")] {
                    lab.write(employee(rk, &format!("{rk}@contoso.com"), name))
                        .await;
                    drop(lab.work(&sync("Sales", rk)).await);
                }
            })
        }),
        ("the same job, done by another worker", |lab| {
            Box::pin(async move { drop(lab.work(&sync("Sales", "1")).await) })
        }),
    ]
}
