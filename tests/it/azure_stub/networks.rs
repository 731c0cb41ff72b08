use super::*;

fn hasty(stub: &Stub) -> Account {
    let timeouts = Timeouts {
        connect: Duration::from_secs(5),
        request: Duration::from_millis(100),
    };
    evenkeel_azure::connect(&Ports::same(stub.port()).settings().with_timeouts(timeouts)).unwrap()
}

#[tokio::test]
async fn nobody_listening_means_nothing_was_sent() {
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let account = Ports::same(port).connect();
    assert_eq!(
        account
            .tables
            .apply(&table(), &insert())
            .await
            .unwrap_err()
            .class,
        ErrorClass::Refused
    );
    assert_eq!(
        account.queues.peek(&queue(), 1).await.unwrap_err().class,
        ErrorClass::Refused
    );
    let error = account
        .blobs
        .properties(&blob().0, &blob().1)
        .await
        .unwrap_err();
    assert_eq!(error.class, ErrorClass::Refused);
    assert!(
        !everything(&error).contains("http"),
        "{}",
        everything(&error)
    );
}

#[tokio::test]
async fn an_unknown_host_means_nothing_was_sent() {
    let endpoint = |service: &str| Some(format!("http://{service}.invalid/devstoreaccount1"));
    let overrides = EndpointOverrides {
        table: endpoint("table"),
        queue: endpoint("queue"),
        blob: endpoint("blob"),
        suffix: None,
    };
    let account = AzureAccount::with_key(
        AccountName::main(),
        "devstoreaccount1",
        &SecretString::from("a2V5"),
        &overrides,
    )
    .unwrap();
    let account = evenkeel_azure::connect(&account).unwrap();
    assert_eq!(
        account
            .tables
            .apply(&table(), &insert())
            .await
            .unwrap_err()
            .class,
        ErrorClass::Refused
    );
}

#[tokio::test]
async fn a_broken_connection_makes_writes_ambiguous() {
    let stub = Stub::start(|_| Reply::Reset);
    assert_eq!(write(&stub, insert()).await.class, ErrorClass::Ambiguous);
    assert_eq!(read(&stub).await.class, TRANSIENT);
    assert_eq!(
        connect(&stub)
            .queues
            .get(&queue(), 32, MINUTE)
            .await
            .unwrap_err()
            .class,
        ErrorClass::Ambiguous
    );
    assert_eq!(stub.requests().len(), 3, "a request was sent twice");
}

#[tokio::test]
async fn a_missing_answer_ends_with_the_timeout() {
    let stub = Stub::start(|_| Reply::Silence);
    let account = hasty(&stub);
    let error = account.tables.apply(&table(), &insert()).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Ambiguous);
    assert!(error.message.contains("before the timeout"), "{error}");
    assert_eq!(
        account
            .queues
            .approximate_count(&queue())
            .await
            .unwrap_err()
            .class,
        TRANSIENT
    );
}

#[tokio::test]
async fn a_lost_answer_to_an_insert_is_told_by_what_is_there() {
    let azurite = azurite::shared();
    let table = TableName::new(format!("Stub{}", uuid::Uuid::new_v4().simple())).unwrap();
    assert!(azurite.connect().tables.create_table(&table).await.unwrap());
    let stub = Stub::start(|request| {
        if request.number == 0 {
            Reply::ForwardThenReset
        } else {
            Reply::Forward
        }
    })
    .forward_to(azurite.table);
    let tables = connect(&stub).tables;
    assert_eq!(
        tables.apply(&table, &insert()).await.unwrap_err().class,
        ErrorClass::Ambiguous
    );
    assert_eq!(
        tables.apply(&table, &insert()).await.unwrap_err().class,
        ErrorClass::Conflict
    );
    assert_eq!(
        tables
            .get(&table, &EntityKey::new("p", "r").unwrap(), None)
            .await
            .unwrap()
            .unwrap()
            .entity,
        entity("p", "r")
    );
}

#[tokio::test]
async fn a_restarted_service_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut azurite = azurite::Azurite::persistent(folder.path());
    let account = azurite.ports.connect();
    let table = TableName::new("Outage").unwrap();
    assert!(account.tables.create_table(&table).await.unwrap());
    account.tables.apply(&table, &insert()).await.unwrap();
    azurite.stop();
    // An existing connection may break while a request is in flight, so that the write is ambiguous. If a new connection cannot be made, nothing was
    // sent, and the error is `Refused`.
    assert_eq!(
        azurite
            .ports
            .connect()
            .tables
            .apply(&table, &insert())
            .await
            .unwrap_err()
            .class,
        ErrorClass::Refused
    );
    assert!(
        account
            .tables
            .apply(&table, &insert())
            .await
            .unwrap_err()
            .class
            .is_transient()
    );
    azurite.restart();
    assert_eq!(
        account
            .tables
            .apply(&table, &insert())
            .await
            .unwrap_err()
            .class,
        ErrorClass::Conflict
    );
}

#[tokio::test]
async fn an_account_of_the_public_cloud_needs_no_more_than_a_name_and_a_key() {
    let account = AzureAccount::with_key(
        AccountName::main(),
        "contoso",
        &SecretString::from("a2V5"),
        &EndpointOverrides::default(),
    )
    .unwrap();
    assert!(
        evenkeel_azure::connect(&account).is_ok(),
        "the certificates of this machine are found"
    );
}

/// Duplicates of the sockets of this process that are connected to a loopback port.
#[cfg(target_os = "linux")]
fn sockets_to(port: u16) -> Vec<std::net::TcpStream> {
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let open = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    // `pidfd_getfd` fails for a descriptor that was closed after the listing.
    let copies =
        open.filter_map(|number: i32| pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).ok());
    copies
        .map(std::net::TcpStream::from)
        .filter(|stream| stream.peer_addr().is_ok_and(|peer| peer.port() == port))
        .collect()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn connections_to_tables_and_to_queues_have_the_nagle_algorithm_switched_off() {
    // The Nagle algorithm is on by default, as a plain socket shows.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let plain = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let found = sockets_to(listener.local_addr().unwrap().port());
    assert_eq!(
        (
            found.len(),
            found[0].nodelay().unwrap(),
            plain.nodelay().unwrap()
        ),
        (1, false, false)
    );

    let answer = || Stub::start(|_| Reply::status(404).into());
    let (tables, queues) = (answer(), answer());
    let account = Ports {
        table: tables.port(),
        queue: queues.port(),
        ..Ports::same(queues.port())
    }
    .connect();
    account
        .tables
        .get(&table(), &EntityKey::new("p", "r").unwrap(), None)
        .await
        .ok();
    account.queues.peek(&queue(), 1).await.ok();
    for stub in [&tables, &queues] {
        assert_eq!(stub.requests().len(), 1);
        let found = sockets_to(stub.port());
        assert!(!found.is_empty(), "no socket to {}", stub.port());
        for socket in found {
            assert!(socket.nodelay().unwrap());
        }
    }
}
